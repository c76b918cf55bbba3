import { DateTime } from "luxon";

const DAYS_IN_WEEK = 7;

/**
 * Returns when a send that is confirmed at `now` starts: at once on an allowed day, else at the start of the next one
 * in the team's time zone; a day without midnight starts at its first instant.
 * @param sendDays ISO weekdays, 1 Monday to 7 Sunday; empty allows every day
 */
export function nextSendAt(now: Date, sendDays: readonly number[], timeZone: string): Date {
  if (sendDays.length === 0) return now;
  const local = DateTime.fromJSDate(now, { zone: timeZone });
  if (!local.isValid) throw new Error(`unknown time zone ${timeZone}`);
  if (sendDays.includes(local.weekday)) return now;
  for (let ahead = 1; ahead <= DAYS_IN_WEEK; ahead++) {
    const day = local.plus({ days: ahead }).startOf("day");
    if (sendDays.includes(day.weekday)) return day.toUTC().toJSDate();
  }
  throw new Error(`no weekday among ${sendDays.join(", ")}`);
}
