import { z } from "zod";
import { DELIVERY_STATUSES, DISABLED_REASONS } from "../../db/entities/webhook.ts";
import { headerProblems, MAX_HEADERS } from "../../domain/webhooks/headers.ts";
import { eventProblems, resolveEvents } from "../../domain/webhooks/subscription.ts";
import { deleted, name, timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

export const MIN_URL_LENGTH = 8;
export const MAX_URL_LENGTH = 2_048;
const MAX_DESCRIPTION_LENGTH = 1_000;
export const MAX_EVENT_LENGTH = 64;
export const MAX_EVENTS = 64;

export const webhookParams = z.strictObject({ webhookId: idParam });
export const deliveryParams = z.strictObject({ webhookId: idParam, deliveryId: idParam });

/** Characters that a URL parser would drop or escape are refused, so that the URL shown is the URL called. */
const url = z
  .string()
  .min(MIN_URL_LENGTH)
  .max(MAX_URL_LENGTH)
  .refine(
    (text) => !/[\s\p{Cc}]/u.test(text) && URL.canParse(text),
    "must be a URL, such as https://example.com/hook, without spaces",
  );

const events = z
  .array(z.string().max(MAX_EVENT_LENGTH))
  .min(1)
  .max(MAX_EVENTS)
  .superRefine((names, { addIssue }) => {
    for (const { index, message } of eventProblems(names)) addIssue({ code: "custom", path: [index], message });
  })
  .transform(resolveEvents);

const tooMany = (given: unknown): boolean =>
  typeof given === "object" && given !== null && Object.keys(given).length > MAX_HEADERS;

const headers = z
  .custom<Record<string, string>>((given) => !tooMany(given), `must hold at most ${MAX_HEADERS} headers`)
  // The count is checked first: each of a hundred thousand headers would be a problem of its own.
  .pipe(z.record(z.string(), z.string()))
  .superRefine((given, { addIssue }) => {
    for (const { name: header, message } of headerProblems(given)) {
      addIssue({ code: "custom", path: header === undefined ? [] : [header], message });
    }
  });

const description = z.string().max(MAX_DESCRIPTION_LENGTH).nullable();

export const webhookBody = z.strictObject({
  url,
  events,
  name: name.optional(),
  description: description.default(null),
  headers: headers.default({}),
});

export const webhookPatch = z.strictObject({
  url: url.optional(),
  events: events.optional(),
  name: name.optional(),
  description: description.optional(),
  headers: headers.optional(),
  active: z.boolean().optional(),
});

export const webhook = z.object({
  object: z.literal("webhook_endpoint"),
  id: z.string(),
  name: z.string(),
  url: z.string(),
  events: z.array(z.string()),
  active: z.boolean(),
  description: z.string().nullable(),
  signature_version: z.literal("v1"),
  api_version: z.string(),
  header_names: z.array(z.string()),
  consecutive_failures: z.int(),
  last_success_at: timestamp.nullable(),
  last_failure_at: timestamp.nullable(),
  disabled_at: timestamp.nullable(),
  disabled_reason: z.enum(DISABLED_REASONS).nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

/** As its registration answers: with the secret, this once. */
export const newWebhook = webhook.extend({ secret: z.string() });

export const deletedWebhook = deleted("webhook_endpoint");

/** One attempt. A field whose value is not known is null. */
export const delivery = z.object({
  object: z.literal("webhook_delivery"),
  id: z.string(),
  webhook_id: z.string(),
  event_id: z.string(),
  event_type: z.string(),
  attempt: z.int(),
  status: z.enum(DELIVERY_STATUSES),
  response_status: z.int().nullable(),
  response_body: z.string().nullable(),
  error_message: z.string().nullable(),
  duration_ms: z.int().nullable(),
  is_replay: z.boolean(),
  replay_of_id: z.string().nullable(),
  next_attempt_at: timestamp.nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

/** The id of an event type is its name. */
export const eventType = z.object({
  object: z.literal("webhook_event_type"),
  id: z.string(),
  type: z.string(),
  description: z.string(),
  object_type: z.string(),
});
