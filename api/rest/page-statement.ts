import { type RawBuilder, sql } from "kysely";

/** Columns of a page's statement beside those of the record. */
export interface Placed {
  /** Milliseconds since 1970, as text. */
  page_sorted_at_ms: string;
  page_id: string;
  /** Rows up to the limit and one more; Postgres does not send all of them when some are large. */
  page_found?: string;
  /** False for a row that only tells how far `walkMatching` came. */
  page_matches?: boolean;
  /** The place of a row in the walk, from 1. */
  page_place?: string;
}

type Statement<Row> = RawBuilder<Row & Placed>;

/** Most rows that a page walks in search of those that match, where no index serves the filter. */
export const MAX_WALKED = 10_000;

export const inPageOrder = (order: "asc" | "desc"): RawBuilder<unknown> =>
  sql`order by page_sorted_at_ms ${sql.raw(order)}, page_id ${sql.raw(order)}`;

/** A page of rows that stand in several ranges of an index, each in order. Reads at most `rows` of each. */
export const mergeRanges = <Row>(
  ranges: readonly Statement<Row>[],
  order: "asc" | "desc",
  rows: number,
): Statement<Row> =>
  sql`select * from (${sql.join(ranges, sql` union all `)}) ranges ${inPageOrder(order)} limit ${rows}`;

/**
 * The rows of a walk whose `column` has a value, and the last row of a walk that came to `MAX_WALKED`.
 * @param walk rows in order with their `page_place`, `MAX_WALKED` at most
 */
export const walkMatching = <Row>(
  walk: Statement<Row>,
  column: string,
  value: unknown,
  order: "asc" | "desc",
  rows: number,
): Statement<Row> => sql`
  select * from (select *, ${sql.ref(column)} = ${value} as page_matches from (${walk}) walked) walked
  where page_matches or page_place = ${MAX_WALKED} ${inPageOrder(order)} limit ${rows}`;

/** The rows of a page that begin within `bytes`: lengths are known without reading the values of `column`. */
export const beginWithin = <Row>(
  page: Statement<Row>,
  column: string,
  bytes: number,
  order: "asc" | "desc",
): Statement<Row> => sql`
  select * from (
    select *, count(*) over () as page_found, coalesce(sum(octet_length(${sql.ref(column)}::text)) over (
      ${inPageOrder(order)} rows between unbounded preceding and 1 preceding), 0) as page_begins_at
    from (${page}) found
  ) measured where page_begins_at < ${bytes} ${inPageOrder(order)}`;
