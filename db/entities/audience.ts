import { defineEntity, p } from "@mikro-orm/postgresql";
import {
  code,
  edited,
  expiring,
  instant,
  listIndexes,
  person,
  tenancy,
  tenantFilters,
  tenantKey,
  text,
  timestamps,
} from "./shared.ts";

export const OPTINS = ["SINGLE", "DOUBLE"] as const;
export type Optin = (typeof OPTINS)[number];

/** PENDING waits for the confirmation link of a double opt-in; only CONFIRMED is mailed. */
export const SUBSCRIPTION_STATUSES = ["PENDING", "CONFIRMED", "UNSUBSCRIBED"] as const;
export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

export const WITHHELD_REASONS = ["suppressed", "list_limit", "address_limit", "team_limit", "relay_failure"] as const;
export type WithheldReason = (typeof WITHHELD_REASONS)[number];

export const ListSchema = defineEntity({
  name: "lists",
  filters: tenantFilters,
  indexes: listIndexes,
  properties: {
    id: code().primary(),
    ...tenancy,
    name: text("team"),
    description: text("team").nullable(),
    optin: code().$type<Optin>(),
    /** Its newsletters are public. */
    hasArchive: p.boolean().default(false),
    ...edited,
  },
});
export class List extends ListSchema.class {}
ListSchema.setClass(List);

export const SubscriberSchema = defineEntity({
  name: "subscribers",
  filters: tenantFilters,
  uniques: [{ properties: ["teamId", "environment", "email"] }],
  indexes: listIndexes,
  properties: {
    id: code().primary(),
    ...tenancy,
    ...person,
    ...timestamps,
  },
});
export class Subscriber extends SubscriberSchema.class {}
SubscriberSchema.setClass(Subscriber);

export const subscription = {
  listId: code().primary(),
  subscriberId: code().primary(),
  ...tenancy,
  status: code().$type<SubscriptionStatus>(),
  /** Stands for the address in the digest of a plan: drawn anew when the address changes, and never comes twice. */
  addressVersion: p.bigint().autoincrement(),
  confirmedAt: instant().nullable(),
  /** A per-list opt-out; it outlives the team-wide suppression. */
  unsubscribedAt: instant().nullable(),
  /** The sign-up after an opt-out: until the next opt-out, a link confirms this one alone. */
  signedUpAgainAt: instant().nullable(),
  confirmationDueAt: instant().nullable(),
  confirmationSentAt: instant().nullable(),
  confirmationWithheld: code().$type<WithheldReason>().nullable(),
  /** The last sign-up at a form since then: the texts that the person was shown, its time, and their answer about tracking. */
  formTextId: code().nullable(),
  formAt: instant().nullable(),
  formTracking: p.boolean().nullable(),
  /** The person was not on the list before they signed up at a form. */
  isMadeByForm: p.boolean().default(false),
  ...timestamps,
};

export const SubscriptionSchema = defineEntity({
  name: "subscriptions",
  filters: tenantFilters,
  indexes: [
    { properties: ["subscriberId"] },
    { properties: ["listId", "status", "updatedAt", "subscriberId"] },
    { properties: ["listId", "status", "createdAt", "subscriberId"] },
  ],
  properties: subscription,
});
export class Subscription extends SubscriptionSchema.class {}
SubscriptionSchema.setClass(Subscription);

/** The distinct addresses of a tenant's contacts and subscribers: each takes one contact slot. */
export const AudienceAddressSchema = defineEntity({
  name: "audience_addresses",
  properties: {
    ...tenantKey,
    email: text("person").primary(),
    holders: p.smallint(),
  },
});

export const ContactSlotCountSchema = defineEntity({
  name: "contact_slot_counts",
  properties: {
    ...tenantKey,
    used: p.integer(),
  },
});

/** Confirmation mails of the last days, which count towards the limits: one per list, mailbox and day. */
export const ConfirmationMailSchema = defineEntity({
  name: "confirmation_mails",
  indexes: [{ properties: ["day", "teamId", "environment"] }, { properties: ["mailbox"] }],
  properties: {
    ...tenantKey,
    /** Of `mailboxOf`: several addresses commonly lead to it. */
    mailbox: text("person").primary(),
    listId: code().primary(),
    day: expiring("9 days", p.date()).primary(),
    email: text("person"),
    /** It counts for the mailbox in all teams. */
    byForm: p.boolean().default(false),
    /** The first time. */
    triedAt: instant().defaultRaw("now()"),
    /** Null while the mail is tried. */
    settledAt: instant().nullable(),
  },
});
/** Through the API only MANUAL can be added. */
export const SUPPRESSION_REASONS = [
  "MANUAL",
  "bounce:hard",
  "bounce:soft",
  "bounce:complaint",
  "UNSUBSCRIBED",
] as const;
export type SuppressionReason = (typeof SUPPRESSION_REASONS)[number];

export const SuppressionSchema = defineEntity({
  name: "suppressions",
  filters: tenantFilters,
  uniques: [{ properties: ["teamId", "environment", "email"] }],
  indexes: [
    { properties: ["teamId", "environment", "reason", "updatedAt", "id"] },
    { properties: ["teamId", "environment", "reason", "createdAt", "id"] },
  ],
  properties: {
    id: code().primary(),
    ...tenancy,
    email: text("person"),
    emailSpelling: text("person").nullable(),
    reason: code(),
    /** Of an UNSUBSCRIBED one: another reason came since, so that only its deletion by the team lifts it. */
    hasOtherReason: p.boolean().default(false),
    ...timestamps,
  },
});
export class Suppression extends SuppressionSchema.class {}
SuppressionSchema.setClass(Suppression);

/** By the page behind the link, by the mail program (RFC 8058), or by a mail (RFC 2369). */
export const UNSUBSCRIBE_SOURCES = ["link", "one_click", "mailto"] as const;
export type UnsubscribeSource = (typeof UNSUBSCRIBE_SOURCES)[number];

export const UnsubscribeSchema = defineEntity({
  name: "unsubscribes",
  indexes: [
    { properties: ["teamId", "environment", "source", "unsubscribedAt", "id"], name: "unsubscribes_source" },
    { properties: ["teamId", "environment", "campaignId", "unsubscribedAt", "id"], name: "unsubscribes_campaign" },
    { properties: ["teamId", "environment", "email"], name: "unsubscribes_email" },
  ],
  properties: {
    id: code().primary(),
    ...tenancy,
    email: text("person"),
    emailSpelling: text("person").nullable(),
    reason: code(),
    source: code(),
    campaignId: code().nullable(),
    unsubscribedAt: instant().defaultRaw("now()"),
  },
});

export const CONSENT_STATUSES = ["GRANTED", "DENIED"] as const;
export type ConsentStatus = (typeof CONSENT_STATUSES)[number];

/** PAGE: by the page behind the link in a mail. MEMBER: a member of the team wrote it down in the console. FORM: at a sign-up. */
export const CONSENT_WAYS = ["API", "IMPORT", "PAGE", "MEMBER", "FORM"] as const;
export type ConsentWay = (typeof CONSENT_WAYS)[number];

/** The last answer of the person at an address: whether their opens and clicks may be counted. */
export const TrackingConsentSchema = defineEntity({
  name: "tracking_consents",
  properties: {
    ...tenantKey,
    email: text("person").primary(),
    status: code().$type<ConsentStatus>(),
    way: code().$type<ConsentWay>(),
    /** The text that they were shown. */
    words: text("person").nullable(),
    at: instant(),
  },
});

/** An HMAC of the address under the database's hash key. It differs between tenants. */
export const ErasedAddressSchema = defineEntity({
  name: "erased_addresses",
  properties: {
    ...tenantKey,
    addressHash: code().primary(),
    /** Stands for the person in rows that stay, until the erasure is complete. */
    placeholder: code().nullable(),
    erasedAt: instant().defaultRaw("now()"),
  },
});

/** An opt-out of a list by an address that no subscriber has now. */
export const ListOptOutSchema = defineEntity({
  name: "list_opt_outs",
  indexes: [{ properties: ["listId"] }],
  properties: {
    ...tenantKey,
    addressHash: code().primary(),
    listId: code().primary(),
    unsubscribedAt: instant(),
  },
});
