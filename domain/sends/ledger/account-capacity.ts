import { sql } from "kysely";
import type { SmtpSecurity } from "../../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { elapsedMs } from "../../../lib/elapsed.ts";
import type { SmtpReason } from "../../mail/outcome.ts";

/** How long a lease lives without being renewed; a killed worker's connections are free again after that. */
export const LEASE_SECONDS = 12;
/** A worker without a connection counts as waiting for so long; its slice asks again before that. */
const WAITING_SECONDS = 5;

/**
 * Most rows of an account that a process may have SENDING, so many are UNKNOWN after its death: few connections carry
 * batches too.
 */
const IN_FLIGHT_PER_CONNECTION = 3;
const LEAST_IN_FLIGHT = 100;

export const mostInFlight = (connections: number): number =>
  Math.max(IN_FLIGHT_PER_CONNECTION * connections, LEAST_IN_FLIGHT);

export interface SendingAccount extends Tenant {
  accountId: string;
}

export interface AccountServer {
  host: string;
  port: number;
  security: SmtpSecurity;
  username: string | null;
  encrypted_password: string | null;
  /** The version of its OAuth grant; null when it logs in with a password, or not at all. */
  grant_version: number | null;
}

export const readAccountServer = (em: EntityManager, account: SendingAccount): Promise<AccountServer> =>
  kysely(em)
    .selectFrom("email_accounts")
    .select(["host", "port", "security", "username", "encrypted_password"])
    .select((eb) =>
      eb
        .selectFrom("account_grants as g")
        .select("g.version")
        .whereRef("g.account_id", "=", "email_accounts.id")
        .as("grant_version"),
    )
    .where("id", "=", account.accountId)
    .where(ofTenant(account))
    .executeTakeFirstOrThrow();

export interface Lease {
  /** 0 when no connection is free, or the account has to wait after a refusal. */
  connections: number;
  /** The last refusal, while no login has worked since. The account has to wait while its `retryInMs` is above 0. */
  refusal?: Refusal | undefined;
  /** The account was disconnected. */
  isGone?: true;
}

/**
 * Leases connections of an account: never more than its maximum in all, an equal share for each worker that uses or
 * waits for one. Those of before stay leased, since they may be open, until `renewLease` says otherwise. After a
 * refusal one worker at a time gets connections, once the account has waited.
 * @param options `isLoggedIn`: a connection of the worker works. `tryNow`: an operator's command does not wait
 */
export function leaseConnections(
  em: EntityManager,
  account: SendingAccount,
  holder: string,
  { isLoggedIn = false, tryNow = false } = {},
): Promise<Lease> {
  const { accountId } = account;
  return transaction(em, async (tx) => {
    const held = await lockLeases(tx, account, holder);
    if (!held) return { connections: 0, isGone: true };
    const { maxConnections, leased, others, refusal } = held;
    const isTrial = refusal !== null && !isLoggedIn;
    if (isTrial && refusal.retryInMs > 0 && !tryNow) return { connections: 0, refusal };
    const share = Math.max(1, Math.floor(maxConnections / (others + 1)));
    // A lease of 0 connections is a worker that waits: the others' share shrinks at their next lease.
    const connections = Math.max(0, Math.min(share, maxConnections - leased));
    await writeLease(tx, accountId, holder, connections);
    if (isTrial && connections > 0) await takeTurnToTry(tx, accountId);
    return { connections, ...(refusal && { refusal: { ...refusal, retryInMs: 0 } }) };
  });
}

/** In all processes. It doubles with each further refusal in a row. */
const FIRST_WAIT_SECONDS = 5;
const LONGEST_WAIT_SECONDS = 300;
const TURN_SECONDS = 12;

export interface Refusal {
  reason: SmtpReason;
  /** The failure may pass by itself. */
  temporary: boolean;
  retryInMs: number;
}

export interface Refusals {
  count: number;
  lastedSeconds: number;
}

/** No process tries another connection for a while. */
export async function recordRefusal(
  em: EntityManager,
  accountId: string,
  { reason, temporary }: Pick<Refusal, "reason" | "temporary">,
): Promise<Refusals> {
  const wait = (count: ReturnType<typeof sql>) =>
    sql`clock_timestamp() + make_interval(secs => least(${FIRST_WAIT_SECONDS} * 2 ^ least(${count}, 30), ${LONGEST_WAIT_SECONDS}))`;
  const { rows } = await sql<Refusals>`
    insert into account_refusals as r (account_id, count, since, reason, temporary, retry_at)
    values (${accountId}, 1, clock_timestamp(), ${reason}, ${temporary}, ${wait(sql`0`)})
    on conflict (account_id) do update set count = r.count + 1, reason = excluded.reason,
      temporary = excluded.temporary, retry_at = ${wait(sql`r.count`)}
    returning count, greatest(0, extract(epoch from clock_timestamp() - since))::float8 as "lastedSeconds"`.execute(
    kysely(em),
  );
  return rows[0] ?? { count: 1, lastedSeconds: 0 };
}

/**
 * Lets the caller try a login, and no other process meanwhile. Until its result the refusal counts as one that may
 * pass, which pauses no other send.
 */
async function takeTurnToTry(em: EntityManager, accountId: string): Promise<void> {
  await sql`update account_refusals
    set temporary = true, retry_at = clock_timestamp() + make_interval(secs => ${TURN_SECONDS})
    where account_id = ${accountId}`.execute(kysely(em));
}

export async function forgetRefusals(em: EntityManager, accountId: string): Promise<void> {
  await kysely(em).deleteFrom("account_refusals").where("account_id", "=", accountId).execute();
}

/** A check's holder takes one connection, and does not count among the workers that share them. */
const CHECK_PREFIX = "check/";

export const checkHolder = (workerId: string): string => `${CHECK_PREFIX}${workerId}`;

/**
 * Leases one connection to a check of the account's login.
 * @returns false when all are leased, or no process may connect for a while after a refusal
 */
export function leaseForCheck(em: EntityManager, account: SendingAccount, workerId: string): Promise<boolean> {
  const holder = checkHolder(workerId);
  return transaction(em, async (tx) => {
    const held = await lockLeases(tx, account, holder);
    if (!held || held.leased >= held.maxConnections || (held.refusal?.retryInMs ?? 0) > 0) return false;
    await writeLease(tx, account.accountId, holder, 1);
    if (held.refusal) await takeTurnToTry(tx, account.accountId);
    return true;
  });
}

interface HeldLeases {
  maxConnections: number;
  /** Connections that other holders have leased. */
  leased: number;
  /** Other workers that use or wait for connections. */
  others: number;
  refusal: Refusal | null;
}

/** Locks the account's row, so that one process at a time leases from it. */
async function lockLeases(em: EntityManager, account: SendingAccount, holder: string): Promise<HeldLeases | undefined> {
  const { accountId } = account;
  const limits = await kysely(em)
    .selectFrom("email_accounts")
    .select("max_connections")
    .where("id", "=", accountId)
    .where(ofTenant(account))
    .forUpdate()
    .executeTakeFirst();
  if (!limits) return undefined;
  const { rows } = await sql<Omit<HeldLeases, "maxConnections">>`
    select coalesce(sum(l.connections), 0)::int as leased,
      count(l.holder) filter (where not starts_with(l.holder, ${CHECK_PREFIX}))::int as others,
      (select jsonb_build_object('reason', r.reason, 'temporary', r.temporary,
          'retryInMs', greatest(0, ceil(extract(epoch from r.retry_at - clock_timestamp()) * 1000)))
        from account_refusals r where r.account_id = ${accountId}) as refusal
    from account_leases l
    where l.account_id = ${accountId} and l.holder <> ${holder} and l.expires_at > clock_timestamp()`.execute(
    kysely(em),
  );
  return { maxConnections: limits.max_connections, ...(rows[0] ?? { leased: 0, others: 0, refusal: null }) };
}

async function writeLease(em: EntityManager, accountId: string, holder: string, connections: number): Promise<void> {
  await sql`
    insert into account_leases (account_id, holder, connections, expires_at)
    values (${accountId}, ${holder}, ${connections},
      clock_timestamp() + make_interval(secs => ${connections > 0 ? LEASE_SECONDS : WAITING_SECONDS}::int))
    on conflict (account_id, holder) do update
      set expires_at = greatest(account_leases.expires_at, excluded.expires_at),
        connections = case when account_leases.expires_at > clock_timestamp()
          then greatest(account_leases.connections, excluded.connections) else excluded.connections end`.execute(
    kysely(em),
  );
}

/**
 * Keeps a lease from running out, and gives back its connections above `connections`.
 * @returns false when it had run out already: its connections may be another worker's by now
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
  windows: { window: "HOUR" | "DAY"; startsAt: string }[];
  /** When nothing was granted: milliseconds until a window that is full begins anew. */
  retryInMs: number;
  /** `elapsedMs()` at which the first window ends: a mail that begins later could exceed the limit of the next one. */
  endsAt: number;
}

const UNIT = { HOUR: "hour", DAY: "day" } as const;

/**
 * Takes up to `wanted` messages from the account's clock hour and UTC day, as many as both have left. Exact under
 * concurrency: the window's row is the lock.
 */
export async function takeQuota(
  em: EntityManager,
  accountId: string,
  limits: AccountLimits,
  wanted: number,
): Promise<Quota> {
  const askedAt = elapsedMs();
  const all = (): Quota => ({ granted: wanted, windows: [], retryInMs: 0, endsAt: Number.POSITIVE_INFINITY });
  if (limits.hourly === null && limits.daily === null) return all();
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const quota = all();
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
      quota.endsAt = Math.min(quota.endsAt, askedAt + row.left_ms);
      quota.windows.push({ window, startsAt: row.starts_at });
    }
    await addUsage(tx, accountId, quota.windows, quota.granted);
    return quota;
  });
}

/**
 * Gives back messages that were not sent. To be tried once: were its answer lost, a second try would give them back
 * twice.
 */
export async function returnQuota(
  em: EntityManager,
  accountId: string,
  { windows }: Quota,
  unused: number,
): Promise<void> {
  if (windows.length > 0 && unused > 0) await transaction(em, (tx) => addUsage(tx, accountId, windows, -unused));
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
