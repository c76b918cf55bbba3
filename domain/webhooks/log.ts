import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { isFailing } from "./endpoint-health.ts";
import { type EventFacts, renderEvent } from "./request.ts";

/** When a delivery is attempted next, as clients read it: at a failing endpoint's next probe; one due within a second is on its way. */
const shownNextAttempt = (delivery: string): RawBuilder<string | null> => {
  const column = (name: string) => sql.ref(`${delivery}.${name}`);
  return sql<string | null>`case when ${column("next_attempt_at")} is not null then coalesce(
    (select h.probe_at from webhook_health h where h.webhook_id = ${column("webhook_id")} and ${isFailing("h")}),
    case when ${column("status")} = 'RETRYING' or ${column("next_attempt_at")} > now() + interval '1 second' then ${column("next_attempt_at")} end) end`;
};

/** Whether a delivery has ended with this attempt: neither another attempt nor a replay followed. */
export const isFinal = (delivery: string): RawBuilder<boolean> => {
  const column = (name: string) => sql.ref(`${delivery}.${name}`);
  return sql<boolean>`(${column("superseded_by_id")} is null and ${column("status")} not in ('PENDING', 'RETRYING'))`;
};

export const deliveryRows = (em: EntityManager) =>
  kysely(em)
    .selectFrom("webhook_deliveries")
    .selectAll("webhook_deliveries")
    .select(shownNextAttempt("webhook_deliveries").as("shown_next_attempt_at"))
    .select(isFinal("webhook_deliveries").as("is_final"));

export const deliveryRow = (em: EntityManager, tenant: Tenant, webhookId: string, deliveryId: string) =>
  deliveryRows(em)
    .where("webhook_deliveries.id", "=", deliveryId)
    .where("webhook_deliveries.webhook_id", "=", webhookId)
    .where(ofTenant(tenant, "webhook_deliveries"))
    // The log of a deleted endpoint is not shown while the clean-up deletes it.
    .where(({ exists, selectFrom }) =>
      exists(
        selectFrom("webhook_endpoints as e").select("e.id").where("e.id", "=", webhookId).where(ofTenant(tenant, "e")),
      ),
    );

/** The body that a delivery has, JSON; null once its event is no longer kept. @throws {ApiError} `not_found` */
export async function readDeliveryBody(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  deliveryId: string,
): Promise<string | null> {
  const { rows } = await sql<{ apiVersion: string; facts: EventFacts | null }>`
    select e.api_version as "apiVersion", case when v.id is not null then json_build_object('eventId', v.id, 'type', v.type,
      'object', v.object, 'eventCreatedAt', ${isoInstant(sql.ref("v.created_at"))}) end as facts
    from webhook_deliveries d join webhook_endpoints e on e.id = d.webhook_id and ${ofTenant(tenant, "e")}
    left join webhook_events v on v.id = d.event_id and ${ofTenant(tenant, "v")}
    where d.id = ${deliveryId} and d.webhook_id = ${webhookId} and ${ofTenant(tenant, "d")}`.execute(kysely(em));
  const { apiVersion, facts } = orNotFound(rows[0]);
  return facts && renderEvent(apiVersion, facts);
}

/** One attempt of a delivery, as operators read it at a command line. */
interface AttemptFacts {
  id: string;
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

/** With all its attempts, the oldest first. */
export interface DeliveryFacts extends Tenant {
  webhookId: string;
  eventId: string;
  eventType: string;
  /** The delivery that it repeats. */
  replayOfId: string | null;
  attempts: AttemptFacts[];
}

export interface ListedDelivery {
  id: string;
  team: string;
  environment: Tenant["environment"];
  webhook: string;
  eventType: string;
  status: DeliveryStatus;
  attempt: number;
  responseStatus: number | null;
  error: string | null;
  /** Its last change, ISO 8601. */
  at: string;
}

export interface DeliveryFilter {
  teamId?: string | undefined;
  webhookId?: string | undefined;
  statuses?: readonly DeliveryStatus[] | undefined;
  limit: number;
}

/** Lists deliveries by their last attempts, the newest first; those that were replayed are left out. */
export async function listDeliveries(
  em: EntityManager,
  { teamId, webhookId, statuses, limit }: DeliveryFilter,
): Promise<ListedDelivery[]> {
  const { rows } = await sql<ListedDelivery>`
    select d.id, d.team_id as team, d.environment, d.webhook_id as webhook, d.event_type as "eventType", d.status,
      d.attempt, d.response_status as "responseStatus", d.error_message as error, ${isoInstant(sql`d.updated_at`)} as at
    from webhook_deliveries d
    where d.superseded_by_id is null
      and (${teamId ?? null}::text is null or d.team_id = ${teamId ?? null})
      and (${webhookId ?? null}::text is null or d.webhook_id = ${webhookId ?? null})
      and (${statuses ?? null}::text[] is null or d.status = any(${statuses ?? null}::text[]))
    order by d.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}

const firstOf = (delivery: string) => sql`coalesce(${sql.ref(`${delivery}.first_id`)}, ${sql.ref(`${delivery}.id`)})`;

/** Reads a delivery by the id of any of its attempts. @throws {ApiError} `not_found` */
export async function readDeliveryFacts(em: EntityManager, id: string): Promise<DeliveryFacts> {
  const { rows } = await sql<DeliveryFacts>`
    select d.team_id as "teamId", d.environment, d.webhook_id as "webhookId", d.event_id as "eventId",
      d.event_type as "eventType", d.replay_of_id as "replayOfId",
      json_agg(json_build_object('id', d.id, 'attempt', d.attempt, 'status', d.status, 'at', ${isoInstant(sql`d.updated_at`)},
        'responseStatus', d.response_status, 'error', d.error_message, 'durationMs', d.duration_ms,
        'nextAttemptAt', ${isoInstant(shownNextAttempt("d"))}) order by d.id) as attempts
    from webhook_deliveries one join webhook_deliveries d
      on d.webhook_id = one.webhook_id and d.event_id = one.event_id and ${firstOf("d")} = ${firstOf("one")}
    where one.id = ${id} group by 1, 2, 3, 4, 5, 6`.execute(kysely(em));
  const [delivery] = rows;
  if (!delivery) throw new ApiError("not_found", `There is no delivery ${id}.`);
  return delivery;
}
