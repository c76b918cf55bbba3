import { sql } from "kysely";
import type { EntityManager } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/prepared.ts";

/** How long a lease lives without being renewed, in seconds: as long events wait after the relay that holds it was killed. */
export const LEASE_SECONDS = 2;

interface Holder extends NamedValues {
  /** Names a relay; no other has the name. */
  holder: string;
}

/**
 * Takes the lease of the relays' work while no other relay holds it, or renews it. One relay at a time makes fewer and
 * larger transactions than several that share the work.
 * @returns whether `holder` holds it, for `LEASE_SECONDS` from now
 */
export async function takeRelayLease(em: EntityManager, holder: string): Promise<boolean> {
  const { rows } = await take(em, { holder });
  return rows.length > 0;
}

/** Releases the lease, so that another relay may take it at once. */
export async function releaseRelayLease(em: EntityManager, holder: string): Promise<void> {
  await release(em, { holder });
}

const newExpiry = sql`now() + make_interval(secs => ${sql.lit(LEASE_SECONDS)})`;
/**
 * A lease of more than twice the time comes from a server whose clock was ahead, before a failover. The time itself would be too
 * strict a limit, because the column rounds to milliseconds.
 */
const isHeldByAnother = (holder: string) => sql`(l.holder <> ${holder} and l.expires_at > now()
  and l.expires_at < now() + make_interval(secs => ${sql.lit(2 * LEASE_SECONDS)}))`;

/** It writes nothing, and locks nothing, while another relay holds the lease. */
const take = defineStatement(
  (_em, { holder }: Holder) => sql<{ holder: string }>`
    insert into webhook_relay_lease as l (id, holder, expires_at)
    select 'webhooks', ${holder}, ${newExpiry}
    where not exists (select from webhook_relay_lease l where ${isHeldByAnother(holder)})
    on conflict (id) do update set holder = excluded.holder, expires_at = excluded.expires_at
    where not ${isHeldByAnother(holder)}
    returning holder`,
);

/** The column rounds to milliseconds: rounded up, the lease would end after the statement. */
const release = defineStatement(
  (_em, { holder }: Holder) => sql`
    update webhook_relay_lease set expires_at = date_trunc('milliseconds', now())
    where holder = ${holder} and expires_at > now()`,
);
