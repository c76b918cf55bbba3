import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { DELIVERED, figureRows } from "../analytics/figures.ts";

/** Complaints over delivered mail at which the API confirms no send, and at which a send under way is paused. */
export const COMPLAINT_THRESHOLD = 0.002;
export const COMPLAINT_WINDOW_DAYS = 30;
/** A send that an operator resumed is paused again when the rate has risen by so much since. */
export const COMPLAINT_RISE = 0.0005;

const TODAY = sql`(clock_timestamp() at time zone 'UTC')::date`;
const RATE = sql`coalesce(complaints / nullif(greatest(delivered, complaints), 0), 0)`;
const windowOf = (tenant: Tenant) =>
  figureRows(tenant, { from: sql`${TODAY} - ${COMPLAINT_WINDOW_DAYS - 1}::int`, to: TODAY });

/**
 * SQL: complaints that came in the window as a fraction of the mail delivered in it, at most 1; 0 without a complaint. No
 * minimum volume.
 */
export const complaintRate = (tenant: Tenant): RawBuilder<number> => sql<number>`(
    select ${RATE} from (
      select sum(${DELIVERED})::float8 as delivered, sum(complaints_received)::float8 as complaints from (${windowOf(tenant)}) f
    ) c)`;

/** The figures of a team whose complaint rate has reached the threshold. */
export interface ComplaintFigures {
  complaints: number;
  delivered: number;
  /** A fraction. */
  rate: number;
  /** The first UTC day on which the rate is below the threshold, as `2026-12-26`, if neither mail nor a complaint is added. */
  belowFrom: string;
}

/** Reads the figures of the complaint rate of the window that ends today, and how it falls as days leave the window. */
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
 * SQL: the complaint rate at which a send of the table `sends` is paused. In decimals, the last ones cut off: the sum of two
 * floats can be greater than the rate that it should equal, and the send would mail on at that rate.
 */
export const complaintLimit = (sends: string): RawBuilder<number> =>
  sql<number>`coalesce(trunc(${sql.ref(`${sends}.complaint_rate`)}::numeric + ${sql.lit(COMPLAINT_RISE)}, 12), ${sql.lit(COMPLAINT_THRESHOLD)})::float8`;
