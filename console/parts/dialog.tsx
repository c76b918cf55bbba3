import { Dialog as Modal } from "@base-ui/react/dialog";
import { type ReactNode, useRef, useState } from "react";
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

/** A modal dialog: it holds the focus, Escape closes it, and a press beside it keeps what was typed. Render it while it is open. */
export function Dialog({ title, onClose, children, isAlert = false }: DialogProps) {
  const popup = useRef<HTMLDivElement>(null);
  const first = () => popup.current?.querySelector<HTMLElement>(FIRST) ?? popup.current;
  return (
    <Modal.Root open onOpenChange={onClose} disablePointerDismissal>
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
            <Part>
              {children}
              <span ref={focusFirst} hidden />
            </Part>
          </Entries>
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
