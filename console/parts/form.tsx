import { useMutation } from "@tanstack/react-query";
import {
  createContext,
  type InputHTMLAttributes,
  type ReactNode,
  use,
  useEffect,
  useId,
  useRef,
  useState,
} from "react";
import { type CallContext, HttpRefusal, Kept, problemOf, refusalOf } from "../api.ts";
import { readSchemas } from "../check.ts";
import { Combobox, type ComboboxProps } from "./combobox.tsx";
import { useEdit } from "./edit.tsx";
import { Problem } from "./page.tsx";
import type { Edited, Version } from "./save-from.ts";
import { toast } from "./toast.tsx";
import { useUnsaved } from "./unsaved.tsx";

export type Values = Record<string, string>;

/** Saves the fields of `body` at the version that the form began with. */
export type Save = <Answer>(
  body: object,
  write: (options: { context: CallContext }) => Promise<Answer>,
) => Promise<Answer>;

export interface FormProps {
  /**
   * @param values by the fields' names @param context with a key that stays while the inputs do
   * @param save a form with `edits` saves by it
   * @returns a text is shown as the effect, in place of that of the verb
   */
  onSubmit: (values: Values, context: CallContext, save: Save) => Promise<unknown>;
  /** The record that the form changes, which others may change, too. */
  edits?: Edited | undefined;
  /** Whether values that the page keeps for the form are changed; it asks before the page is left, as one with `edits` does. */
  isChanged?: boolean | undefined;
  /** The change of another one was kept: closes the form, or begins it again. */
  onKept?: (() => void) | undefined;
  /** Not called where `onSubmit` has answered `false`. */
  onDone?: () => void;
  onCancel?: (() => void) | undefined;
  /** In place of "Cancel". */
  cancel?: string | undefined;
  /** It destroys something: the focus begins on its Cancel. */
  isDanger?: boolean;
  submit: string;
  /** Takes the effect back, by a button beside it. */
  undo?: (() => unknown) | undefined;
  inputs?: readonly Input[] | undefined;
  /** First values of the inputs. */
  values?: Readonly<Record<string, unknown>> | undefined;
  children?: ReactNode;
  isDisabled?: boolean | undefined;
}

/** The refusal of the form around a field. */
export const RefusedBy = createContext<unknown>(null);

/** The effect of a button with such a verb, in words. */
const DONE: Readonly<Record<string, string>> = {
  ...{ Save: "Saved", Create: "Created", Add: "Added", Invite: "Invited", Change: "Changed", Rename: "Renamed" },
  ...{ Delete: "Deleted", Remove: "Removed", Revoke: "Revoked", Cancel: "Cancelled", Disconnect: "Disconnected" },
  ...{ Suspend: "Suspended", Stop: "Stopped", Reschedule: "Rescheduled", Unsubscribe: "Unsubscribed" },
  Suppress: "Suppressed",
};

/** @throws {HttpRefusal} with the problems that the browser finds in the fields */
export function assertValid(form: HTMLFormElement | null) {
  const inputs = [...(form?.elements ?? [])] as HTMLInputElement[];
  const wrong = inputs.filter(({ name, validity }) => name && !validity.valid);
  if (wrong.length === 0) return;
  const problems = Object.fromEntries(wrong.map(({ name, validationMessage }) => [name, validationMessage]));
  throw new HttpRefusal({ message: "Some fields need another value.", status: 400, param: wrong[0]?.name, problems });
}

/** Puts the focus into the first field of a form that was refused. */
export function focusRefused(form: HTMLFormElement | null, error: unknown) {
  const inputs = [...(form?.elements ?? [])] as HTMLInputElement[];
  const refused = inputs.find(({ name }) => name && problemOf(error, name));
  refused?.closest("details")?.setAttribute("open", "");
  refused?.focus();
}

const textOf = (form: HTMLFormElement) => JSON.stringify([...new FormData(form)]);

/** A form whose refusals stand beside their fields. */
export function Form(props: FormProps) {
  const { onSubmit, onDone, onKept, onCancel, undo, isDanger = false } = props;
  const { edits, submit, inputs = [], values, children, isDisabled } = props;
  const form = useRef<HTMLFormElement>(null);
  const { saveFrom, dialog } = useEdit(edits);
  const began = useRef(edits?.record);
  const save: Save = async (body, write) => {
    const answer = await saveFrom(began.current ?? { updated_at: "" }, body, write);
    // The form may stay, and be saved again.
    const { updated_at } = (answer as { data?: Partial<Version> }).data ?? {};
    if (updated_at !== undefined) began.current = { ...began.current, ...body, updated_at };
    return answer;
  };
  const idempotencyKey = useRef(crypto.randomUUID());
  const renewKey = () => {
    idempotencyKey.current = crypto.randomUUID();
  };
  const sent = useRef("");
  /** The fields of the save that is under way, and those that were saved before. */
  const saving = useRef("");
  const saved = useRef("");
  useEffect(() => {
    if (form.current) saved.current = textOf(form.current);
    void readSchemas();
  }, []);
  const { mutate, error, isPending } = useMutation({
    mutationFn: async (given: Values) => {
      assertValid(form.current);
      if (form.current) saving.current = textOf(form.current);
      // A choice among many is no change that the form hears of.
      const text = JSON.stringify(given);
      if (sent.current !== text) renewKey();
      sent.current = text;
      return await onSubmit(given, { idempotencyKey: idempotencyKey.current }, save);
    },
    onSuccess: (result) => {
      if (result === false) return;
      saved.current = saving.current;
      const [, verb = "", noun = ""] = /^(\w+) ?(?:(?:the|this|an?) )?(.*)$/.exec(submit) ?? [];
      const done = noun ? `${noun} ${DONE[verb]?.toLowerCase()}` : DONE[verb];
      const effect = typeof result === "string" ? result : DONE[verb] && done;
      if (effect) toast(effect, undo);
      onDone?.();
    },
    onError: (thrown) => {
      focusRefused(form.current, thrown);
      if (thrown instanceof Kept) return onKept?.();
      const { status = 503, code } = refusalOf(thrown);
      // The service would answer a refusal again, also once its reason is gone. One for too many requests says nothing
      // about an earlier press, whose answer may have been lost.
      if (status < 500 && status !== 429 && code !== "request_in_flight") renewKey();
    },
  });
  const unsaved = useUnsaved({
    // Once it is sent, the effect may lead to another page.
    isChanged: () =>
      form.current !== null &&
      ((!isPending && props.isChanged) || textOf(form.current) !== (isPending ? saving : saved).current),
    isOfDialog: !edits && props.isChanged === undefined,
  });
  const cancel = onCancel && (
    <button type="button" onClick={onCancel}>
      {props.cancel || (/^Cancel /.test(submit) ? submit.replace("Cancel", "Keep") : "Cancel")}
    </button>
  );
  return (
    <>
      <form
        ref={form}
        noValidate
        onChange={renewKey}
        onSubmit={(event) => {
          event.preventDefault();
          // A dialog within it may have a form of its own.
          if (event.target !== event.currentTarget) return;
          mutate(Object.fromEntries(new FormData(event.currentTarget)) as Values);
        }}
      >
        <RefusedBy value={error}>
          <Inputs inputs={inputs} values={values} />
          {children}
        </RefusedBy>
        <Problem error={error} form={form.current} />
        <div className="actions">
          {isDanger && cancel}
          <button type="submit" className={isDanger ? "danger" : "primary"} disabled={isPending || isDisabled}>
            {submit}
          </button>
          {!isDanger && cancel}
        </div>
      </form>
      {dialog}
      {unsaved}
    </>
  );
}

/** An input by its name, its label, and what else it has. */
type Input = readonly [name: string, label: string, more?: Omit<FieldProps, "name" | "label">];

interface InputsProps {
  inputs: readonly Input[];
  /** Their first values, by the names. */
  values?: Readonly<Record<string, unknown>> | undefined;
}

export const Inputs = ({ inputs, values = {} }: InputsProps) =>
  inputs.map(([name, label, more]) => {
    const initial = String(values[name] ?? "") || undefined;
    return <Field key={name} name={name} label={label} defaultValue={initial} {...more} />;
  });

export interface FieldProps extends Omit<ComboboxProps<string>, "choices"> {
  label: string;
  name: string;
  hint?: string | undefined;
  /** In place of the form's refusal. */
  problem?: string | undefined;
  /** Texts by values: a select. */
  choices?: Readonly<Record<string, string>>;
  /** Lines of a text area. */
  rows?: number;
  /** Texts that the input offers. */
  suggestions?: readonly string[];
}

/** A label, its input, a hint and the refusal. */
export function Field({ label, hint, problem: given, choices, rows, suggestions, onChange, ...more }: FieldProps) {
  const id = useId();
  const refusal = use(RefusedBy);
  // It is no longer about a value that was changed since.
  const [answered, setAnswered] = useState<unknown>();
  const problem = given ?? (answered === refusal ? undefined : problemOf(refusal, more.name));
  const describedBy = hint || problem ? `${id}-text` : undefined;
  const own = { id, "aria-describedby": describedBy, "aria-invalid": problem ? true : undefined, ...more };
  const change = onChange && (({ target }: { target: { value: string } }) => onChange(target.value));
  const native = { ...own, onChange: change } as InputHTMLAttributes<never>;
  return (
    <div className="field" onInput={problem ? () => setAnswered(refusal) : undefined}>
      <label htmlFor={id}>{label}</label>
      {choices ? (
        <Select {...own} onChange={onChange} choices={choices} />
      ) : rows ? (
        <textarea rows={rows} {...native} />
      ) : (
        <input {...native} list={suggestions && `${id}-list`} />
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

/** The refusal of a part of the form that is no `Field`. */
export function Refused({ name }: { name: string }) {
  const problem = problemOf(use(RefusedBy), name);
  return problem && <p className="wrong">{problem}</p>;
}

/** Choices that are their own texts. */
export const textsOf = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, name]));

/** More are found by some letters of their texts. */
export const MOST_LISTED = 12;

export const Select = (props: ComboboxProps<string>) =>
  Object.keys(props.choices).length > MOST_LISTED ? <Combobox {...props} /> : <ListSelect {...props} />;

/** The browser's own list, however many choices there are: a combobox is as wide as a field. */
export const ListSelect = ({ choices, onChange, ...select }: ComboboxProps<string>) => (
  <select {...(select as object)} onChange={onChange && (({ target }) => onChange(target.value))}>
    {Object.entries(choices).map(([value, text]) => (
      <option key={value} value={value}>
        {text}
      </option>
    ))}
  </select>
);

export interface TicksProps {
  className?: string;
  options: readonly { id: string; name: ReactNode; isDisabled?: boolean }[];
  chosen: readonly string[];
  /** @param ids all that are chosen now @param id the one whose choice has changed */
  onChange: (ids: string[], id: string) => void;
}

/** Checkboxes, one below the other. */
export const Ticks = ({ className = "plain", options, chosen, onChange }: TicksProps) => (
  <ul className={className}>
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
