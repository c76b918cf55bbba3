import { defineEntity } from "@mikro-orm/postgresql";
import { code, expiring, instant, text } from "./shared.ts";

/** A link by which a member signs in to the console. Its token is a signature of this row: no secret is stored. */
export const SignInLinkSchema = defineEntity({
  name: "sign_in_links",
  indexes: [{ properties: ["mailDueAt"] }, { properties: ["expiresAt"] }],
  properties: {
    id: code().primary(),
    /** As addresses are compared. */
    email: text("team"),
    /** Hash of the cookie of the browser that asked; null for a link of an operator, which any browser may open. */
    browserHash: code().nullable(),
    /** Null once the mail was handed over, and for a link of an operator. */
    mailDueAt: instant().nullable(),
    /** Set at once where an earlier link serves its browser, too: it is no link then. */
    usedAt: instant().nullable(),
    expiresAt: expiring("1 day", instant()),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** A browser that is signed in: for every team that has a member with this address. */
export const ConsoleSessionSchema = defineEntity({
  name: "console_sessions",
  indexes: [{ properties: ["email"] }, { properties: ["expiresAt"] }],
  properties: {
    tokenHash: code().primary(),
    /** As addresses are compared. */
    email: text("team"),
    /** Within five minutes. */
    lastUsedAt: instant(),
    expiresAt: expiring("1 day", instant()),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** An account at the provider of sign-ins, by issuer and subject, and the member's address that it signs in with. */
export const ConsoleIdentitySchema = defineEntity({
  name: "console_identities",
  indexes: [{ properties: ["lastUsedAt"] }],
  uniques: [{ properties: ["issuer", "email"] }],
  properties: {
    issuer: code().primary(),
    subject: text("team").primary(),
    /** As addresses are compared. */
    email: text("team"),
    lastUsedAt: expiring("400 days", instant()),
    createdAt: instant().defaultRaw("now()"),
  },
});
