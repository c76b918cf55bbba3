import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { notifyDue } from "./emit.ts";
import { keepEvents } from "./retention.ts";

/** Until the caller's transaction ends it is neither deleted nor, by an edit, switched off. @throws {ApiError} `not_found` */
export async function holdEndpoint(em: EntityManager, tenant: Tenant, webhookId: string) {
  const endpoint = await kysely(em)
    .selectFrom("webhook_endpoints")
    .select(["active", "events"])
    .where("id", "=", webhookId)
    .where(ofTenant(tenant))
    .forKeyShare()
    .executeTakeFirst();
  if (!endpoint) throw notFound();
  return endpoint;
}

/** @throws {ApiError} `resource_state_invalid` */
export function refuseInactive({ active }: { active: boolean }): void {
  if (!active) throw new ApiError("resource_state_invalid", "The endpoint is not active; activate it first.");
}

/**
 * Queues the event of a delivery for its endpoint once more, as a delivery of its own.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when the endpoint is not active, or the event is no longer kept
 */
export async function replayDelivery(em: EntityManager, tenant: Tenant, webhookId: string, deliveryId: string) {
  const db = kysely(em);
  const endpoint = await holdEndpoint(em, tenant, webhookId);
  const delivery = await db
    .selectFrom("webhook_deliveries")
    .select(["event_id", "event_type"])
    .where("id", "=", deliveryId)
    .where("webhook_id", "=", webhookId)
    .where(ofTenant(tenant))
    .executeTakeFirst();
  if (!delivery) throw notFound();
  refuseInactive(endpoint);
  if ((await keepEvents(em, tenant, [delivery.event_id])) === 0) {
    throw new ApiError("resource_state_invalid", "The payload of this delivery is no longer kept.");
  }
  const id = newId("delivery");
  // One that is still under way is not replaced: another attempt may follow.
  await db
    .updateTable("webhook_deliveries")
    .set({ superseded_by_id: id })
    .where("id", "=", deliveryId)
    .where(ofTenant(tenant))
    .where("superseded_by_id", "is", null)
    .where("next_attempt_at", "is", null)
    .execute();
  const replay = await db
    .insertInto("webhook_deliveries")
    .values({
      id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      webhook_id: webhookId,
      ...delivery,
      is_replay: true,
      replay_of_id: deliveryId,
      next_attempt_at: sql<string>`now()`,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
  await notifyDue(em, [webhookId]);
  return replay;
}
