import { type RawBuilder, sql } from "kysely";
import type { EmailStatus } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emitWritten } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify-relay.ts";
import { contactRecord } from "../webhooks/records.ts";
import { CONTACT_WRITTEN, lockedContacts } from "./contact-rows.ts";

/** The reason of a suppression that makes contacts with its address INVALID. */
export const HARD_BOUNCE = "bounce:hard";

/**
 * The status of an address, as a part of a statement: INVALID while it is suppressed by a hard bounce.
 * @param email in the spelling that addresses are compared by
 */
export const emailStatusOf = (tenant: Tenant, email: RawBuilder<unknown>): RawBuilder<EmailStatus> =>
  // Not `exists`, of which the planner may make a walk over all suppressions of the tenant.
  sql<EmailStatus>`case (select x.reason from suppressions x where ${ofTenant(tenant, "x")} and x.email = ${email})
    when ${sql.lit(HARD_BOUNCE)} then 'INVALID' else 'ACTIVE' end`;

/**
 * Sets the status of the contacts with these addresses anew, after suppressions of them were written or lifted.
 * @param emails in the spelling that addresses are compared by
 */
export async function refreshEmailStatus(em: EntityManager, tenant: Tenant, emails: readonly string[]): Promise<void> {
  const { rows } = await sql<{ emitted: boolean }>`
    with present as materialized (
      select l.id, ${emailStatusOf(tenant, sql.ref("l.email"))} as status from (${lockedContacts(tenant, emails)}) l
    ), written as (
      update contacts c set email_status = p.status from present p
      where c.id = p.id and c.email_status <> p.status
      returning c.*, false as created
    ), ${emitWritten(tenant, CONTACT_WRITTEN, contactRecord)}
    select exists (select from emitted) as emitted`.execute(kysely(em));
  if (rows[0]?.emitted) notifyRelayAfterCommit(em);
}
