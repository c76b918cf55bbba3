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

export const AUTOMATIC_CAUSES = ["head", "prefetch", "privacy_proxy", "program", "too_soon"] as const;
export type AutomaticCause = (typeof AUTOMATIC_CAUSES)[number];

export const AutomaticHitSchema = defineEntity({
  name: "automatic_hits",
  properties: {
    sendId: code().primary(),
    seq: p.integer().primary(),
    kind: code().$type<EngagementKind>().primary(),
    cause: code().$type<AutomaticCause>().primary(),
    count: p.integer(),
    firstAt: instant(),
    lastAt: instant(),
  },
});
