import { defineEntity, p } from "@mikro-orm/postgresql";
import type { FieldValues } from "./contact.ts";
import {
  code,
  codes,
  type Environment,
  expiring,
  holding,
  instant,
  tenancy,
  tenantFilters,
  text,
  timestamps,
} from "./shared.ts";

/** The kinds of resource that a send mails. */
export const RESOURCE_TYPES = ["newsletter", "campaign"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

export const BROADCAST_STATUSES = ["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const;
export type BroadcastStatus = (typeof BROADCAST_STATUSES)[number];

/** Columns of a newsletter as of a campaign. */
const broadcast = {
  id: code().primary(),
  ...tenancy,
  name: text("team"),
  subject: text("team").nullable(),
  fromName: text("team").nullable(),
  /** HTML with merge tags. */
  body: text("team").nullable(),
  status: code().$type<BroadcastStatus>().default("DRAFT"),
  /** ISO weekdays (1 Monday to 7 Sunday) in the team's time zone; empty is any day. */
  sendDays: p
    .array((value) => Number(value))
    .columnType("smallint[]")
    .default([]),
  /** Whether opens and clicks of its mails are counted; null where that is left to the team's setting. */
  tracking: p.boolean().nullable(),
  /** Why it is paused, as its send's `pauseReason`. */
  statusReason: code().nullable(),
  /** The confirmed send, once there is one. */
  sendId: code().nullable(),
  sendAt: instant().nullable(),
  startedAt: instant().nullable(),
  completedAt: instant().nullable(),
  ...timestamps,
};

const NewsletterSchema = defineEntity({
  name: "Newsletter",
  tableName: "newsletters",
  filters: tenantFilters,
  indexes: [
    { properties: ["teamId", "environment", "updatedAt", "id"] },
    { properties: ["teamId", "environment", "createdAt", "id"] },
  ],
  properties: { ...broadcast, fromEmail: text("team").nullable() },
});
export class Newsletter extends NewsletterSchema.class {}
NewsletterSchema.setClass(Newsletter);

/** A mail to the contacts of a segment, over several sending accounts. */
const CampaignSchema = defineEntity({
  name: "Campaign",
  tableName: "campaigns",
  filters: tenantFilters,
  indexes: [
    { properties: ["teamId", "environment", "updatedAt", "id"] },
    { properties: ["teamId", "environment", "createdAt", "id"] },
  ],
  properties: {
    ...broadcast,
    segmentId: code().nullable(),
    /** In the order in which they were attached. One may be gone by now. */
    accountIds: codes().default([]),
    /** A sequence of mails over time, which no send mails. Made in the app. */
    isDrip: p.boolean().default(false),
  },
});
export class Campaign extends CampaignSchema.class {}
CampaignSchema.setClass(Campaign);

const NewsletterListSchema = defineEntity({
  name: "NewsletterList",
  tableName: "newsletter_lists",
  indexes: [{ properties: ["listId"] }],
  properties: {
    newsletterId: code().primary(),
    listId: code().primary(),
  },
});

/** The plan that a send-preview resolved, which a confirmation token is bound to. */
const SendPreviewSchema = defineEntity({
  name: "SendPreview",
  tableName: "send_previews",
  filters: tenantFilters,
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    resourceType: code().$type<ResourceType>(),
    resourceId: code(),
    apiKeyId: code(),
    planDigest: code(),
    total: p.integer(),
    /** Not opted in, of a newsletter; without a valid address, of a campaign. */
    ineligible: p.integer(),
    suppressed: p.integer(),
    eligible: p.integer(),
    creditsRequired: p.integer(),
    capLimit: p.integer(),
    capUsedToday: p.integer(),
    fromAddresses: holding("team", p.array()),
    accountAddresses: holding("team", p.array()),
    complaintRate: p.double(),
    expiresAt: expiring("30 days", instant()),
    usedAt: instant().nullable(),
    /** When an operator cancelled it before its confirm; `usedAt` is set too. */
    voidedAt: instant().nullable(),
    /** When another key tried to confirm it, which made its token void. */
    otherKeyAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const SEND_STATUSES = ["SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const;
export type SendStatus = (typeof SEND_STATUSES)[number];

/**
 * The rest of an ended send's ledger: COMPLETE; NAMELESS, without names and custom fields; DELETING, some rows are deleted;
 * SWEEPING, all rows are deleted, and responses that came meanwhile may be left; DELETED.
 */
export const LEDGER_STATES = ["COMPLETE", "NAMELESS", "DELETING", "SWEEPING", "DELETED"] as const;
export type LedgerState = (typeof LEDGER_STATES)[number];

/** A confirmed send. Its id is the preview's. */
const SendSchema = defineEntity({
  name: "Send",
  tableName: "sends",
  filters: tenantFilters,
  indexes: [{ properties: ["status"] }, { properties: ["resourceId"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    resourceType: code().$type<ResourceType>(),
    resourceId: code(),
    apiKeyId: code(),
    status: code().$type<SendStatus>(),
    recipients: p.integer(),
    creditsReserved: p.integer(),
    capLimit: p.integer(),
    capUsedToday: p.integer(),
    /** Opens and clicks of its mails are counted: as its newsletter or its team had it when it was confirmed. */
    tracking: p.boolean().default(false),
    sendAt: instant(),
    startedAt: instant().nullable(),
    completedAt: instant().nullable(),
    /** Credits were consumed and released; nothing is owed any more. */
    settledAt: instant().nullable(),
    /**
     * Until when an operator may decide about unknown outcomes of a send that is SENT; null when there is nothing to
     * decide, or it was decided. A workflow is kept for it as long.
     */
    reviewUntil: instant().nullable(),
    /** Why it is paused, see `pauseSend`: e.g. login_refused; null when an operator paused it. */
    pauseReason: code().nullable(),
    /**
     * The team's complaint rate when it paused the send, or when an operator resumed the send after that; null while the
     * rate has not paused it, or was below the threshold when it was resumed.
     */
    complaintRate: p.double().nullable(),
    ledgerState: code().$type<LedgerState>().default("COMPLETE"),
    /** Rows of the ledger up to and including this `seq` have lost their names, or are deleted while it is DELETING. */
    prunedSeq: p.integer().default(0),
    /** The command that an operator's last resume carried out: a repetition of it resumes nothing. */
    resumeId: code().nullable(),
    /** How often it was resumed. Never falls, unless Postgres lost commits. */
    resumes: p.integer().default(0),
    ...timestamps,
  },
});
export class Send extends SendSchema.class {}
SendSchema.setClass(Send);

/** One account's part in a send: a newsletter's send has one lane, a campaign's one for each of its accounts. */
const SendLaneSchema = defineEntity({
  name: "SendLane",
  tableName: "send_lanes",
  properties: {
    sendId: code().primary(),
    accountId: code().primary(),
    /** Raised by every dispatching attempt; a write that carries an older one changes nothing. */
    epoch: p.integer().default(0),
    /** A dispatching attempt is under way, or died; cleared when every row it staged is settled. */
    dispatching: p.boolean().default(false),
    /** Recipients up to and including this `seq` were staged. May be older than the rows: staging takes QUEUED rows only. */
    afterSeq: p.integer().default(0),
    /** Longest time after which a process may still mail a row of this lane that it staged, or learn its outcome, in ms. */
    inFlightMs: p.integer().default(0),
    /** Policy refusals in a row when its last attempt ended; the next one counts on from them. */
    policyRefusals: p.integer().default(0),
  },
});
export class SendLane extends SendLaneSchema.class {}
SendLaneSchema.setClass(SendLane);

/** Outcomes of a mail; a DEFERRED one gets another outcome later. */
export const OUTCOMES = ["SENT", "REJECTED", "DEFERRED", "UNKNOWN", "EXPIRED", "SUPPRESSED", "CANCELLED"] as const;
export const RECIPIENT_STATES = ["QUEUED", "SENDING", ...OUTCOMES] as const;
export type RecipientState = (typeof RECIPIENT_STATES)[number];

/**
 * The ledger: one row per recipient of a send. `state` stands in no index, so that the two updates a mail costs stay
 * within their page (HOT); rows are walked by `seq`, and only rows that wait for a retry are indexed, by `retryAt`.
 */
const SendRecipientSchema = defineEntity({
  name: "SendRecipient",
  tableName: "send_recipients",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    /** A subscriber's id when the send's resource is a newsletter, a contact's when it is a campaign. */
    memberId: code(),
    email: text("person"),
    /** As the subscriber's or contact's when the send was confirmed. */
    emailSpelling: text("person").nullable(),
    firstName: text("person").nullable(),
    lastName: text("person").nullable(),
    /** The targeted list that brought this recipient in, if any; fills the merge tag. */
    listId: code().nullable(),
    state: code().$type<RecipientState>().default("QUEUED"),
    epoch: p.integer().default(0),
    attempts: p.smallint().default(0),
    /**
     * A bounce, a complaint, an open or a click of the mail came before the row was SENT: it was accepted, also where the
     * row is UNKNOWN. Set by triggers of `mail_reports` and `engagements`.
     */
    responded: p.boolean().default(false),
    /**
     * The time of the first deferral, moved later by the time that the recipient was due and waited for its send or
     * account.
     */
    firstDeferredAt: instant().nullable(),
    retryAt: instant().nullable(),
    /** Why it is where it is: mailbox_unknown:550_5.1.1, suppressed, opted_out, … never the server's text. */
    reason: code().nullable(),
    updatedAt: instant().defaultRaw("now()"),
    /** The lane that took this recipient; null while any lane of the send may, and always when the send has one lane. */
    accountId: code().nullable(),
    /** Values of a contact's custom fields; null when it has none, and for subscribers. */
    fields: holding("person", p.json<FieldValues>()).nullable(),
  },
});
export class SendRecipient extends SendRecipientSchema.class {}
SendRecipientSchema.setClass(SendRecipient);

/**
 * How many recipients of a send came into a state or left it, one row per statement and state: written by a trigger on
 * `send_recipients`. Added to all recipients QUEUED, the state of every new row, they are the counts of the send.
 */
const SendCountSchema = defineEntity({
  name: "SendCount",
  tableName: "send_counts",
  indexes: [{ properties: ["sendId"] }],
  properties: {
    seq: p.bigint().primary().autoincrement(),
    sendId: code(),
    state: code().$type<RecipientState>(),
    /** Negative for rows that left the state. */
    count: p.integer(),
  },
});

/** How far the reconciler is with each kind. */
const ReconcilerPassSchema = defineEntity({
  name: "ReconcilerPass",
  tableName: "reconciler_passes",
  properties: {
    kind: code().primary(),
    /** The pass under way continues behind this id; empty while none is under way. */
    afterId: code().default(""),
    /** Items of the pass under way that could not be compared. */
    failed: p.integer().default(0),
    /** When the last pass ended that compared every item; until then, when the first one began. */
    completedAt: instant().defaultRaw("now()"),
  },
});

/** A team's email credits. Always the sum of its `credit_entries`. */
const CreditBalanceSchema = defineEntity({
  name: "CreditBalance",
  tableName: "credit_balances",
  properties: {
    teamId: code().primary(),
    environment: code().$type<Environment>().primary(),
    available: p.bigint(),
    reserved: p.bigint(),
    ...timestamps,
  },
});

export type CreditKind = "GRANT" | "RESERVE" | "CONSUME" | "RELEASE";

const CreditEntrySchema = defineEntity({
  name: "CreditEntry",
  tableName: "credit_entries",
  indexes: [{ properties: ["teamId", "environment"] }],
  uniques: [{ properties: ["kind", "sendId", "cause"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    environment: code().$type<Environment>(),
    kind: code().$type<CreditKind>(),
    amount: p.bigint(),
    sendId: code().nullable(),
    /** Tells entries of one kind and send apart; makes each of them happen once. */
    cause: code(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** Mails counted against a key lineage's daily cap, per UTC day. */
const DailySendUsageSchema = defineEntity({
  name: "DailySendUsage",
  tableName: "daily_send_usage",
  properties: {
    lineageId: code().primary(),
    day: expiring("60 days", p.date()).primary(),
    used: p.integer(),
  },
});

export const sendEntities = [
  NewsletterSchema,
  NewsletterListSchema,
  CampaignSchema,
  SendPreviewSchema,
  SendSchema,
  SendLaneSchema,
  SendRecipientSchema,
  SendCountSchema,
  ReconcilerPassSchema,
  CreditBalanceSchema,
  CreditEntrySchema,
  DailySendUsageSchema,
] as const;
