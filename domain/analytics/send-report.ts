import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ACCEPTED, bouncedIn } from "../sends/ledger/activity.ts";
import { MAX_RECIPIENTS } from "./hours.ts";
import { type Counts, readTotals } from "./overview.ts";

export interface DomainOfSend {
  /** `erased.invalid` of the people who were erased. */
  domain: string;
  delivered: number;
  bounced: number;
  /** Refused by the server that was to take the mail. */
  rejected: number;
}

const DOMAINS = 10;
const SENDS = 10;

/**
 * The domains with the most recipients in the last send of a resource, of its first `MAX_RECIPIENTS`.
 * @returns null where the recipients are kept no longer, and without a send
 */
export async function readDomains(
  em: EntityManager,
  tenant: Tenant,
  resourceId: string,
): Promise<DomainOfSend[] | null> {
  const { rows: sends } = await sql<{ id: string; ledger: string }>`
    select id, ledger_state as ledger from sends where ${ofTenant(tenant)} and resource_id = ${resourceId}
    order by send_at desc limit 1`.execute(kysely(em));
  const [send] = sends;
  if (!send || (send.ledger !== "COMPLETE" && send.ledger !== "NAMELESS")) return null;
  const { rows } = await sql<DomainOfSend>`
    select substring(r.email from '[^@]*$') as domain, count(*) filter (where m.accepted and not m.bounced)::int as delivered,
      count(*) filter (where m.accepted and m.bounced)::int as bounced,
      count(*) filter (where r.state = 'REJECTED')::int as rejected
    from send_recipients r cross join lateral (select ${ACCEPTED} as accepted,
      ${bouncedIn(tenant, { sendId: send.id, first: 1, last: MAX_RECIPIENTS })} as bounced) m
    where r.send_id = ${send.id} and r.seq <= ${MAX_RECIPIENTS}
    group by 1 order by count(*) desc, 1 limit ${DOMAINS}`.execute(kysely(em));
  return rows;
}

/** Sums the figures of the tenant's last sends that ended before that of a resource, without sequences. */
export async function readEarlierSends(
  em: EntityManager,
  tenant: Tenant,
  resourceId: string,
): Promise<{ sends: number; totals: Counts }> {
  const ended = sql.join(
    ["newsletters", "campaigns"].map(
      (table) => sql`select id, completed_at from ${sql.table(table)} where ${ofTenant(tenant)} and status = 'SENT'`,
    ),
    sql` union all `,
  );
  const { rows } = await sql<{ id: string }>`
    with ended as (${ended})
    select e.id from ended e join ended this on this.id = ${resourceId} and e.completed_at < this.completed_at
    order by e.completed_at desc limit ${SENDS}`.execute(kysely(em));
  return {
    sends: rows.length,
    totals: await readTotals(
      em,
      tenant,
      rows.map(({ id }) => id),
    ),
  };
}
