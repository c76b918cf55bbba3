import { sql } from "kysely";
import type { z } from "zod";
import { isoInstant } from "../../db/sql.ts";
import { EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import { recordOf } from "../rest/record.ts";
import { delivery, type eventType, webhook } from "./schema.ts";

/** Of a row of `endpointRows`. */
export const webhookRecord = recordOf(webhook, () => ({ signature_version: sql.lit("v1") }));

/** Of a row of `deliveryRows`. */
export const deliveryRecord = recordOf(delivery, (row) => ({
  next_attempt_at: isoInstant(sql.ref(`${row}.shown_next_attempt_at`)),
}));

export const presentEventType = (type: EventName): z.input<typeof eventType> => ({
  object: "webhook_event_type",
  id: type,
  type,
  description: EVENTS[type].description,
  object_type: EVENTS[type].objectType,
});
