import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useWorkspace } from "../session.tsx";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProps, type Values } from "./form.tsx";

interface ActProps extends Pick<FormProps, "inputs" | "values" | "fields" | "isDisabled" | "children"> {
  /** Of the button and of the dialog. */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string;
  /** Of the form's button, where it differs. */
  submit?: string;
  kind?: "primary" | "danger";
  /** Its dialog closes once it is done; with `false` it stays open. */
  act: (values: Values) => Promise<unknown>;
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
  const send = async (given: Values) => {
    if ((await act(given)) !== false) setOpen(false);
  };
  return (
    <>
      <button type="button" className={kind} aria-label={title} onClick={open}>
        {short}
      </button>
      {isOpen && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          {note && <p>{note}</p>}
          <Form submit={submit} onSubmit={send} {...form} />
        </Dialog>
      )}
    </>
  );
}

/** Waits for a change, then has what the pages show of the area, or of all, read again. */
export function useDone(area?: string) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  return async <T,>(call: Promise<T>): Promise<T> => {
    const result = await call;
    await queries.invalidateQueries({ queryKey: area === undefined ? [] : [base, area] });
    return result;
  };
}

/** Facts with their names; those that are missing (`null`, `undefined`, `false`) are left out. */
export const Facts = ({ of }: { of: readonly (readonly [name: string, fact: ReactNode])[] }) => (
  <dl className="facts">
    {of
      .filter(([, fact]) => fact !== null && fact !== undefined && fact !== false)
      .map(([name, fact]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{fact}</dd>
        </div>
      ))}
  </dl>
);

/** A text with a button that copies it. @param name what it is, for screen readers */
export function Copy({ text, name }: { text: string; name: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <span className="copy">
      <code>{text}</code>
      {/* Browsers have it for https and localhost alone. */}
      {navigator.clipboard && (
        <button type="button" aria-label={`Copy ${name}`} onClick={copy}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      )}
    </span>
  );
}
