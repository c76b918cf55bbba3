import { type Expression, type RawBuilder, sql } from "kysely";

/** An instant as the API shows it: ISO 8601 in UTC with milliseconds. */
export const isoInstant = (instant: Expression<unknown>): RawBuilder<string> =>
  sql<string>`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
