import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { AccountFailure } from "../mail/outcome.ts";
import type { SendingAccount } from "../sends/account-capacity.ts";
import { recordLogin, recordRefusedLogin } from "./accounts.ts";

/** An account whose check a process has claimed. */
export interface DueCheck extends SendingAccount {
  host: string;
  /** Its last recorded login failed. */
  isFailing: boolean;
  /** The account's count of findings when the check was claimed. */
  findings: number;
}

/** How long a claim lasts. After that the claiming process is presumed dead, and another one may check the account. */
const CLAIM_SECONDS = 300;
/** How soon an account is checked again after a failure that may pass. */
export const RECHECK_SECONDS = 300;
/** Longest time between two checks of an account that failed for good, where ACCOUNT_CHECK_SECONDS is less. */
const LONGEST_SECONDS = 86_400;
/**
 * A wait is up to this share shorter or longer, so that accounts that were connected together are not checked together.
 */
const JITTER = 0.2;

/** Checks that may be begun now. */
export interface Room {
  checks: number;
  /** How many of the checks may be of failing accounts. */
  failing: number;
  /** Hosts that must not get a login now. */
  exceptHosts: readonly string[];
  /** Teams that have as many checks under way as they may have. */
  exceptTeams: readonly string[];
}

/**
 * Claims checks that are due, the longest waiting first, at most one for each host and one for each team. Where several
 * teams wait for a host, chance decides, so that a team with many accounts does not delay one with few. Several
 * processes may claim at once.
 */
export async function claimDueChecks(em: EntityManager, room: Room): Promise<DueCheck[]> {
  const { rows } = await sql<DueCheck>`
    with waiting as (
      select distinct on (a.host, a.team_id) c.account_id, c.next_at, a.host, a.team_id, a.environment, f.failing
      from account_checks c join email_accounts a on a.id = c.account_id
      cross join lateral (
        select a.status = 'ERROR' or exists (select from account_refusals r where r.account_id = a.id) as failing
      ) f
      where c.next_at <= clock_timestamp() and a.status in ('PENDING', 'ACTIVE', 'ERROR')
        and a.host <> all(${[...room.exceptHosts]}::text[]) and a.team_id <> all(${[...room.exceptTeams]}::text[])
        and (${room.failing} > 0 or not f.failing)
      order by a.host, a.team_id, c.next_at
    ), of_hosts as (
      select distinct on (host) * from waiting order by host, random()
    ), of_teams as (
      select distinct on (team_id) * from of_hosts order by team_id, next_at
    ), numbered as (
      select *, count(*) filter (where failing) over (order by next_at, account_id) as nth_failing from of_teams
    ), due as (
      select * from numbered where not failing or nth_failing <= ${room.failing} order by next_at limit ${room.checks}
    )
    update account_checks c set next_at = clock_timestamp() + make_interval(secs => ${CLAIM_SECONDS})
    from due d where c.account_id = d.account_id and c.next_at <= clock_timestamp()
    returning c.account_id as "accountId", d.team_id as "teamId", d.environment, d.host, d.failing as "isFailing",
      c.findings`.execute(kysely(em));
  return rows;
}

/**
 * Records the result of a check, with the account's status and events, and plans the next check. A result is dropped
 * when a dispatching process or an operator recorded a finding about the account since the check was claimed: that
 * finding is newer.
 * @param failure undefined when the login worked
 * @returns false when the result was dropped
 */
export function recordCheck(
  em: EntityManager,
  { findings, ...account }: DueCheck,
  failure: Pick<AccountFailure, "reason" | "temporary"> | undefined,
  checkSeconds: number,
): Promise<boolean> {
  const { accountId } = account;
  return transaction(em, async (tx) => {
    // Locked, so that no other finding is recorded meanwhile.
    const known = await kysely(tx)
      .selectFrom("account_checks")
      .select("findings")
      .where("account_id", "=", accountId)
      .forUpdate()
      .executeTakeFirst();
    if (known?.findings !== findings) return false;
    // The account's row comes before its refusals, because leases lock them in this order.
    await kysely(tx)
      .updateTable("email_accounts")
      .set({
        last_checked_at: sql<string>`now()`,
        // No event: an account that works for the first time has not recovered.
        ...(failure ? {} : { status: sql<"ACTIVE">`case when status = 'PENDING' then 'ACTIVE' else status end` }),
      })
      .where(ofTenant(account))
      .where("id", "=", accountId)
      .where("status", "<>", "SUSPENDED")
      .execute();
    if (failure) {
      const { lastedSeconds } = await recordRefusedLogin(tx, account, failure);
      await planCheck(tx, accountId, waitAfterFailure(failure, lastedSeconds, checkSeconds));
    } else {
      await recordLogin(tx, account);
      await planCheck(tx, accountId, checkSeconds);
    }
    return true;
  });
}

/**
 * Seconds until the next check of a failing account: as long as it has failed already, so that a server that locks
 * accounts after failed logins gets fewer and fewer of them. A failure that may pass is checked again sooner.
 */
export function waitAfterFailure(
  { temporary }: Pick<AccountFailure, "temporary">,
  lastedSeconds: number,
  usual: number,
): number {
  const [least, most] = temporary
    ? [RECHECK_SECONDS, Math.max(RECHECK_SECONDS, usual)]
    : [usual, Math.max(usual, LONGEST_SECONDS)];
  return Math.min(Math.max(lastedSeconds, least), most);
}

/** Plans the next check of an account. */
export async function planCheck(em: EntityManager, accountId: string, waitSeconds: number): Promise<void> {
  await sql`
    update account_checks
    set next_at = clock_timestamp() + ${waitSeconds}::float8 * (1 - ${JITTER}::float8 + 2 * ${JITTER}::float8 * random()) * interval '1 second'
    where account_id = ${accountId}`.execute(kysely(em));
}
