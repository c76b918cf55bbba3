import { setTimeout as delay } from "node:timers/promises";
import {
  claimDueChecks,
  type DueCheck,
  planCheck,
  RECHECK_SECONDS,
  type Room,
  recordCheck,
} from "../domain/accounts/checks.ts";
import { openTokenPost, type PostForm } from "../domain/accounts/tokens.ts";
import { openSmtpGuard, type SmtpGuard } from "../domain/mail/smtp-guard.ts";
import {
  checkHolder,
  LEASE_SECONDS,
  leaseForCheck,
  readAccountServer,
  releaseConnections,
  renewLease,
} from "../domain/sends/ledger/account-capacity.ts";
import { loginOf } from "./account-pools.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { smtpLimits } from "./smtp/limits.ts";
import { type AccountCheck, verifyAccount } from "./smtp/verify.ts";

/** A claim takes one check of a host: a server gets no more logins than four a second. */
const CLAIM_EVERY_MS = 250;
const CHECKS_PER_HOST = 3;
/** While half of the places are free; one otherwise, so that a few teams with silent servers do not fill them. */
const CHECKS_PER_TEAM = 4;
/** A run then begins no more checks. */
const RUN_MS = 5 * 60_000;

export interface AccountsChecked {
  working: number;
  failing: number;
  /** Their connections are in use, or another process recorded a finding meanwhile. */
  postponed: number;
}

export type AccountCheckActivities = ReturnType<typeof createAccountCheckActivities>;

export const createAccountCheckActivities = (deps: CheckDeps) => ({
  checkAccounts: () => whileBeating(() => checkDueAccounts(deps)),
});

interface Network {
  guard: SmtpGuard;
  postForm: PostForm;
}

type CheckDeps = Pick<ActivityDeps, "orm" | "vault" | "log" | "env" | "workerId" | "stopping">;

/** Each host and team has few checks under way: neither a silent server nor a team with many accounts delays the others. */
export async function checkDueAccounts(deps: CheckDeps): Promise<AccountsChecked> {
  const { orm, env, stopping } = deps;
  const network: Network = { guard: openSmtpGuard(env), postForm: openTokenPost(env) };
  const result: AccountsChecked = { working: 0, failing: 0, postponed: 0 };
  const underWay = new Set<DueCheck>();
  const until = performance.now() + RUN_MS;
  for (;;) {
    const room = roomBeside([...underWay], env.ACCOUNT_CHECKS_AT_ONCE);
    const mayBegin = room.checks > 0 && !stopping.aborted && performance.now() < until;
    for (const check of mayBegin ? await claimDueChecks(orm.em.fork(), room) : []) {
      underWay.add(check);
      void checkAccount({ ...deps, ...network }, check).then((outcome) => {
        result[outcome]++;
        underWay.delete(check);
      });
    }
    if (underWay.size === 0) return result;
    await delay(CLAIM_EVERY_MS);
  }
}

function roomBeside(underWay: readonly DueCheck[], atOnce: number): Room {
  const hosts = underWay.map(({ host }) => host);
  const teams = underWay.map(({ teamId }) => teamId);
  const perTeam = underWay.length < atOnce / 2 ? CHECKS_PER_TEAM : 1;
  return {
    checks: atOnce - underWay.length,
    exceptHosts: repeated(hosts, CHECKS_PER_HOST),
    exceptTeams: repeated(teams, perTeam),
  };
}

const repeated = (values: readonly string[], count: number): string[] =>
  [...Map.groupBy(values, (value) => value)].filter(([, same]) => same.length >= count).map(([value]) => value);

/** Never rejects: a claimed check without a result is repeated later. */
async function checkAccount(deps: CheckDeps & Network, check: DueCheck): Promise<keyof AccountsChecked> {
  const { orm, env, log, stopping, workerId } = deps;
  const { accountId } = check;
  try {
    if (!(await leaseForCheck(orm.em.fork(), check, workerId))) {
      // Its sends use every connection, or were just refused: they record failures themselves.
      await planCheck(orm.em.fork(), accountId, RECHECK_SECONDS);
      return "postponed";
    }
    const outcome = await whileLeased(deps, accountId, () => logIn(deps, check));
    // A check that was cut off says nothing about the account.
    if (stopping.aborted && !outcome.ok) return "postponed";
    const failure = outcome.ok ? undefined : outcome;
    if (!(await recordCheck(orm.em.fork(), check, failure, env.ACCOUNT_CHECK_SECONDS))) return "postponed";
    if (failure) log.info({ accountId, reason: failure.reason }, "a sending account's login failed");
    return failure ? "failing" : "working";
  } catch (error) {
    log.error({ accountId, err: error }, "a sending account could not be checked; tried again later");
    return "postponed";
  }
}

async function logIn(deps: CheckDeps & Network, check: DueCheck): Promise<AccountCheck> {
  const { orm, env, guard, stopping } = deps;
  const server = await readAccountServer(orm.em.fork(), check);
  const login = loginOf(check.accountId, server, deps);
  return verifyAccount({ ...login, guard, name: env.SMTP_HELO_NAME, limits: smtpLimits(env) }, stopping);
}

async function whileLeased<T>(
  { orm, log, workerId }: CheckDeps,
  accountId: string,
  work: () => Promise<T>,
): Promise<T> {
  const holder = checkHolder(workerId);
  const warn = (error: unknown) => log.warn({ accountId, err: error }, "the lease of a check could not be kept");
  const renewal = setInterval(
    () => void renewLease(orm.em.fork(), accountId, holder, 1).catch(warn),
    (LEASE_SECONDS * 1_000) / 3,
  );
  try {
    return await work();
  } finally {
    clearInterval(renewal);
    await releaseConnections(orm.em.fork(), accountId, holder).catch(warn);
  }
}
