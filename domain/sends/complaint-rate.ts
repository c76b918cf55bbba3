import { type RawBuilder, sql } from "kysely";
import type { Tenant } from "../../db/orm.ts";
import { DELIVERED, figureRows } from "../analytics/figures.ts";

/** Complaints over delivered mail at which the API confirms no send, and at which a send under way is paused. */
export const COMPLAINT_THRESHOLD = 0.002;
export const COMPLAINT_WINDOW_DAYS = 30;
/** A send that an operator resumed is paused again when the rate has risen by so much since. */
export const COMPLAINT_RISE = 0.0005;

/** The pause reason of a send whose team has too many complaints. */
export type ComplaintPause = "complaint_rate_exceeded";
export const COMPLAINT_PAUSE: ComplaintPause = "complaint_rate_exceeded";

/**
 * SQL: complaints that came in the window as a fraction of the mail delivered in it, at most 1; 0 without a complaint. No
 * minimum volume.
 */
export function complaintRate(tenant: Tenant): RawBuilder<number> {
  const today = sql`(clock_timestamp() at time zone 'UTC')::date`;
  const window = figureRows(tenant, { from: sql`${today} - ${COMPLAINT_WINDOW_DAYS - 1}::int`, to: today });
  return sql<number>`(
    select coalesce(complaints / nullif(greatest(delivered, complaints), 0), 0) from (
      select sum(${DELIVERED})::float8 as delivered, sum(complaints_received)::float8 as complaints from (${window}) f
    ) c)`;
}

/**
 * SQL: the complaint rate at which a send of the table `sends` is paused. In decimals, the last ones cut off: the sum of two
 * floats can be greater than the rate that it should equal, and the send would mail on at that rate.
 */
export const complaintLimit = (sends: string): RawBuilder<number> =>
  sql<number>`coalesce(trunc(${sql.ref(`${sends}.complaint_rate`)}::numeric + ${sql.lit(COMPLAINT_RISE)}, 12), ${sql.lit(COMPLAINT_THRESHOLD)})::float8`;
