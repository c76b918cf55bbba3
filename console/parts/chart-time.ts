/** The time of one value of a chart, in seconds. */
export const UNIT_S = { day: 86_400, hour: 3_600, minute: 60 };
/** The least that an axis of days shows: one value alone has no width. */
const LEAST_S = 2 * UNIT_S.day;
/** Days are those of UTC, and hours those of the reader's clock. */
const DATE = { day: "numeric", month: "short" } as const;
const TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const INSTANT = new Intl.DateTimeFormat("en", { ...DATE, ...TIME });
export const FORMATS = {
  day: new Intl.DateTimeFormat("en", { ...DATE, timeZone: "UTC" }),
  ...{ hour: INSTANT, minute: INSTANT },
};
const [CLOCK, OWN_DATE] = [new Intl.DateTimeFormat("en", TIME), new Intl.DateTimeFormat("en", DATE)];

/** The begin and end of an axis, in seconds. Hours: to the end of the last one, or `now`. Days: at least two, which end at the last value or `now`. */
export function rangeOf(
  seconds: readonly number[],
  unit: keyof typeof UNIT_S,
  now: number,
): [from: number, to: number] {
  const [from = 0, last = from] = [seconds[0], seconds.at(-1)];
  if (unit !== "day") return [from, Math.min(last + (seconds[1] ?? from) - from, Math.max(now, last))];
  const to = Math.max(last, Math.min(from + LEAST_S, now));
  return [Math.min(from, to - LEAST_S), to];
}

/** "04:00", and at midnight the day that begins. */
export function tickText(seconds: number, unit: keyof typeof UNIT_S): string {
  if (unit === "day") return FORMATS.day.format(seconds * 1_000);
  const clock = CLOCK.format(seconds * 1_000);
  return clock === "00:00" ? OWN_DATE.format(seconds * 1_000) : clock;
}
