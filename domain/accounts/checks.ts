import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { AccountFailure } from "../mail/outcome.ts";
import type { SendingAccount } from "../sends/ledger/account-capacity.ts";
import { recordLogin, recordRefusedLogin } from "./accounts.ts";

export interface DueCheck extends SendingAccount {
  host: string;
  findings: number;
}

const CLAIM_SECONDS = 300;
/** After a failure that may pass. */
export const RECHECK_SECONDS = 300;
/** After a failure for good. */
const LONGEST_SECONDS = 86_400;
/** Accounts that were connected together are not checked together. */
const JITTER = 0.2;

export interface Room {
  checks: number;
  exceptHosts: readonly string[];
  exceptTeams: readonly string[];
}

/**
 * Claims checks that are due, at most one for each host and one for each team. Where several teams wait for a host,
 * chance decides, so that a team with many accounts does not delay one with few.
 */
export async function claimDueChecks(em: EntityManager, room: Room): Promise<DueCheck[]> {
  const { rows } = await sql<DueCheck>`
    with waiting as (
      select distinct on (a.host, a.team_id) c.account_id, c.next_at, a.host, a.team_id, a.environment
      from account_checks c join email_accounts a on a.id = c.account_id
      where c.next_at <= clock_timestamp() and a.status in ('PENDING', 'ACTIVE', 'ERROR')
        and a.host <> all(${[...room.exceptHosts]}::text[]) and a.team_id <> all(${[...room.exceptTeams]}::text[])
      order by a.host, a.team_id, c.next_at
    ), of_hosts as (
      select distinct on (host) * from waiting order by host, random()
    ), of_teams as (
      select distinct on (team_id) * from of_hosts order by team_id, next_at
    ), due as (
      select * from of_teams order by next_at limit ${room.checks}
    )
    update account_checks c set next_at = clock_timestamp() + make_interval(secs => ${CLAIM_SECONDS})
    from due d where c.account_id = d.account_id and c.next_at <= clock_timestamp()
    returning c.account_id as "accountId", d.team_id as "teamId", d.environment, d.host, c.findings`.execute(
    kysely(em),
  );
  return rows;
}

/**
 * Records a check and plans the next one, unless another finding was recorded since the check was claimed.
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

/** As long as it has failed already: some servers lock accounts after failed logins. */
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

export async function planCheck(em: EntityManager, accountId: string, waitSeconds: number): Promise<void> {
  await sql`
    update account_checks
    set next_at = clock_timestamp() + ${waitSeconds}::float8 * (1 - ${JITTER}::float8 + 2 * ${JITTER}::float8 * random()) * interval '1 second'
    where account_id = ${accountId}`.execute(kysely(em));
}
