import { useState } from "react";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProps } from "./form.tsx";

interface ActProps extends Omit<FormProps, "onSubmit" | "onDone" | "onKept" | "submit"> {
  /** Of the button and of the dialog. */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string;
  /** Of the form's button, where it differs. */
  submit?: string;
  kind?: "primary" | "danger";
  /** Its dialog closes once it is done; with `false` it stays open, and so it does to show a text. */
  act: FormProps["onSubmit"];
  /** The effect of the act, in words. */
  note?: string;
  /** Empties the page's state of the form. */
  onOpen?: () => void;
}

/** A button that opens a dialog with a form, which acts. */
export function Act({ title, short = title, submit = title, kind, act, note, onOpen, ...form }: ActProps) {
  const [isOpen, setOpen] = useState(false);
  const open = () => {
    onOpen?.();
    setOpen(true);
  };
  return (
    <>
      <button type="button" className={kind} aria-label={title} onClick={open}>
        {short}
      </button>
      {isOpen && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          {note && <p>{note}</p>}
          <Form submit={submit} onSubmit={act} onDone={() => setOpen(false)} onKept={() => setOpen(false)} {...form} />
        </Dialog>
      )}
    </>
  );
}
