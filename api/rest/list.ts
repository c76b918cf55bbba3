import type { EntityName } from "@mikro-orm/postgresql";
import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely";
import { z } from "zod";
import { JsonText, jsonTextOf } from "../../db/json.ts";
import { type Database, type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { recordReader } from "../../db/records.ts";
import { type DefinedStatement, defineStatement, type NamedValues } from "../../db/statements.ts";
import { ApiError } from "../../domain/errors.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { stableJson } from "../../lib/json-object.ts";
import type { RequestContext } from "../context.ts";
import { type Ok, ok } from "./definition.ts";
import { declareFilters } from "./filters.ts";
import { itIs } from "./messages.ts";
import {
  beginWithin,
  type Found,
  joinRecords,
  MAX_WALKED,
  mergeRanges,
  type PageRow,
  type Place,
  type Placed,
  recordColumn,
  recordsOf,
  rowsToRead,
  type Walked,
  walkMatching,
} from "./page-statement.ts";
import { readVisibleBeforeMs } from "./visible-before.ts";

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

/** A date-time with a zone. No record is older than 1970. */
const since = z.iso
  .datetime({ offset: true })
  .transform((text) => Math.max(Date.parse(text), 0))
  .meta({
    description: "Only records that were changed at that time or later: `synced_through` of the previous run.",
    examples: ["2026-11-21T17:00:00.000Z"],
  });

/** The parameters of every list. */
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

/** How one list endpoint pages. */
interface ListSpec<Table extends keyof Database & string, Sort extends SortColumn, Filters extends z.ZodRawShape> {
  /** The team-owned table that is paged through; `page` always adds the tenant's condition. */
  table: Table;
  /** The unique column that breaks ties; `id` unless given. */
  idColumn?: keyof Database[Table] & string;
  /** The first is the default. */
  sorts: readonly [Sort, ...Sort[]];
  /** False for a list with one fixed sort: it takes no `sort`. */
  sortable?: boolean;
  /** Takes `updated_since`. */
  updatedSince?: boolean;
  filters?: Filters;
  /** Where a sort's column has another name. */
  sortColumns?: Partial<Record<Sort, keyof Database[Table] & string>>;
  /**
   * The filter whose column stands first in the table's sort indexes, with every value of that column. A page without this
   * filter reads one range for each value and merges them, so no second index for each sort is needed.
   */
  ranges?: { filter: keyof Filters & keyof Database[Table] & string; values: readonly string[] };
  /**
   * The columns and values of filters that no index serves. By these `page` itself filters, in at most 10,000 rows (`MAX_WALKED`),
   * and may end with few records; the endpoint's `rows` selects the columns and must not filter by them.
   */
  walked?: (filters: z.output<z.ZodObject<Filters>>) => Walked;
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

/** The records whose JSON fits into so many bytes, and one at least. */
function takeFitting<Row, T>(rows: readonly Row[], present: (row: Row) => T, maxBytes: number): T[] {
  const taken: T[] = [];
  let bytes = 0;
  for (const row of rows) {
    const record = present(row);
    if (maxBytes !== Infinity) bytes += Buffer.byteLength(jsonTextOf(record)) + 1;
    if (taken.length > 0 && bytes > maxBytes) break;
    taken.push(record);
  }
  return taken;
}

/** A page as a request asks for it. */
interface PageRequest {
  sort: SortColumn;
  order: Order;
  limit: number;
  filters: Readonly<Record<string, unknown>>;
  /** Milliseconds since 1970. */
  updatedSince: number | undefined;
  /** List, tenant, sort, order and filters: a cursor belongs to them. */
  binding: string;
  /** The page begins behind it. */
  after: Position | null;
  /** `synced_through`; null on lists that have none. */
  syncedMs: number | null;
}

/** The values of a page's statement, besides those of its own filters. */
interface PageValues {
  teamId: string;
  environment: Tenant["environment"];
  /** The limit and one more. */
  rows: number;
  updatedSince: string | undefined;
  afterAt: string | undefined;
  afterId: string | undefined;
}

const isoOf = (ms: number): string => new Date(ms).toISOString();

const valuesOf = ({ teamId, environment }: Tenant, { limit, updatedSince, after }: PageRequest): PageValues => ({
  teamId,
  environment,
  rows: limit + 1,
  updatedSince: updatedSince === undefined ? undefined : isoOf(updatedSince),
  afterAt: after ? isoOf(after.sortedAtMs) : undefined,
  afterId: after?.id,
});

/** The parts of a request that the text of its page's statement depends on. */
interface PageShape {
  sort: SortColumn;
  order: Order;
  /** Rows that are read at most. */
  atMost: number;
  /** Reads one range for each value of the column. */
  inRanges: boolean;
  /** The values that are walked for; undefined without any. */
  walkedFor: Walked | undefined;
}

/** The records of a list. */
interface RecordsSpec<Values, From extends keyof Database, Row extends object, T> {
  /** The values that the rows are chosen by; those that are undefined do not choose. */
  values: Values;
  /**
   * Selects from the list's table, joined and filtered as the endpoint needs, all columns of the records. It is called once
   * for each set of values that are given, with placeholders for them: their contents are not known here.
   */
  rows: (em: EntityManager, values: Values) => SelectQueryBuilder<Database, From, Row>;
  /** SQL: the JSON of a record, from the alias of its row; see domain/webhooks/records.ts. */
  record: (row: string) => RawBuilder<T>;
}

/** The parts of a list's declaration that its statements are made from. */
interface StatementSpec {
  table: keyof Database & string;
  idColumn?: string;
  sortColumns?: Readonly<Record<string, unknown>>;
  ranges?: { filter: string; values: readonly string[] };
  largeColumn?: string;
}

/** References to the column that a list is sorted by, and to the id that breaks ties. */
const sortRefs = ({ table, idColumn = "id", sortColumns }: StatementSpec, sort: SortColumn) => ({
  sortedBy: sql.ref<string>(`${table}.${sortColumns?.[sort] ?? sort}`),
  id: sql.ref<string>(`${table}.${idColumn}`),
});

const shapeOf = (
  { ranges }: StatementSpec,
  { sort, order, limit, filters }: PageRequest,
  walked: Walked = {},
): PageShape => ({
  sort,
  order,
  atMost: rowsToRead(limit),
  inRanges: ranges !== undefined && Object.values(filters).every((value) => value === undefined),
  walkedFor: Object.keys(walked).length > 0 ? walked : undefined,
});

/** The tenant's rows in the order of the page, from behind a position on. */
function sortedRows<From extends keyof Database, Row extends object>(
  spec: StatementSpec,
  rows: SelectQueryBuilder<Database, From, Row>,
  { sort, order, atMost }: PageShape,
  { updatedSince, afterAt, afterId, ...tenant }: PageValues,
) {
  const { table } = spec;
  const { sortedBy, id } = sortRefs(spec, sort);
  let selected = rows
    .select([
      // Whole milliseconds, exact as a float; `extract` would calculate in numeric, which takes longer.
      sql<string>`(date_part('epoch', ${sortedBy}) * 1000)::bigint`.as("page_sorted_at_ms"),
      sql<string>`${id}`.as("page_id"),
    ])
    .where(ofTenant(tenant, table))
    .orderBy(sortedBy, order)
    .orderBy(id, order)
    .limit(sql.lit(atMost));
  if (updatedSince !== undefined)
    selected = selected.where(sql<boolean>`${sql.ref(`${table}.updated_at`)} >= ${updatedSince}::timestamptz`);
  if (afterAt !== undefined) {
    const beyond = sql.raw(order === "asc" ? ">" : "<");
    selected = selected.where(sql<boolean>`(${sortedBy}, ${id}) ${beyond} (${afterAt}::timestamptz, ${afterId})`);
  }
  return selected;
}

/** The rows of a page: as selected, merged from one range per value, or walked. */
function foundRows<From extends keyof Database, Row extends object>(
  spec: StatementSpec,
  selected: SelectQueryBuilder<Database, From, Row>,
  { sort, order, atMost, inRanges, walkedFor }: PageShape,
): RawBuilder<Row & Placed> {
  const { table, ranges } = spec;
  if (ranges && inRanges) {
    const column = sql.ref(`${table}.${ranges.filter}`);
    const parts = ranges.values.map(
      (value) => sql<Row & Placed>`${selected.where(sql<boolean>`${column} = ${value}`)}`,
    );
    return mergeRanges(parts, order, atMost);
  }
  if (walkedFor) {
    const { sortedBy, id } = sortRefs(spec, sort);
    const place = sql<string>`row_number() over (order by ${sortedBy} ${sql.raw(order)}, ${id} ${sql.raw(order)})`;
    const walk = selected.clearLimit().select(place.as("page_place")).limit(sql.lit(MAX_WALKED));
    return walkMatching(sql<Row & Placed>`${walk}`, walkedFor, order, atMost);
  }
  return sql<Row & Placed>`${selected}`;
}

/** The columns that the rows of a page have beside their places and records. */
const extraColumns = ({ largeColumn }: StatementSpec, { walkedFor }: PageShape): (keyof Found)[] => [
  ...(largeColumn ? (["page_found"] as const) : []),
  ...(walkedFor === undefined ? [] : (["page_matches", "page_place"] as const)),
];

/** The statement of a page: columns of its rows `found`, up to its limit and one more. */
function pageStatement<From extends keyof Database, Row extends object, Columns>(
  spec: StatementSpec,
  columns: RawBuilder<Columns>,
  rows: SelectQueryBuilder<Database, From, Row>,
  shape: PageShape,
  values: PageValues,
): RawBuilder<Columns> {
  const { idColumn = "id", sortColumns, largeColumn } = spec;
  const { sort, order } = shape;
  const found = foundRows(spec, sortedRows(spec, rows, shape, values), shape);
  const within = largeColumn ? beginWithin(found, largeColumn, MAX_PAGE_BYTES, order) : found;
  const direction = sql.raw(order);
  return sql`select ${columns} from (${within}) found
    order by ${sql.ref(`found.${sortColumns?.[sort] ?? sort}`)} ${direction}, ${sql.ref(`found.${idColumn}`)} ${direction}
    limit ${values.rows}`;
}

/**
 * The records of a page, out of the rows that its statement found.
 * @returns also the row behind which the next page begins; undefined on the last page
 */
function cutPage<Row extends object, T>(
  found: readonly (Row & Place & Found)[],
  present: (row: Row) => T,
  limit: number,
  maxBytes: number,
): { shown: T[]; next: Place | undefined } {
  const matching = found.filter(({ page_matches }) => page_matches !== false);
  const shown = takeFitting(matching.slice(0, limit), present, maxBytes);
  // Behind the records shown there are others that were found, or the walk for others ended early.
  const hasMore =
    Number(found[0]?.page_found ?? found.length) > shown.length || Number(found.at(-1)?.page_place) === MAX_WALKED;
  const last = shown.length < matching.length ? matching[shown.length - 1] : found.at(-1);
  return { shown, next: hasMore ? last : undefined };
}

/**
 * `synced_through` of a page one. A client that asks for changes since an instant has those before it, or does not want
 * them, so it is never sent back behind that instant.
 */
async function readSyncedMs({ em }: PageContext, updatedSinceMs = 0): Promise<number> {
  return Math.max((await readVisibleBeforeMs(em)) ?? 0, updatedSinceMs);
}

/**
 * Declares how a list endpoint pages. `query` is the schema of its query parameters; `pageRecords` answers it.
 * Example: `lists` and `page` in api/lists/routes.ts.
 *
 * Paging is by (sort column, id), so records that are added or deleted between pages neither repeat nor hide others. A
 * page may hold fewer records than its limit and have more after it.
 */
export function defineList<
  Table extends keyof Database & string,
  Sort extends SortColumn,
  Filters extends z.ZodRawShape = Record<never, never>,
>(spec: ListSpec<Table, Sort, Filters>) {
  const { sorts, sortable = true, updatedSince = false } = spec;
  const [defaultSort] = sorts;
  declareFilters(Object.keys(spec.filters ?? {}));
  const query = z.strictObject({
    ...paging,
    ...(sortable
      ? { sort: z.enum(sorts).default(defaultSort).describe("The time that the records are sorted by.") }
      : {}),
    ...(updatedSince ? { updated_since: since.optional() } : {}),
    ...(spec.filters as Filters),
  });
  const synced = sorts.some((sort) => sort === "updated_at");

  /** The order and the beginning of a page that a request asks for. @throws {ApiError} `cursor_invalid` */
  async function readRequest(ctx: PageContext, input: z.output<typeof query>): Promise<PageRequest> {
    const { limit, cursor, order, sort = defaultSort, updated_since: updatedSince, ...filters } = input as Paging;
    const { teamId, environment } = ctx.tenant;
    const binding = stableJson([ctx.target, teamId, environment, sort, order, updatedSince ?? null, filters]);
    const after = cursor === undefined ? null : decodeCursor(ctx.vault, binding, cursor);
    const syncedMs = !synced ? null : after ? after.syncedMs : await readSyncedMs(ctx, updatedSince);
    return { sort, order, limit, updatedSince, filters, binding, after, syncedMs };
  }

  /** The `meta` of a page. @param next the row behind which the next page begins; undefined for the last page */
  const metaOf = ({ vault }: PageContext, { binding, syncedMs }: PageRequest, next: Place | undefined) => ({
    has_more: next !== undefined,
    next_cursor: next
      ? encodeCursor(vault, binding, { sortedAtMs: Number(next.page_sorted_at_ms), id: next.page_id, syncedMs })
      : null,
    ...(syncedMs === null ? {} : { synced_through: new Date(syncedMs).toISOString() }),
  });

  const shapeFor = (request: PageRequest) =>
    shapeOf(spec, request, spec.walked?.(request.filters as z.output<z.ZodObject<Filters>>));
  const maxBytes = spec.largeColumn ? MAX_PAGE_BYTES : Infinity;

  /** The statements of pages of records, by the shape of the page and the names of the values that it filters by. */
  const statements = new Map<string, DefinedStatement<NamedValues, PageRow>>();

  /**
   * Reads one page, of records that Postgres makes: they go into the answer as they are. To be called in one place for each
   * list, because statements are compiled once.
   * @throws {ApiError} `cursor_invalid`
   */
  async function pageRecords<Values extends NamedValues, From extends keyof Database, Row extends object, T>(
    ctx: PageContext,
    input: z.output<typeof query>,
    { values: own, rows, record }: RecordsSpec<Values, From, Row, T>,
  ): Promise<Ok<T[]>> {
    const request = await readRequest(ctx, input);
    const shape = shapeFor(request);
    const values = { ...own, ...valuesOf(ctx.tenant, request) };
    const { sort, order, atMost, inRanges, walkedFor } = shape;
    let key = `${sort} ${order} ${atMost} ${inRanges} ${JSON.stringify(walkedFor)}`;
    for (const name in values) if (values[name] !== undefined) key += ` ${name}`;
    let statement = statements.get(key);
    const extra = extraColumns(spec, shape);
    if (!statement) {
      const column = recordColumn(record("found"), extra);
      statement = defineStatement((em, given) => {
        const named = given as typeof values;
        return joinRecords(pageStatement(spec, column, rows(em, named), shape, named));
      });
      statements.set(key, statement);
    }
    const { rows: found } = await statement(ctx.em, values);
    const records = found.flatMap((row) => recordsOf<T>(row, extra));
    const { shown, next } = cutPage(records, ({ record }) => record, request.limit, maxBytes);
    return ok(new JsonText<T[]>(`[${shown.map(({ text }) => text).join()}]`), { meta: metaOf(ctx, request, next) });
  }

  /**
   * The same with records that this process makes from the rows, which costs several times as much: for records that
   * SQL cannot make.
   * @param rows selects from the list's table, joined and filtered as the endpoint needs
   */
  async function page<From extends keyof Database, Row extends object, T>(
    ctx: PageContext,
    input: z.output<typeof query>,
    rows: SelectQueryBuilder<Database, From, Row>,
    present: (row: Row) => T,
  ): Promise<Ok<T[]>> {
    const request = await readRequest(ctx, input);
    const values = valuesOf(ctx.tenant, request);
    const statement = pageStatement(spec, sql<Row & Placed>`*`, rows, shapeFor(request), values);
    const { rows: found } = await statement.execute(kysely(ctx.em));
    const { shown, next } = cutPage(found, present, request.limit, maxBytes);
    return ok(shown, { meta: metaOf(ctx, request, next) });
  }

  /** As `page`, for rows of the list's own table, shown by the presenter of its entity. */
  function pageEntities<From extends keyof Database, Row extends object, Entity extends object, T>(
    ctx: PageContext,
    input: z.output<typeof query>,
    rows: SelectQueryBuilder<Database, From, Row>,
    entity: EntityName<Entity>,
    present: (entity: Readonly<Entity>, row: Row) => T,
  ): Promise<Ok<T[]>> {
    const read = recordReader(ctx.em, entity);
    return page(ctx, input, rows, (row) => present(read(row), row));
  }

  return { query, pageRecords, page, pageEntities };
}
