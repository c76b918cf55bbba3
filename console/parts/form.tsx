import { useMutation } from "@tanstack/react-query";
import { type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, useId } from "react";
import { problemOf } from "../api.ts";
import { Problem } from "./page.tsx";

export type Values = Record<string, string>;
type ProblemOf = (name: string) => string | undefined;

export interface FormProps {
  /** The values by the fields' names. */
  onSubmit: (values: Values) => Promise<unknown>;
  /** Not called where `onSubmit` has answered `false`. */
  onDone?: () => void;
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
export function Form({ onSubmit, onDone, submit, inputs = [], values, fields = [], children, isDisabled }: FormProps) {
  const onSuccess = (result: unknown) => result !== false && onDone?.();
  const { mutate, error, isPending } = useMutation({ mutationFn: onSubmit, onSuccess });
  const problem = (name: string) => problemOf(error, name);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        mutate(Object.fromEntries(new FormData(event.currentTarget)) as Values);
      }}
    >
      <Inputs inputs={inputs} problemOf={problem} values={values} />
      {typeof children === "function" ? children(problem) : children}
      <Problem error={error} fields={[...inputs.map(([name]) => name), ...fields]} />
      <div className="actions">
        <button type="submit" className="primary" disabled={isPending || isDisabled}>
          {submit}
        </button>
      </div>
    </form>
  );
}

/** An input by its name, its label, and what else it has. */
type Input = readonly [name: string, label: string, more?: Omit<FieldProps, "name" | "label">];

interface InputsProps {
  inputs: readonly Input[];
  problemOf?: ProblemOf;
  /** Before the names. */
  at?: string;
  /** Their first values, by the names without the prefix. */
  values?: Readonly<Record<string, unknown>> | undefined;
}

export const Inputs = ({ inputs, problemOf, at = "", values = {} }: InputsProps) =>
  inputs.map(([plain, label, more]) => {
    const name = `${at}${plain}`;
    const initial = String(values[plain] ?? "") || undefined;
    return <Field key={plain} name={name} label={label} defaultValue={initial} problem={problemOf?.(name)} {...more} />;
  });

interface FieldProps extends Omit<InputHTMLAttributes<HTMLInputElement>, "onChange"> {
  label: string;
  name: string;
  hint?: string | undefined;
  problem?: string | undefined;
  onChange?: (value: string) => void;
  /** Texts by values: a select. */
  choices?: Readonly<Record<string, string>>;
  /** Lines of a text area. */
  rows?: number;
  /** Texts that the input offers. */
  suggestions?: readonly string[];
  /** In place of an input: an element with this id. */
  control?: (id: string, describedBy: string | undefined) => ReactNode;
}

/** A label, its input, a hint and the refusal. */
export function Field({ label, hint, problem, control, choices, rows, suggestions, onChange, ...more }: FieldProps) {
  const id = useId();
  const describedBy = hint || problem ? `${id}-text` : undefined;
  const own = {
    ...{ id, "aria-describedby": describedBy, "aria-invalid": problem ? true : undefined, ...more },
    onChange: onChange && (({ target }: { target: { value: string } }) => onChange(target.value)),
  } as InputHTMLAttributes<never>;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {control ? (
        control(id, describedBy)
      ) : choices ? (
        <Select {...own} onChange={onChange} choices={choices} />
      ) : rows ? (
        <textarea rows={rows} {...own} />
      ) : (
        <input {...own} list={suggestions && `${id}-list`} />
      )}
      {suggestions && (
        <datalist id={`${id}-list`}>
          {suggestions.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
      {describedBy && (
        <p id={describedBy} className={problem ? "wrong" : "muted"}>
          {problem ?? hint}
        </p>
      )}
    </div>
  );
}

/** Choices that are their own texts. */
export const textsOf = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, name]));

interface SelectProps extends Omit<SelectHTMLAttributes<HTMLSelectElement>, "onChange"> {
  /** Texts by values. */
  choices: Readonly<Record<string, string>>;
  onChange?: ((value: string) => void) | undefined;
}

export const Select = ({ choices, onChange, ...select }: SelectProps) => (
  <select {...select} onChange={onChange && (({ target }) => onChange(target.value))}>
    {Object.entries(choices).map(([value, text]) => (
      <option key={value} value={value}>
        {text}
      </option>
    ))}
  </select>
);

export interface TicksProps {
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
