import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, expiring, instant, sealed, tenancy, tenantFilters, text, timestamps } from "./shared.ts";

/** Why an endpoint is inactive: its failures, or a request of its team. */
export const DISABLED_REASONS = ["delivery_failures", "manual"] as const;
export type DisabledReason = (typeof DISABLED_REASONS)[number];

/**
 * API endpoints are a client's own; the app makes its own in the newsletter interface, and they are not listed. A
 * LISTENER is that of a developer's `webhook:listen`: the command takes its deliveries, no worker does.
 */
export type EndpointOrigin = "API" | "APP" | "LISTENER";

const WebhookEndpointSchema = defineEntity({
  name: "WebhookEndpoint",
  tableName: "webhook_endpoints",
  filters: tenantFilters,
  indexes: [
    { properties: ["teamId", "environment", "updatedAt", "id"] },
    { properties: ["teamId", "environment", "createdAt", "id"] },
  ],
  properties: {
    id: code().primary(),
    ...tenancy,
    origin: code().$type<EndpointOrigin>(),
    name: text("team"),
    description: text("team").nullable(),
    url: text("team"),
    /** Explicit names of the catalogue. */
    events: codes(),
    active: p.boolean().default(true),
    /** Sealed by the vault. */
    encryptedSecret: sealed(),
    /** The secret before a rotation; it signs too until it expires. */
    previousEncryptedSecret: sealed().nullable(),
    previousSecretExpiresAt: instant().nullable(),
    /** JSON object of custom headers, sealed: their values are credentials often enough. Null for none. */
    encryptedHeaders: sealed().nullable(),
    headerNames: codes().default([]),
    /** Dated version that shapes the payloads. */
    apiVersion: code(),
    disabledAt: instant().nullable(),
    disabledReason: code().$type<DisabledReason>().nullable(),
    /** Creation or the latest re-activation: the 72 hours without success are counted from here at the earliest. */
    enabledAt: instant().defaultRaw("now()"),
    /** From then on a mail to the team's owner about the switch-off is due; null when it was sent, or none is due. */
    noticeDueAt: instant().nullable(),
    ...timestamps,
  },
});
export class WebhookEndpoint extends WebhookEndpointSchema.class {}
WebhookEndpointSchema.setClass(WebhookEndpoint);

/**
 * How an endpoint's attempts end. Apart from the endpoint, so that deliveries neither wait for an edit nor move its
 * `updated_at`.
 */
const WebhookHealthSchema = defineEntity({
  name: "WebhookHealth",
  tableName: "webhook_health",
  properties: {
    webhookId: code().primary(),
    consecutiveFailures: p.integer().default(0),
    lastSuccessAt: instant().nullable(),
    lastFailureAt: instant().nullable(),
    /** While it is failing: since when. */
    failingSince: instant().nullable(),
    /** While it is failing: when the next probe is due … */
    probeAt: instant().nullable(),
    /** … and the wait before it, in seconds, from which the wait after it follows; null when the waits begin anew. */
    probeWaitSeconds: p.smallint().nullable(),
    /** Raised by each activity that takes the endpoint: what an earlier one writes about its run changes nothing. */
    epoch: p.integer().default(0),
    /** Until when the activity of this epoch finds new deliveries by itself; null when none does. */
    leaseUntil: instant().nullable(),
    /** Deliveries whose request may have been sent and whose outcome is not written, and those that are sent next. */
    claimed: codes().default([]),
    /** Until when requests of `claimed` may still be answered that an activity left behind at its end; null while one runs. */
    claimedUntil: instant().nullable(),
    /** An operator holds its deliveries since then. */
    pausedAt: instant().nullable(),
  },
});

/**
 * Changes that were committed and not yet handed to endpoints: one row per change, or per batch of like changes. The
 * relay takes those of each team in order of `seq` and makes events of them.
 */
const WebhookOutboxSchema = defineEntity({
  name: "WebhookOutbox",
  tableName: "webhook_outbox",
  indexes: [{ properties: ["teamId", "seq"] }],
  properties: {
    seq: p.bigint().primary().autoincrement(),
    ...tenancy,
    type: code(),
    /** JSON array of the records as they stood after the change, one event each. */
    objects: text("searched"),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** An event that an endpoint subscribed to, kept as long as one of its deliveries can be replayed. */
const WebhookEventSchema = defineEntity({
  name: "WebhookEvent",
  tableName: "webhook_events",
  filters: tenantFilters,
  indexes: [{ properties: ["keptUntil"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    type: code(),
    /** JSON of the record the event is about. */
    object: text("searched"),
    /** The example of its type, which a client had sent to an endpoint. */
    isTest: p.boolean().default(false),
    createdAt: instant(),
    keptUntil: instant(),
  },
});

export const DELIVERY_STATUSES = ["PENDING", "SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

/** The statuses of attempts that did not succeed. */
export const DELIVERY_FAILURES = ["FAILED", "RETRYING", "BLOCKED"] as const satisfies DeliveryStatus[];
export type DeliveryFailure = (typeof DELIVERY_FAILURES)[number];
export const isFailure = (status: DeliveryStatus): status is DeliveryFailure =>
  DELIVERY_FAILURES.some((failure) => failure === status);

/** One attempt to deliver one event to one endpoint; the next attempt is a row of its own. */
const WebhookDeliverySchema = defineEntity({
  name: "WebhookDelivery",
  tableName: "webhook_deliveries",
  filters: tenantFilters,
  indexes: [{ properties: ["webhookId", "createdAt", "id"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    webhookId: code(),
    eventId: code(),
    eventType: code(),
    /** The first attempt of the same delivery; null when this is it. */
    firstId: code().nullable(),
    attempt: p.smallint().default(1),
    /** Attempts of the ladder before this one. One whose outcome is unknown used up none, nor did one that an operator asked for. */
    attemptsUsed: p.smallint().default(0),
    /** The attempt, or the replay, that followed. */
    supersededById: code().nullable(),
    status: code().$type<DeliveryStatus>().default("PENDING"),
    /**
     * FAILED, RETRYING or BLOCKED as `status` says, null otherwise. The log's index names it instead of `status`: a success
     * leaves it null, and so writes no index. Postgres parses the expression in each statement that writes deliveries, so it
     * is short.
     */
    failure: code()
      .$type<DeliveryFailure>()
      .nullable()
      .generated("(nullif(nullif(status, 'PENDING'), 'SUCCEEDED')) stored"),
    /** That of a final attempt: neither another attempt nor a replay followed. */
    finalFailure: code()
      .$type<DeliveryFailure>()
      .nullable()
      .generated("(case when superseded_by_id is null and status in ('FAILED', 'BLOCKED') then status end) stored"),
    responseStatus: p.smallint().nullable(),
    /** At most 16 KiB, valid UTF-8 without NUL. */
    responseBody: text("searched").nullable(),
    errorMessage: text("searched").nullable(),
    durationMs: p.integer().nullable(),
    isReplay: p.boolean().default(false),
    replayOfId: code().nullable(),
    /** When it is due: PENDING from the start, RETRYING at its next attempt; null once it has ended. */
    nextAttemptAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
    updatedAt: instant().defaultRaw("now()"),
  },
});

/** An endpoint that was deleted and whose log is not all deleted yet. */
const DeletedWebhookSchema = defineEntity({
  name: "DeletedWebhook",
  tableName: "deleted_webhooks",
  properties: {
    webhookId: code().primary(),
    deletedAt: instant().defaultRaw("now()"),
  },
});

/** A bulk replay: which deliveries it replays, and its progress. Its workflow continues from here. */
const WebhookReplaySchema = defineEntity({
  name: "WebhookReplay",
  tableName: "webhook_replays",
  properties: {
    id: code().primary(),
    /** Null for all teams, all endpoints. */
    teamId: code().nullable(),
    webhookId: code().nullable(),
    /** Empty for every type. */
    eventTypes: codes().default([]),
    statuses: codes(),
    /** Deliveries made from then … */
    since: instant(),
    /** … until then. */
    until: instant(),
    perSecond: p.integer(),
    /** Counted when it was requested. */
    total: p.integer(),
    replayed: p.integer().default(0),
    /** The last delivery that was looked at: endpoint, creation, id. */
    afterWebhookId: code().default(""),
    afterCreatedAt: instant().nullable(),
    afterId: code().default(""),
    completedAt: expiring("90 days", instant()).nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const webhookEntities = [
  WebhookEndpointSchema,
  WebhookHealthSchema,
  WebhookOutboxSchema,
  WebhookEventSchema,
  WebhookDeliverySchema,
  DeletedWebhookSchema,
  WebhookReplaySchema,
] as const;
