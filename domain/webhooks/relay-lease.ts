import { sql } from "kysely";
import type { EntityManager } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";

/** How long a lease lasts without being renewed, in seconds. Followers wait for its end when the leader was killed. */
export const LEASE_SECONDS = 2;

interface Holder extends NamedValues {
  /** Names a relay; no other has the name. */
  holder: string;
}

/**
 * Takes or renews the relays' lease, unless another relay holds it. One relay at a time makes fewer and larger transactions
 * than several that share the work.
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
 * An expiry that is ahead by twice the time of a lease was set by a server whose clock was ahead, before a failover, and does not
 * count. Twice, because the column rounds an expiry up by as much as 0.5 ms.
 */
const isHeldByAnother = (holder: string) => sql`(l.holder <> ${holder} and l.expires_at > now()
  and l.expires_at < now() + make_interval(secs => ${sql.lit(2 * LEASE_SECONDS)}))`;

/** Followers ask twice a second: while another relay holds the lease they only read, without a row version or a lock. */
const take = defineStatement(
  (_em, { holder }: Holder) => sql<{ holder: string }>`
    insert into webhook_relay_lease as l (id, holder, expires_at)
    select 'webhooks', ${holder}, ${newExpiry}
    where not exists (select from webhook_relay_lease l where l.id = 'webhooks' and ${isHeldByAnother(holder)})
    on conflict (id) do update set holder = excluded.holder, expires_at = excluded.expires_at
    where not ${isHeldByAnother(holder)}
    returning holder`,
);

/** The column rounds to milliseconds. Rounded up, the expiry would be in the future, and the next relay would have to wait. */
const release = defineStatement(
  (_em, { holder }: Holder) => sql`
    update webhook_relay_lease set expires_at = date_trunc('milliseconds', now())
    where holder = ${holder} and expires_at > now()`,
);
