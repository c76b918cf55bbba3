import { type Expression, type RawBuilder, sql } from "kysely";

/** An instant of the database as the API shows it: ISO 8601 text in UTC with milliseconds; null stays null. */
export const isoInstant = (instant: Expression<unknown>): RawBuilder<string> =>
  sql<string>`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
