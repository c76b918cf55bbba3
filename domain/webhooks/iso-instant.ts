import { type Expression, type RawBuilder, sql } from "kysely";

/** An instant as ISO 8601, UTC, milliseconds. */
export const isoInstant = (instant: Expression<unknown>): RawBuilder<string> =>
  sql<string>`to_char(${instant} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
