import { type RawBuilder, sql } from "kysely";
import type { EmailStatus } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { queryVisibleBeforeMs } from "../../db/visible-before.ts";
import { changeContacts, lockedContacts } from "./contact-rows.ts";

/** The reason of a suppression that makes contacts with its address INVALID. */
export const HARD_BOUNCE = "bounce:hard";

/** SQL: INVALID while the normalised `email` is suppressed by a hard bounce. */
export const emailStatusOf = (tenant: Tenant, email: RawBuilder<unknown>): RawBuilder<EmailStatus> =>
  // Not `exists`: for that the planner may read all suppressions of the tenant.
  sql<EmailStatus>`case (select x.reason from suppressions x where ${ofTenant(tenant, "x")} and x.email = ${email})
    when ${sql.lit(HARD_BOUNCE)} then 'INVALID' else 'ACTIVE' end`;

/** Call it after suppressions of these normalised addresses were written or lifted. */
export async function refreshEmailStatus(em: EntityManager, tenant: Tenant, emails: readonly string[]): Promise<void> {
  await changeContacts(
    em,
    tenant,
    sql`
      update contacts c set email_status = p.status from present p
      where c.id = p.id and c.email_status <> p.status`,
    sql`select l.id, ${emailStatusOf(tenant, sql.ref("l.email"))} as status from (${lockedContacts(tenant, emails)}) l`,
  );
}

/**
 * Refreshes the status of due addresses of all tenants: at once, and again when all transactions of that moment have ended,
 * which may have written a contact without seeing the suppression.
 * @param em in no transaction @returns addresses that were checked
 */
export async function refreshDueStatuses(em: EntityManager, limit: number): Promise<number> {
  const visibleBeforeMs = await queryVisibleBeforeMs(em.fork());
  // An hour, where the start of a transaction cannot be seen: no statement takes longer.
  const ended =
    visibleBeforeMs === null
      ? sql`now() - interval '1 hour'`
      : sql`${new Date(visibleBeforeMs).toISOString()}::timestamptz`;
  return transaction(em, async (tx) => {
    const { rows } = await sql<Tenant & { email: string }>`
      with due as (
        select seq, checked_at from contact_status_checks
        where checked_at is null or checked_at < ${ended}
        order by seq limit ${limit} for update skip locked
      ), checked_once as (
        update contact_status_checks s set checked_at = clock_timestamp() from due
        where s.seq = due.seq and due.checked_at is null
        returning s.team_id, s.environment, s.email
      ), checked_twice as (
        delete from contact_status_checks s using due where s.seq = due.seq and due.checked_at is not null
        returning s.team_id, s.environment, s.email
      )
      select team_id as "teamId", environment, email from checked_once
      union all select team_id, environment, email from checked_twice`.execute(kysely(tx));
    const byTenant = Map.groupBy(rows, ({ teamId, environment }) => `${teamId}/${environment}`);
    for (const addresses of byTenant.values()) {
      const [tenant] = addresses;
      if (tenant) await refreshEmailStatus(tx, tenant, [...new Set(addresses.map(({ email }) => email))]);
    }
    return rows.length;
  });
}
