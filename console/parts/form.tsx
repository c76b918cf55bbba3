import { type FormEvent, type InputHTMLAttributes, type ReactNode, useId, useState } from "react";
import { refusalOf } from "../api.ts";
import { Problem } from "./page.tsx";

interface FormProps {
  /** The values by the fields' names. */
  onSubmit: (values: Record<string, string>) => Promise<unknown>;
  submit: string;
  /** Names of the fields, which show their own refusals. */
  fields: readonly string[];
  children: (problemOf: (name: string) => string | undefined) => ReactNode;
  isDisabled?: boolean;
}

/** A form whose refusals stand beside their fields. */
export function Form({ onSubmit, submit, fields, children, isDisabled = false }: FormProps) {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const problemOf = (name: string) => {
    const { param, message } = error ? refusalOf(error) : {};
    return param === name ? message : undefined;
  };
  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>;
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit(values);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={send} noValidate={false}>
      {children(problemOf)}
      <Problem error={error} fields={fields} />
      <div className="actions">
        <button type="submit" className="primary" disabled={isBusy || isDisabled}>
          {submit}
        </button>
      </div>
    </form>
  );
}

interface FieldProps extends InputHTMLAttributes<HTMLInputElement> {
  label: string;
  name: string;
  hint?: string;
  problem?: string | undefined;
  /** In place of an input: a select or a text area with this id. */
  control?: (id: string, describedBy: string | undefined) => ReactNode;
}

/** A label, its input, a hint and the refusal. */
export function Field({ label, hint, problem, control, ...input }: FieldProps) {
  const id = useId();
  const describedBy = hint || problem ? `${id}-text` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {control ? (
        control(id, describedBy)
      ) : (
        <input id={id} aria-describedby={describedBy} aria-invalid={problem ? true : undefined} {...input} />
      )}
      {describedBy && (
        <p id={describedBy} className={problem ? "wrong" : "muted"}>
          {problem ?? hint}
        </p>
      )}
    </div>
  );
}
