import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, type Environment, edited, expiring, instant, text, timestamps } from "./shared.ts";

export const ROLES = ["OWNER", "ADMIN", "EDITOR", "VIEWER"] as const;
export type Role = (typeof ROLES)[number];

export const PLANS = ["FREE", "BUSINESS"] as const;
export type Plan = (typeof PLANS)[number];

/** Opens and clicks are counted of no person, of all but those who denied it, or of those who agreed. */
export const TRACKING_MODES = ["OFF", "ALL", "AGREED"] as const;
export type TrackingMode = (typeof TRACKING_MODES)[number];

/** Of the words that the service adds to a team's mails and pages: ISO 639-1. */
export const LANGUAGES = ["en", "de", "fr", "es"] as const;
export type Language = (typeof LANGUAGES)[number];

export const FONTS = ["sans", "serif", "mono"] as const;
export type Font = (typeof FONTS)[number];

/** A team's look and words, in its mails of blocks, below all its mails, in confirmation mails and on public pages. */
const brand = {
  language: code().$type<Language>().default("en"),
  /** https. */
  logoUrl: text("team").nullable(),
  /** Of buttons and links: `#rrggbb`, as the next. */
  accentColor: code().default("#0b57d0"),
  /** Around the text of a mail. */
  backgroundColor: code().default("#ffffff"),
  font: code().$type<Font>().default("sans"),
  /** The sender of a new draft in the console. */
  senderName: text("team").nullable(),
  senderEmail: text("team").nullable(),
  /** A text below each mail. */
  mailFooter: text("team").nullable(),
  /** Lines. The law of many countries asks for it in each mail. */
  postalAddress: text("team").nullable(),
};

export const TeamSchema = defineEntity({
  name: "teams",
  properties: {
    id: code().primary(),
    name: text("team"),
    plan: code().$type<Plan>(),
    /** IANA name; send days are days in this zone. */
    timeZone: code().default("UTC"),
    /** Null where it is left to the deployment's limit. */
    requestsPerMinute: p.integer().nullable(),
    contactSlots: p.integer().nullable(),
    webhookEndpoints: p.integer().nullable(),
    tracking: code().$type<TrackingMode>().default("OFF"),
    ...brand,
    ...edited,
  },
});
export class Team extends TeamSchema.class {}
TeamSchema.setClass(Team);

/** Of a brand: what stands below each mail. */
export type MailFooter = Pick<Team, "language" | "mailFooter" | "postalAddress"> & {
  /** It names the list of each recipient. */
  isToList?: boolean;
  /** It links the mail as a page. */
  isOnWeb?: boolean;
};

export const MemberSchema = defineEntity({
  name: "members",
  indexes: [{ properties: ["teamId"] }, { properties: ["email"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    email: text("team"),
    name: text("team"),
    role: code().$type<Role>(),
    /** Of the mail that says where they sign in; null once it was handed over, and for one whom an operator added. */
    inviteDueAt: instant().nullable(),
    removedAt: instant().nullable(),
    ...timestamps,
  },
});
export class Member extends MemberSchema.class {}
MemberSchema.setClass(Member);

export const ApiKeySchema = defineEntity({
  name: "api_keys",
  indexes: [{ properties: ["teamId"] }, { properties: ["lineageId"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    environment: code().$type<Environment>(),
    publicId: code().unique(),
    name: text("team"),
    secretHash: code(),
    memberId: code(),
    roleAtIssue: code().$type<Role>(),
    grantedScopes: codes(),
    /** Empty means that it cannot send. */
    sendDomains: codes(),
    /** The list that each newsletter which the key makes targets from the start; it may be deleted by now. */
    forListId: code().nullable(),
    requiresApproval: p.boolean().default(false),
    dailySendCap: p.integer(),
    lineageId: code(),
    /** Of the sessions of its member in the console, which send by it; its secret is known to no one. */
    forSessions: p.boolean().default(false),
    apiVersion: code(),
    expiresAt: instant().nullable(),
    revokedAt: instant().nullable(),
    ...timestamps,
  },
});
export class ApiKey extends ApiKeySchema.class {}
ApiKeySchema.setClass(ApiKey);

export const RevokedTokenSchema = defineEntity({
  name: "revoked_tokens",
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    jti: code().primary(),
    expiresAt: expiring("1 day", instant()).nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});
