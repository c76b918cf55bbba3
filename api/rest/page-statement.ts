import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";

/** The place of a row in a list. */
export interface Place {
  /** Milliseconds since 1970, as text. */
  page_sorted_at_ms: string;
  page_id: string;
}

/** Columns that the rows of some pages have. */
export interface Found {
  /** Rows up to the limit and one more; Postgres does not send all of them when some are large. */
  page_found?: string;
  /** False for a row that only tells how far `walkMatching` came. */
  page_matches?: boolean;
  /** The place of a row in the walk, from 1. */
  page_place?: string;
}

/** Columns of a page's rows beside their own. */
export type Placed = Place & Found;

type Statement<Row> = RawBuilder<Row & Placed>;

/** Most rows that a page walks in search of those that match, where no index serves the filter. */
export const MAX_WALKED = 10_000;

/**
 * Rows that a page's statement reads at most before its limit cuts them: the limit and one more, rounded up. Postgres plans a
 * short walk through an index for a number that stands in the statement; the statements of all limits are few.
 */
export const rowsToRead = (limit: number): number => (limit <= 25 ? 26 : 101);

/** The row of a record that Postgres made. */
export interface RecordRow extends Found {
  /** `page_sorted_at_ms`, `page_id` and the JSON of the record: to decode three columns takes twice as long as one. */
  page_record: string;
}

/** SQL: the columns of a record's row, out of a page's rows `found`. */
export const recordColumns = (record: RawBuilder<unknown>, extra: readonly (keyof Found)[]): RawBuilder<RecordRow> =>
  sql.join([
    ...extra.map((column) => sql.ref(`found.${column}`)),
    sql`found.page_sorted_at_ms || ' ' || found.page_id || ' ' || ${record}::text as page_record`,
  ]);

/** The parts of a record's row. An id holds no spaces. */
export function placed<T>({ page_record: text, ...found }: RecordRow): Place & Found & { record: JsonText<T> } {
  const first = text.indexOf(" ");
  const second = text.indexOf(" ", first + 1);
  return {
    ...found,
    page_sorted_at_ms: text.slice(0, first),
    page_id: text.slice(first + 1, second),
    record: new JsonText<T>(text.slice(second + 1)),
  };
}

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
