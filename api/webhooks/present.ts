import { type Selectable, sql } from "kysely";
import type { z } from "zod";
import { instants, jsonRecord, plain } from "../../db/json.ts";
import type { Database } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { REPLAYABLE } from "../../domain/webhooks/bulk-replay.ts";
import { EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import type { EndpointRow } from "../../domain/webhooks/endpoints.ts";
import { instantOfText, instantOfTextOrNull } from "../rest/instant.ts";
import type { delivery, eventType, webhook, webhookReplay } from "./schema.ts";

export const presentWebhook = (row: EndpointRow): z.input<typeof webhook> => ({
  object: "webhook_endpoint",
  id: row.id,
  name: row.name,
  url: row.url,
  events: row.events,
  active: row.active,
  description: row.description,
  signature_version: "v1",
  api_version: row.api_version,
  header_names: row.header_names,
  health: row.health,
  next_probe_at: instantOfTextOrNull(row.next_probe_at),
  consecutive_failures: row.consecutive_failures,
  last_success_at: instantOfTextOrNull(row.last_success_at),
  last_failure_at: instantOfTextOrNull(row.last_failure_at),
  disabled_at: instantOfTextOrNull(row.disabled_at),
  disabled_reason: row.disabled_reason,
  created_at: instantOfText(row.created_at),
  updated_at: instantOfText(row.updated_at),
});

/** SQL: the same of a row of `endpointRows`. */
export const webhookRecord = (row: string) =>
  jsonRecord<z.input<typeof webhook>>("webhook_endpoint", {
    ...plain(row, "id", "name", "url", "events", "active", "description"),
    signature_version: sql.lit("v1"),
    ...plain(row, "api_version", "header_names", "health"),
    ...instants(row, "next_probe_at"),
    ...plain(row, "consecutive_failures"),
    ...instants(row, "last_success_at", "last_failure_at", "disabled_at"),
    ...plain(row, "disabled_reason"),
    ...instants(row, "created_at", "updated_at"),
  });

/** Of one that was just made, what is calculated is missing. */
type DeliveryRow = Selectable<Database["webhook_deliveries"]> & {
  shown_next_attempt_at?: string | null;
  is_final?: boolean;
};

export const presentDelivery = (row: DeliveryRow): z.input<typeof delivery> => ({
  object: "webhook_delivery",
  id: row.id,
  webhook_id: row.webhook_id,
  event_id: row.event_id,
  event_type: row.event_type,
  attempt: row.attempt,
  status: row.status,
  response_status: row.response_status,
  response_body: row.response_body,
  error_message: row.error_message,
  duration_ms: row.duration_ms,
  is_replay: row.is_replay,
  replay_of_id: row.replay_of_id,
  is_final: row.is_final ?? false,
  superseded_by_id: row.superseded_by_id,
  next_attempt_at: instantOfTextOrNull(row.shown_next_attempt_at ?? null),
  created_at: instantOfText(row.created_at),
  updated_at: instantOfText(row.updated_at),
});

/** SQL: the same of a row of `deliveryRows`. */
export const deliveryRecord = (row: string) =>
  jsonRecord<z.input<typeof delivery>>("webhook_delivery", {
    ...plain(row, "id", "webhook_id", "event_id", "event_type", "attempt", "status", "response_status"),
    ...plain(row, "response_body", "error_message", "duration_ms", "is_replay", "replay_of_id"),
    ...plain(row, "is_final", "superseded_by_id"),
    next_attempt_at: isoInstant(sql.ref(`${row}.shown_next_attempt_at`)),
    ...instants(row, "created_at", "updated_at"),
  });

export const presentReplay = (
  webhookId: string,
  row: Selectable<Database["webhook_replays"]>,
): z.input<typeof webhookReplay> => ({
  object: "webhook_replay",
  id: row.id,
  webhook_id: webhookId,
  status: row.completed_at === null ? "RUNNING" : "COMPLETED",
  since: instantOfText(row.since),
  until: instantOfText(row.until),
  event_types: row.event_types,
  statuses: REPLAYABLE.filter((status) => row.statuses.includes(status)),
  total: row.total,
  replayed: row.replayed,
  created_at: instantOfText(row.created_at),
  completed_at: instantOfTextOrNull(row.completed_at),
});

export const presentEventType = (type: EventName): z.input<typeof eventType> => ({
  object: "webhook_event_type",
  id: type,
  type,
  description: EVENTS[type].description,
  object_type: EVENTS[type].objectType,
});
