import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emitWritten, notifyRelayAfterCommit } from "../webhooks/emit.ts";
import { contactRecord } from "../webhooks/records.ts";

export const CONTACT_WRITTEN = { created: "contact.created", changed: "contact.updated" } as const;

/**
 * Locks the contacts with these normalised addresses, in the order that all statements use, so that they do not deadlock. For
 * a join or `= any`, a planner with old statistics read all contacts of the tenant.
 */
export const lockedContacts = (tenant: Tenant, emails: readonly string[]): RawBuilder<unknown> => sql`
  select c.* from (select e.email from unnest(${[...emails]}::text[]) as e (email) order by e.email) e
  cross join lateral (select c.* from contacts c where ${ofTenant(tenant, "c")} and c.email = e.email for update) c`;

export interface ChangedContacts {
  contacts: number;
  /** The last address of them in alphabetical order; "" for none. */
  lastEmail: string;
}

/**
 * Emits `contact.updated` for each contact that one statement changes.
 * @param update of `contacts c`, without `returning` @param source a query that it may read as `present`
 */
export async function changeContacts(
  em: EntityManager,
  tenant: Tenant,
  update: RawBuilder<unknown>,
  source?: RawBuilder<unknown>,
): Promise<ChangedContacts> {
  const { rows } = await sql<ChangedContacts & { emitted: boolean }>`
    with ${source ? sql`present as materialized (${source}), ` : sql``}
    written as (${update} returning c.*, false as created),
    ${emitWritten(tenant, CONTACT_WRITTEN, contactRecord)}
    select count(*)::int as contacts, coalesce(max(email), '') as "lastEmail", exists (select from emitted) as emitted
    from written`.execute(kysely(em));
  const [{ emitted, ...changed } = { contacts: 0, lastEmail: "", emitted: false }] = rows;
  if (emitted) notifyRelayAfterCommit(em);
  return changed;
}
