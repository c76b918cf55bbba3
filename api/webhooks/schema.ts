import { z } from "zod";
import { DELIVERY_STATUSES, DISABLED_REASONS } from "../../db/entities/webhook.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { REPLAYABLE } from "../../domain/webhooks/bulk-replay.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { ENDPOINT_HEALTH } from "../../domain/webhooks/endpoint-health.ts";
import { headerProblems, MAX_HEADERS } from "../../domain/webhooks/headers.ts";
import { DEFAULT_OVERLAP_HOURS, MAX_OVERLAP_HOURS } from "../../domain/webhooks/rotate.ts";
import { eventProblems, resolveEvents } from "../../domain/webhooks/subscription.ts";
import { deleted, idOf, intOrNull, name, text, textOrNull, timestamp, timestampOrNull, timestamps } from "../fields.ts";
import { openSet } from "../openapi/schemas.ts";
import { instant } from "../rest/instant.ts";
import { idParamOf } from "../rest/route.ts";

export const MIN_URL_LENGTH = 8;
export const MAX_URL_LENGTH = 2_048;
const MAX_DESCRIPTION_LENGTH = 1_000;
export const MAX_EVENT_LENGTH = 64;
export const MAX_EVENTS = 64;

const webhookId = idParamOf("webhook", "The id of the webhook endpoint.");
export const webhookParams = z.strictObject({ webhookId });
export const deliveryParams = z.strictObject({
  webhookId,
  deliveryId: idParamOf("delivery", "The id of the delivery."),
});

/** Characters that a URL parser would drop or escape are refused, so that the URL shown is the URL called. */
const url = z
  .string()
  .min(MIN_URL_LENGTH)
  .max(MAX_URL_LENGTH)
  .refine(
    (text) => !/[\s\p{Cc}]/u.test(text) && URL.canParse(text),
    "must be a URL, such as https://example.com/hook, without spaces",
  )
  .meta({ description: "A URL that is reachable from the public Internet.", examples: ["https://example.com/hooks"] });

const events = z
  .array(
    z
      .string()
      .max(MAX_EVENT_LENGTH)
      .meta(openSet(["*", ...EVENT_NAMES])),
  )
  .min(1)
  .max(MAX_EVENTS)
  .superRefine((names, { addIssue }) => {
    for (const { index, message } of eventProblems(names)) addIssue({ code: "custom", path: [index], message });
  })
  .transform(resolveEvents)
  .meta({
    description: "Names of events; `*` stands for every event there is now.",
    examples: [["newsletter.completed", "unsubscribe.created"]],
  });

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
  })
  .meta({
    type: "object",
    additionalProperties: { type: "string" },
    maxProperties: MAX_HEADERS,
    description: "Headers that are sent with every delivery. Their values are never shown again.",
    examples: [{ Authorization: "Basic bWFpbDprZWVs" }],
  });

const DESCRIPTION = { description: "A note for the team.", examples: ["Feeds the CRM"] };
const description = z.string().max(MAX_DESCRIPTION_LENGTH).nullable().meta(DESCRIPTION);

export const webhookBody = z.strictObject({
  url,
  events,
  name: name.optional(),
  description: description.default(null),
  headers: headers.default({}),
});

const active = z.boolean().describe("False stops the deliveries, true starts them again.");
export const webhookPatch = z.strictObject({ url, events, name, description, headers, active }).partial();

/** The event whose example is sent; without a body, the first one that the endpoint is subscribed to. */
export const testBody = z
  .strictObject({
    type: z
      .enum(EVENT_NAMES)
      .optional()
      .meta({
        ...openSet(EVENT_NAMES),
        description: "An event that the endpoint is subscribed to; the first one unless given.",
        examples: ["unsubscribe.created"],
      }),
  })
  .default({});

export const webhook = z
  .object({
    object: z.literal("webhook_endpoint"),
    id: idOf("webhook"),
    name: z.string().meta({ examples: ["CRM"] }),
    url: z.string().meta({ examples: ["https://example.com/hooks"] }),
    events: z
      .array(z.string())
      .meta({ description: "Names of events.", examples: [["newsletter.completed", "unsubscribe.created"]] }),
    active: z.boolean().describe("Whether events are delivered to it."),
    description: z.string().nullable().meta(DESCRIPTION),
    signature_version: z.literal("v1"),
    api_version: text("The dated version that shapes the payloads.", CURRENT_API_VERSION),
    header_names: z
      .array(z.string())
      .meta({ description: "Names of its own headers; the values are not shown.", examples: [["Authorization"]] }),
    health: z.enum(ENDPOINT_HEALTH).meta({
      description:
        "`working`: a delivery has succeeded in the last 24 hours, and few have failed in a row since. `failing`: several have, so that deliveries wait while one at a time probes the endpoint. `unproven`: neither is true, as of a new endpoint.",
      examples: ["working"],
    }),
    next_probe_at: timestampOrNull("When a failing endpoint gets its next delivery, at the earliest."),
    consecutive_failures: z.int().meta({ description: "Failures since the last success.", minimum: 0, examples: [0] }),
    last_success_at: timestamp.nullable().describe("When a delivery last succeeded."),
    last_failure_at: timestampOrNull("When a delivery last failed."),
    disabled_at: timestampOrNull("When it became inactive."),
    disabled_reason: z
      .enum(DISABLED_REASONS)
      .nullable()
      .meta({ description: "Whether the service switched it off, or a `PATCH` did.", examples: [null] }),
    ...timestamps,
  })
  .meta({ id: "WebhookEndpoint", description: "A URL that gets events, without its secret." });

const secret = text(
  "Verifies the signatures. It is shown this once.",
  "whsec_example0example0example0example0example0",
);

/** As its registration answers: with the secret, this once. */
export const newWebhook = webhook.extend({ secret }).meta({
  id: "NewWebhookEndpoint",
  description: "A webhook endpoint as its registration answers it: with its secret.",
});

export const rotationBody = z
  .strictObject({
    overlap_hours: z
      .int()
      .min(0)
      .max(MAX_OVERLAP_HOURS)
      .default(DEFAULT_OVERLAP_HOURS)
      .meta({
        description: "For how long the old secret signs beside the new one, in hours; 0 for one that leaked.",
        examples: [DEFAULT_OVERLAP_HOURS],
      }),
  })
  .default({ overlap_hours: DEFAULT_OVERLAP_HOURS });

export const webhookSecret = z
  .object({
    object: z.literal("webhook_secret"),
    id: idOf("webhook", "The id of the webhook endpoint."),
    secret,
    previous_secret_expires_at: timestamp
      .nullable()
      .describe("Until when the old secret signs too; null when it signs no more."),
  })
  .meta({ id: "WebhookSecret", description: "The new secret of a webhook endpoint." });

export const deletedWebhook = deleted("webhook_endpoint", "webhook", "DeletedWebhookEndpoint");

/** One attempt. A field whose value is not known is null. */
export const delivery = z
  .object({
    object: z.literal("webhook_delivery"),
    id: idOf("delivery"),
    webhook_id: idOf("webhook", "The id of the webhook endpoint."),
    event_id: idOf("event", "The id of the event, the same in every retry and replay."),
    event_type: z.string().meta({ examples: ["unsubscribe.created"] }),
    attempt: z.int().meta({ description: "Counts from 1.", minimum: 1, examples: [1] }),
    status: z.enum(DELIVERY_STATUSES).meta({
      description:
        "`PENDING`: queued or on its way. `SUCCEEDED`: answered with a 2xx. `RETRYING`: failed, another attempt follows. `FAILED`: failed. `BLOCKED`: never sent.",
      examples: ["SUCCEEDED"],
    }),
    response_status: intOrNull("The status of the endpoint's answer.", 200),
    response_body: textOrNull("The beginning of that answer.", "ok"),
    error_message: textOrNull("Why it failed."),
    duration_ms: intOrNull("Milliseconds from start to end.", 84),
    is_replay: z.boolean().meta({ description: "Whether it was queued by hand.", examples: [false] }),
    replay_of_id: textOrNull("The delivery that it repeats."),
    is_final: z.boolean().meta({
      description: "Whether the delivery has ended with it: neither another attempt nor a replay followed.",
      examples: [true],
    }),
    superseded_by_id: textOrNull("The attempt or the replay that followed."),
    next_attempt_at: timestampOrNull("When the next attempt is due."),
    ...timestamps,
  })
  .meta({ id: "WebhookDelivery", description: "One attempt to deliver an event, without its payload." });

const MADE_FROM = { description: "Deliveries that were made then or later.", examples: ["2026-11-21T06:00:00.000Z"] };
const MADE_UNTIL = { description: "Deliveries that were made before then.", examples: ["2026-11-21T17:00:00.000Z"] };

const date = instant.transform((ms) => new Date(ms));

export const replayBody = z
  .strictObject({
    since: date.meta(MADE_FROM),
    until: date.optional().meta({ ...MADE_UNTIL, description: `${MADE_UNTIL.description} Now unless given.` }),
    event_types: z
      .array(z.enum(EVENT_NAMES).meta(openSet(EVENT_NAMES)))
      .default([])
      .meta({
        description: "Types of their events; every type when it is empty.",
        examples: [["unsubscribe.created"]],
      }),
    statuses: z
      .array(z.enum(REPLAYABLE))
      .min(1)
      .default([...REPLAYABLE])
      .meta({ description: "How they ended.", examples: [["FAILED"]] }),
  })
  .refine(({ since, until = new Date() }) => since < until, { error: "must be before until", path: ["since"] });

export const webhookReplay = z
  .object({
    object: z.literal("webhook_replay"),
    webhook_id: idOf("webhook", "The id of the webhook endpoint."),
    until: timestamp.meta(MADE_UNTIL),
    replayed: z.int().meta({ description: "Deliveries that are queued once more.", minimum: 0, examples: [100] }),
    last_due_at: timestampOrNull("When the last of them is due; null when none matched."),
    has_more: z.boolean().meta({
      description: "Whether further deliveries match: repeat the request with the same `until`.",
      examples: [false],
    }),
  })
  .meta({ id: "WebhookReplay", description: "Deliveries to a webhook endpoint that were queued once more." });

/** The id of an event type is its name. */
export const eventType = z
  .object({
    object: z.literal("webhook_event_type"),
    id: text("The name.", "unsubscribe.created"),
    type: text("The name to subscribe with.", "unsubscribe.created"),
    description: z.string().meta({ examples: ["A recipient unsubscribed."] }),
    object_type: text("The `object` of the record in its payload.", "unsubscribe"),
  })
  .meta({ id: "WebhookEventType", description: "An event that an endpoint can subscribe to." });
