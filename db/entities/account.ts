import { defineEntity, p } from "@mikro-orm/postgresql";
import {
  code,
  codes,
  edited,
  expiring,
  holding,
  instant,
  listIndexes,
  sealed,
  tenancy,
  tenantFilters,
  text,
} from "./shared.ts";

export const ACCOUNT_STATUSES = ["PENDING", "ACTIVE", "ERROR", "SUSPENDED", "REVOKED"] as const;
export type AccountStatus = (typeof ACCOUNT_STATUSES)[number];

/** Relays carry the prefix `SMTP_`. */
export const ACCOUNT_PROVIDERS = [
  "GOOGLE",
  "MICROSOFT",
  "SMTP_AMAZON_SES",
  "SMTP_BREVO",
  "SMTP_MAILGUN",
  "SMTP_MAILJET",
  "SMTP_POSTMARK",
  "SMTP_RESEND",
  "SMTP_SENDGRID",
  "SMTP_SPARKPOST",
  "SMTP_OTHER",
] as const;
export type AccountProvider = (typeof ACCOUNT_PROVIDERS)[number];

export type SmtpSecurity = "none" | "starttls" | "tls";

/** Refusals of an account's mails since its server last took one, over all of its sends and processes. */
export interface RefusalRun {
  /** Of the last ones, which say the same. */
  key: string;
  same: number;
  /** A hash of the domain of the first of those. */
  domain: string;
  areAtSeveralDomains: boolean;
  /** Known to be about the account. */
  ofAccount: number;
  inAll: number;
}

export const EmailAccountSchema = defineEntity({
  name: "email_accounts",
  filters: tenantFilters,
  uniques: [{ properties: ["teamId", "environment", "email"] }],
  indexes: listIndexes,
  properties: {
    id: code().primary(),
    ...tenancy,
    email: text("team"),
    displayName: text("team"),
    provider: code().$type<AccountProvider>(),
    status: code().$type<AccountStatus>(),
    allowedDomains: codes(),
    host: code(),
    port: p.integer(),
    security: code().$type<SmtpSecurity>(),
    username: text("team").nullable(),
    encryptedPassword: sealed().nullable(),
    maxConnections: p.integer(),
    /** Messages per clock hour and UTC day; null is unlimited. */
    hourlyLimit: p.integer().nullable(),
    dailyLimit: p.integer().nullable(),
    lastCheckedAt: instant().nullable(),
    /** Never the server's text. */
    lastError: code().nullable(),
    /** The server's reply that says so, without addresses; null where there is none. */
    lastReply: text("team").nullable(),
    refusals: holding("none", p.json<RefusalRun>()).nullable(),
    ...edited,
  },
});
export class EmailAccount extends EmailAccountSchema.class {}
EmailAccountSchema.setClass(EmailAccount);

/** Reserved when rows are staged, returned when they were not sent. */
export const AccountUsageSchema = defineEntity({
  name: "account_usage",
  properties: {
    accountId: code().primary(),
    window: code().$type<"HOUR" | "DAY">().primary(),
    startsAt: expiring("7 days", instant()).primary(),
    used: p.integer(),
  },
});

/** Connections a dispatching activity may open; the leases of an account sum to its maximum at most. */
export const AccountLeaseSchema = defineEntity({
  name: "account_leases",
  properties: {
    accountId: code().primary(),
    holder: code().primary(),
    connections: p.integer(),
    expiresAt: expiring("1 hour", instant()),
  },
});

/** An account that its server lets in no more; deleted once a login works again. */
export const AccountRefusalSchema = defineEntity({
  name: "account_refusals",
  properties: {
    accountId: code().primary(),
    count: p.integer(),
    since: instant(),
    reason: code(),
    temporary: p.boolean(),
    /** No process connects before. */
    retryAt: expiring("3 days", instant()),
  },
});

export const DkimKeySchema = defineEntity({
  name: "dkim_keys",
  uniques: [{ properties: ["domain", "selector"] }],
  indexes: [{ properties: ["teamId", "environment", "domain"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    /** In lower case and ASCII. */
    domain: code(),
    /** The public key stands at `selector._domainkey.domain`. */
    selector: code(),
    algorithm: code().$type<"rsa" | "ed25519">(),
    encryptedPrivateKey: sealed(),
    publicKey: code(),
    /** Null while its record is not known to be in DNS. */
    activeSince: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** The time of an account's next check. A trigger makes the row of a new account. */
export const AccountCheckSchema = defineEntity({
  name: "account_checks",
  indexes: [{ properties: ["nextAt"] }],
  properties: {
    accountId: code().primary(),
    nextAt: instant(),
    /** Counts the findings about the account, of checks and others: a check that began before a finding is dropped. */
    findings: p.integer().default(0),
  },
});

export const AccountGrantSchema = defineEntity({
  name: "account_grants",
  properties: {
    accountId: code().primary(),
    encryptedGrant: sealed(),
    /** Raised when the account gets another grant, not by a new refresh token of the same grant. */
    version: p.integer().default(1),
    encryptedAccessToken: sealed().nullable(),
    tokenExpiresAt: instant().nullable(),
    /** Until then one process has the turn to request a new access token. */
    refreshingUntil: instant().nullable(),
  },
});
