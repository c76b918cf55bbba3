import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError, notFound } from "../errors.ts";
import { isFailing } from "./endpoint-health.ts";

/**
 * When a delivery is attempted next, as clients read it: a failing endpoint gets one at its next probe, and one that was never
 * attempted is on its way.
 */
const shownNextAttempt = (delivery: string): RawBuilder<string | null> => {
  const column = (name: string) => sql.ref(`${delivery}.${name}`);
  return sql<string | null>`case when ${column("next_attempt_at")} is not null then coalesce(
    (select h.probe_at from webhook_health h where h.webhook_id = ${column("webhook_id")} and ${isFailing("h")}),
    case when ${column("status")} = 'RETRYING' then ${column("next_attempt_at")} end) end`;
};

/** Whether a delivery has ended with this attempt: neither another attempt nor a replay followed. */
const isFinal = (delivery: string): RawBuilder<boolean> => {
  const column = (name: string) => sql.ref(`${delivery}.${name}`);
  return sql<boolean>`(${column("superseded_by_id")} is null and ${column("status")} not in ('PENDING', 'RETRYING'))`;
};

/** Deliveries as the API shows them. */
export const deliveryRows = (em: EntityManager) =>
  kysely(em)
    .selectFrom("webhook_deliveries")
    .selectAll("webhook_deliveries")
    .select(shownNextAttempt("webhook_deliveries").as("shown_next_attempt_at"))
    .select(isFinal("webhook_deliveries").as("is_final"));

/**
 * A delivery in the log of one of the tenant's endpoints.
 * @throws {ApiError} `not_found`
 */
export async function readDelivery(em: EntityManager, tenant: Tenant, webhookId: string, deliveryId: string) {
  const delivery = await deliveryRows(em)
    .where("webhook_deliveries.id", "=", deliveryId)
    .where("webhook_deliveries.webhook_id", "=", webhookId)
    .where(ofTenant(tenant, "webhook_deliveries"))
    // The log of a deleted endpoint is not shown while the clean-up deletes it.
    .where(({ exists, selectFrom }) =>
      exists(
        selectFrom("webhook_endpoints as e").select("e.id").where("e.id", "=", webhookId).where(ofTenant(tenant, "e")),
      ),
    )
    .executeTakeFirst();
  if (!delivery) throw notFound();
  return delivery;
}

/** One attempt of a delivery, as operators read it at a command line. */
export interface AttemptFacts {
  id: string;
  /** The first is 1. */
  attempt: number;
  status: DeliveryStatus;
  responseStatus: number | null;
  error: string | null;
  durationMs: number | null;
  /** Its last change, ISO 8601. */
  at: string;
  /** When it is attempted next, ISO 8601. */
  nextAttemptAt: string | null;
}

/** A delivery with all its attempts, the oldest first. */
export interface DeliveryFacts extends Tenant {
  webhookId: string;
  eventId: string;
  eventType: string;
  /** The delivery that it repeats. */
  replayOfId: string | null;
  attempts: AttemptFacts[];
}

const firstOf = (delivery: string) => sql`coalesce(${sql.ref(`${delivery}.first_id`)}, ${sql.ref(`${delivery}.id`)})`;

/**
 * Reads a delivery by the id of any of its attempts.
 * @throws {ApiError} `not_found`
 */
export async function readDeliveryFacts(em: EntityManager, id: string): Promise<DeliveryFacts> {
  const { rows } = await sql<AttemptFacts & Omit<DeliveryFacts, "attempts">>`
    select d.id, d.attempt, d.status, d.response_status as "responseStatus", d.error_message as error,
      d.duration_ms as "durationMs", ${isoInstant(sql`d.updated_at`)} as at, ${isoInstant(shownNextAttempt("d"))} as "nextAttemptAt",
      d.team_id as "teamId", d.environment, d.webhook_id as "webhookId", d.event_id as "eventId",
      d.event_type as "eventType", d.replay_of_id as "replayOfId"
    from webhook_deliveries one join webhook_deliveries d
      on d.webhook_id = one.webhook_id and d.event_id = one.event_id and ${firstOf("d")} = ${firstOf("one")}
    where one.id = ${id} order by d.id`.execute(kysely(em));
  const [first] = rows;
  if (!first) throw new ApiError("not_found", `There is no delivery ${id}.`);
  const { teamId, environment, webhookId, eventId, eventType, replayOfId } = first;
  const attempts = rows.map(
    ({ id: attemptId, attempt, status, responseStatus, error, durationMs, at, nextAttemptAt }) => {
      return { id: attemptId, attempt, status, responseStatus, error, durationMs, at, nextAttemptAt };
    },
  );
  return { teamId, environment, webhookId, eventId, eventType, replayOfId, attempts };
}
