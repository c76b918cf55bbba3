import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, instant, sealed, tenancy, tenantFilters, text } from "./shared.ts";

/** A complaint by mail that any recipient can write: it suppresses its recipient, and no figure counts it. */
export const UNKNOWN_REPORTER = "complaint:unknown";

export const MAIL_REPORT_KINDS = ["bounce:hard", "bounce:soft", "complaint", UNKNOWN_REPORTER] as const;
export type MailReportKind = (typeof MAIL_REPORT_KINDS)[number];

/** A refusal when the mail was to be handed over: it counts against the address as a soft bounce does, in no figure. */
export const SOFT_REFUSAL = "refusal:soft";

export const WITHDRAWN = "complaint:withdrawn";

/** Append-only. The ledger's row stays as it was: its `updated_at` is the time at which the mail was accepted. */
export const MailReportSchema = defineEntity({
  name: "mail_reports",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    kind: code().$type<MailReportKind | typeof SOFT_REFUSAL | typeof WITHDRAWN>().primary(),
    ...tenancy,
    email: text("person").nullable(),
    reason: code().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const REPORT_PROVIDERS = [
  "SES",
  "SENDGRID",
  "POSTMARK",
  "MAILGUN",
  "BREVO",
  "RESEND",
  "MAILJET",
  "SPARKPOST",
] as const;
export type ReportProvider = (typeof REPORT_PROVIDERS)[number];

/** Its URL has a signed token that names the row. */
export const ReportSourceSchema = defineEntity({
  name: "report_sources",
  filters: tenantFilters,
  properties: {
    id: code().primary(),
    ...tenancy,
    provider: code().$type<ReportProvider>(),
    /** Of Amazon SNS, whose messages of other topics are refused; null until a subscription is confirmed. */
    topicArn: code().nullable(),
    /** Of SendGrid: verifies its signatures, base64 of SPKI in DER. */
    publicKey: code().nullable(),
    /** Of Mailgun and Resend: signs their requests. */
    encryptedSigningKey: sealed().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export class Source extends ReportSourceSchema.class {}
ReportSourceSchema.setClass(Source);

export const ENGAGEMENT_KINDS = ["opened", "clicked"] as const;
export type EngagementKind = (typeof ENGAGEMENT_KINDS)[number];

export const EngagementSchema = defineEntity({
  name: "engagements",
  indexes: [{ properties: ["teamId", "environment", "kind", "lastAt"] }],
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    kind: code().$type<EngagementKind>().primary(),
    ...tenancy,
    resourceId: code(),
    email: text("person"),
    count: p.integer(),
    firstAt: instant(),
    lastAt: instant(),
  },
});

/** Those who made a hit. */
export const HIT_MAKERS = ["human", "machine", "unknown"] as const;
export type HitMaker = (typeof HIT_MAKERS)[number];

/** Rules that decide about a hit: see `RULES`. */
export const HIT_RULES = [
  "head",
  "prefetch",
  "privacy_proxy",
  "program",
  "webkit",
  "network",
  "provider",
  "too_soon",
  "burst",
  "first_minutes",
] as const;
export type HitRule = (typeof HIT_RULES)[number];

/**
 * Hits about which a rule has decided: a machine's, which count in no engagement, and those of unknown makers, of which opens
 * count there too.
 */
export const MarkedHitSchema = defineEntity({
  name: "marked_hits",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    kind: code().$type<EngagementKind>().primary(),
    rule: code().$type<HitRule>().primary(),
    by: code().$type<Exclude<HitMaker, "human">>(),
    count: p.integer(),
    firstAt: instant(),
    lastAt: instant(),
  },
});

/**
 * The links of newsletters and campaigns with the sums of their clicks, which outlive the facts. Hits are settled by one process
 * at a time, so no transaction waits for a row.
 */
export const TrackedLinkSchema = defineEntity({
  name: "tracked_links",
  indexes: [{ properties: ["resourceId"] }],
  properties: {
    /** Of a hash of the resource and the URL, which is too long for an index. */
    id: code().primary(),
    ...tenancy,
    resourceId: code(),
    url: text("team"),
    /** By people; the others stand beside. */
    clicks: p.integer(),
    /** Mails in which it was clicked by a person. */
    clickers: p.integer(),
    clicksUnknown: p.integer(),
    clicksMachine: p.integer(),
    /** Of people's clicks; null without one. */
    firstAt: instant().nullable(),
    lastAt: instant().nullable(),
  },
});

/** Clicks of people on the links of a mail. */
export const LinkClickSchema = defineEntity({
  name: "link_clicks",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    linkId: code().primary(),
    count: p.integer(),
  },
});

/** Hits that wait for those that may decide about them. Each is deleted when it is settled, seconds later. */
export const PendingHitSchema = defineEntity({
  name: "pending_hits",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    id: code().primary(),
    kind: code().$type<EngagementKind>(),
    at: instant(),
    /** The author's address, which may have data of the recipient filled in; null for an open. */
    url: text("person").nullable(),
    /** The rule that the request alone meets. A row with `provider` and no source is no hit, but a provider's report about one. */
    rule: code().$type<HitRule>().nullable(),
    /** The rule decides in the first minutes of the mail only. */
    early: p.boolean(),
    /** A keyed hash of the mail and of the client's network; null for a report. */
    source: code().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});
