import { useState } from "react";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProps } from "./form.tsx";
import { Opener } from "./more.tsx";

interface ActProps extends Omit<FormProps, "onSubmit" | "onDone" | "onKept" | "onCancel" | "submit"> {
  /** Of the button and of the dialog. */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string;
  /** Of the form's button, where it differs. */
  submit?: string;
  kind?: "primary" | "danger";
  /** Its dialog closes once it is done; with `false` it stays open. */
  act: FormProps["onSubmit"];
  /** The effect of the act, in words. */
  note?: string;
  /** Empties the page's state of the form. */
  onOpen?: () => void;
}

/** A button that opens a dialog with a form, which acts. */
export function Act({ title, short, submit = title, kind, act, note, onOpen, ...form }: ActProps) {
  const [isOpen, setOpen] = useState(false);
  const open = () => {
    onOpen?.();
    setOpen(true);
  };
  const close = () => setOpen(false);
  const isAlert = kind === "danger";
  return (
    <>
      <Opener {...{ title, short, kind }} onOpen={open} />
      {isOpen && (
        <Dialog title={title} onClose={close} isAlert={isAlert}>
          {note && <p>{note}</p>}
          <Form
            {...{ submit, ...(submit === "Save" && { done: "Saved" }), ...form }}
            onSubmit={act}
            onDone={close}
            onKept={close}
            onCancel={isAlert ? close : undefined}
          />
        </Dialog>
      )}
    </>
  );
}
