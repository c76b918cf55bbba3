import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely";
import { z } from "zod";
import { JsonText } from "../../db/json.ts";
import { type Database, type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { type DefinedStatement, defineStatement, type NamedValues } from "../../db/statements.ts";
import { ApiError } from "../../domain/errors.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { stableJson } from "../../lib/json-object.ts";
import type { RequestContext } from "../context.ts";
import { type Ok, ok } from "./definition.ts";
import { declareFilters } from "./filters.ts";
import { instant } from "./instant.ts";
import { itIs } from "./messages.ts";
import { readVisibleBeforeMs } from "./visible-before-cache.ts";

export const DEFAULT_LIMIT = 25;
export const MAX_LIMIT = 100;
export const MAX_CURSOR_LENGTH = 256;
/** Largest JSON of a page's records, in bytes: with the envelope around it an answer stays within 2 MiB. */
export const MAX_PAGE_BYTES = 2 * 1024 * 1024 - 4 * 1024;

const ORDERS = ["asc", "desc"] as const;
type Order = (typeof ORDERS)[number];

/** Columns a list can be sorted by: instants, so that a cursor stays short and paging is exact. */
export type SortColumn = "updated_at" | "created_at" | "unsubscribed_at";

const limit = z
  .string()
  .refine((text) => /^\d{1,9}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_LIMIT, {
    error: ({ input }) => `must be a whole number from 1 to ${MAX_LIMIT}${itIs(input)}`,
  })
  .transform(Number)
  .meta({
    type: "integer",
    minimum: 1,
    maximum: MAX_LIMIT,
    description: "Records of a page at most.",
    examples: [100],
  });

const since = instant.meta({
  description: "Only records that were changed at that time or later: `synced_through` of the previous run.",
  examples: ["2026-11-21T17:00:00.000Z"],
});

export const paging = {
  limit: limit.default(DEFAULT_LIMIT),
  cursor: z
    .string()
    .max(MAX_CURSOR_LENGTH)
    .optional()
    .meta({
      description: "`meta.next_cursor` of the page before, with all other parameters as they were.",
      examples: ["MTc4Njc5NjAwMDAwMC4uc3ViXzAxbTd6aDM0.Zm9yLWV4YW1wbGU"],
    }),
  order: z.enum(ORDERS).default("desc").describe("Newest first, or oldest first."),
};

interface ListSpec<Table extends keyof Database & string, Sort extends SortColumn, Filters extends z.ZodRawShape> {
  /** The team-owned table that is paged through; `page` always adds the tenant's condition. */
  table: Table;
  /** The unique column that breaks ties; `id` unless given. */
  idColumn?: keyof Database[Table] & string;
  /** The first is the default; a list with one takes no `sort`. With `updated_at` it can be read incrementally. */
  sorts: readonly [Sort, ...Sort[]];
  /** Each but an `ownFilters` asks for a value of the table's column of its name. */
  filters?: Filters;
  ownFilters?: readonly (keyof Filters & string)[];
  /** Where a sort's column has another name. */
  sortColumns?: Partial<Record<Sort, keyof Database[Table] & string>>;
  /**
   * The filter whose column stands first in the table's sort indexes, with every value of that column. A page without this
   * filter reads one range for each value and merges them, so no second index for each sort is needed.
   */
  ranges?: { filter: keyof Filters & keyof Database[Table] & string; values: readonly string[] };
  /** The column that may hold long texts: the page ends before its records exceed `MAX_PAGE_BYTES`. */
  largeColumn?: keyof Database[Table] & string;
}

/** The paging part of a parsed list query; its other fields are filters. */
interface Paging {
  limit: number;
  cursor?: string | undefined;
  order: Order;
  sort?: SortColumn | undefined;
  updated_since?: number | undefined;
}

interface Position {
  sortedAtMs: number;
  id: string;
  /** `synced_through` of page one; null on lists that have none. */
  syncedMs: number | null;
}

const cursorInvalid = () => new ApiError("cursor_invalid", undefined, { param: "cursor" });

/** A cursor: a position and its signature, which binds it to one list, tenant, sort, order and set of filters. */
export function encodeCursor(vault: Vault, binding: string, { sortedAtMs, id, syncedMs }: Position): string {
  const payload = Buffer.from(`${sortedAtMs}.${syncedMs ?? ""}.${id}`).toString("base64url");
  return `${payload}.${vault.sign("cursor", binding, payload)}`;
}

/** @throws {ApiError} `cursor_invalid` for anything that `encodeCursor` did not give for the same binding */
export function decodeCursor(vault: Vault, binding: string, cursor: string): Position {
  const [payload = "", signature = "", ...rest] = cursor.split(".");
  if (rest.length > 0 || !vault.verify(signature, "cursor", binding, payload)) throw cursorInvalid();
  const [sortedAt, synced, id] = Buffer.from(payload, "base64url").toString().split(".");
  if (!sortedAt || synced === undefined || !id) throw cursorInvalid();
  return { sortedAtMs: Number(sortedAt), id, syncedMs: synced === "" ? null : Number(synced) };
}

type PageContext = Pick<RequestContext, "em" | "vault" | "tenant" | "target">;

interface PageRow {
  /** Its place in the list: milliseconds since 1970 and its id. */
  sorted_at_ms: string;
  id: string;
  record: string;
  /** Rows up to the limit and one more, on a list with long texts: Postgres does not send all of them. */
  found?: string;
}

/** The rows whose JSON fits into so many bytes, and one at least. */
function takeFitting(rows: readonly PageRow[], maxBytes: number): PageRow[] {
  let bytes = 0;
  const end = rows.findIndex(({ record }, i) => {
    bytes += Buffer.byteLength(record) + 1;
    return bytes > maxBytes && i > 0;
  });
  return end < 0 ? [...rows] : rows.slice(0, end);
}

/** The values of a page's statement, besides those of its own filters. */
interface PageValues extends Tenant {
  /** The limit and one more. */
  rows: number;
  updatedSince: string | undefined;
  afterAt: string | undefined;
  afterId: string | undefined;
}

/** Rows of any table: of Kysely's types a page needs those that are the same for all, and they ask for one. */
type AnyRows = SelectQueryBuilder<Database, "lists", object>;

const wholeTable = (em: EntityManager, table: keyof Database): AnyRows =>
  kysely(em)
    .selectFrom(table as "lists")
    .selectAll();

const isoOf = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();

interface RecordsSpec<Values, From extends keyof Database, Row extends object, T> {
  /** The values that `rows` chooses by; those that are undefined do not choose. */
  values?: Values;
  /**
   * Selects all columns of the records from the list's table, joined and chosen as the endpoint needs; the whole table unless
   * given. It is called once for each set of values that are given, with placeholders: their contents are not known here.
   */
  rows?: (em: EntityManager, values: Values) => SelectQueryBuilder<Database, From, Row>;
  /** SQL: the JSON of a record, from the alias of its row; see domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<T>;
}

/**
 * Rows that are read at most before the limit cuts them: the limit and one more, rounded up. Postgres plans a short walk
 * through an index for a number that stands in the statement; the statements of all limits are few.
 */
const rowsToRead = (limit: number): number => (limit <= 25 ? 26 : 101);

/** `synced_through` of a page one: never before the instant since which the client asks for changes. */
async function readSyncedMs({ em }: PageContext, updatedSinceMs = 0): Promise<number> {
  return Math.max((await readVisibleBeforeMs(em)) ?? 0, updatedSinceMs);
}

/**
 * Declares how a list endpoint pages, by (sort column, id). `query` is the schema of its query parameters; `pageRecords`
 * answers it. Example: `lists` and `page` in api/lists/routes.ts.
 */
export function defineList<
  Table extends keyof Database & string,
  Sort extends SortColumn,
  Filters extends z.ZodRawShape = Record<never, never>,
>(spec: ListSpec<Table, Sort, Filters>) {
  const { table, idColumn = "id", sorts, ranges, largeColumn } = spec;
  const [defaultSort] = sorts;
  const hasSync = sorts.some((sort) => sort === "updated_at");
  const filterNames = Object.keys(spec.filters ?? {});
  declareFilters(filterNames);
  /** The filters that ask for a value of a column. */
  const equal = filterNames.filter((name) => !spec.ownFilters?.includes(name));
  const query = z.strictObject({
    ...paging,
    ...(sorts.length > 1
      ? { sort: z.enum(sorts).default(defaultSort).describe("The time that the records are sorted by.") }
      : {}),
    ...(hasSync ? { updated_since: since.optional() } : {}),
    ...(spec.filters as Filters),
  });
  const columnOf = (alias: string, column: PropertyKey) => sql.ref(`${alias}.${String(column)}`);

  /** The records of a page's rows, up to its limit and one more. */
  function pageStatement(
    rows: AnyRows,
    record: (row: string) => RawBuilder<unknown>,
    { sort, order, atMost, inRanges }: { sort: Sort; order: Order; atMost: number; inRanges: boolean },
    { rows: limit, updatedSince, afterAt, afterId, teamId, environment, ...given }: PageValues & NamedValues,
  ): RawBuilder<PageRow> {
    const direction = sql.raw(order);
    const placeIn = (alias: string) =>
      [columnOf(alias, spec.sortColumns?.[sort] ?? sort), columnOf(alias, idColumn)] as const;
    const [sortedBy, id] = placeIn(table);
    let selected = rows
      .where(ofTenant({ teamId, environment }, table))
      .orderBy(sortedBy, order)
      .orderBy(id, order)
      .limit(sql.lit(atMost));
    for (const name of equal) {
      if (given[name] !== undefined) selected = selected.where(sql<boolean>`${columnOf(table, name)} = ${given[name]}`);
    }
    if (updatedSince !== undefined)
      selected = selected.where(sql<boolean>`${columnOf(table, "updated_at")} >= ${updatedSince}::timestamptz`);
    if (afterAt !== undefined) {
      const beyond = sql.raw(order === "asc" ? ">" : "<");
      selected = selected.where(sql<boolean>`(${sortedBy}, ${id}) ${beyond} (${afterAt}::timestamptz, ${afterId})`);
    }
    const parts =
      ranges && inRanges
        ? ranges.values.map((value) => selected.where(sql<boolean>`${columnOf(table, ranges.filter)} = ${value}`))
        : [selected];
    const [at, foundId] = placeIn("found");
    const ordered = sql`order by ${at} ${direction}, ${foundId} ${direction}`;
    const found = sql`(${sql.join(parts, sql` union all `)}) found`;
    // Lengths are known without reading the texts.
    const within = sql`(
      select found.* from (
        select *, count(*) over () as page_found, coalesce(sum(octet_length(${columnOf("found", largeColumn ?? "")}::text)) over (
          ${ordered} rows between unbounded preceding and 1 preceding), 0) as page_begins_at
        from ${found}) found
      where page_begins_at < ${sql.lit(MAX_PAGE_BYTES)}) found`;
    // Whole milliseconds, exact as a float; `extract` would calculate in numeric, which takes longer.
    return sql`select (date_part('epoch', ${at}) * 1000)::bigint as sorted_at_ms, ${foundId} as id,
        ${record("found")} as record ${largeColumn ? sql`, page_found as found` : sql``}
      from ${largeColumn ? within : found} ${ordered} limit ${limit}`;
  }

  /** By the shape of the page and the names of the values that it filters by. */
  const statements = new Map<string, DefinedStatement<NamedValues, PageRow>>();

  /** Reads one page. To be called in one place for each list: its statements are kept. @throws {ApiError} `cursor_invalid` */
  async function pageRecords<Values extends NamedValues, From extends keyof Database, Row extends object, T>(
    ctx: PageContext,
    input: z.output<typeof query>,
    { values: own, rows, record }: RecordsSpec<Values, From, Row, T>,
  ): Promise<Ok<T[]>> {
    const { limit, cursor, order, sort: given, updated_since: since, ...filters } = input as Paging & NamedValues;
    const sort = (given ?? defaultSort) as Sort;
    const { vault, target, tenant } = ctx;
    const binding = stableJson([target, tenant.teamId, tenant.environment, sort, order, since ?? null, filters]);
    const after = cursor === undefined ? null : decodeCursor(vault, binding, cursor);
    const syncedMs = !hasSync ? null : after ? after.syncedMs : await readSyncedMs(ctx, since);

    const values: PageValues & NamedValues = {
      ...own,
      ...Object.fromEntries(equal.map((name) => [name, filters[name]])),
      ...{ teamId: tenant.teamId, environment: tenant.environment, rows: limit + 1 },
      ...{ updatedSince: isoOf(since), afterAt: isoOf(after?.sortedAtMs), afterId: after?.id },
    };
    const inRanges = ranges !== undefined && Object.values(filters).every((value) => value === undefined);
    const shape = { sort, order, atMost: rowsToRead(limit), inRanges };
    const named = Object.keys(values).filter((name) => values[name] !== undefined);
    const key = [...Object.values(shape), ...named].join(" ");
    let statement = statements.get(key);
    if (!statement) {
      statement = defineStatement((em, placeholders) => {
        const named = placeholders as unknown as Values & PageValues;
        const from = rows ? (rows(em, named) as unknown as AnyRows) : wholeTable(em, table);
        return pageStatement(from, record, shape, named);
      });
      statements.set(key, statement);
    }
    const { rows: found } = await statement(ctx.em, values);
    const shown = takeFitting(found.slice(0, limit), largeColumn ? MAX_PAGE_BYTES : Infinity);
    const last = shown.at(-1);
    const hasMore = last !== undefined && Number(found[0]?.found ?? found.length) > shown.length;
    return ok(new JsonText<T[]>(`[${shown.map(({ record }) => record).join()}]`), {
      meta: {
        has_more: hasMore,
        next_cursor: hasMore
          ? encodeCursor(vault, binding, { sortedAtMs: Number(last.sorted_at_ms), id: last.id, syncedMs })
          : null,
        ...(syncedMs === null ? {} : { synced_through: isoOf(syncedMs) }),
      },
    });
  }

  return { query, pageRecords };
}
