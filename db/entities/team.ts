import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, codes, type Environment, expiring, instant, text, timestamps } from "./shared.ts";

export const ROLES = ["OWNER", "ADMIN", "EDITOR", "VIEWER"] as const;
export type Role = (typeof ROLES)[number];

export const PLANS = ["FREE", "BUSINESS"] as const;
export type Plan = (typeof PLANS)[number];

const TeamSchema = defineEntity({
  name: "Team",
  tableName: "teams",
  properties: {
    id: code().primary(),
    name: text("team"),
    plan: code().$type<Plan>(),
    /** IANA name; send days are days in this zone. */
    timeZone: code().default("UTC"),
    /** Requests that the plan allows each caller in a minute; null where it leaves that to the deployment's limit. */
    requestsPerMinute: p.integer().nullable(),
    /** Distinct addresses that the plan allows in each environment; null for no limit. */
    contactSlots: p.integer().nullable(),
    /** Webhook endpoints that the plan allows in each environment; null for as many as any team may have. */
    webhookEndpoints: p.integer().nullable(),
    /** Opens and clicks of its mails are counted; a newsletter may say otherwise. */
    tracking: p.boolean().default(false),
    ...timestamps,
  },
});
export class Team extends TeamSchema.class {}
TeamSchema.setClass(Team);

const MemberSchema = defineEntity({
  name: "Member",
  tableName: "members",
  indexes: [{ properties: ["teamId"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    email: text("team"),
    name: text("team"),
    role: code().$type<Role>(),
    /** Set when the member left; a member's keys stop working with it. */
    removedAt: instant().nullable(),
    ...timestamps,
  },
});
export class Member extends MemberSchema.class {}
MemberSchema.setClass(Member);

const ApiKeySchema = defineEntity({
  name: "ApiKey",
  tableName: "api_keys",
  indexes: [{ properties: ["teamId"] }, { properties: ["lineageId"] }],
  properties: {
    id: code().primary(),
    teamId: code(),
    environment: code().$type<Environment>(),
    /** The look-up part of the key, between `mk_live_` and the secret. */
    publicId: code().unique(),
    name: text("team"),
    /** HMAC-SHA256 of the secret under the server's pepper, base64url. */
    secretHash: code(),
    memberId: code(),
    roleAtIssue: code().$type<Role>(),
    grantedScopes: codes(),
    /** Domains the key may send from; empty means it cannot send. */
    sendDomains: codes(),
    requiresApproval: p.boolean().default(false),
    /** Mails per UTC day, counted over the whole rotation lineage. */
    dailySendCap: p.integer(),
    /** Shared by a key and everything it was rotated into. */
    lineageId: code(),
    apiVersion: code(),
    expiresAt: instant().nullable(),
    revokedAt: instant().nullable(),
    ...timestamps,
  },
});
export class ApiKey extends ApiKeySchema.class {}
ApiKeySchema.setClass(ApiKey);

/** An OAuth token that is accepted no longer, though it has not expired. It belongs to the issuer, not to a tenant. */
const RevokedTokenSchema = defineEntity({
  name: "RevokedToken",
  tableName: "revoked_tokens",
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    /** The token's `jti` claim. */
    jti: code().primary(),
    /** When the token expires; null where that is not known. */
    expiresAt: expiring("1 day", instant()).nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});
export class RevokedToken extends RevokedTokenSchema.class {}
RevokedTokenSchema.setClass(RevokedToken);

export const teamEntities = [TeamSchema, MemberSchema, ApiKeySchema, RevokedTokenSchema] as const;
