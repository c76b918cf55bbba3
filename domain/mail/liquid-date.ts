import { limits, TemplateError } from "./template-problem.ts";

/** The longest in common use have about forty. */
const MAX_FORMAT_CHARS = 200;
/** That one part of a format is filled up to. */
const MAX_WIDTH = 100;
/** LiquidJS's own. */
const DEFAULT_FORMAT = "%A, %B %-e, %Y at %-l:%M %P %z";

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const MONTHS = "January February March April May June July August September October November December".split(" ");
const WEEKDAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

interface ZonedDate {
  ms: number;
  /** Its UTC fields are the zone's. */
  shown: Date;
  /** As `Date` counts them. */
  behindMinutes: number;
  /** Empty without a zone, or with one that was written as a number. */
  zone: string;
}

/** A new format takes memory that the garbage collector does not count. */
const zoneFormats = new Map<string, Intl.DateTimeFormat>();

/** @throws {TemplateError} `limits` for an unknown zone */
function formatOfZone(zone: string): Intl.DateTimeFormat {
  // Names differ in case only.
  const key = zone.toLowerCase();
  let format = zoneFormats.get(key);
  if (!format) {
    try {
      format = new Intl.DateTimeFormat("en-US", { timeZone: zone, timeZoneName: "longOffset" });
    } catch (cause) {
      throw new TemplateError({ kind: "limits", message: "the time zone of a date does not exist" }, { cause });
    }
    zoneFormats.set(key, format);
  }
  return format;
}

const OFFSET = /^([+-])(\d\d):?(\d\d)?$/;

function minutesBehind(zone: string, ms: number): number {
  // "1/5/2026, GMT-05:00"; years ago also with seconds
  const [, sign, hours, minutes] =
    OFFSET.exec(zone) ?? /GMT([+-])(\d\d):(\d\d)/.exec(formatOfZone(zone).format(ms)) ?? [];
  const ahead = Number(hours ?? 0) * 60 + Number(minutes ?? 0);
  return sign === "-" ? ahead : -ahead;
}

function instantOf(value: unknown): number {
  if (value === "now" || value === "today") return Date.now();
  if (typeof value === "number") return value * 1_000;
  if (typeof value !== "string") return Number.NaN;
  return /^\d+$/.test(value) ? Number(value) * 1_000 : Date.parse(value);
}

function parseDate(value: unknown, zone: unknown): ZonedDate | undefined {
  const ms = instantOf(value);
  if (Number.isNaN(new Date(ms).getTime())) return undefined;
  const name = typeof zone === "string" ? zone : "";
  const behindMinutes = name === "" ? Number(zone ?? 0) : minutesBehind(name, ms);
  const shown = new Date(ms - behindMinutes * MINUTE_MS);
  return Number.isNaN(shown.getTime()) ? undefined : { ms, shown, behindMinutes, zone: name };
}

function dayOfYear(shown: Date): number {
  const newYear = new Date(0);
  newYear.setUTCFullYear(shown.getUTCFullYear(), 0, 1);
  return Math.floor((shown.getTime() - newYear.getTime()) / DAY_MS) + 1;
}

/** Days before the first `firstDay` are in week 0. */
const weekOfYear = (shown: Date, firstDay: number): number =>
  Math.floor((dayOfYear(shown) + 6 - ((shown.getUTCDay() - firstDay + 7) % 7)) / 7);

function ordinalOf(day: number): string {
  if (day >= 11 && day <= 13) return "th";
  return ["th", "st", "nd", "rd"][day % 10] ?? "th";
}

function offsetOf({ behindMinutes }: ZonedDate, hasColon: boolean): string {
  const minutes = Math.abs(behindMinutes);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60].map((part) => String(part).padStart(2, "0"));
  return `${behindMinutes > 0 ? "-" : "+"}${hours}${hasColon ? ":" : ""}${rest}`;
}

const hourOf12 = (shown: Date): number => shown.getUTCHours() % 12 || 12;
const isMorning = (shown: Date): boolean => shown.getUTCHours() < 12;
const monthOf = (shown: Date): string => MONTHS[shown.getUTCMonth()] ?? "";
const weekdayOf = (shown: Date): string => WEEKDAYS[shown.getUTCDay()] ?? "";

type Conversion = (date: ZonedDate, flags: string, width: number) => string | number;

const CONVERSIONS: Readonly<Record<string, Conversion>> = {
  a: ({ shown }) => weekdayOf(shown).slice(0, 3),
  A: ({ shown }) => weekdayOf(shown),
  b: ({ shown }) => monthOf(shown).slice(0, 3),
  B: ({ shown }) => monthOf(shown),
  c: (date) => formatDate(date, "%-m/%-d/%-Y, %-I:%M:%S %p"),
  C: ({ shown }) => Math.floor(shown.getUTCFullYear() / 100),
  d: ({ shown }) => shown.getUTCDate(),
  e: ({ shown }) => shown.getUTCDate(),
  h: ({ shown }) => monthOf(shown).slice(0, 3),
  H: ({ shown }) => shown.getUTCHours(),
  I: ({ shown }) => hourOf12(shown),
  j: ({ shown }) => dayOfYear(shown),
  k: ({ shown }) => shown.getUTCHours(),
  l: ({ shown }) => hourOf12(shown),
  L: ({ shown }) => shown.getUTCMilliseconds(),
  m: ({ shown }) => shown.getUTCMonth() + 1,
  M: ({ shown }) => shown.getUTCMinutes(),
  N: ({ shown }, _flags, width) =>
    String(shown.getUTCMilliseconds())
      .padStart(3, "0")
      .slice(0, width || 9)
      .padEnd(width || 9, "0"),
  p: ({ shown }) => (isMorning(shown) ? "AM" : "PM"),
  P: ({ shown }) => (isMorning(shown) ? "am" : "pm"),
  q: ({ shown }) => ordinalOf(shown.getUTCDate()),
  s: ({ ms }) => Math.floor(ms / 1_000),
  S: ({ shown }) => shown.getUTCSeconds(),
  u: ({ shown }) => shown.getUTCDay() || 7,
  U: ({ shown }) => weekOfYear(shown, 0),
  w: ({ shown }) => shown.getUTCDay(),
  W: ({ shown }) => weekOfYear(shown, 1),
  x: (date) => formatDate(date, "%-m/%-d/%-Y"),
  X: (date) => formatDate(date, "%-I:%M:%S %p"),
  y: ({ shown }) => ((shown.getUTCFullYear() % 100) + 100) % 100,
  Y: ({ shown }) => shown.getUTCFullYear(),
  z: (date, flags) => offsetOf(date, flags.includes(":")),
  Z: (date, flags) => date.zone || offsetOf(date, flags.includes(":")),
  t: () => "\t",
  n: () => "\n",
  "%": () => "%",
};

/** Numbers are filled up to them. */
const WIDTHS: Readonly<Record<string, number>> = {
  ...Object.fromEntries([..."CdeHIklmMSUWy"].map((name) => [name, 2])),
  ...{ j: 3, L: 3, Y: 4 },
};
const FILLED_WITH_BLANKS = "aAbBceklpP";

/** "JAN" for "Jan", and "am" for "AM" */
const withOtherCase = (text: string): string => (/[a-z]/.test(text) ? text.toUpperCase() : text.toLowerCase());

/** As Ruby's `strftime` and LiquidJS, in English. */
function formatDate(date: ZonedDate, format: string): string {
  return format.replace(
    /%([-_0^#:]+)?(\d+)?[EO]?(.)/g,
    (whole, flags: string | undefined = "", digits: string | undefined, name: string) => {
      const convert = Object.hasOwn(CONVERSIONS, name) ? CONVERSIONS[name] : undefined;
      if (!convert) return whole;
      const given = Number(digits ?? 0);
      if (given > MAX_WIDTH) throw limits(`a part of a date is wider than ${MAX_WIDTH} characters`);
      let text = String(convert(date, flags, given));
      if (flags.includes("^")) text = text.toUpperCase();
      else if (flags.includes("#")) text = withOtherCase(text);
      const width = flags.includes("-") ? 0 : given || (WIDTHS[name] ?? 0);
      const fill = flags.includes("_") || (FILLED_WITH_BLANKS.includes(name) && !flags.includes("0")) ? " " : "0";
      if (fill === "0" && text.startsWith("-")) return `-${text.slice(1).padStart(width - 1, fill)}`;
      return text.padStart(width, fill);
    },
  );
}

/** @throws {TemplateError} `limits` for a long format or an unknown zone */
function date(value: unknown, format?: unknown, zone?: unknown): unknown {
  const text = format === undefined || format === null ? DEFAULT_FORMAT : String(format);
  assertFormat(text);
  const parsed = parseDate(value, zone);
  return parsed ? formatDate(parsed, text) : value;
}

export function assertFormat(format: string): void {
  if (format.length > MAX_FORMAT_CHARS) {
    throw limits(`the format of a date has more than ${MAX_FORMAT_CHARS} characters`);
  }
}

const inWords = (month: string) => (value: unknown, type?: unknown, style?: unknown) => {
  if (type !== "ordinal") return date(value, `%d ${month} %Y`);
  return date(value, style === "US" ? `${month} %-d%q, %Y` : `%-d%q ${month} %Y`);
};

/**
 * LiquidJS's own filters make `Intl` objects for each name of a month or weekday: 0.1 ms, and memory outside the heap that a
 * send of 10,000 mails grows by hundreds of MB.
 */
export const DATE_FILTERS: Readonly<Record<string, (...args: unknown[]) => unknown>> = {
  date,
  date_to_xmlschema: (value) => date(value, "%Y-%m-%dT%H:%M:%S%:z"),
  date_to_rfc822: (value) => date(value, "%a, %d %b %Y %H:%M:%S %z"),
  date_to_string: inWords("%b"),
  date_to_long_string: inWords("%B"),
};
