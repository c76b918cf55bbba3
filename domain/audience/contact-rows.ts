import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emitWritten } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify.ts";
import { contactRecord } from "../webhooks/records.ts";

/** The events of contacts that a statement made or changed. */
export const CONTACT_WRITTEN = { created: "contact.created", changed: "contact.updated" } as const;

/**
 * A query that locks the contacts with these addresses, in the order of the addresses. All statements that lock several
 * contacts use this order, so that they do not deadlock. The query looks each address up in an index: for a join or
 * `= any`, a planner with old statistics read all contacts of the tenant.
 * @param emails in the spelling that addresses are compared by
 */
export const lockedContacts = (tenant: Tenant, emails: readonly string[]): RawBuilder<unknown> => sql`
  select c.* from (select e.email from unnest(${[...emails]}::text[]) as e (email) order by e.email) e
  cross join lateral (select c.* from contacts c where ${ofTenant(tenant, "c")} and c.email = e.email for update) c`;

/** The contacts that one statement changed. */
export interface ChangedContacts {
  contacts: number;
  /** The last address of them in alphabetical order; "" for none. */
  lastEmail: string;
}

/**
 * Changes contacts by one statement, and emits `contact.updated` for each.
 * @param update of `contacts c`, without `returning`
 * @param source a query that the update may read as `present`
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
