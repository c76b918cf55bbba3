import { DateTime } from "luxon";
import { limits } from "./template-problem.ts";

/** The longest in common use have about forty. */
const MAX_FORMAT_CHARS = 200;
/** LiquidJS's own. */
const DEFAULT_FORMAT = "%A, %B %-e, %Y at %-l:%M %P %z";

/** Parts of a format as Ruby's `strftime` has them, and the same of Luxon. */
const PARTS: Readonly<Record<string, string>> = {
  ...{ a: "EEE", A: "EEEE", b: "MMM", B: "MMMM", d: "dd", e: "d", H: "HH", I: "hh", j: "ooo", k: "H", l: "h", m: "MM" },
  ...{ M: "mm", p: "a", P: "a", s: "X", S: "ss", u: "E", y: "yy", Y: "yyyy", z: "ZZZ" },
};
/** All parts: `%d` among them. */
export const DATE_PARTS = [...Object.keys(PARTS).map((name) => `%${name}`), "%%"];
const FILLED_WITH_BLANKS = "ekl";
/** A `-` is for a number without leading zeros. */
const PART = /%(-?)(.?)/gsu;

function instantOf(value: unknown): number {
  if (value === "now" || value === "today") return Date.now();
  if (typeof value === "number") return value * 1_000;
  if (typeof value !== "string") return Number.NaN;
  return /^\d+$/.test(value) ? Number(value) * 1_000 : Date.parse(value);
}

/** @throws {TemplateError} `limits` for a long format, and for a part that there is not */
export function assertFormat(format: string): void {
  if (format.length > MAX_FORMAT_CHARS) {
    throw limits(`the format of a date has more than ${MAX_FORMAT_CHARS} characters`);
  }
  for (const [, , name = ""] of format.matchAll(PART)) {
    if (!DATE_PARTS.includes(`%${name}`)) {
      throw limits(`the format of a date has a part that is none of ${DATE_PARTS.join(" ")}`);
    }
  }
}

/**
 * Prints an instant in English, in UTC or another zone; a value that is no instant as it is.
 * @throws {TemplateError} `limits` as `assertFormat`, and for an unknown zone
 */
function date(value: unknown, format?: unknown, zone?: unknown): unknown {
  const text = String(format ?? DEFAULT_FORMAT);
  assertFormat(text);
  const ms = instantOf(value);
  if (Number.isNaN(new Date(ms).getTime())) return value;
  // Luxon keeps what it needs for a zone by the name, of which cases differ.
  const at = DateTime.fromMillis(ms, { zone: String(zone || "UTC").toLowerCase(), locale: "en-US" });
  if (!at.isValid) throw limits("the time zone of a date does not exist");
  return text.replace(PART, (_whole, minus: string, name: string) => {
    if (name === "%") return "%";
    let part = at.toFormat(PARTS[name] ?? "");
    if (name === "P") part = part.toLowerCase();
    if (FILLED_WITH_BLANKS.includes(name)) part = part.padStart(2);
    return minus ? part.replace(/^[0 ]+(?=.)/, "") : part;
  });
}

/**
 * LiquidJS's own filters make `Intl` objects for each name of a month or weekday: 0.1 ms, and memory outside the heap that a
 * send of 10,000 mails grows by hundreds of MB.
 */
export const DATE_FILTERS: Readonly<Record<string, (...args: unknown[]) => unknown>> = {
  date,
  date_to_string: (value) => date(value, "%d %b %Y"),
  date_to_long_string: (value) => date(value, "%d %B %Y"),
};
