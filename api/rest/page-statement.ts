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

/** Separates the records of a page (U+001E): it cannot stand in JSON, which escapes it. */
const SEPARATOR = "\u001e";

/** The row of a page of records. */
export interface PageRow {
  /** Null without records. */
  page: string | null;
}

/**
 * SQL: a page as one value, which is read faster than a row for each record. Each record is its place, `extra` and its JSON,
 * with spaces between.
 * @param rows the page's rows in their order, with the column `page_record`
 */
export const joinRecords = (rows: RawBuilder<unknown>): RawBuilder<PageRow> =>
  // Rows of a sorted subquery alone are aggregated in its order.
  sql`select string_agg(page_record, ${sql.lit(SEPARATOR)}) as page from (${rows}) records`;

/** SQL: the column `page_record` of a record's row, out of a page's rows `found`. */
export const recordColumn = (record: RawBuilder<unknown>, extra: readonly (keyof Found)[]): RawBuilder<unknown> => {
  const parts = [
    sql`found.page_sorted_at_ms`,
    sql`found.page_id`,
    // A null part would make the whole record null.
    ...extra.map((column) => sql`coalesce(${sql.ref(`found.${column}`)}::text, '')`),
    record,
  ];
  return sql`${sql.join(parts, sql` || ' ' || `)} as page_record`;
};

/** A record of a page, and its place. */
export type PlacedRecord<T> = Place & Found & { record: JsonText<T> };

/** The records of a page. An id holds no spaces. @param extra as `recordColumn` was given them */
export function recordsOf<T>({ page }: PageRow, extra: readonly (keyof Found)[]): PlacedRecord<T>[] {
  return page === null ? [] : page.split(SEPARATOR).map((text) => placed(text, extra));
}

function placed<T>(text: string, extra: readonly (keyof Found)[]): PlacedRecord<T> {
  let from = 0;
  const next = () => {
    const to = text.indexOf(" ", from);
    const part = text.slice(from, to);
    from = to + 1;
    return part;
  };
  const place: Place & Found = { page_sorted_at_ms: next(), page_id: next() };
  for (const column of extra) {
    const value = next();
    if (column === "page_matches") place.page_matches = value === "true";
    else place[column] = value;
  }
  return { ...place, record: new JsonText<T>(text.slice(from)) };
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

/** The values of columns that the rows of a walk are to have. */
export type Walked = Readonly<Record<string, string | boolean>>;

const matches = (walked: Walked) =>
  sql.join(
    Object.entries(walked).map(([column, value]) => sql`${sql.ref(column)} = ${value}`),
    sql` and `,
  );

/**
 * The rows of a walk whose columns have these values, and the last row of a walk that came to `MAX_WALKED`.
 * @param walk rows in order with their `page_place`, `MAX_WALKED` at most
 */
export const walkMatching = <Row>(
  walk: Statement<Row>,
  walked: Walked,
  order: "asc" | "desc",
  rows: number,
): Statement<Row> => sql`
  select * from (select *, ${matches(walked)} as page_matches from (${walk}) walked) walked
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
