import { useState } from "react";
import { useData, useWorkspace } from "../../session.tsx";
import { Field, Select } from "../form.tsx";
import { choicesOf, Part } from "../page.tsx";
import {
  type Condition,
  type Control,
  canShow,
  controlOf,
  grouped,
  isDistance,
  joinOf,
  negated,
  OPERATORS,
  OWN_FIELDS,
  operatorOf,
  partsOf,
  typeOf,
  withOperator,
} from "./conditions.ts";
import { SUBSCRIPTION_STATUSES, useLists } from "./lists.ts";
import { EMAIL_STATUSES, useFields } from "./people.tsx";

interface EditProps<Value> {
  value: Value;
  onChange: (value: Value) => void;
}

interface PickProps extends EditProps<string> {
  label: string;
  choices: Readonly<Record<string, string>>;
}

const Pick = ({ label, value, choices, ...pick }: PickProps) => (
  <Select
    aria-label={label}
    value={value}
    choices={{ ...(!(value in choices) && { [value]: value }), ...choices }}
    {...pick}
  />
);

/** Conditions by a form, or as JSON where the form cannot show them. */
export function Conditions({ value, onChange }: EditProps<unknown>) {
  const fields = useFields();
  const shown = grouped(value);
  // While they are written as text they stay text.
  const [isText] = useState(() => !canShow(shown, fields));
  if (isText) return <ConditionText value={value} onChange={onChange} />;
  return <Group value={shown as Condition} onChange={onChange} />;
}

/** Its value is undefined while the text is no JSON: nothing can be saved then. */
function ConditionText({ value, onChange }: EditProps<unknown>) {
  const [text, setText] = useState(() => JSON.stringify(value, undefined, 2));
  const read = (given: string) => {
    setText(given);
    try {
      onChange(JSON.parse(given));
    } catch {
      onChange(undefined);
    }
  };
  return (
    <Field
      label="Conditions as JSON"
      name="conditions"
      hint="The form cannot show these conditions."
      problem={value === undefined ? "This is not valid JSON." : undefined}
      rows={16}
      spellCheck={false}
      className="code"
      value={text}
      onChange={read}
    />
  );
}

/** Conditions that hold all, or any of them; a group may hold groups. */
function Group({ value, onChange, onRemove }: EditProps<Condition> & { onRemove?: () => void }) {
  const join = joinOf(value) ?? "all";
  const parts = partsOf(value);
  const set = (next: readonly Condition[]) => onChange({ [join]: next });
  return (
    <fieldset>
      <legend className="hidden">Group of conditions</legend>
      <div className="actions">
        <span aria-hidden="true">Match</span>
        <Pick
          label="Match"
          value={join}
          choices={{ all: "all of these", any: "any of these" }}
          onChange={(chosen) => onChange({ [chosen]: parts })}
        />
        {onRemove && (
          <button type="button" className="plain" onClick={onRemove}>
            Remove group
          </button>
        )}
      </div>
      {parts.map((part, at) => {
        const edit = {
          value: part,
          onChange: (next: Condition) => set(parts.with(at, next)),
          onRemove: () => set(parts.filter((_, i) => i !== at)),
        };
        // Conditions have no ids; their places are all that tells them apart.
        // biome-ignore lint/suspicious/noArrayIndexKey: see above
        return joinOf(part) ? <Group key={at} {...edit} /> : <Row key={at} {...edit} />;
      })}
      <div className="actions">
        <button type="button" onClick={() => set([...parts, withOperator("email", "text", "contains")])}>
          Add a condition
        </button>
        <button type="button" onClick={() => set([...parts, { [join === "all" ? "any" : "all"]: [] }])}>
          Add a group
        </button>
      </div>
    </fieldset>
  );
}

const NEGATIONS = {
  list: { false: "has the person as", true: "does not have the person as" },
  event: { false: "the person", true: "the person never" },
};

/** One condition: what it is about, how it compares, and with which value. */
function Row({ value, onChange, onRemove }: EditProps<Condition> & { onRemove: () => void }) {
  const fields = useFields();
  const inner = negated(value) ?? value;
  const isNot = inner !== value;
  const subject = "list" in inner ? "list" : "event" in inner ? "event" : String(inner["field"]);
  const choose = (chosen: string) => {
    if (chosen === "list") return onChange({ list: "" });
    if (chosen === "event") return onChange({ event: "opened", within_days: 30 });
    const type = typeOf(chosen, fields) ?? "text";
    onChange(withOperator(chosen, type, Object.keys(OPERATORS[type])[0] ?? "eq"));
  };
  const subjects = {
    ...Object.fromEntries(OWN_FIELDS.map(({ field, label }) => [field, label])),
    ...Object.fromEntries(fields.map(({ name }) => [`fields.${name}`, name])),
    list: "List",
    event: "Email activity",
  };
  const part = { value: inner, onChange: (next: Condition) => onChange(isNot ? { not: next } : next) };
  return (
    <div className="actions">
      <Pick label="About" value={subject} choices={subjects} onChange={choose} />
      {(subject === "list" || subject === "event") && (
        <Pick
          label="Comparison"
          value={String(isNot)}
          choices={NEGATIONS[subject]}
          onChange={(not) => onChange(not === "true" ? { not: inner } : inner)}
        />
      )}
      <Part>
        {subject === "list" ? (
          <ListPart {...part} />
        ) : subject === "event" ? (
          <EventPart {...part} />
        ) : (
          <FieldPart {...part} type={typeOf(inner["field"], fields) ?? "text"} />
        )}
      </Part>
      <button type="button" className="plain" onClick={onRemove}>
        Remove
      </button>
    </div>
  );
}

function FieldPart({ value, onChange, type }: EditProps<Condition> & { type: keyof typeof OPERATORS }) {
  const operator = operatorOf(value);
  return (
    <>
      <Pick
        label="Comparison"
        value={operator}
        choices={OPERATORS[type]}
        onChange={(chosen) => onChange(withOperator(value["field"], type, chosen, value["value"]))}
      />
      <ValueInput
        control={controlOf(type, operator)}
        isNumber={type === "number"}
        value={value["value"]}
        onChange={(next) => onChange({ ...value, value: next })}
      />
    </>
  );
}

type ValueProps = EditProps<unknown> & { control: Control; isNumber: boolean };

function ValueInput({ control, isNumber, value, onChange }: ValueProps) {
  if (control === "none") return null;
  if (control === "day") return <DayInput value={value} onChange={onChange} />;
  if (control === "boolean") {
    const choices = { true: "yes", false: "no" };
    return (
      <Pick label="Value" value={String(value)} choices={choices} onChange={(text) => onChange(text === "true")} />
    );
  }
  if (control === "status") {
    return <Pick label="Value" value={String(value)} choices={choicesOf(EMAIL_STATUSES)} onChange={onChange} />;
  }
  if (control === "lines") {
    return (
      <textarea
        key={String(value)}
        aria-label="Values, one on each line"
        rows={3}
        defaultValue={(value as unknown[]).join("\n")}
        onBlur={({ target }) => {
          const lines = target.value.split("\n").filter((line) => line !== "");
          onChange(isNumber ? lines.map(Number) : lines);
        }}
      />
    );
  }
  const isText = control === "text";
  return (
    <input
      aria-label={control === "days" ? "Days" : "Value"}
      type={isText ? "text" : "number"}
      step="any"
      value={String(value)}
      onChange={({ target }) => onChange(isText || target.value === "" ? target.value : Number(target.value))}
    />
  );
}

const DAY_KINDS = { day: "calendar date", ago: "days ago", ahead: "days from today" };

/** A day of the calendar, or so many days before or after today. */
function DayInput({ value, onChange }: EditProps<unknown>) {
  const days = isDistance(value) ? value.days_from_today : undefined;
  const count = Math.abs(days ?? 0);
  const kind = days === undefined ? "day" : days > 0 ? "ahead" : "ago";
  const set = (chosen: string, number: number) =>
    onChange(chosen === "day" ? "" : { days_from_today: chosen === "ahead" ? number : -number });
  return (
    <>
      {days === undefined ? (
        <input aria-label="Day" type="date" value={String(value)} onChange={({ target }) => onChange(target.value)} />
      ) : (
        <input
          aria-label="Number of days"
          type="number"
          min={0}
          value={count}
          onChange={({ target }) => set(kind, Number(target.value))}
        />
      )}
      <Pick label="Kind of day" value={kind} choices={DAY_KINDS} onChange={(chosen) => set(chosen, count || 7)} />
    </>
  );
}

/** A condition with the chosen value; an empty one takes it out. */
const chosen = (condition: Condition, name: string, value: string | number): Condition => {
  const { [name]: _, ...rest } = condition;
  return value === "" ? rest : { ...rest, [name]: value };
};

function ListPart({ value, onChange }: EditProps<Condition>) {
  const lists = useLists();
  const names = Object.fromEntries(lists.map(({ id, name }) => [id, name]));
  return (
    <>
      <Pick
        label="Status"
        value={String(value["status"] ?? "CONFIRMED")}
        choices={choicesOf(SUBSCRIPTION_STATUSES)}
        onChange={(status) => onChange({ ...value, status })}
      />
      <Pick
        label="List"
        value={String(value["list"])}
        choices={{ "": "– choose a list –", ...names }}
        onChange={(list) => onChange({ ...value, list })}
      />
    </>
  );
}

/** The latest newsletters and campaigns, for their names. */
function useMailings() {
  const { newsletters, campaigns } = useWorkspace().client.api;
  const query = { limit: "100" };
  const mailings = useData(["mailings"], async () => {
    const all = [newsletters.drafts.page.query({ query }), campaigns.drafts.page.query({ query })] as const;
    return { data: (await Promise.all(all)).flatMap(({ data }) => [...data]) };
  });
  return Object.fromEntries(mailings.map(({ id, name }) => [id, name]));
}

function EventPart({ value, onChange }: EditProps<Condition>) {
  const mailings = useMailings();
  return (
    <>
      <Pick
        label="Event"
        value={String(value["event"])}
        choices={{
          received: "received",
          received_tracked: "received, with tracking,",
          opened: "opened",
          clicked: "clicked a link in",
          bounced: "bounced on",
          unsubscribed: "unsubscribed through",
        }}
        onChange={(event) => onChange({ ...chosen(value, "link", ""), event })}
      />
      <Pick
        label="Email"
        value={String(value["resource"] ?? "")}
        choices={{ "": "any email", ...mailings }}
        onChange={(id) => onChange(chosen(chosen(value, "link", ""), "resource", id))}
      />
      {value["link"] === undefined ? (
        <label>
          {"in the last "}
          <input
            type="number"
            min={0}
            value={String(value["within_days"] ?? "")}
            placeholder="any"
            onChange={({ target }) => onChange(chosen(value, "within_days", target.value && Number(target.value)))}
          />
          {" days"}
        </label>
      ) : (
        <span className="muted">one of its links</span>
      )}
    </>
  );
}
