import type { ContactFieldType, FieldValues } from "../../db/entities/contact.ts";
import { charactersIn, hasControlCharacter, MAX_FIELD_NUMBER, MAX_FIELD_TEXT_LENGTH } from "./rules.ts";

export type FieldTypes = ReadonlyMap<string, ContactFieldType>;

/** Null takes a value away, a field that is left out keeps its own. */
export type FieldChanges = { readonly [name: string]: FieldValues[string] | null };

/** `YYYY-MM-DD` */
export const isDate = (text: string): boolean => {
  const day = /^\d{4}-\d{2}-\d{2}$/.test(text) && !text.startsWith("0000") ? new Date(`${text}T00:00:00Z`) : undefined;
  return day !== undefined && !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text);
};

const NUMBER_PROBLEM = `must be a number from -${MAX_FIELD_NUMBER} to ${MAX_FIELD_NUMBER}; use a text field for one that must be kept exactly`;
const TEXT_PROBLEM = `must be a text of one line and at most ${MAX_FIELD_TEXT_LENGTH} characters`;

/** The rule that a value breaks, as the end of a sentence. */
const PROBLEMS: { readonly [Type in ContactFieldType]: (value: unknown) => string | undefined } = {
  text: (value) =>
    typeof value === "string" && charactersIn(value) <= MAX_FIELD_TEXT_LENGTH && !hasControlCharacter(value)
      ? undefined
      : TEXT_PROBLEM,
  number: (value) => {
    if (typeof value !== "number") return "must be a number";
    return Math.abs(value) <= MAX_FIELD_NUMBER ? undefined : NUMBER_PROBLEM;
  },
  boolean: (value) => (typeof value === "boolean" ? undefined : "must be true or false"),
  date: (value) => (typeof value === "string" && isDate(value) ? undefined : "must be a date, such as 2026-01-31"),
};

/** The rule that a value breaks, as the end of a sentence whose subject is the field; null takes the field's value away. */
export function fieldProblem(types: FieldTypes, name: string, value: unknown): string | undefined {
  const type = types.get(name);
  if (type === undefined) return "is not a custom field of the team; declare it in the app, or leave it out";
  return value === null ? undefined : PROBLEMS[type](value);
}

const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ["true", true],
  ["yes", true],
  ["1", true],
  ["false", false],
  ["no", false],
  ["0", false],
]);

/** Whether the number of a text is so small that 0 would be kept for it. */
const isTooSmall = (text: string): boolean => Number(text) === 0 && /^[^e]*[1-9]/i.test(text);

/** The text itself, or NaN, where it spells no value of the type, see `fieldProblem`. */
export function valueOfText(type: ContactFieldType, text: string): FieldValues[string] {
  if (type === "number" && NUMBER.test(text)) return isTooSmall(text) ? Number.NaN : Number(text);
  if (type === "boolean") return BOOLEANS.get(text.toLowerCase()) ?? text;
  return text;
}

export function changedFields(values: FieldValues, changes: FieldChanges): FieldValues {
  const merged = Object.entries({ ...values, ...changes });
  return Object.fromEntries(merged.flatMap(([name, value]) => (value === null ? [] : [[name, stored(value)]])));
}

/** The database keeps -0 as 0: a comparison of the two would find a change with each -0 that is given. */
const stored = (value: FieldValues[string]): FieldValues[string] => (value === 0 ? 0 : value);
