import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";

/** How long a delivery stays in the log, on the database's clock. */
export const DELIVERY_KEPT_DAYS = 30;
const KEPT = sql`${sql.lit(`${DELIVERY_KEPT_DAYS} days`)}::interval`;
/** An event outlives its youngest delivery: until then it can be replayed. */
export const EVENT_KEPT_DAYS = 31;
export const EVENT_KEPT: RawBuilder<unknown> = sql`${sql.lit(`${EVENT_KEPT_DAYS} days`)}::interval`;
/** By then no attempt that began before its endpoint was deleted is still under way. */
const LATE = sql`interval '1 hour'`;

/**
 * Keeps events for as long as a delivery that is made now.
 * @param tenant undefined for events of several tenants, whose ids come from the database
 * @returns how many of them still exist
 */
export async function keepEvents(
  em: EntityManager,
  tenant: Tenant | undefined,
  eventIds: readonly string[],
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    update webhook_events set kept_until = greatest(kept_until, now() + ${EVENT_KEPT})
    where id = any(${[...eventIds]}::text[]) and ${tenant ? ofTenant(tenant) : sql`true`}`.execute(kysely(em));
  return Number(numAffectedRows);
}

/** Deletes deliveries of one endpoint, `limit` at most. */
export async function deleteDeliveries(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  limit: number,
): Promise<void> {
  await sql`delete from webhook_deliveries where ctid = any(array(select ctid from webhook_deliveries
    where ${ofTenant(tenant)} and webhook_id = ${webhookId} limit ${limit}))`.execute(kysely(em));
}

/**
 * Deletes expired rows: logs of deleted endpoints, deliveries after 30 days unless they are still under way, events
 * that no delivery is kept for.
 * @param rows one statement deletes at most: a long delete would hold up others
 */
export async function deleteExpiredDeliveries(em: EntityManager, rows: number, stopping?: AbortSignal): Promise<void> {
  const db = kysely(em);
  // Lateral, so that the planner walks the log's index endpoint by endpoint under any estimate of the tables' sizes.
  const inBatches: RawBuilder<unknown>[] = [
    sql`delete from webhook_deliveries where ctid = any(array(
      select d.ctid from deleted_webhooks w cross join lateral (
        select ctid from webhook_deliveries where webhook_id = w.webhook_id limit ${rows}) d
      limit ${rows}))`,
    sql`delete from webhook_deliveries where ctid = any(array(
      select d.ctid from webhook_endpoints w cross join lateral (
        select ctid from webhook_deliveries
        where webhook_id = w.id and created_at < now() - ${KEPT} and status not in ('PENDING', 'RETRYING')
        order by created_at limit ${rows}) d
      limit ${rows}))`,
    // Asked twice: a replay may prolong an event between the look and the deletion.
    sql`delete from webhook_events where kept_until < now() and ctid = any(array(
      select ctid from webhook_events where kept_until < now() limit ${rows}))`,
  ];
  for (const statement of inBatches) {
    for (;;) {
      const { numAffectedRows = 0n } = await statement.execute(db);
      if (numAffectedRows < rows || stopping?.aborted) break;
    }
  }
  await sql`delete from webhook_groups g using deleted_webhooks w where g.webhook_id = w.webhook_id`.execute(db);
  await sql`delete from deleted_webhooks w where deleted_at < now() - ${LATE}
    and not exists (select from webhook_deliveries where webhook_id = w.webhook_id)`.execute(db);
}
