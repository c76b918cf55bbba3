import { useQueryClient } from "@tanstack/react-query";
import { type InputHTMLAttributes, type ReactNode, useState } from "react";
import { useWorkspace } from "../session.tsx";
import { Dialog } from "./dialog.tsx";
import { Field, Form } from "./form.tsx";

export type Values = Record<string, string>;

/** An input by its name, its label, and what else it has. */
type Input = readonly [name: string, label: string, more?: InputMore];
interface InputMore extends Omit<InputHTMLAttributes<HTMLInputElement>, "name"> {
  hint?: string;
  /** Texts by values: a select. */
  choices?: Readonly<Record<string, string>>;
  /** Lines of a text area. */
  rows?: number;
}

interface InputsProps {
  inputs: readonly Input[];
  problemOf?: (name: string) => string | undefined;
  /** Before the names. */
  at?: string;
  /** What they hold at first, by the names without that. */
  values?: Readonly<Record<string, unknown>>;
}

/** Labelled inputs, one below the other. */
export const Inputs = ({ inputs, problemOf, at = "", values = {} }: InputsProps) =>
  inputs.map(([plain, label, { choices, rows, ...more } = {}]) => {
    const name = `${at}${plain}`;
    const initial = String(values[plain] ?? "");
    const common = { ...more, name, label, problem: problemOf?.(name) };
    if (!choices && !rows) return <Field key={plain} defaultValue={initial} {...common} />;
    const control = (id: string, describedBy: string | undefined) => {
      const own = { id, name, "aria-describedby": describedBy, required: more.required };
      if (!choices) return <textarea {...own} rows={rows} defaultValue={initial} />;
      return (
        <select {...own} defaultValue={initial || undefined}>
          {Object.entries(choices).map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      );
    };
    return <Field key={plain} {...common} control={control} />;
  });

interface ActProps {
  /** Of the button and of the dialog. */
  title: string;
  /** The button's text, where its row says the rest of the title. */
  short?: string;
  /** Of the form's button, where it differs. */
  submit?: string;
  kind?: "primary" | "danger";
  inputs?: readonly Input[];
  values?: InputsProps["values"];
  /** Names of fields among the children, which show their own refusals. */
  fields?: readonly string[];
  isDisabled?: boolean;
  /** Its dialog closes once it is done; with `false` it stays open. */
  act: (values: Values) => Promise<unknown>;
  /** What it means. */
  note?: string;
  /** Further fields. They are rendered while the dialog is open. */
  children?: ReactNode | ((problemOf: (name: string) => string | undefined) => ReactNode);
}

/** A button that opens a dialog with a form, which acts. */
export function Act({
  title,
  short = title,
  submit = title,
  kind,
  inputs = [],
  values,
  act,
  note,
  children,
  ...props
}: ActProps) {
  const [isOpen, setOpen] = useState(false);
  const fields = [...inputs.map(([name]) => name), ...(props.fields ?? [])];
  const send = async (given: Values) => {
    if ((await act(given)) !== false) setOpen(false);
  };
  return (
    <>
      <button type="button" className={kind} aria-label={title} onClick={() => setOpen(true)}>
        {short}
      </button>
      {isOpen && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          <Form fields={fields} submit={submit} isDisabled={props.isDisabled ?? false} onSubmit={send}>
            {(problemOf) => (
              <>
                {note && <p>{note}</p>}
                <Inputs inputs={inputs} problemOf={problemOf} {...(values && { values })} />
                {typeof children === "function" ? children(problemOf) : children}
              </>
            )}
          </Form>
        </Dialog>
      )}
    </>
  );
}

/** Waits for a change, then has what the pages show of the area read again. */
export function useDone(area: string) {
  const { base } = useWorkspace();
  const queries = useQueryClient();
  return async <T,>(call: Promise<T>): Promise<T> => {
    const result = await call;
    await queries.invalidateQueries({ queryKey: [base, area] });
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
