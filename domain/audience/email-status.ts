import { type RawBuilder, sql } from "kysely";
import type { EmailStatus } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emitWritten } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify-relay.ts";
import { contactRecord } from "../webhooks/records.ts";

/** The reason of a suppression that makes contacts with its address INVALID. */
export const HARD_BOUNCE = "bounce:hard";

/** The events of contacts that a statement made or changed. */
export const CONTACT_WRITTEN = { created: "contact.created", changed: "contact.updated" } as const;

/**
 * The status of a contact's address, as a part of a statement: INVALID while it is suppressed by a hard bounce.
 * @param email an address in the spelling that addresses are compared by
 */
export const emailStatusOf = (tenant: Tenant, email: RawBuilder<unknown>): RawBuilder<EmailStatus> => sql<EmailStatus>`
  case when exists (select from suppressions x where ${ofTenant(tenant, "x")} and x.email = ${email}
    and x.reason = ${sql.lit(HARD_BOUNCE)}) then 'INVALID' else 'ACTIVE' end`;

/**
 * Sets the status of the contacts with these addresses anew, after suppressions of them were written or lifted.
 * @param emails in the spelling that addresses are compared by
 */
export async function refreshEmailStatus(em: EntityManager, tenant: Tenant, emails: readonly string[]): Promise<void> {
  const { rows } = await sql<{ emitted: boolean }>`
    with present as (
      select c.id, ${emailStatusOf(tenant, sql.ref("c.email"))} as status from contacts c
      where ${ofTenant(tenant, "c")} and c.email = any(${[...emails]})
      -- In the order in which every statement locks several contacts.
      order by c.email for update
    ), written as (
      update contacts c set email_status = p.status from present p
      where c.id = p.id and ${ofTenant(tenant, "c")} and c.email_status <> p.status
      returning c.*, false as created
    ), ${emitWritten(tenant, CONTACT_WRITTEN, contactRecord)}
    select exists (select from emitted) as emitted`.execute(kysely(em));
  if (rows[0]?.emitted) notifyRelayAfterCommit(em);
}
