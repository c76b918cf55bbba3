import { DateTime } from "luxon";
import { ApiError } from "../../errors.ts";
import { refuseOtherZone } from "../../teams/teams.ts";
import type { Draft } from "../drafts/draft.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
const DAYS_IN_WEEK = 7;
const MAX_DAYS_AHEAD = 365;

/** As a writer says it. */
export interface WrittenTime {
  /** 2026-11-29 */
  date: string;
  /** 09:00 */
  time: string;
  /** IANA */
  zone: string;
}

/**
 * Returns the first instant at which the clocks of a zone show a time or a later one: of a time that they show twice the earlier
 * instant, of one that they leave out the end of the gap.
 */
export function firstInstantOf({ date, time, zone }: WrittenTime): Date {
  const asked = Date.parse(`${date}T${time}Z`);
  const offsetAt = (instant: number) => DateTime.fromMillis(instant, { zone }).offset * MINUTE_MS;
  const largestOffset = Math.max(offsetAt(asked - DAY_MS), offsetAt(asked + DAY_MS));
  let instant = asked - largestOffset;
  while (instant + offsetAt(instant) < asked) instant += MINUTE_MS;
  return new Date(instant);
}

/** @throws {ApiError} `validation_failed` for a zone that does not exist, and unless the time is to come within a year */
export function readTime(written: WrittenTime): Date {
  refuseOtherZone(written.zone, "zone");
  const instant = firstInstantOf(written);
  const ahead = instant.getTime() - Date.now();
  const refuse = (message: string) => new ApiError("validation_failed", message, { param: "date" });
  if (ahead <= 0) throw refuse("This time has passed: choose a later one.");
  if (ahead > MAX_DAYS_AHEAD * DAY_MS) throw refuse(`Choose a time within ${MAX_DAYS_AHEAD} days.`);
  return instant;
}

/**
 * Returns when a send may start that is due at an instant: then on an allowed day, else at the same time of the next one in the
 * team's time zone.
 * @param sendDays ISO weekdays, 1 Monday to 7 Sunday; empty allows every day
 * @param time of the next allowed day, in place of the same
 */
export function nextSendAt(due: Date, sendDays: readonly number[], zone: string, time?: string): Date {
  if (sendDays.length === 0) return due;
  const local = DateTime.fromJSDate(due, { zone });
  if (!local.isValid) throw new Error(`unknown time zone ${zone}`);
  if (sendDays.includes(local.weekday)) return due;
  for (let ahead = 1; ahead <= DAYS_IN_WEEK; ahead++) {
    const day = local.plus({ days: ahead });
    if (!sendDays.includes(day.weekday)) continue;
    return firstInstantOf({ date: day.toFormat("yyyy-MM-dd"), time: time ?? local.toFormat("HH:mm"), zone });
  }
  throw new Error(`no weekday among ${sendDays.join(", ")}`);
}

/** Returns when the send of a draft starts that is confirmed at `now`: at its time, else at once or when the next allowed day begins. */
export function startOf(
  now: Date,
  { sendAt, sendDays, timeZone }: Pick<Draft, "sendAt" | "sendDays" | "timeZone">,
): Date {
  if (sendAt === null) return nextSendAt(now, sendDays, timeZone, "00:00");
  return nextSendAt(new Date(Math.max(now.getTime(), Date.parse(sendAt))), sendDays, timeZone);
}
