import { Context } from "@temporalio/activity";
import { inSpan } from "../config/tracing.ts";
import type { EntityManager } from "../db/orm.ts";
import { isAccountFailure, recordAccountFailure, recordAccountRecovery } from "../domain/accounts/accounts.ts";
import { openTokenPost } from "../domain/accounts/tokens.ts";
import { openSmtpGuard } from "../domain/mail/smtp-guard.ts";
import { composeMails, readContent } from "../domain/sends/ledger/content.ts";
import { readCounts } from "../domain/sends/ledger/counts.ts";
import {
  ACCOUNT_NOT_ACTIVE,
  type AttemptProgress,
  closeDispatch,
  type Lane,
  type OpenedDispatch,
  openDispatch,
  readDueRecipients,
  readRemaining,
} from "../domain/sends/ledger/lanes.ts";
import { pauseForComplaints } from "../domain/sends/ledger/lifecycle.ts";
import { type PauseCause, requeueUndecided, storeRefusalRun } from "../domain/sends/ledger/refusals.ts";
import type { TestMail, TestOutcome } from "../domain/sends/plan/test-mail.ts";
import { logMove } from "../domain/sends/send-log.ts";
import { elapsedMs } from "../lib/elapsed.ts";
import { type AccountPool, AccountPools } from "./account-pools.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { SliceLedger, settleLate } from "./slice-ledger.ts";
import { beginDeadlineMs, bodyDeadlineMs, outcomeDeadlineMs, smtpLimits } from "./smtp/limits.ts";
import { sendTestMail } from "./test-mail.ts";

const SLICE_MS = 30_000;
const CONNECTIONS_BUSY_MS = 1_000;

/** It is tried for two minutes, and each try may take one. */
const OUTAGE_LIMIT_MS = 240_000;

/** Slices of one team at once: more of them would make the sends of other teams wait for a slow relay. */
const SLICES_PER_TEAM = 4;

type Next =
  | { next: "continue" }
  /** Nothing is queued; the next deferred recipient is due in `waitMs`. */
  | { next: "deferred"; waitMs: number }
  /** Limits, connections or the team's slots are used up. `byLimit`: the hourly or daily limit is. */
  | { next: "account_full"; waitMs: number; byLimit?: true }
  /**
   * The send cannot be mailed. `retryInMs`: when its account may connect again. `reply`: the server's, without
   * addresses.
   */
  | { next: "failure"; reason: string; temporary: boolean; retryInMs?: number; reply?: string }
  /** The send is not SENDING any more: paused, cancelled, or gone. */
  | { next: "stopped" }
  /** Nothing is left to the lane. `held`: other lanes of the send keep recipients that they deferred. */
  | { next: "done"; held?: true };

/**
 * `sent`: of the whole send. `returned`: recipients are in the queue again, for any lane. `epoch`: of the lane's last
 * attempt of which Postgres must know.
 */
export type SliceResult = { mailed: number; sent?: number; returned?: true; epoch?: number } & Next;

/**
 * `tryNow`: an operator's command does not wait after a refusal. `closedEpoch`: a slice stops when Postgres does not
 * know of that `epoch`.
 */
export type SliceInput = Lane & { teamId: string; tryNow?: true; closedEpoch?: number };

export type DispatchActivities = ReturnType<typeof createDispatchActivities>;

/** @param places activities that this process runs at once */
export function createDispatchActivities(deps: ActivityDeps, places: number) {
  const { orm, vault, log, workerId, env } = deps;
  const limits = smtpLimits(env);
  const guard = openSmtpGuard(env);
  const slots = new TeamSlots(SLICES_PER_TEAM, places);
  const pools = new AccountPools({
    ...{ orm, vault, log, workerId, guard, slots },
    postForm: openTokenPost(env),
    name: env.SMTP_HELO_NAME,
    limits,
  });
  const mailMs = beginDeadlineMs(limits) + bodyDeadlineMs(limits) + limits.block + limits.connect;
  const limitMs = mailMs + OUTAGE_LIMIT_MS;
  return {
    /** For 30 s at most, and about DISPATCH_SLICE_ROWS recipients while another slice may wait for its place. */
    dispatchSlice: (slice: SliceInput): Promise<SliceResult> =>
      whileBeating((report) => {
        const watched = deps.progress.watch("slice", limitMs);
        const deadline = AbortSignal.timeout(SLICE_MS);
        const end = AbortSignal.any([Context.current().cancellationSignal, deps.stopping, deadline]);
        // How far an earlier try of this activity was when its process died.
        const begun = Context.current().info.heartbeatDetails as SliceProgress | undefined;
        if (begun) report(begun);
        const run: SliceRun = {
          end,
          mayContinue: () => slots.hasRoom(slice.teamId),
          onMailed: (progress) => {
            watched.moved();
            report(progress);
          },
          tryNow: slice.tryNow,
        };
        const { sendId, accountId, teamId } = slice;
        const attributes = { send_id: sendId, account_id: accountId, team_id: teamId };
        const work = () =>
          inSpan({ name: "slice", attributes, isPart: true, isLeaf: true }, async (span) => {
            const result = await runSlice(deps, pools, { ...slice, ...(begun && { begun }) }, run);
            const { mailed, sent, next } = result;
            span?.setAttributes({ mailed, sent_in_all: sent, next });
            return result;
          });
        const full = (waitMs: number): SliceResult => ({ mailed: 0, next: "account_full", waitMs });
        return slots.run(slice.teamId, work, full).finally(watched.end);
      }),
    sendTestMail: (test: TestMail): Promise<TestOutcome[]> => whileBeating(() => sendTestMail(deps, pools, test)),
    close: () => pools.close(),
  };
}

interface SliceRun {
  end: AbortSignal;
  mayContinue(): boolean;
  onMailed(progress: SliceProgress): void;
  /** After an operator's command the server gets as many tries as at first. */
  tryNow?: boolean | undefined;
}

/** A heartbeat's details, for operators and a further try of the activity. */
type SliceProgress = AttemptProgress & { mailed: number };

/** @param slice `begun`: an earlier attempt, of which Postgres must know all that was reported */
async function runSlice(
  deps: ActivityDeps,
  pools: AccountPools,
  slice: SliceInput & { begun?: AttemptProgress },
  run: SliceRun,
): Promise<SliceResult> {
  const em = deps.orm.em.fork();
  const dispatch = await openDispatch(em, slice, outcomeDeadlineMs(smtpLimits(deps.env)));
  if (!dispatch) return { mailed: 0, ...(slice.begun && { epoch: slice.begun.epoch }), next: "stopped" };
  const { epoch } = dispatch;
  const unmailed = (next: Next): SliceResult => ({ mailed: 0, epoch, ...next });
  deps.countMails({ UNKNOWN: dispatch.unknown });
  if (dispatch.status !== "SENDING") return unmailed({ next: "stopped" });
  if (dispatch.hasComplaints) {
    for (const paused of await pauseForComplaints(em, dispatch)) logMove(deps.log, paused);
    await closeDispatch(em, dispatch);
    return unmailed({ next: "stopped" });
  }
  const account = await pools.acquire(dispatch, slice);
  if (!("pool" in account)) {
    await closeDispatch(em, dispatch);
    if (account.isGone) return unmailed(ACCOUNT_NOT_ACTIVE);
    if (account.refusal) return unmailed({ next: "failure", ...account.refusal });
    return unmailed({ next: "account_full", waitMs: CONNECTIONS_BUSY_MS });
  }
  try {
    const mailing = await mailSlice(deps, em, dispatch, account, run);
    // An attempt that Postgres does not call ended shows the workflow that Postgres is behind.
    const { mailed, hasReturned, hasLostStaging } = mailing.ledger;
    if (hasLostStaging) return { mailed, epoch, next: "stopped" };
    // So long a deferred recipient that is due waits for others at most: a tenth of the shortest wait.
    const gatherMs = 100 * Math.min(...deps.env.DEFERRAL_LADDER_SECONDS);
    const { afterSeq, ...next } = await nextStep(em, dispatch, mailing, gatherMs);
    const { run: refusals, hasAccepted, hasMailed } = mailing.ledger.refusals;
    const isChanged = refusals !== null && refusals !== dispatch.refusals;
    if (hasMailed || isChanged) await storeRefusalRun(em, dispatch, dispatch.refusals, refusals);
    await closeDispatch(em, dispatch, { afterSeq, hasAccepted });
    if (mailing.end.ended === "account_failure") {
      const { sendId, accountId, teamId } = dispatch;
      const { reason, temporary, response } = mailing.end.failure;
      deps.log.warn({ sendId, accountId, teamId, reason, temporary, reply: response }, "a send's account failed");
    }
    const sent = mailed > 0 ? { sent: (await readCounts(em, dispatch, dispatch.sendId)).SENT } : {};
    return { mailed, ...sent, epoch, ...(hasReturned && { returned: true }), ...next };
  } finally {
    pools.release(dispatch.accountId, account);
  }
}

/** Recipients flow from the ledger through the pool's connections and back. */
async function mailSlice(
  deps: ActivityDeps,
  em: EntityManager,
  dispatch: OpenedDispatch,
  { pool, inFlight }: AccountPool,
  run: SliceRun,
) {
  const content = await readContent(em, dispatch);
  const fill = await composeMails(deps, dispatch, content);
  const due = await readDueRecipients(em, dispatch, deps.env.DISPATCH_SLICE_ROWS);

  const ended = new AbortController();
  const signal = AbortSignal.any([run.end, ended.signal]);
  const ledger = new SliceLedger({
    ...{ deps, em, dispatch, inFlight, due, signal, limits: content.limits, mayContinue: run.mayContinue },
    tryNow: run.tryNow,
  });
  // A process that was suspended and resumes long after must not begin staged rows: another may have them by now.
  const staleAfterMs = beginDeadlineMs(smtpLimits(deps.env));
  const mails = pool.drain(ledger.batches(), {
    fill,
    mayBegin: ({ stagedAt, quota }) => elapsedMs() < Math.min(stagedAt + staleAfterMs, quota.endsAt),
    onLate: (mailed) => void settleLate(deps, dispatch, mailed),
    signal,
  });
  try {
    for await (const mailed of mails) {
      await ledger.settle(mailed);
      run.onMailed({ mailed: ledger.mailed, epoch: dispatch.epoch, seq: mailed[0]?.item.seq ?? 0 });
      if (mails.stopped || ledger.failure || ledger.hasLostStaging || ledger.refusals.pauseCause) ended.abort();
    }
  } finally {
    ended.abort();
    await ledger.close();
  }
  if (ledger.failure) throw ledger.failure.error;
  if (content.accountFailed && ledger.refusals.hasMailed) await recordAccountRecovery(em, dispatch);
  return { end: mails.end, ledger };
}

/** @returns the workflow's next step, and the `seq` after which the lane's next attempt begins to stage */
async function nextStep(
  em: EntityManager,
  dispatch: OpenedDispatch,
  { end, ledger }: Awaited<ReturnType<typeof mailSlice>>,
  gatherMs: number,
): Promise<Next & { afterSeq: number }> {
  const { limitWaitMs, refusals } = ledger;
  const afterSeq = Math.min(ledger.afterSeq, ledger.firstReturnedSeq - 1);
  if (end.ended === "account_failure") {
    const { reason, temporary, response } = end.failure;
    if (!temporary && isAccountFailure(reason)) await recordAccountFailure(em, dispatch, reason, response);
    return { next: "failure", reason, temporary, ...(response && { reply: response }), afterSeq };
  }
  const pause = async ({
    reason,
    code = 500,
    response,
    isAccounts,
  }: PauseCause): Promise<Next & { afterSeq: number }> => {
    const firstSeq = await requeueUndecided(em, dispatch);
    if (firstSeq === "stale") return { next: "stopped", afterSeq };
    const temporary = isAccounts && code < 500;
    if (isAccounts && !temporary) await recordAccountFailure(em, dispatch, "sender_refused", response);
    const failure = { next: "failure", reason: temporary ? "sender_refused" : reason, temporary } as const;
    const from = Math.min(afterSeq, (firstSeq ?? Number.POSITIVE_INFINITY) - 1);
    return { ...failure, ...(response && { reply: response }), afterSeq: from };
  };
  if (refusals.pauseCause) return pause(refusals.pauseCause);
  if (limitWaitMs !== undefined) return { next: "account_full", waitMs: limitWaitMs, byLimit: true, afterSeq };
  if (!ledger.isExhausted) return { next: "continue", afterSeq };
  // Nothing was staged: because nothing is left, or because the send or its account must not continue.
  const left = await readRemaining(em, dispatch, gatherMs);
  if (left.next !== "deferred" && left.next !== "done") return { afterSeq, ...left };
  const hasDecided = await ledger.decideRefusals();
  if (refusals.pauseCause) return pause(refusals.pauseCause);
  if (ledger.hasLostStaging) return { next: "stopped", afterSeq };
  return { afterSeq, ...(hasDecided ? await readRemaining(em, dispatch, gatherMs) : left) };
}

/** When a slice that found no slot asks again. */
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 60_000;
/** Between two slices of a team that ask again: a thousand waiting sends must not flood Temporal. */
const SPACING_MS = 250;

/** Filling a message that takes less time is not counted: an ordinary one takes about 0.02 ms. */
const COUNTED_FROM_MS = 0.5;
/** For so many other teams a team rests at most: it may be their relays that they wait for. */
const MOST_OTHERS = 4;

interface Team {
  taken: number;
  lastAskAt: number;
}

/**
 * A few slices of a team under way at once, so that its slow relays do not keep all slots; and a fair share of the
 * thread on which all messages are filled.
 */
export class TeamSlots {
  readonly #most: number;
  readonly #places: number;
  #taken = 0;
  readonly #teams = new Map<string, Team>();
  /** By `performance.now()`; also after its last slice has ended. */
  readonly #restsUntil = new Map<string, number>();

  /** @param places activities that this process runs at once */
  constructor(most: number, places: number) {
    this.#most = most;
    this.#places = places;
  }

  /** @param full is called, when the team's slots are taken, with the time after which to ask again */
  async run<T>(teamId: string, work: () => Promise<T>, full: (waitMs: number) => T): Promise<T> {
    const team = this.#teams.get(teamId) ?? { taken: 0, lastAskAt: 0 };
    if (team.taken >= this.#most) {
      const now = performance.now();
      const askAt = Math.max(now + FIRST_WAIT_MS, team.lastAskAt + SPACING_MS);
      team.lastAskAt = Math.min(askAt, now + LONGEST_WAIT_MS);
      return full(Math.ceil(team.lastAskAt - now));
    }
    team.taken++;
    this.#taken++;
    this.#teams.set(teamId, team);
    try {
      return await work();
    } finally {
      this.#taken--;
      if (--team.taken === 0) this.#teams.delete(teamId);
    }
  }

  /** Whether no slice waits for this team's place. One place is left to an activity that is no slice. */
  hasRoom(teamId: string): boolean {
    return this.#taken + 1 < this.#places && (this.#teams.get(teamId)?.taken ?? 0) < this.#most;
  }

  restMs(teamId: string): number {
    const ms = (this.#restsUntil.get(teamId) ?? 0) - performance.now();
    if (ms > 0) return ms;
    this.#restsUntil.delete(teamId);
    return 0;
  }

  /** Makes a team that filled a costly message rest: as long as that took, for each other team with slices under way. */
  countFill(teamId: string, tookMs: number): void {
    const others = Math.min(MOST_OTHERS, this.#teams.size - 1);
    if (others <= 0 || tookMs < COUNTED_FROM_MS) return;
    this.#restsUntil.set(teamId, performance.now() + this.restMs(teamId) + tookMs * others);
  }
}
