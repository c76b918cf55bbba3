import { defineEntity, p } from "@mikro-orm/postgresql";
import { type Environment, tenantFilters } from "./shared.ts";

/** The distinct addresses of a tenant's contacts and subscribers: each takes one contact slot. */
const AudienceAddressSchema = defineEntity({
  name: "AudienceAddress",
  tableName: "audience_addresses",
  filters: tenantFilters,
  properties: {
    teamId: p.text().primary(),
    environment: p.text().$type<Environment>().primary(),
    /** In the spelling that addresses are compared by. */
    email: p.text().primary(),
    /** Records with the address: a contact, a subscriber, or both. */
    holders: p.smallint(),
  },
});

/** How many slots a tenant uses: the sum of its parts, of which each may be negative. See domain/audience/contact-slots.ts. */
const ContactSlotCountSchema = defineEntity({
  name: "ContactSlotCount",
  tableName: "contact_slot_counts",
  filters: tenantFilters,
  properties: {
    teamId: p.text().primary(),
    environment: p.text().$type<Environment>().primary(),
    part: p.smallint().primary(),
    used: p.integer(),
  },
});

export const contactSlotEntities = [AudienceAddressSchema, ContactSlotCountSchema] as const;
