import { useState } from "react";
import { useData, useWorkspace } from "../../session.tsx";
import { Field, Select } from "../form.tsx";
import { choicesOf, Part } from "../page.tsx";
import { Cell } from "../table.tsx";
import { EMAIL_STATUSES, type FieldDefinition, SUBSCRIPTION_STATUSES, useFields, useLists } from "./people.tsx";

/** A part of a segment's conditions; the server knows the language. */
export type Condition = Readonly<Record<string, unknown>>;
type Join = "all" | "any";

type Type = FieldDefinition["type"] | "status" | "instant";

const OWN_FIELDS: readonly { field: string; label: string; type: Type }[] = [
  { field: "email", label: "Address", type: "text" },
  { field: "first_name", label: "First name", type: "text" },
  { field: "last_name", label: "Last name", type: "text" },
  { field: "email_status", label: "Address status", type: "status" },
  { field: "created_at", label: "Date added", type: "instant" },
  { field: "updated_at", label: "Date updated", type: "instant" },
];

const EQUAL = { eq: "is", ne: "is not", in: "is one of" };
const VALUE = { "exists:true": "is known", "exists:false": "is not known" };
const DAYS = {
  ...{ eq: "is on", ne: "is not on", gt: "is after", gte: "is on or after", lt: "is before", lte: "is on or before" },
  within_days: "is within the last days",
};
/** Operators by the type of a field. One of `exists` has its value in its name. */
const OPERATORS: Readonly<Record<Type, Readonly<Record<string, string>>>> = {
  text: { ...EQUAL, contains: "contains", starts_with: "begins with", ...VALUE },
  number: { ...EQUAL, gt: "is more than", gte: "is at least", lt: "is less than", lte: "is at most", ...VALUE },
  boolean: { eq: "is", ne: "is not", ...VALUE },
  status: { eq: "is", ne: "is not" },
  date: { ...DAYS, ...VALUE },
  instant: DAYS,
};

/** The control of a value. */
type Control = "none" | "lines" | "number" | "days" | "day" | "boolean" | "status" | "text";
function controlOf(type: Type, operator: string): Control {
  if (operator.startsWith("exists")) return "none";
  if (operator === "in") return "lines";
  if (operator === "within_days") return "days";
  return type === "date" || type === "instant" ? "day" : type;
}

const operatorOf = ({ op, value }: Condition): string => (op === "exists" ? `exists:${value}` : String(op));

/** A condition on a field with the operator, and a value to begin with. */
function withOperator(field: unknown, type: Type, operator: string, former?: unknown): Condition {
  const [op = "", known] = operator.split(":");
  if (known !== undefined) return { field, op, value: known === "true" };
  const control = controlOf(type, operator);
  const first = { lines: [], number: 0, days: 30, day: "", boolean: true, status: "ACTIVE", text: "", none: true }[
    control
  ];
  const isKept =
    former !== undefined && typeof former === typeof first && Array.isArray(former) === Array.isArray(first);
  return { field, op, value: isKept || (control === "day" && isDistance(former)) ? former : first };
}

/** A condition of which the member has chosen nothing yet. */
export const firstCondition = (): Condition => withOperator("email", "text", "contains");

const isDistance = (value: unknown): value is { days_from_today: number } =>
  typeof value === "object" && value !== null && "days_from_today" in value;

/** The condition inside, where it is one and the builder shows "not" in words. */
const negated = ({ not }: Condition): Condition | undefined =>
  typeof not === "object" && not !== null && ("list" in not || "event" in not) ? (not as Condition) : undefined;

const joinOf = (condition: Condition): Join | undefined =>
  "all" in condition ? "all" : "any" in condition ? "any" : undefined;
export const partsOf = (condition: Condition): Condition[] => {
  const join = joinOf(condition);
  const parts = join && condition[join];
  return Array.isArray(parts) ? (parts as Condition[]) : [];
};

/** A single condition as a group of one. */
export const grouped = (conditions: unknown): unknown =>
  typeof conditions === "object" && conditions !== null && !joinOf(conditions as Condition)
    ? { all: [conditions] }
    : conditions;

const typeOf = (field: unknown, fields: readonly FieldDefinition[]): Type | undefined =>
  OWN_FIELDS.find((own) => own.field === field)?.type ?? fields.find(({ name }) => `fields.${name}` === field)?.type;

const isDay = (value: unknown) =>
  isDistance(value) || (typeof value === "string" && /^(\d{4}-\d\d-\d\d)?$/.test(value));

/** Whether the builder can show the conditions, without a change to them. */
export function canShow(condition: unknown, fields: readonly FieldDefinition[]): boolean {
  if (typeof condition !== "object" || condition === null) return false;
  const whole = condition as Condition;
  if (joinOf(whole)) return Object.keys(whole).length === 1 && partsOf(whole).every((part) => canShow(part, fields));
  const inner = negated(whole) ?? whole;
  if ("list" in inner || "event" in inner) return true;
  const type = typeOf(inner["field"], fields);
  const operator = operatorOf(inner);
  if (type === undefined || !(operator in OPERATORS[type])) return false;
  return controlOf(type, operator) !== "day" || isDay(inner["value"]);
}

/** Whether a value is missing without which the service refuses the conditions; an empty text may be compared with. */
export function isUnfinished(condition: Condition): boolean {
  // A member may write them as text.
  if (typeof condition !== "object" || condition === null) return false;
  if (joinOf(condition)) return partsOf(condition).length === 0 || partsOf(condition).some(isUnfinished);
  const { value, list, op } = negated(condition) ?? condition;
  return (value === "" && op !== "eq" && op !== "ne") || list === "" || (Array.isArray(value) && value.length === 0);
}

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
        <button type="button" onClick={() => set([...parts, firstCondition()])}>
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
  if (control === "boolean" || control === "status") {
    const isYesOrNo = control === "boolean";
    const choices = isYesOrNo ? { true: "yes", false: "no" } : choicesOf(EMAIL_STATUSES);
    const choose = (text: string) => onChange(isYesOrNo ? text === "true" : text);
    return <Pick label="Value" value={String(value)} choices={choices} onChange={choose} />;
  }
  if (control === "lines") {
    return (
      <textarea
        key={String(value)}
        aria-label="Values, one on each line"
        placeholder="One on each line"
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

const dayKindOf = (value: unknown) => (!isDistance(value) ? "day" : value.days_from_today > 0 ? "ahead" : "ago");

/** A day of the calendar, or so many days before or after today. */
function DayInput({ value, onChange }: EditProps<unknown>) {
  const days = isDistance(value) ? value.days_from_today : undefined;
  const count = Math.abs(days ?? 0);
  const kind = dayKindOf(value);
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

const EVENTS: Readonly<Record<string, string>> = {
  received: "received",
  received_tracked: "received, with tracking,",
  opened: "opened",
  clicked: "clicked a link in",
  bounced: "bounced on",
  unsubscribed: "unsubscribed through",
};

function EventPart({ value, onChange }: EditProps<Condition>) {
  const mailings = useMailings();
  return (
    <>
      <Pick
        label="Event"
        value={String(value["event"])}
        choices={EVENTS}
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

const daysText = (days: unknown) => (days === 1 ? "day" : `${days} days`);

/** At most three of the texts. */
const listed = (texts: readonly string[], word: string) =>
  [...texts.slice(0, 3), ...(texts.length > 3 ? [`${texts.length - 3} more`] : [])].join(` ${word} `);

interface WordsProps {
  verb: string;
  value: unknown;
}

/** What follows from conditions, and these in words: "Skipped if they opened “Welcome”". */
export const ConditionWords = (props: WordsProps) => <Words {...props} mailings={useMailings()} />;

/** As `ConditionWords`. @param mailings names of emails by their ids; others are not named */
export function Words({ verb, value: whole, mailings }: WordsProps & { mailings: Readonly<Record<string, string>> }) {
  const fields = useFields();
  const lists = Object.fromEntries(useLists().map(({ id, name }) => [id, name]));
  const wordsOf = (condition: Condition, isInGroup: boolean): string => {
    const join = joinOf(condition);
    const parts = partsOf(condition);
    const inner = negated(condition) ?? condition;
    const { field, value, list, status = "CONFIRMED", event, resource, link, within_days: days } = inner;
    const isNot = inner === condition ? "false" : "true";
    if (join) {
      const words = listed(
        parts.map((part) => wordsOf(part, parts.length > 1)),
        join === "all" ? "and" : "or",
      );
      return isInGroup && parts.length > 1 ? `(${words})` : words;
    }
    if (list !== undefined) {
      const statusText = SUBSCRIPTION_STATUSES[status as keyof typeof SUBSCRIPTION_STATUSES]?.[0];
      return `“${lists[String(list)] ?? "deleted list"}” ${NEGATIONS.list[isNot]} ${statusText}`;
    }
    if (event !== undefined) {
      const mail =
        resource === undefined
          ? "any email"
          : String(resource) in mailings
            ? `“${mailings[String(resource)]}”`
            : "one email";
      const time = days === undefined ? "" : ` in the last ${daysText(days)}`;
      const did = link === undefined ? EVENTS[String(event)] : "clicked one of the links in";
      return `they ${isNot === "true" ? "never " : ""}${did} ${mail}${time}`;
    }
    const type = typeOf(field, fields) ?? "text";
    const operator = operatorOf(inner);
    const name = OWN_FIELDS.find((own) => own.field === field)?.label.toLowerCase();
    const words = `${name ?? String(field).replace("fields.", "")} ${OPERATORS[type][operator]}`;
    const control = controlOf(type, operator);
    if (control === "none") return words;
    if (control === "days") return words.replace("days", daysText(value));
    if (isDistance(value)) return `${words} ${Math.abs(value.days_from_today)} ${DAY_KINDS[dayKindOf(value)]}`;
    if (control === "status") return `${words} ${EMAIL_STATUSES[value as keyof typeof EMAIL_STATUSES]?.[0]}`;
    if (control === "boolean") return `${words} ${value ? "yes" : "no"}`;
    return `${words} ${listed([value].flat().map(String), "or")}`;
  };
  return <Cell of={`${verb} ${canShow(whole, fields) ? wordsOf(whole as Condition, false) : "its conditions hold"}`} />;
}
