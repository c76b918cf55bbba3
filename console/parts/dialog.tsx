import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Copy, Part } from "./page.tsx";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
}

/** A modal dialog of the browser: it holds the focus, and Escape closes it. Render it while it is open. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("form :is(input, select, textarea)")?.focus();
    return () => dialog?.close();
  }, []);
  return (
    // React hands the event of a dialog inside to this one, too.
    <dialog
      ref={ref}
      aria-labelledby={id}
      onClose={({ target, currentTarget }) => target === currentTarget && onClose()}
    >
      <div className="head">
        <h2 id={id}>{title}</h2>
        <button type="button" className="plain" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </div>
      <Part>{children}</Part>
    </dialog>
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
