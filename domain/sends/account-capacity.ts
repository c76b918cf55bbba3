import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";

/** How long a lease lives without being renewed; a killed worker's connections are free again after that. */
export const LEASE_SECONDS = 12;

/**
 * Leases connections of an account to a worker. The leases of an account never sum to more than its maximum, whatever
 * workers ask at the same time; each gets an equal share among those that hold or wait for one. What a holder leased
 * before stays leased beyond a smaller share, since those connections may be open, until `renewLease` says otherwise.
 * @param holder names the worker process
 * @returns how many connections it may have from now on; 0 when none is free
 */
export function leaseConnections(em: EntityManager, accountId: string, holder: string): Promise<number> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    // The account's row is the lock: everybody who leases from it comes one after the other.
    const account = await db
      .selectFrom("email_accounts")
      .select("max_connections")
      .where("id", "=", accountId)
      .forUpdate()
      .executeTakeFirst();
    if (!account) return 0;
    const { rows } = await sql<{ leased: number; others: number }>`
      select coalesce(sum(connections), 0)::int as leased, count(*)::int as others
      from account_leases
      where account_id = ${accountId} and holder <> ${holder} and expires_at > clock_timestamp()`.execute(db);
    const { leased, others } = rows[0] ?? { leased: 0, others: 0 };
    const share = Math.max(1, Math.floor(account.max_connections / (others + 1)));
    // A lease of none still counts as somebody who waits: the others' share shrinks when they lease the next time.
    const connections = Math.max(0, Math.min(share, account.max_connections - leased));
    await sql`
      insert into account_leases (account_id, holder, connections, expires_at)
      values (${accountId}, ${holder}, ${connections}, clock_timestamp() + make_interval(secs => ${LEASE_SECONDS}))
      on conflict (account_id, holder) do update
        set expires_at = excluded.expires_at, connections = case when account_leases.expires_at > clock_timestamp()
          then greatest(account_leases.connections, excluded.connections) else excluded.connections end`.execute(db);
    return connections;
  });
}

/**
 * Keeps a lease from running out, and gives back what of it is above `connections`: those that are open or may be.
 * @returns false when it had run out already: its connections may be somebody else's by now
 */
export async function renewLease(
  em: EntityManager,
  accountId: string,
  holder: string,
  connections: number,
): Promise<boolean> {
  const renewed = await sql`
    update account_leases set connections = least(connections, ${connections}::int),
      expires_at = clock_timestamp() + make_interval(secs => ${LEASE_SECONDS})
    where account_id = ${accountId} and holder = ${holder} and expires_at > clock_timestamp()`.execute(kysely(em));
  return renewed.numAffectedRows === 1n;
}

export async function releaseConnections(em: EntityManager, accountId: string, holder: string): Promise<void> {
  await kysely(em)
    .deleteFrom("account_leases")
    .where("account_id", "=", accountId)
    .where("holder", "=", holder)
    .execute();
}

export interface AccountLimits {
  hourly: number | null;
  daily: number | null;
}

/** A share of an account's hourly and daily limits, taken before the mails are staged. */
export interface Quota {
  granted: number;
  /** The window starts it was taken from, to give it back there. */
  windows: { window: "HOUR" | "DAY"; startsAt: string }[];
  /** When nothing was granted: milliseconds until a window that is full begins anew. */
  retryInMs: number;
}

const UNIT = { HOUR: "hour", DAY: "day" } as const;

/**
 * Takes up to `wanted` messages from the account's windows (clock hours and UTC days); less when one of them is fuller,
 * and all of it from both. Exact whoever asks at the same time: the window's row is the lock.
 */
export function takeQuota(em: EntityManager, accountId: string, limits: AccountLimits, wanted: number): Promise<Quota> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const quota: Quota = { granted: wanted, windows: [], retryInMs: 0 };
    for (const [window, limit] of [
      ["DAY", limits.daily],
      ["HOUR", limits.hourly],
    ] as const) {
      if (limit === null) continue;
      const unit = sql.lit(UNIT[window]);
      const { rows } = await sql<{ starts_at: string; used: number; left_ms: number }>`
        insert into account_usage as u (account_id, "window", starts_at, used)
        values (${accountId}, ${window}, date_trunc(${unit}, clock_timestamp(), 'UTC'), 0)
        on conflict (account_id, "window", starts_at) do update set used = u.used
        returning starts_at, used,
          (extract(epoch from starts_at + ('1 ' || ${unit})::interval - clock_timestamp()) * 1000)::float8 as left_ms`.execute(
        db,
      );
      const [row] = rows;
      if (!row) throw new Error("a window's row was not returned");
      const free = Math.max(0, limit - row.used);
      if (free < quota.granted) {
        quota.granted = free;
        if (free === 0) quota.retryInMs = Math.max(quota.retryInMs, Math.ceil(row.left_ms));
      }
      quota.windows.push({ window, startsAt: row.starts_at });
    }
    await addUsage(tx, accountId, quota.windows, quota.granted);
    return quota;
  });
}

/** Gives back what was taken and not used. */
export async function returnQuota(
  em: EntityManager,
  accountId: string,
  { windows }: Quota,
  unused: number,
): Promise<void> {
  await addUsage(em, accountId, windows, -unused);
}

async function addUsage(
  em: EntityManager,
  accountId: string,
  windows: Quota["windows"],
  messages: number,
): Promise<void> {
  if (messages === 0) return;
  for (const { window, startsAt } of windows) {
    await kysely(em)
      .updateTable("account_usage")
      .set(({ eb }) => ({ used: eb("used", "+", messages) }))
      .where("account_id", "=", accountId)
      .where("window", "=", window)
      .where("starts_at", "=", sql<string>`${startsAt}::timestamptz`)
      .execute();
  }
}
