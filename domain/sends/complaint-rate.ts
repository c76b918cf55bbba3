import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { DELIVERED, figureRows } from "../analytics/figures.ts";

/** At which the API confirms no send, and a send under way is paused. */
export const COMPLAINT_THRESHOLD = 0.002;
export const COMPLAINT_WINDOW_DAYS = 30;
/** A send that was resumed is paused again when the rate has risen by so much since. */
const COMPLAINT_RISE = 0.0005;

const TODAY = sql`(clock_timestamp() at time zone 'UTC')::date`;
const RATE = sql`coalesce(complaints / nullif(greatest(delivered, complaints), 0), 0)`;
const windowOf = (tenant: Tenant) =>
  figureRows(tenant, { from: sql`${TODAY} - ${COMPLAINT_WINDOW_DAYS - 1}::int`, to: TODAY });

/** SQL: a fraction of the mail delivered in the window, at most 1; 0 without a complaint. No minimum volume. */
export const complaintRate = (tenant: Tenant): RawBuilder<number> => sql<number>`(
    select ${RATE} from (
      select sum(${DELIVERED})::float8 as delivered, sum(complaints_received)::float8 as complaints from (${windowOf(tenant)}) f
    ) c)`;

export interface ComplaintFigures {
  complaints: number;
  delivered: number;
  rate: number;
  /** The first UTC day, as `2026-12-26`, with a rate below the threshold if neither mail nor a complaint is added. */
  belowFrom: string;
}

export async function readComplaintFigures(em: EntityManager, tenant: Tenant): Promise<ComplaintFigures> {
  const { rows } = await sql<ComplaintFigures>`
    with days as materialized (
      select day, sum(${DELIVERED})::float8 as delivered, sum(complaints_received)::float8 as complaints
      from (${windowOf(tenant)}) f group by day
    ), windows as (
      select n, coalesce(sum(delivered), 0) as delivered, coalesce(sum(complaints), 0) as complaints
      from generate_series(0, ${COMPLAINT_WINDOW_DAYS}::int) n left join days on day > ${TODAY} - ${COMPLAINT_WINDOW_DAYS}::int + n
      group by n
    )
    select complaints, delivered, ${RATE} as rate, (
      select to_char(${TODAY} + min(n), 'YYYY-MM-DD') from windows where ${RATE} < ${COMPLAINT_THRESHOLD}::float8
    ) as "belowFrom" from windows where n = 0`.execute(kysely(em));
  const [figures] = rows;
  if (!figures) throw new Error("the window has figures");
  return figures;
}

/**
 * SQL: the rate at which a send of `sends s` is paused. Cut off in decimals: the sum of two floats can exceed the rate that it
 * should equal.
 */
export const complaintLimit = sql<number>`coalesce(
  trunc(s.complaint_rate::numeric + ${sql.lit(COMPLAINT_RISE)}, 12), ${sql.lit(COMPLAINT_THRESHOLD)})::float8`;
