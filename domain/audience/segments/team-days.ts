import { type RawBuilder, sql } from "kysely";

/** A day as `YYYY-MM-DD`, or as its distance from today in days. */
export type Day = string | number;

/*
 * Days of the calendar in a team's time zone, by the clock of the database. Each expression is a subquery of its own that
 * depends on no row, so Postgres computes it once per statement.
 */

const ofTeam = (teamId: string, expression: RawBuilder<unknown>) =>
  sql`(select ${expression} from teams t where t.id = ${teamId})`;

const dateOf = (day: Day) =>
  typeof day === "string" ? sql`${day}::date` : sql`((now() at time zone t.time_zone)::date + ${day}::int)`;

/** The day as the text that a custom field of type date holds. */
export const dayText = (teamId: string, day: Day): RawBuilder<unknown> =>
  typeof day === "string" ? sql`${day}` : ofTeam(teamId, sql`to_char(${dateOf(day)}, 'YYYY-MM-DD')`);

/**
 * The first instant of the day that comes `after` days after `day`. It is the lesser of two expressions, because clock
 * changes make each of them wrong on some days. Where midnight comes twice, the first one gives the later midnight. Where
 * the time zone left out the day before, the second one gives a later instant.
 */
export function startOfDay(teamId: string, day: Day, after = 0): RawBuilder<unknown> {
  const midnight = sql`(${dateOf(day)} + ${after}::int)::timestamp`;
  const second = sql`interval '1 second'`;
  return ofTeam(
    teamId,
    sql`least(${midnight} at time zone t.time_zone, (${midnight} - ${second}) at time zone t.time_zone + ${second})`,
  );
}
