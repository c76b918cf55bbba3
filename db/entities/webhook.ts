import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, edited, instant, listIndexes, sealed, tenancy, tenantFilters, text } from "./shared.ts";

export const DISABLED_REASONS = ["delivery_failures", "manual"] as const;
export type DisabledReason = (typeof DISABLED_REASONS)[number];

/** The app makes APP endpoints, which are not listed. The deliveries of a LISTENER are taken by `webhook:listen`. */
export type EndpointOrigin = "API" | "APP" | "LISTENER";

export const WebhookEndpointSchema = defineEntity({
  name: "webhook_endpoints",
  filters: tenantFilters,
  indexes: listIndexes,
  properties: {
    id: code().primary(),
    ...tenancy,
    origin: code().$type<EndpointOrigin>(),
    name: text("team"),
    description: text("team").nullable(),
    url: text("team"),
    events: codes(),
    active: p.boolean().default(true),
    encryptedSecret: sealed(),
    /** It signs too until it expires. */
    previousEncryptedSecret: sealed().nullable(),
    previousSecretExpiresAt: instant().nullable(),
    /** JSON object: the values of headers are credentials often enough. */
    encryptedHeaders: sealed().nullable(),
    headerNames: codes().default([]),
    apiVersion: code(),
    disabledAt: instant().nullable(),
    disabledReason: code().$type<DisabledReason>().nullable(),
    /** The 72 hours without success are counted from here at the earliest. */
    enabledAt: instant().defaultRaw("now()"),
    /** When a mail to the team's owner about the switch-off is due. */
    noticeDueAt: instant().nullable(),
    ...edited,
  },
});
export class WebhookEndpoint extends WebhookEndpointSchema.class {}
WebhookEndpointSchema.setClass(WebhookEndpoint);

/** Apart from the endpoint, so that deliveries neither wait for an edit nor move its `updated_at`. */
export const WebhookHealthSchema = defineEntity({
  name: "webhook_health",
  properties: {
    webhookId: code().primary(),
    consecutiveFailures: p.integer().default(0),
    lastSuccessAt: instant().nullable(),
    lastFailureAt: instant().nullable(),
    failingSince: instant().nullable(),
    probeAt: instant().nullable(),
    /** The wait before `probeAt`, from which the next one follows. */
    probeWaitSeconds: p.smallint().nullable(),
    /** Raised by each activity that takes the endpoint: an earlier one claims nothing. Negative once waiting deliveries were ended. */
    epoch: p.integer().default(0),
    /** Until when the activity of this epoch finds new deliveries by itself. */
    leaseUntil: instant().nullable(),
    /** Deliveries whose request may have been sent and whose outcome is not written, and those that are sent next. */
    claimed: codes().default([]),
    pausedAt: instant().nullable(),
  },
});

/** One row per change, or per batch of like changes; the relay makes events of a team's rows in order of `seq`. */
export const WebhookOutboxSchema = defineEntity({
  name: "webhook_outbox",
  indexes: [{ properties: ["teamId", "seq"] }],
  properties: {
    seq: p.bigint().primary().autoincrement(),
    ...tenancy,
    type: code(),
    /** JSON array of the records after the change, one event each. */
    objects: text("searched"),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const WebhookEventSchema = defineEntity({
  name: "webhook_events",
  indexes: [{ properties: ["keptUntil"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    type: code(),
    object: text("searched"),
    /** The example of its type. */
    isTest: p.boolean().default(false),
    createdAt: instant(),
    keptUntil: instant(),
  },
});

export const DELIVERY_STATUSES = ["PENDING", "SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

export const DELIVERY_FAILURES = ["FAILED", "RETRYING", "BLOCKED"] as const satisfies DeliveryStatus[];
export type DeliveryFailure = (typeof DELIVERY_FAILURES)[number];
export const isFailure = (status: DeliveryStatus): status is DeliveryFailure =>
  DELIVERY_FAILURES.some((failure) => failure === status);

/** One attempt to deliver one event to one endpoint; the next attempt is a row of its own. */
export const WebhookDeliverySchema = defineEntity({
  name: "webhook_deliveries",
  indexes: [{ properties: ["webhookId", "createdAt", "id"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    webhookId: code(),
    eventId: code(),
    eventType: code(),
    /** Null when this is it. */
    firstId: code().nullable(),
    attempt: p.smallint().default(1),
    /** Of the ladder, before this one. */
    attemptsUsed: p.smallint().default(0),
    supersededById: code().nullable(),
    status: code().$type<DeliveryStatus>().default("PENDING"),
    /** The log's index names it instead of `status`: a success writes no index. */
    failure: code()
      .$type<DeliveryFailure>()
      .nullable()
      .generated("(nullif(nullif(status, 'PENDING'), 'SUCCEEDED')) stored"),
    /** Neither another attempt nor a replay followed. */
    finalFailure: code()
      .$type<DeliveryFailure>()
      .nullable()
      .generated("(case when superseded_by_id is null and status in ('FAILED', 'BLOCKED') then status end) stored"),
    responseStatus: p.smallint().nullable(),
    responseBody: text("searched").nullable(),
    errorMessage: text("searched").nullable(),
    durationMs: p.integer().nullable(),
    isReplay: p.boolean().default(false),
    replayOfId: code().nullable(),
    /** Null once it has ended. */
    nextAttemptAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
    updatedAt: instant().defaultRaw("now()"),
  },
});

/** Its log is not all deleted yet. */
export const DeletedWebhookSchema = defineEntity({
  name: "deleted_webhooks",
  properties: {
    webhookId: code().primary(),
    deletedAt: instant().defaultRaw("now()"),
  },
});
