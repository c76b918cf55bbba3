import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError } from "../errors.ts";
import { queueKey } from "./waiting.ts";

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

/**
 * Reads a delivery by the id of any of its attempts.
 * @throws {ApiError} `not_found`
 */
export async function readDeliveryFacts(em: EntityManager, id: string): Promise<DeliveryFacts> {
  const { rows } = await sql<AttemptFacts & Omit<DeliveryFacts, "attempts">>`
    select d.id, d.attempt, d.status, d.response_status as "responseStatus", d.error_message as error,
      d.duration_ms as "durationMs", ${isoInstant(sql`d.updated_at`)} as at, d.team_id as "teamId", d.environment,
      d.webhook_id as "webhookId", d.event_id as "eventId", d.event_type as "eventType", d.replay_of_id as "replayOfId"
    from webhook_deliveries one join webhook_deliveries d
      on d.webhook_id = one.webhook_id and d.event_id = one.event_id and ${queueKey("d")} = ${queueKey("one")}
    where one.id = ${id} order by d.id`.execute(kysely(em));
  const [first] = rows;
  if (!first) throw new ApiError("not_found", `There is no delivery ${id}.`);
  const { teamId, environment, webhookId, eventId, eventType, replayOfId } = first;
  const attempts = rows.map(({ id: attemptId, attempt, status, responseStatus, error, durationMs, at }) => {
    return { id: attemptId, attempt, status, responseStatus, error, durationMs, at };
  });
  return { teamId, environment, webhookId, eventId, eventType, replayOfId, attempts };
}

/**
 * The groups that carry these deliveries.
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a delivery that no workflow carries
 */
export async function groupsOf(em: EntityManager, deliveryIds: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ id: string; found: boolean; group_id: string | null }>`
    select n.id, d.id is not null as found, g.id as group_id
    from unnest(${[...deliveryIds]}::text[]) as n (id)
    left join webhook_deliveries d on d.id = n.id
    left join webhook_groups g on g.id = d.group_id and d.status in ('PENDING', 'RETRYING')`.execute(kysely(em));
  const unknown = rows.find(({ found }) => !found);
  if (unknown) throw new ApiError("not_found", `There is no delivery ${unknown.id}.`);
  const idle = rows.find(({ group_id }) => group_id === null);
  if (idle) {
    throw new ApiError(
      "resource_state_invalid",
      `No workflow carries ${idle.id}: it has ended (webhook:replay repeats it), or waits for its endpoint (webhook:probe).`,
    );
  }
  return [...new Set(rows.flatMap(({ group_id }) => group_id ?? []))];
}

/** The groups of an endpoint that wait for their next attempt, the oldest first. */
export async function retryingGroups(em: EntityManager, webhookId: string): Promise<string[]> {
  const rows = await kysely(em)
    .selectFrom("webhook_groups")
    .select("id")
    .where("webhook_id", "=", webhookId)
    .where("phase", "=", "RETRYING")
    .orderBy("id")
    .execute();
  return rows.map(({ id }) => id);
}
