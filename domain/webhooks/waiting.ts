import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { notFound } from "../errors.ts";
import { isFailing } from "./endpoint-health.ts";

/** Where a delivery stands among those of its endpoint: the id of its first attempt, which all its attempts share. */
export const queueKey = (delivery: string): RawBuilder<string> =>
  sql<string>`coalesce(${sql.ref(`${delivery}.first_id`)}, ${sql.ref(`${delivery}.id`)})`;

/**
 * The condition that a delivery waits for a group. It does not name the status, whose every change would then have to
 * write all indexes of the row.
 * @param delivery alias of `webhook_deliveries`
 */
export const isWaiting = (delivery: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${delivery}.group_id`)} is null and not ${sql.ref(`${delivery}.ended_ungrouped`)})`;

/** That it waits and was never attempted, as in the index `webhook_deliveries_waiting`. */
export const isWaitingNew = (delivery: string): RawBuilder<boolean> =>
  sql<boolean>`(${isWaiting(delivery)} and ${sql.ref(`${delivery}.attempts_used`)} = 0)`;

/** That it waits because a workflow returned it after an attempt, as in the index `webhook_deliveries_returned`. */
export const isWaitingAgain = (delivery: string): RawBuilder<boolean> =>
  sql<boolean>`(${isWaiting(delivery)} and ${sql.ref(`${delivery}.attempts_used`)} > 0)`;

const firstEndpoint = (condition: RawBuilder<boolean>, after = sql`true`) => sql`
  (select d.webhook_id from webhook_deliveries d where ${condition} and ${after} order by d.webhook_id limit 1)`;
const nextEndpoint = (condition: RawBuilder<boolean>) => firstEndpoint(condition, sql`d.webhook_id > w.webhook_id`);

/**
 * A recursive query for the endpoints that deliveries wait for, as `webhook_id`, with a null at the end: one step along
 * each of the two indexes for each endpoint, however many deliveries wait.
 */
export const endpointsWaiting = sql`
  select least(${firstEndpoint(isWaitingNew("d"))}, ${firstEndpoint(isWaitingAgain("d"))}) as webhook_id
  union all
  select least(${nextEndpoint(isWaitingNew("d"))}, ${nextEndpoint(isWaitingAgain("d"))})
  from waiting w where w.webhook_id is not null`;

/**
 * A query for the oldest deliveries that wait for an endpoint: `id`, `attempts_used`, `created_at` and their `key`.
 * @param after only those with a larger key
 */
export function oldestWaiting(
  webhookId: RawBuilder<string>,
  limit: RawBuilder<number>,
  after: RawBuilder<string> = sql`''`,
): RawBuilder<unknown> {
  const along = (condition: RawBuilder<boolean>) => sql`
    (select d.id, d.attempts_used, d.created_at, ${queueKey("d")} as key from webhook_deliveries d
      where d.webhook_id = ${webhookId} and ${condition} and ${queueKey("d")} > ${after}
      order by ${queueKey("d")} limit ${limit})`;
  return sql`(${along(isWaitingNew("d"))} union all ${along(isWaitingAgain("d"))} order by key limit ${limit})`;
}

/**
 * The time of the next probe, for a delivery that waits for a failing endpoint, else null: with it, a list of deliveries
 * shows the next attempt of those that no attempt is planned for.
 * @param delivery alias of `webhook_deliveries`
 */
export const nextProbeAt = (delivery: string): RawBuilder<string | null> => sql<string | null>`case
  when ${isWaiting(delivery)} then (select h.probe_at from webhook_health h
    where h.webhook_id = ${sql.ref(`${delivery}.webhook_id`)} and ${isFailing("h")}) end`;

/** Deliveries as the API shows them, with `next_probe_at`. */
export const deliveryRows = (em: EntityManager) =>
  kysely(em)
    .selectFrom("webhook_deliveries")
    .selectAll("webhook_deliveries")
    .select(nextProbeAt("webhook_deliveries").as("next_probe_at"));

/**
 * A delivery in the log of one of the tenant's endpoints.
 * @throws {ApiError} `not_found`
 */
export async function readDelivery(em: EntityManager, tenant: Tenant, webhookId: string, deliveryId: string) {
  const delivery = await deliveryRows(em)
    // The log of a deleted endpoint is not shown while the clean-up deletes it.
    .innerJoin("webhook_endpoints", "webhook_endpoints.id", "webhook_deliveries.webhook_id")
    .where("webhook_deliveries.id", "=", deliveryId)
    .where("webhook_deliveries.webhook_id", "=", webhookId)
    .where(ofTenant(tenant, "webhook_deliveries"))
    .where(ofTenant(tenant, "webhook_endpoints"))
    .executeTakeFirst();
  if (!delivery) throw notFound();
  return delivery;
}

/**
 * Ends deliveries that wait for an endpoint, the oldest first: those that failed before are FAILED, the others become
 * `untried`.
 * @param limit one call ends at most
 * @returns how many
 */
export async function endWaiting(
  em: EntityManager,
  webhookId: string,
  why: string,
  untried: "BLOCKED" | "FAILED",
  limit: number,
): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    update webhook_deliveries d
    set status = case when d.status = 'PENDING' then ${untried} else 'FAILED' end, ended_ungrouped = true,
      next_attempt_at = null, error_message = concat_ws(' ', d.error_message, ${why}::text), updated_at = now()
    from (select id from ${oldestWaiting(sql`${webhookId}`, sql`${limit}`)} o) w
    where d.id = w.id and ${isWaiting("d")}`.execute(kysely(em));
  return Number(numAffectedRows);
}
