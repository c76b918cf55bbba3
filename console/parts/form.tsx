import { type FormEvent, type InputHTMLAttributes, type ReactNode, useId, useState } from "react";
import { problemOf } from "../api.ts";
import { Problem } from "./page.tsx";

export type Values = Record<string, string>;
type ProblemOf = (name: string) => string | undefined;

export interface FormProps {
  /** The values by the fields' names. */
  onSubmit: (values: Values) => Promise<unknown>;
  submit: string;
  inputs?: readonly Input[] | undefined;
  /** First values of the inputs. */
  values?: Readonly<Record<string, unknown>> | undefined;
  /** Names of fields among the children, which show their own refusals. */
  fields?: readonly string[] | undefined;
  children?: ReactNode | ((problemOf: ProblemOf) => ReactNode);
  isDisabled?: boolean | undefined;
}

/** A form whose refusals stand beside their fields. */
export function Form({ onSubmit, submit, inputs = [], values, fields = [], children, isDisabled = false }: FormProps) {
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const problem = (name: string) => problemOf(error, name);
  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget)) as Values;
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit(given);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={send}>
      <Inputs inputs={inputs} problemOf={problem} values={values} />
      {typeof children === "function" ? children(problem) : children}
      <Problem error={error} fields={[...inputs.map(([name]) => name), ...fields]} />
      <div className="actions">
        <button type="submit" className="primary" disabled={isBusy || isDisabled}>
          {submit}
        </button>
      </div>
    </form>
  );
}

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
  problemOf?: ProblemOf;
  /** Before the names. */
  at?: string;
  /** Their first values, by the names without the prefix. */
  values?: Readonly<Record<string, unknown>> | undefined;
}

/** Labelled inputs, one below the other. */
export const Inputs = ({ inputs, problemOf, at = "", values = {} }: InputsProps) =>
  inputs.map(([plain, label, { choices, rows, ...more } = {}]) => {
    const name = `${at}${plain}`;
    const initial = String(values[plain] ?? "");
    const common = { ...more, name, label, problem: problemOf?.(name) };
    if (!choices && !rows) return <Field key={plain} defaultValue={initial} {...common} />;
    const control = (id: string, describedBy: string | undefined) => {
      const { required, disabled } = more;
      const own = { id, name, "aria-describedby": describedBy, required, disabled };
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

interface TicksProps {
  options: readonly { id: string; name: ReactNode; isDisabled?: boolean }[];
  chosen: readonly string[];
  /** @param ids all that are chosen now @param id the one whose choice has changed */
  onChange: (ids: string[], id: string) => void;
}

/** Checkboxes, one below the other. */
export const Ticks = ({ options, chosen, onChange }: TicksProps) => (
  <ul className="plain">
    {options.map(({ id, name, isDisabled = false }) => (
      <li key={id}>
        <label className="tick">
          <input
            type="checkbox"
            checked={chosen.includes(id)}
            disabled={isDisabled}
            onChange={({ target }) => {
              const others = chosen.filter((other) => other !== id);
              onChange(target.checked ? [...others, id] : others, id);
            }}
          />
          <span>{name}</span>
        </label>
      </li>
    ))}
  </ul>
);
