import { Dialog as Modal } from "@base-ui/react/dialog";
import { createContext, type ReactNode, type RefObject, useRef, useState } from "react";
import { Entries } from "./more.tsx";
import { Copy, Part } from "./page.tsx";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** It destroys something. */
  isAlert?: boolean;
}

/** The first field; without any the first button, which destroys nothing. */
const FIRST = "form :is(input, select, textarea):not([aria-hidden]), .actions button";

/** Its part of a dialog may have been read only after the dialog took the focus. */
const focusFirst = (mark: HTMLElement | null) => {
  const focused = document.activeElement;
  if (mark && focused?.matches(".dialog")) focused.querySelector<HTMLElement>(FIRST)?.focus();
};

/** Whether the dialog around it has typed values that are not saved yet. */
export const UnsavedIn = createContext<RefObject<(() => boolean) | undefined> | null>(null);

interface AskToLeaveProps {
  onStay: () => void;
  onLeave: () => void;
}

/** Asks whether unsaved changes may be lost. */
export const AskToLeave = ({ onStay, onLeave }: AskToLeaveProps) => (
  <Dialog title="Unsaved changes" onClose={onStay}>
    <p>What you changed here is not saved.</p>
    <div className="actions">
      <button type="button" className="primary" onClick={onStay}>
        Stay here
      </button>
      <button type="button" className="danger" onClick={onLeave}>
        Leave without saving
      </button>
    </div>
  </Dialog>
);

/**
 * A modal dialog: it holds the focus, Escape closes it but asks where a form in it was changed, and a press beside it
 * keeps what was typed. Render it while it is open.
 */
export function Dialog({ title, onClose, children, isAlert = false }: DialogProps) {
  const popup = useRef<HTMLDivElement>(null);
  const unsaved = useRef<() => boolean>(undefined);
  const [isAsking, setAsking] = useState(false);
  const first = () => popup.current?.querySelector<HTMLElement>(FIRST) ?? popup.current;
  return (
    <Modal.Root
      open
      onOpenChange={(_, { reason }) => (reason === "escape-key" && unsaved.current?.() ? setAsking(true) : onClose())}
      disablePointerDismissal
    >
      <Modal.Portal>
        <Modal.Backdrop className="backdrop" />
        <Modal.Popup ref={popup} className="dialog" role={isAlert ? "alertdialog" : "dialog"} initialFocus={first}>
          <div className="head">
            <Modal.Title>{title}</Modal.Title>
            <Modal.Close className="icon" aria-label="Close">
              ✕
            </Modal.Close>
          </div>
          <Entries value={undefined}>
            <UnsavedIn value={unsaved}>
              <Part>
                {children}
                <span ref={focusFirst} hidden />
              </Part>
            </UnsavedIn>
          </Entries>
          {isAsking && <AskToLeave onStay={() => setAsking(false)} onLeave={onClose} />}
        </Modal.Popup>
      </Modal.Portal>
    </Modal.Root>
  );
}

/** A secret that is shown this once; `show` opens its dialog. */
export function useSecret(title: string, note: string) {
  const [secret, show] = useState<string>();
  const dialog = secret !== undefined && (
    <Dialog title={title} onClose={() => show(undefined)}>
      <p>{note}</p>
      <Copy text={secret} name="the secret" />
    </Dialog>
  );
  return { show, dialog };
}
