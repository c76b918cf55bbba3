import { type RawBuilder, sql } from "kysely";

/** `YYYY-MM-DD`, or the distance from today in days. */
export type Day = string | number;

/* Days by the clock of the database. Each expression is a subquery that depends on no row: Postgres computes it once. */

const ofTeam = (teamId: string, expression: RawBuilder<unknown>) =>
  sql`(select ${expression} from teams t where t.id = ${teamId})`;

const dateOf = (day: Day) =>
  typeof day === "string" ? sql`${day}::date` : sql`((now() at time zone t.time_zone)::date + ${day}::int)`;

/** As a custom field of type date holds it. */
export const dayText = (teamId: string, day: Day): RawBuilder<unknown> =>
  typeof day === "string" ? sql`${day}` : ofTeam(teamId, sql`to_char(${dateOf(day)}, 'YYYY-MM-DD')`);

/**
 * The first instant of the day `after` days later. The lesser of two, because clock changes make each wrong on some days:
 * where midnight comes twice the first is the later one, where the zone left out the day before the second is.
 */
export function startOfDay(teamId: string, day: Day, after = 0): RawBuilder<unknown> {
  const midnight = sql`(${dateOf(day)} + ${after}::int)::timestamp`;
  const second = sql`interval '1 second'`;
  return ofTeam(
    teamId,
    sql`least(${midnight} at time zone t.time_zone, (${midnight} - ${second}) at time zone t.time_zone + ${second})`,
  );
}
