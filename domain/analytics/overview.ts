import { sql } from "kysely";
import { FIGURES, type Figure } from "../../db/entities/analytics.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { resourceTypeOf } from "../sends/operators/inspection.ts";
import { figureRows } from "./figures.ts";

/** A leap year fits. */
export const MAX_DAYS = 366;
export const DEFAULT_DAYS = 30;

export type Counts = Record<Figure | "delivered", number>;

/** Dates as `2026-11-21`. */
export interface OverviewQuery {
  from?: string | undefined;
  to?: string | undefined;
  /** All of the tenant unless given. */
  resourceIds?: readonly string[] | undefined;
}

export interface Overview {
  /** In UTC. */
  from: string;
  to: string;
  days: { date: string; counts: Counts }[];
  totals: Counts;
}

/** @throws {ApiError} `not_found` */
export async function refuseUnknownResource(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  const type = resourceTypeOf(id);
  const rows = type && kysely(em).selectFrom(`${type}s`).select("id").where(ofTenant(tenant)).where("id", "=", id);
  if (!(await rows?.executeTakeFirst())) throw notFound("resource_id");
}

const DAY_MS = 86_400_000;
const dayNumber = (date: string): number => Date.parse(`${date}T00:00:00Z`) / DAY_MS;
const dateOf = (day: number): string => new Date(day * DAY_MS).toISOString().slice(0, "2026-11-21".length);

async function readToday(em: EntityManager): Promise<string> {
  const { rows } = await sql<{ today: string }>`
    select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD') as today`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new Error("the database gave no date");
  return row.today;
}

/** The last day is today unless given. @throws {ApiError} `validation_failed` */
async function resolveRange(em: EntityManager, { from, to }: OverviewQuery): Promise<{ first: number; last: number }> {
  const end = to ?? (await readToday(em));
  const last = dayNumber(end);
  const first = from === undefined ? last - (DEFAULT_DAYS - 1) : dayNumber(from);
  if (first > last) {
    const latest = to === undefined ? `today, ${end} in UTC` : `to, ${end}`;
    throw new ApiError("validation_failed", `from must not be after ${latest}; it is ${from}.`, { param: "from" });
  }
  const days = last - first + 1;
  if (days > MAX_DAYS) {
    const message = `A range holds at most ${MAX_DAYS} days; from ${dateOf(first)} to ${end} it has ${days}.`;
    throw new ApiError("validation_failed", message, { param: "from" });
  }
  return { first, last };
}

const ZEROS = Object.fromEntries([...FIGURES, "delivered"].map((figure) => [figure, 0])) as Counts;

const SUMS = sql.join(FIGURES.map((figure) => sql`coalesce(sum(${sql.id(figure)}), 0)::float8 as ${sql.id(figure)}`));

/** See `DELIVERED`. */
const withDelivered = (counts: Record<Figure, number>): Counts => ({
  ...counts,
  delivered: counts.sent - counts.bounced_hard - counts.bounced_soft,
});

export const sumOf = (all: readonly Counts[]): Counts =>
  Object.fromEntries(
    Object.keys(ZEROS).map((figure) => [figure, all.reduce((sum, counts) => sum + counts[figure as Figure], 0)]),
  ) as Counts;

/** @returns the figures of each resource, of all days */
export async function readFigures(
  em: EntityManager,
  tenant: Tenant,
  resourceIds: readonly string[],
): Promise<(id: string) => Counts> {
  const scope = { resourceIds, from: sql`'-infinity'`, to: sql`'infinity'` };
  const { rows } = await sql<Record<Figure, number> & { id: string }>`
    select resource_id as id, ${SUMS} from (${figureRows(tenant, scope)}) f group by resource_id`.execute(kysely(em));
  const known = new Map(rows.map(({ id, ...counts }) => [id, withDelivered(counts)]));
  return (id) => known.get(id) ?? ZEROS;
}

/**
 * The outcomes of the mails of a tenant, or of resources, per UTC day, exact at the moment of the call.
 * @throws {ApiError} `validation_failed` for a range
 */
export async function readOverview(em: EntityManager, tenant: Tenant, query: OverviewQuery): Promise<Overview> {
  const { first, last } = await resolveRange(em, query);
  const [from, to] = [dateOf(first), dateOf(last)];
  const scope = { resourceIds: query.resourceIds, from: sql`${from}::date`, to: sql`${to}::date` };
  const { rows } = await sql<Record<Figure, number> & { date: string }>`
    select to_char(day, 'YYYY-MM-DD') as date, ${SUMS} from (${figureRows(tenant, scope)}) f group by day
  `.execute(kysely(em));
  const known = new Map(rows.map(({ date, ...counts }) => [date, withDelivered(counts)]));
  const days = Array.from({ length: last - first + 1 }, (_, i) => {
    const date = dateOf(first + i);
    return { date, counts: known.get(date) ?? ZEROS };
  });
  return { from, to, days, totals: sumOf(days.map(({ counts }) => counts)) };
}
