import { defineEntity, p } from "@mikro-orm/postgresql";
import {
  code,
  edited,
  holding,
  instant,
  person,
  tenancy,
  tenantFilters,
  tenantKey,
  text,
  timestamps,
} from "./shared.ts";

/** INVALID while the address is suppressed by a hard bounce. */
export const EMAIL_STATUSES = ["ACTIVE", "INVALID"] as const;
export type EmailStatus = (typeof EMAIL_STATUSES)[number];

export const CONTACT_FIELD_TYPES = ["text", "number", "boolean", "date"] as const;
export type ContactFieldType = (typeof CONTACT_FIELD_TYPES)[number];

/** Values of custom fields by name; a date is `YYYY-MM-DD`. A field without a value is left out. */
export type FieldValues = Record<string, string | number | boolean>;

/** One address may be a subscriber, too. */
export const ContactSchema = defineEntity({
  name: "contacts",
  filters: tenantFilters,
  uniques: [{ properties: ["teamId", "environment", "email"] }],
  indexes: [
    {
      properties: ["teamId", "environment", "emailStatus", "updatedAt", "id"],
      name: "contacts_email_status_updated_at",
    },
    {
      properties: ["teamId", "environment", "emailStatus", "createdAt", "id"],
      name: "contacts_email_status_created_at",
    },
  ],
  properties: {
    id: code().primary(),
    ...tenancy,
    ...person,
    fields: holding("person", p.json<FieldValues>()).defaultRaw("'{}'"),
    emailStatus: code().$type<EmailStatus>().default("ACTIVE"),
    ...timestamps,
  },
});
export class Contact extends ContactSchema.class {}
ContactSchema.setClass(Contact);

export const ContactFieldSchema = defineEntity({
  name: "contact_fields",
  properties: {
    ...tenantKey,
    name: code().primary(),
    type: code().$type<ContactFieldType>(),
    /** Since then its values are being removed from the contacts, and none is taken. */
    deletedAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const SegmentSchema = defineEntity({
  name: "segments",
  filters: tenantFilters,
  indexes: [{ properties: ["teamId", "environment"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    name: text("team"),
    conditions: holding("team", p.json<unknown>()),
    /** No draft may target it any more; campaigns that were scheduled with it may. */
    deletedAt: instant().nullable(),
    ...edited,
  },
});
export class Segment extends SegmentSchema.class {}
SegmentSchema.setClass(Segment);

/** Written by a trigger of `suppressions`, so that a settlement of mails neither waits for contacts nor locks them. */
export const ContactStatusCheckSchema = defineEntity({
  name: "contact_status_checks",
  properties: {
    seq: p.bigint().primary().autoincrement(),
    ...tenancy,
    email: text("person"),
    checkedAt: instant().nullable(),
  },
});
