import { type ReactNode, useState } from "react";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProps } from "./form.tsx";
import { Opener } from "./more.tsx";

interface ActProps extends Omit<FormProps, "onSubmit" | "onDone" | "onKept" | "onCancel" | "submit"> {
  /** Of the button and of the dialog. */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string | undefined;
  /** Of the form's button, where it differs. */
  submit?: string;
  kind?: "primary" | "danger" | undefined;
  /** Its dialog closes once it is done; with `false` it stays open. */
  act: FormProps["onSubmit"];
  /** The effect of the act, in words. */
  note?: string;
  /** Empties the page's state of the form. */
  onOpen?: (() => void) | undefined;
  /** Its dialog is open as the page opens. */
  isOpenAtFirst?: boolean | undefined;
}

interface OpensProps extends Pick<ActProps, "short" | "kind" | "onOpen" | "isOpenAtFirst"> {
  /** Of the button. */
  title: string;
  /** Of the dialog, where it differs. */
  heading?: string;
  children: (close: () => void) => ReactNode;
}

/** A button that opens a dialog. */
export function Opens({ title, heading = title, short, kind, onOpen, isOpenAtFirst = false, children }: OpensProps) {
  const [isOpen, setOpen] = useState(isOpenAtFirst);
  const open = () => {
    onOpen?.();
    setOpen(true);
  };
  const close = () => setOpen(false);
  return (
    <>
      <Opener {...{ title, short, kind }} onOpen={open} />
      {isOpen && (
        <Dialog title={heading} onClose={close} isAlert={kind === "danger"}>
          {children(close)}
        </Dialog>
      )}
    </>
  );
}

/** A button that opens a dialog with a form, which acts. */
export const Act = ({ title, short, submit = title, kind, act, note, onOpen, isOpenAtFirst, ...form }: ActProps) => (
  <Opens {...{ title, short, kind, onOpen, isOpenAtFirst }}>
    {(close) => (
      <>
        {note && <p>{note}</p>}
        <Form
          {...{ submit, ...form }}
          onSubmit={act}
          onDone={close}
          onKept={close}
          onCancel={close}
          isDanger={kind === "danger"}
        />
      </>
    )}
  </Opens>
);
