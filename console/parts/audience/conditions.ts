import type { FieldDefinition } from "./people.tsx";

/** A part of a segment's conditions; the server knows the language. */
export type Condition = Readonly<Record<string, unknown>>;
export type Join = "all" | "any";

type Type = FieldDefinition["type"] | "status" | "instant";

export const OWN_FIELDS: readonly { field: string; label: string; type: Type }[] = [
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
export const OPERATORS: Readonly<Record<Type, Readonly<Record<string, string>>>> = {
  text: { ...EQUAL, contains: "contains", starts_with: "begins with", ...VALUE },
  number: { ...EQUAL, gt: "is more than", gte: "is at least", lt: "is less than", lte: "is at most", ...VALUE },
  boolean: { eq: "is", ne: "is not", ...VALUE },
  status: { eq: "is", ne: "is not" },
  date: { ...DAYS, ...VALUE },
  instant: DAYS,
};

/** The control of a value. */
export type Control = "none" | "lines" | "number" | "days" | "day" | "boolean" | "status" | "text";
export function controlOf(type: Type, operator: string): Control {
  if (operator.startsWith("exists")) return "none";
  if (operator === "in") return "lines";
  if (operator === "within_days") return "days";
  return type === "date" || type === "instant" ? "day" : type;
}

export const operatorOf = ({ op, value }: Condition): string => (op === "exists" ? `exists:${value}` : String(op));

/** A condition on a field with the operator, and a value to begin with. */
export function withOperator(field: unknown, type: Type, operator: string, former?: unknown): Condition {
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

export const isDistance = (value: unknown): value is { days_from_today: number } =>
  typeof value === "object" && value !== null && "days_from_today" in value;

/** The condition inside, where it is one and the builder shows "not" in words. */
export const negated = ({ not }: Condition): Condition | undefined =>
  typeof not === "object" && not !== null && ("list" in not || "event" in not) ? (not as Condition) : undefined;

export const joinOf = (condition: Condition): Join | undefined =>
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

export const typeOf = (field: unknown, fields: readonly FieldDefinition[]): Type | undefined =>
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

/** Whether a value is missing that every count would be refused for. */
export function isUnfinished(condition: Condition): boolean {
  if (joinOf(condition)) return partsOf(condition).length === 0 || partsOf(condition).some(isUnfinished);
  const { value, list } = negated(condition) ?? condition;
  return value === "" || list === "" || (Array.isArray(value) && value.length === 0);
}
