import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { batchOf, type Pruning } from "../retention/pruning.ts";

export const DELIVERY_KEPT_DAYS = 30;
const KEPT = sql`${sql.lit(`${DELIVERY_KEPT_DAYS} days`)}::interval`;
/** An event outlives its youngest delivery: until then it can be replayed. */
export const EVENT_KEPT_DAYS = 31;
export const EVENT_KEPT: RawBuilder<unknown> = sql`${sql.lit(`${EVENT_KEPT_DAYS} days`)}::interval`;
/** By then no attempt that began before its endpoint was deleted is still under way. */
const LATE = sql`interval '1 hour'`;

/**
 * Keeps events for as long as a delivery that is due then.
 * @param tenant undefined for several @param dueAt ISO 8601; null for now @returns how many still exist
 */
export async function keepEvents(
  em: EntityManager,
  tenant: Tenant | undefined,
  eventIds: readonly string[],
  dueAt: string | null = null,
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    update webhook_events set kept_until = greatest(kept_until, coalesce(${dueAt}::timestamptz, now()) + ${EVENT_KEPT})
    where id = any(${[...eventIds]}::text[]) and ${tenant ? ofTenant(tenant) : sql`true`}`.execute(kysely(em));
  return Number(numAffectedRows);
}

export async function deleteDeliveries(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  limit: number,
): Promise<void> {
  await sql`delete from webhook_deliveries where ctid = any(array(select ctid from webhook_deliveries
    where ${ofTenant(tenant)} and webhook_id = ${webhookId} limit ${limit}))`.execute(kysely(em));
}

/** Deletes rows by their place. @param places query for the `ctid` of so many rows @param stillExpired asked again at the deletion */
const deletion = (
  name: string,
  table: "webhook_deliveries" | "webhook_events" | "deleted_webhooks",
  places: (rows: number) => RawBuilder<unknown>,
  stillExpired: RawBuilder<unknown> = sql`true`,
): Pruning => ({
  name,
  async prune(em, rows) {
    const deleted = await sql`
      delete from ${sql.table(table)} where ${stillExpired} and ctid = any(array(${places(rows)}))`.execute(kysely(em));
    return batchOf(deleted, rows);
  },
});

export const DELIVERIES: readonly Pruning[] = [
  // Lateral, so that the planner walks the log's index endpoint by endpoint under any estimate of the tables' sizes.
  deletion(
    "deliveries of deleted endpoints",
    "webhook_deliveries",
    (rows) => sql`
      select d.ctid from deleted_webhooks w cross join lateral (
        select ctid from webhook_deliveries where webhook_id = w.webhook_id limit ${rows}) d
      limit ${rows}`,
  ),
  deletion(
    "deliveries",
    "webhook_deliveries",
    (rows) => sql`
      select d.ctid from webhook_endpoints w cross join lateral (
        select ctid from webhook_deliveries
        where webhook_id = w.id and created_at < now() - ${KEPT} and status not in ('PENDING', 'RETRYING')
        order by created_at limit ${rows}) d
      limit ${rows}`,
  ),
  // Asked twice: a replay may prolong an event between the look and the deletion.
  deletion(
    "events",
    "webhook_events",
    (rows) => sql`select ctid from webhook_events where kept_until < now() limit ${rows}`,
    sql`kept_until < now()`,
  ),
  deletion(
    "deleted endpoints",
    "deleted_webhooks",
    (rows) => sql`
      select w.ctid from deleted_webhooks w where deleted_at < now() - ${LATE}
        and not exists (select from webhook_deliveries where webhook_id = w.webhook_id) limit ${rows}`,
  ),
];
