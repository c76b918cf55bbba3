import { type RawBuilder, sql } from "kysely";
import { ofTenant, type Tenant } from "../../db/orm.ts";

/** The events of contacts that a statement made or changed. */
export const CONTACT_WRITTEN = { created: "contact.created", changed: "contact.updated" } as const;

/**
 * A query for the contacts with these addresses, which locks them in the order of their addresses: all statements that
 * lock several contacts keep to it, else two of them could wait for each other. One look-up of the index of addresses
 * each: of a join, or of `= any`, the planner made a walk over all contacts of the tenant while its statistics were old.
 * @param emails in the spelling that addresses are compared by
 */
export const lockedContacts = (tenant: Tenant, emails: readonly string[]): RawBuilder<unknown> => sql`
  select c.* from (select e.email from unnest(${[...emails]}::text[]) as e (email) order by e.email) e
  cross join lateral (select c.* from contacts c where ${ofTenant(tenant, "c")} and c.email = e.email for update) c`;
