import { defineEntity, p } from "@mikro-orm/postgresql";
import { type Environment, instant, timestamps } from "./shared.ts";

export const ROLES = ["OWNER", "ADMIN", "EDITOR", "VIEWER"] as const;
export type Role = (typeof ROLES)[number];

export const PLANS = ["FREE", "BUSINESS"] as const;
export type Plan = (typeof PLANS)[number];

const TeamSchema = defineEntity({
  name: "Team",
  tableName: "teams",
  properties: {
    id: p.text().primary(),
    name: p.text(),
    plan: p.text().$type<Plan>(),
    /** IANA name; send days are days in this zone. */
    timeZone: p.text().default("UTC"),
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
    id: p.text().primary(),
    teamId: p.text(),
    email: p.text(),
    name: p.text(),
    role: p.text().$type<Role>(),
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
    id: p.text().primary(),
    teamId: p.text(),
    environment: p.text().$type<Environment>(),
    /** The look-up part of the key, between `mk_live_` and the secret. */
    publicId: p.text().unique(),
    name: p.text(),
    /** HMAC-SHA256 of the secret under the server's pepper, base64url. */
    secretHash: p.text(),
    memberId: p.text(),
    roleAtIssue: p.text().$type<Role>(),
    grantedScopes: p.array(),
    /** Domains the key may send from; empty means it cannot send. */
    sendDomains: p.array(),
    requiresApproval: p.boolean().default(false),
    /** Mails per UTC day, counted over the whole rotation lineage. */
    dailySendCap: p.integer(),
    /** Shared by a key and everything it was rotated into. */
    lineageId: p.text(),
    apiVersion: p.text(),
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
    jti: p.text().primary(),
    /** When the token expires; null where that is not known. */
    expiresAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});
export class RevokedToken extends RevokedTokenSchema.class {}
RevokedTokenSchema.setClass(RevokedToken);

export const teamEntities = [TeamSchema, MemberSchema, ApiKeySchema, RevokedTokenSchema] as const;
