import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { CURRENT_API_VERSION } from "../api-version.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { batchOf, type Pruning } from "../retention/pruning.ts";
import type { Vault } from "../secrets/crypto.ts";
import type { EventName } from "./catalogue.ts";
import { createEndpoint, deleteEndpoint } from "./endpoints.ts";
import { deliveryHeaders, type HeaderFacts, renderEvent, signerOf } from "./request.ts";

const TAKEN_AT_ONCE = 100;
/** After so long without a renewal. */
const PRESUMED_DEAD_AFTER_MINUTES = 5;
export const RENEW_EVERY_MS = (PRESUMED_DEAD_AFTER_MINUTES * 60_000) / 10;

/** A delivery that the process of `webhook:listen` posts itself. */
export interface ListenerDelivery {
  facts: HeaderFacts;
  body: string;
}

/** The secret that signs a tenant's deliveries to listeners: the same each time, so that a receiver is set up once. */
export const listenerSecret = (vault: Vault, { teamId, environment }: Tenant): string =>
  `whsec_${vault.hash("webhook-listener", teamId, environment)}`;

/**
 * Makes the endpoint of a listener, switched off with `delivery_failures`: the relay keeps each event as a BLOCKED delivery, and no
 * worker calls the URL. The process of `webhook:listen` posts them itself. @returns its id
 */
export async function openListener(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { url, events }: { url: string; events: EventName[] },
): Promise<string> {
  const registration = { ...tenant, origin: "LISTENER", apiVersion: CURRENT_API_VERSION } as const;
  const fields = { url, events, name: "webhook:listen", description: null, headers: {} };
  const { id } = await createEndpoint(em, vault, registration, fields);
  await kysely(em)
    .updateTable("webhook_endpoints")
    .set({ active: false, disabled_reason: "delivery_failures", disabled_at: sql`now()` })
    .where(ofTenant(tenant))
    .where("id", "=", id)
    .execute();
  return id;
}

export async function readListenerDeliveries(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
): Promise<ListenerDelivery[]> {
  const rows = await kysely(em)
    .selectFrom("webhook_deliveries as d")
    .innerJoin("webhook_events as v", "v.id", "d.event_id")
    .select(["d.id", "d.event_id", "d.event_type", "d.is_replay", "v.is_test", "v.object"])
    .select(isoInstant(sql.ref("v.created_at")).as("event_created_at"))
    .where(ofTenant(tenant, "d"))
    .where(ofTenant(tenant, "v"))
    .where("d.webhook_id", "=", webhookId)
    .orderBy("d.created_at")
    .orderBy("d.id")
    .limit(TAKEN_AT_ONCE)
    .execute();
  return rows.map(({ id, event_id, event_type, is_replay, is_test, event_created_at, object }) =>
    deliveryOf(
      { deliveryId: id, webhookId, eventId: event_id, type: event_type, isReplay: is_replay, isTest: is_test },
      { eventCreatedAt: event_created_at, object },
    ),
  );
}

function deliveryOf(
  facts: Omit<HeaderFacts, "apiVersion">,
  event: { eventCreatedAt: string; object: string },
): ListenerDelivery {
  const apiVersion = CURRENT_API_VERSION;
  return { facts: { ...facts, apiVersion }, body: renderEvent(apiVersion, { ...facts, ...event }) };
}

export function exampleDelivery(type: EventName, record: object): ListenerDelivery {
  const ids = { deliveryId: newId("delivery"), webhookId: newId("webhook"), eventId: newId("event") };
  const event = { eventCreatedAt: new Date().toISOString(), object: JSON.stringify(record) };
  return deliveryOf({ ...ids, type, isReplay: false, isTest: true }, event);
}

/** The headers of a listener's request, signed now: the same as a worker's. */
export const listenerHeaders = ({ facts, body }: ListenerDelivery, secret: string): Record<string, string> =>
  deliveryHeaders(facts, [signerOf(secret)], body);

export async function dropListenerDelivery(em: EntityManager, tenant: Tenant, deliveryId: string): Promise<void> {
  await kysely(em).deleteFrom("webhook_deliveries").where(ofTenant(tenant)).where("id", "=", deliveryId).execute();
}

/** Shows that the listener's process still runs. @returns false when the endpoint is gone */
export async function renewListener(em: EntityManager, tenant: Tenant, webhookId: string): Promise<boolean> {
  const { numUpdatedRows } = await kysely(em)
    .updateTable("webhook_endpoints")
    .set({ updated_at: sql`now()` })
    .where(ofTenant(tenant))
    .where("id", "=", webhookId)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Deletes a listener's endpoint with its deliveries, unless it is gone already. */
export async function closeListener(em: EntityManager, webhookId: string): Promise<void> {
  try {
    await deleteEndpoint(em, webhookId);
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "not_found")) throw error;
  }
}

/** Deletes the listeners of all teams whose process is presumed dead. */
export const presumedDeadListeners: Pruning = {
  name: "listeners",
  async prune(em, rows) {
    const deleted = await sql`
      with dead as (
        delete from webhook_endpoints where ctid = any(array(
          select ctid from webhook_endpoints
          where origin = 'LISTENER' and updated_at < now() - make_interval(mins => ${PRESUMED_DEAD_AFTER_MINUTES})
          limit ${rows} for update skip locked))
        returning id
      )
      insert into deleted_webhooks (webhook_id) select id from dead`.execute(kysely(em));
    return batchOf(deleted, rows);
  },
};
