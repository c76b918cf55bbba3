import { type Selectable, sql } from "kysely";
import type { z } from "zod";
import { instants, jsonRecord, plain } from "../../db/json.ts";
import type { Database } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import type { EndpointRow } from "../../domain/webhooks/endpoints.ts";
import { instantOfText, instantOfTextOrNull } from "../rest/instant.ts";
import type { delivery, eventType, webhook } from "./schema.ts";

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
    ...plain(row, "api_version", "header_names", "consecutive_failures"),
    ...instants(row, "last_success_at", "last_failure_at", "disabled_at"),
    ...plain(row, "disabled_reason"),
    ...instants(row, "created_at", "updated_at"),
  });

type DeliveryRow = Selectable<Database["webhook_deliveries"]> & {
  /** Of a delivery that waits for a failing endpoint. */
  next_probe_at?: string | null;
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
  next_attempt_at: instantOfTextOrNull(row.next_probe_at ?? row.next_attempt_at),
  created_at: instantOfText(row.created_at),
  updated_at: instantOfText(row.updated_at),
});

/** SQL: the same of a row of `deliveryRows`. */
export const deliveryRecord = (row: string) =>
  jsonRecord<z.input<typeof delivery>>("webhook_delivery", {
    ...plain(row, "id", "webhook_id", "event_id", "event_type", "attempt", "status", "response_status"),
    ...plain(row, "response_body", "error_message", "duration_ms", "is_replay", "replay_of_id"),
    next_attempt_at: isoInstant(
      sql`coalesce(${sql.ref(`${row}.next_probe_at`)}, ${sql.ref(`${row}.next_attempt_at`)})`,
    ),
    ...instants(row, "created_at", "updated_at"),
  });

export const presentEventType = (type: EventName): z.input<typeof eventType> => ({
  object: "webhook_event_type",
  id: type,
  type,
  description: EVENTS[type].description,
  object_type: EVENTS[type].objectType,
});
