import { sql } from "kysely";
import { RESOURCE_TYPES, type ResourceType } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ACCEPTED, bouncedIn } from "../sends/ledger/activity.ts";
import { MAX_RECIPIENTS } from "./hours.ts";
import { type Counts, readFigures } from "./overview.ts";

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

export interface EndedSend {
  id: string;
  type: ResourceType;
  name: string;
  completed_at: string;
  counts: Counts;
}

/** The tenant's last sends, or those that ended before that of a resource, without sequences; the newest first. */
export async function readEndedSends(em: EntityManager, tenant: Tenant, before?: string): Promise<EndedSend[]> {
  const ended = sql.join(
    RESOURCE_TYPES.map(
      (type) => sql`select id, ${sql.lit(type)} as type, name, completed_at from ${sql.table(`${type}s`)}
        where ${ofTenant(tenant)} and status = 'SENT' and completed_at is not null`,
    ),
    sql` union all `,
  );
  const { rows } = await sql<Omit<EndedSend, "counts">>`
    with ended as (${ended})
    select e.id, e.type, e.name, ${isoInstant(sql`e.completed_at`)} as completed_at from ended e
    where ${before ?? null}::text is null or e.completed_at < (select this.completed_at from ended this where this.id = ${before ?? null})
    order by e.completed_at desc limit ${SENDS}`.execute(kysely(em));
  const countsOf = await readFigures(
    em,
    tenant,
    rows.map(({ id }) => id),
  );
  return rows.map((row) => ({ ...row, counts: countsOf(row.id) }));
}
