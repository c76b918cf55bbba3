import { defineEntity, p } from "@mikro-orm/postgresql";
import type { FieldValues } from "./contact.ts";
import {
  code,
  codes,
  type Environment,
  edited,
  expiring,
  holding,
  instant,
  listIndexes,
  tenancy,
  tenantFilters,
  tenantKey,
  text,
  timestamps,
} from "./shared.ts";
import type { MailFooter, TrackingMode } from "./team.ts";

export const RESOURCE_TYPES = ["newsletter", "campaign"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

export const BROADCAST_STATUSES = ["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const;
/** A campaign that is a sequence is DRAFT, ACTIVE, PAUSED or STOPPED. */
export const CAMPAIGN_STATUSES = [...BROADCAST_STATUSES, "ACTIVE", "STOPPED"] as const;
export type BroadcastStatus = (typeof CAMPAIGN_STATUSES)[number];

const broadcast = {
  id: code().primary(),
  ...tenancy,
  name: text("team"),
  subject: text("team").nullable(),
  fromName: text("team").nullable(),
  body: text("team").nullable(),
  /** The document that `body` was compiled from; null for HTML that was written as such. */
  blocks: holding("team", p.json<unknown>()).nullable(),
  /** A template; in `body` too. */
  preheader: text("team").nullable(),
  status: code().$type<BroadcastStatus>().default("DRAFT"),
  /** ISO weekdays (1 Monday to 7 Sunday) in the team's time zone; empty is any day. */
  sendDays: p
    .array((value) => Number(value))
    .columnType("smallint[]")
    .default([]),
  /** True: by the team's setting, or ALL where that is OFF. Null: by the team's setting. */
  tracking: p.boolean().nullable(),
  /** Its contacts get a campaign; of a newsletter, it narrows the lists. Set in the console. */
  segmentId: code().nullable(),
  statusReason: code().nullable(),
  sendId: code().nullable(),
  /** Of a draft: before it no mail leaves. Set in the console. */
  sendAt: instant().nullable(),
  /** IANA zone in which members see `sendAt`. */
  sendZone: code().nullable(),
  startedAt: instant().nullable(),
  completedAt: instant().nullable(),
  ...edited,
};

export const NewsletterSchema = defineEntity({
  name: "newsletters",
  filters: tenantFilters,
  indexes: listIndexes,
  properties: {
    ...broadcast,
    fromEmail: text("team").nullable(),
    /** Once it is sent, true: published; false: withdrawn. Null: public while one of its lists has an archive. */
    isPublic: p.boolean().nullable(),
  },
});
export class Newsletter extends NewsletterSchema.class {}
NewsletterSchema.setClass(Newsletter);

export const CampaignSchema = defineEntity({
  name: "campaigns",
  filters: tenantFilters,
  indexes: listIndexes,
  properties: {
    ...broadcast,
    accountIds: codes().default([]),
    /** A sequence of mails over time, see `sequences`. */
    isDrip: p.boolean().default(false),
  },
});
export class Campaign extends CampaignSchema.class {}
CampaignSchema.setClass(Campaign);

export const NewsletterListSchema = defineEntity({
  name: "newsletter_lists",
  indexes: [{ properties: ["listId", "newsletterId"] }],
  properties: {
    newsletterId: code().primary(),
    listId: code().primary(),
  },
});

/** Content of a newsletter or campaign, or of a step of a sequence, that a later one has replaced. It goes with its draft. */
export const DraftVersionSchema = defineEntity({
  name: "draft_versions",
  filters: tenantFilters,
  indexes: [{ properties: ["draftId"] }, { properties: ["keptAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    draftId: code(),
    stepId: code().nullable(),
    subject: text("team").nullable(),
    preheader: text("team").nullable(),
    body: text("team").nullable(),
    blocks: holding("team", p.json<unknown>()).nullable(),
    /** As `updatedAt` and `updatedBy` of the draft were. */
    writtenAt: instant(),
    writtenBy: code().nullable(),
    keptAt: expiring("30 days", instant().defaultRaw("now()")),
  },
});
export class DraftVersion extends DraftVersionSchema.class {}
DraftVersionSchema.setClass(DraftVersion);

/** Content for new drafts, as a member has saved that of another one. */
export const TemplateSchema = defineEntity({
  name: "templates",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    name: text("team"),
    subject: text("team").nullable(),
    preheader: text("team").nullable(),
    /** HTML; null where it has blocks, which each draft of it compiles with the looks of its day. */
    body: text("team").nullable(),
    blocks: holding("team", p.json<unknown>()).nullable(),
    ...edited,
  },
});
export class Template extends TemplateSchema.class {}
TemplateSchema.setClass(Template);

export const SendPreviewSchema = defineEntity({
  name: "send_previews",
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
    tracked: p.integer(),
    capLimit: p.integer(),
    capUsedToday: p.integer(),
    fromAddresses: holding("team", p.array()),
    accountAddresses: holding("team", p.array()),
    /** Of a newsletter its lists, of a campaign its segment. */
    targetIds: codes(),
    /** Null without a time of its own. */
    sendAt: instant().nullable(),
    complaintRate: p.double(),
    expiresAt: expiring("30 days", instant()),
    usedAt: instant().nullable(),
    /** Before its confirm; `usedAt` is set too. */
    voidedAt: instant().nullable(),
    /** Makes the token void. */
    otherKeyAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const SEND_STATUSES = ["SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED", "FAILED"] as const;
export type SendStatus = (typeof SEND_STATUSES)[number];

/** SWEEPING: all rows are deleted, and responses that came meanwhile may be left. */
export const LEDGER_STATES = ["COMPLETE", "NAMELESS", "DELETING", "SWEEPING", "DELETED"] as const;
export type LedgerState = (typeof LEDGER_STATES)[number];

export const SendSchema = defineEntity({
  name: "sends",
  indexes: [{ properties: ["status"] }, { properties: ["resourceId", "sendAt"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    resourceType: code().$type<ResourceType>(),
    resourceId: code(),
    /** Of a wave: the version of the step that it mails, and the list of the sequence, if it has one. */
    stepVersionId: code().nullable(),
    listId: code().nullable(),
    apiKeyId: code(),
    status: code().$type<SendStatus>(),
    recipients: p.integer(),
    /** As the draft and its team said at the confirm. */
    tracking: code().$type<TrackingMode>().default("OFF"),
    /** The brand's part below each mail, as at the confirm. A wave of a sequence has none: it takes the present one. */
    footer: holding("team", p.json<MailFooter>()).nullable(),
    sendAt: instant(),
    startedAt: instant().nullable(),
    completedAt: instant().nullable(),
    settledAt: instant().nullable(),
    /** Until when an operator may decide about unknown outcomes. A workflow is kept for it as long. */
    reviewUntil: instant().nullable(),
    /** See `pauseSend`; null when an operator paused it. */
    pauseReason: code().nullable(),
    /** Since when it is paused; null also while a process of 1.0, or a restore, has paused it. */
    pausedAt: instant().nullable(),
    /** The rate that paused the send, or at which an operator resumed it after that. */
    complaintRate: p.double().nullable(),
    ledgerState: code().$type<LedgerState>().default("COMPLETE"),
    /** Rows up to and including it have lost their names, or are deleted while the ledger is DELETING. */
    prunedSeq: p.integer().default(0),
    /** Never falls, unless Postgres lost commits. */
    resumes: p.integer().default(0),
    ...timestamps,
  },
});

export const SendLaneSchema = defineEntity({
  name: "send_lanes",
  properties: {
    sendId: code().primary(),
    accountId: code().primary(),
    /** Raised by every dispatching attempt; a write that carries an older one changes nothing. */
    epoch: p.integer().default(0),
    /** An attempt is under way, or died; cleared when every row that it staged is settled. */
    dispatching: p.boolean().default(false),
    /** Rows up to and including it were staged. May be older than they are: staging takes QUEUED rows only. */
    afterSeq: p.integer().default(0),
    /** The longest for which a process may still mail a row that it staged, or learn its outcome. */
    inFlightMs: p.integer().default(0),
    /** See `OpenedDispatch`. */
    hasAccepted: p.boolean().default(false),
    areGone: p.boolean().default(false),
  },
});

/** A DEFERRED mail gets another outcome later. */
export const OUTCOMES = ["SENT", "REJECTED", "DEFERRED", "UNKNOWN", "EXPIRED", "SUPPRESSED", "CANCELLED"] as const;
export const RECIPIENT_STATES = ["QUEUED", "SENDING", ...OUTCOMES] as const;
export type RecipientState = (typeof RECIPIENT_STATES)[number];

/** `state` stands in no index, so that the two updates that a mail costs stay within their page (HOT). */
export const SendRecipientSchema = defineEntity({
  name: "send_recipients",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    memberId: code(),
    email: text("person"),
    emailSpelling: text("person").nullable(),
    firstName: text("person").nullable(),
    lastName: text("person").nullable(),
    /** The targeted list that brought the recipient in; fills the merge tag. */
    listId: code().nullable(),
    state: code().$type<RecipientState>().default("QUEUED"),
    epoch: p.integer().default(0),
    attempts: p.smallint().default(0),
    /** A response came before the row was SENT, so the mail was accepted. Set by triggers. */
    responded: p.boolean().default(false),
    /** Its opens and clicks are counted: decided when it was staged last. */
    tracked: p.boolean().default(false),
    /** Moved later by the time that the recipient was due and waited for its send or account. */
    firstDeferredAt: instant().nullable(),
    retryAt: instant().nullable(),
    /** E.g. mailbox_unknown:550_5.1.1 or opted_out; never the server's text. */
    reason: code().nullable(),
    updatedAt: instant().defaultRaw("now()"),
    /** The lane that took the recipient; null where the send has one lane. */
    accountId: code().nullable(),
    fields: holding("person", p.json<FieldValues>()).nullable(),
  },
});

/** By a trigger. With all recipients QUEUED at first, they are the send's counts. */
export const SendCountSchema = defineEntity({
  name: "send_counts",
  indexes: [{ properties: ["sendId"] }],
  properties: {
    seq: p.bigint().primary().autoincrement(),
    sendId: code(),
    state: code().$type<RecipientState>(),
    count: p.integer(),
  },
});

export const ReconcilerPassSchema = defineEntity({
  name: "reconciler_passes",
  properties: {
    kind: code().primary(),
    completedAt: instant().defaultRaw("now()"),
  },
});

/** Always the sum of its `credit_entries`. */
export const CreditBalanceSchema = defineEntity({
  name: "credit_balances",
  properties: {
    ...tenantKey,
    available: p.bigint(),
    reserved: p.bigint(),
    ...timestamps,
  },
});

export type CreditKind = "GRANT" | "RESERVE" | "CONSUME" | "RELEASE";

export const CreditEntrySchema = defineEntity({
  name: "credit_entries",
  indexes: [{ properties: ["teamId", "environment"] }],
  uniques: [{ properties: ["kind", "sendId", "cause"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    environment: code().$type<Environment>(),
    kind: code().$type<CreditKind>(),
    amount: p.bigint(),
    sendId: code().nullable(),
    cause: code(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const DailySendUsageSchema = defineEntity({
  name: "daily_send_usage",
  properties: {
    lineageId: code().primary(),
    day: expiring("60 days", p.date()).primary(),
    used: p.integer(),
  },
});
