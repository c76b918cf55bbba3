import type { z } from "zod";
import { charactersIn } from "../../domain/audience/rules.ts";

/** Characters that a message quotes of a name or a value. */
const MAX_QUOTED = 64;

/** Control and format characters, lone surrogates, and every space but the usual one. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** A client's text as a message may quote it: cut to `max` characters, and printable. */
export const shortened = (text: string, max = MAX_QUOTED): string =>
  text.slice(0, max).replace(UNPRINTABLE, "\ufffd") + (text.length > max ? "…" : "");

/** `["emails", 3]` as `emails[3]`; undefined for the body as a whole. */
export function paramName(path: readonly PropertyKey[]): string | undefined {
  if (path.length === 0) return undefined;
  const steps = path.map((step, i) => {
    if (typeof step === "number") return `[${step}]`;
    const name = step === "" ? '""' : shortened(String(step));
    return i === 0 ? name : `.${name}`;
  });
  return steps.join("");
}

const plural = (count: number | bigint, unit: string) => `${count} ${unit}${count === 1 || count === 1n ? "" : "s"}`;

/** Type names of zod, as a client knows them from JSON. */
const TYPES: Record<string, string> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "an array",
  object: "an object",
  record: "an object",
  null: "null",
};

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "boolean") return String(value);
  return typeof value === "number" ? `the number ${value}` : (TYPES[typeof value] ?? "something else");
}

const FORMATS: Record<string, string> = {
  datetime: "an ISO 8601 date and time with a time zone, such as 2026-08-15T10:00:00Z",
};

/** A limit with its unit, and the size of the value. */
function size(comparison: string, limit: number | bigint, origin: string, value: unknown): string {
  if (typeof value === "string" && origin === "string") {
    return `must be ${comparison} ${plural(limit, "character")} long; it has ${charactersIn(value)}`;
  }
  if (Array.isArray(value)) return `must have ${comparison} ${plural(limit, "item")}; it has ${value.length}`;
  return `must be ${comparison} ${limit}${typeof value === "number" ? `; it is ${value}` : ""}`;
}

const quoted = (value: unknown) => JSON.stringify(typeof value === "string" ? shortened(value) : value) ?? "nothing";

/** The bad value, where the field is of a kind that holds no address and no secret: a choice, a number, a date. */
export const itIs = (value: unknown): string =>
  value !== null && typeof value === "object" ? `; it is ${typeOf(value)}` : `; it is ${quoted(value)}`;

function oneOf(values: readonly unknown[]): string {
  const names = values.map((value) => quoted(value));
  return names.length === 1 ? `must be ${names[0]}` : `must be one of ${names.join(", ")}`;
}

/**
 * The problem with a value, as the end of a sentence whose subject is the field: "must be at most 100 characters long;
 * it has 140". It stands in for zod's own messages; where a schema brings a message of its own, that one is used.
 *
 * Free text is described by its length and never quoted: it may be an address or a secret.
 */
export const describeIssue: z.core.$ZodErrorMap = (issue) => {
  const { input } = issue;
  switch (issue.code) {
    case "invalid_type":
      return input === undefined
        ? "is required"
        : `must be ${TYPES[issue.expected] ?? "of another type"}; it is ${typeOf(input)}`;
    case "too_big":
      return size("at most", issue.maximum, issue.origin, input);
    case "too_small":
      if (input === "" && issue.origin === "string") return "must not be empty";
      return size("at least", issue.minimum, issue.origin, input);
    case "invalid_format":
      return `must be ${FORMATS[issue.format] ?? "in another format"}${itIs(input)}`;
    case "invalid_value":
      return input === undefined ? `is required and ${oneOf(issue.values)}` : `${oneOf(issue.values)}${itIs(input)}`;
    default:
      return "is not valid";
  }
};
