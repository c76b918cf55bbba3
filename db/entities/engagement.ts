import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant, tenancy, tenantFilters, text } from "./shared.ts";

/**
 * A complaint by mail whose reporter is not known. It suppresses its recipient, and no figure counts it: any recipient can
 * write one.
 */
export const UNKNOWN_REPORTER = "complaint:unknown";

/** The kinds of reports about a mail that its server had accepted. */
export const MAIL_REPORT_KINDS = ["bounce:hard", "bounce:soft", "complaint", UNKNOWN_REPORTER] as const;
export type MailReportKind = (typeof MAIL_REPORT_KINDS)[number];

/**
 * A refusal of the recipient when the mail was to be handed over. Its row of the ledger is REJECTED or EXPIRED, and no
 * figure counts it as a bounce: it counts against the address alone, as a soft bounce does.
 */
export const SOFT_REFUSAL = "refusal:soft";

/** An operator has withdrawn the complaint about the mail: no figure counts it any more. */
export const WITHDRAWN = "complaint:withdrawn";

/**
 * Bounces and complaints, each once per mail, withdrawals of complaints, and refusals that count like a soft bounce.
 * Append-only. The ledger's row stays as it was: its `updated_at` is the time at which the mail was accepted.
 */
const MailReportSchema = defineEntity({
  name: "MailReport",
  tableName: "mail_reports",
  filters: tenantFilters,
  properties: {
    sendId: code().primary(),
    /** The recipient's `seq` in the ledger. */
    seq: p.integer().primary(),
    kind: code().$type<MailReportKind | typeof SOFT_REFUSAL | typeof WITHDRAWN>().primary(),
    ...tenancy,
    /**
     * The address that a soft bounce or a refusal counts against, in the spelling that addresses are compared by. Null for a
     * soft bounce that is the sender's fault, and for the other kinds.
     */
    email: text("person").nullable(),
    /** Why an operator withdrew a complaint, without a name; null for the other kinds. */
    reason: code().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** Services whose webhooks report bounces and complaints. */
export const REPORT_PROVIDERS = ["SES", "SENDGRID"] as const;
export type ReportProvider = (typeof REPORT_PROVIDERS)[number];

/** A provider's webhook about a tenant's mails. Its URL has a signed token that names the row. */
const ReportSourceSchema = defineEntity({
  name: "ReportSource",
  tableName: "report_sources",
  filters: tenantFilters,
  properties: {
    id: code().primary(),
    ...tenancy,
    provider: code().$type<ReportProvider>(),
    /** Of Amazon SNS, whose messages of other topics are refused; null until a subscription is confirmed. */
    topicArn: code().nullable(),
    /** Of SendGrid: verifies its signatures, base64 of SPKI in DER. */
    publicKey: code().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const ENGAGEMENT_KINDS = ["opened", "clicked"] as const;
export type EngagementKind = (typeof ENGAGEMENT_KINDS)[number];

/** That a recipient opened a mail or followed a link in it: one row per mail and kind. */
const EngagementSchema = defineEntity({
  name: "Engagement",
  tableName: "engagements",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment", "kind", "lastAt"] }],
  properties: {
    sendId: code().primary(),
    /** The recipient's `seq` in the ledger. */
    seq: p.integer().primary(),
    kind: code().$type<EngagementKind>().primary(),
    ...tenancy,
    /** The newsletter's or campaign's id. */
    resourceId: code(),
    /** The recipient's address, in the spelling that addresses are compared by. */
    email: text("person"),
    /** How often. */
    count: p.integer(),
    firstAt: instant(),
    lastAt: instant(),
  },
});

/** Why a hit on a mail's pixel or link is not taken for its recipient's. */
export const AUTOMATIC_CAUSES = ["head", "prefetch", "privacy_proxy", "program", "too_soon"] as const;
export type AutomaticCause = (typeof AUTOMATIC_CAUSES)[number];

/**
 * Hits on the pixel and the links of a mail that a program made: one row per mail, kind and cause. They count in no
 * figure.
 */
const AutomaticHitSchema = defineEntity({
  name: "AutomaticHit",
  tableName: "automatic_hits",
  properties: {
    sendId: code().primary(),
    /** The recipient's `seq` in the ledger. */
    seq: p.integer().primary(),
    kind: code().$type<EngagementKind>().primary(),
    cause: code().$type<AutomaticCause>().primary(),
    /** How often. */
    count: p.integer(),
    firstAt: instant(),
    lastAt: instant(),
  },
});

/** Batches of hits that are in the database already: one that is repeated counts once. */
const HitBatchSchema = defineEntity({
  name: "HitBatch",
  tableName: "hit_batches",
  indexes: [{ properties: ["updatedAt"] }],
  properties: {
    id: code().primary(),
    /** A process repeats a batch for as long as Postgres is away, which should end sooner. */
    updatedAt: expiring("1 day", instant()).defaultRaw("now()"),
  },
});

export const engagementEntities = [
  MailReportSchema,
  ReportSourceSchema,
  EngagementSchema,
  AutomaticHitSchema,
  HitBatchSchema,
] as const;
