import { setTimeout as delay } from "node:timers/promises";
import type { EntityManager } from "../db/orm.ts";
import { isConflict } from "../db/transaction.ts";
import { isUnreachable } from "../db/unreachable.ts";
import { type Mailed, NOT_ATTEMPTED } from "../domain/mail/outcome.ts";
import { type AccountLimits, type Quota, returnQuota, takeQuota } from "../domain/sends/ledger/account-capacity.ts";
import { isStagingLost, type OpenedDispatch } from "../domain/sends/ledger/lanes.ts";
import {
  type MailedRecipient,
  type StagedRecipient,
  type StageRequest,
  settleOutcomes,
  stageBatch,
  unstageUnanswered,
} from "../domain/sends/ledger/moves.ts";
import { Refusals, UNDECIDED_YET } from "../domain/sends/ledger/refusals.ts";
import type { InFlightLimit } from "./account-pools.ts";
import type { ActivityDeps } from "./deps.ts";

export interface AllowedRecipient extends StagedRecipient {
  quota: Quota;
}

interface SliceOptions {
  deps: Pick<ActivityDeps, "env" | "stopping" | "log" | "countMails">;
  em: EntityManager;
  dispatch: OpenedDispatch;
  limits: AccountLimits;
  inFlight: InFlightLimit;
  /** Deferred rows that are due: they are staged first. */
  due: readonly number[];
  tryNow?: boolean | undefined;
  /** Asked once DISPATCH_SLICE_ROWS rows were staged. */
  mayContinue: () => boolean;
  /** Nothing more is staged once it is aborted. */
  signal: AbortSignal;
}

/** The ledger's side of a slice: stages recipients within the limits of the account, and settles their outcomes. */
export class SliceLedger {
  readonly #options: SliceOptions;
  readonly refusals: Refusals;
  /** The last row that was staged. */
  afterSeq: number;
  /** No row was left to stage, or the lane must not continue. */
  isExhausted = false;
  /** Milliseconds until the account may mail again, when its hourly or daily limit is used up. */
  limitWaitMs: number | undefined;
  /** Mails that were begun and whose failure, if any, was not the account's. */
  mailed = 0;
  /** Rows went back unbegun. */
  hasReturned = false;
  /** The first row that went back in the queue: one that was deferred before is found by its due time. */
  firstReturnedSeq = Number.POSITIVE_INFINITY;
  /** Outcomes could not be written: the rows stay SENDING, and the next attempt turns them into UNKNOWN. */
  failure: { error: unknown } | undefined;
  /** Postgres has lost the commit that staged one of the recipients: the ledger may offer those before it once more. */
  hasLostStaging = false;
  #due: readonly number[];
  /** The request of the last staging statement, whose answer may be lost. */
  #asked: StageRequest | undefined;
  #staged = 0;
  /** Of the rows that may be in flight. */
  #taken = 0;
  #ahead: Promise<readonly AllowedRecipient[] | undefined> = Promise.resolve(undefined);

  constructor(options: SliceOptions) {
    this.#options = options;
    this.refusals = new Refusals(options.dispatch, options.tryNow);
    this.afterSeq = options.dispatch.afterSeq;
    this.#due = options.due;
  }

  /** Stages one batch ahead of the one that is being mailed: connections must not wait for a commit. */
  async *batches(): AsyncGenerator<readonly AllowedRecipient[], void, void> {
    this.#stageAhead();
    for (;;) {
      const batch = await this.#ahead;
      if (batch === undefined) return;
      this.#stageAhead();
      yield batch;
    }
  }

  /** Writes outcomes down, through an outage of the database that passes. Never rejects, see `failure`. */
  async settle(mails: readonly Mailed<AllowedRecipient>[]): Promise<void> {
    if (mails.length === 0) return;
    const { deps, em, dispatch } = this.#options;
    const unused = this.#count(mails);
    try {
      await this.#write(this.refusals.take(mails));
      this.#giveBack(mails.length);
      for (const [quota, count] of unused) {
        // Mails that cannot be given back count as mailed until their window ends: the limit holds.
        await returnQuota(em, dispatch.accountId, quota, count).catch((error: unknown) => {
          deps.log.warn({ err: error, count }, "unused mails could not be given back to the limits of their account");
        });
      }
    } catch (error) {
      this.failure ??= { error };
    }
  }

  /** At the end of the lane: writes the refusals that are the recipients'. @returns whether there were any */
  async decideRefusals(): Promise<boolean> {
    const decided = this.refusals.decide();
    if (decided.length > 0) await this.#write(decided);
    return decided.length > 0;
  }

  async #write(mails: readonly MailedRecipient[]): Promise<void> {
    const { deps, em, dispatch } = this.#options;
    // Only this process knows these outcomes.
    const write = () => settleOutcomes(em, dispatch, mails, deps.env);
    const counts = await throughOutage(deps, write, { patient: !this.failure });
    deps.countMails(counts);
    const settled = Object.values(counts).reduce((sum, count) => sum + count, 0);
    if (settled < mails.length) {
      const seqs = mails.map(({ item }) => item.seq);
      this.hasLostStaging ||= await isStagingLost(em, dispatch.sendId, seqs);
    }
  }

  /** Ends the slice once `signal` is aborted: rows that were staged ahead go back, and the limits are free for others. */
  async close(): Promise<void> {
    try {
      const unsent = (await this.#ahead) ?? [];
      await this.settle(unsent.map((item) => ({ item, outcome: NOT_ATTEMPTED })));
    } catch (error) {
      const { deps, em, dispatch } = this.#options;
      const asked = this.#asked;
      if (asked) await throughOutage(deps, () => unstageUnanswered(em, dispatch, asked));
      // Postgres may commit the statement yet. The attempt fails, so that the next one looks for its rows.
      throw error;
    } finally {
      // Also for rows that could not be settled: the next attempt finds those.
      this.#giveBack(this.#taken);
    }
  }

  /** @returns the number of rows that go back in the queue, by the quota that they were to use */
  #count(mails: readonly Mailed<AllowedRecipient>[]): Map<Quota, number> {
    const unused = new Map<Quota, number>();
    for (const { item, outcome } of mails) {
      if (outcome.outcome === "account_failure" || outcome.outcome === "not_attempted") {
        unused.set(item.quota, (unused.get(item.quota) ?? 0) + 1);
        this.hasReturned = true;
        if (!item.wasDeferred) this.firstReturnedSeq = Math.min(this.firstReturnedSeq, item.seq);
      } else {
        this.mailed++;
      }
    }
    return unused;
  }

  #giveBack(rows: number): void {
    this.#taken -= rows;
    this.#options.inFlight.giveBack(rows);
  }

  #stageAhead(): void {
    this.#ahead = this.#stageNext();
    // It may fail before it is awaited.
    this.#ahead.catch(() => undefined);
  }

  /** The next batch, once there is room for it; undefined when there is none, or no more may be staged. */
  async #stageNext(): Promise<readonly AllowedRecipient[] | undefined> {
    const { deps, inFlight, signal, mayContinue } = this.#options;
    while (!signal.aborted && (this.#staged < deps.env.DISPATCH_SLICE_ROWS || mayContinue())) {
      const limit = await inFlight.take(signal);
      if (limit === 0) return undefined;
      this.#taken += limit;
      const batch = await this.#stage(limit);
      this.#giveBack(limit - batch.length);
      if (this.isExhausted || this.limitWaitMs !== undefined) return undefined;
      if (batch.length > 0) return batch;
    }
    return undefined;
  }

  async #stage(limit: number): Promise<readonly AllowedRecipient[]> {
    const { deps, em, dispatch, limits } = this.#options;
    const quota = await takeQuota(em, dispatch.accountId, limits, limit);
    if (quota.granted === 0) {
      this.limitWaitMs = quota.retryInMs;
      return [];
    }
    const due = this.#due.slice(0, quota.granted);
    const request = due.length > 0 ? { due } : { afterSeq: this.afterSeq, limit: quota.granted };
    this.#asked = request;
    const { recipients, suppressed, lastSeq } = await stageBatch(em, dispatch, request);
    this.#asked = undefined;
    this.#due = this.#due.slice(due.length);
    deps.countMails({ SUPPRESSED: suppressed });
    await returnQuota(em, dispatch.accountId, quota, quota.granted - recipients.length);
    if (due.length === 0) {
      if (lastSeq === undefined) this.isExhausted = true;
      else this.afterSeq = lastSeq;
    }
    this.#staged += recipients.length;
    return recipients.map((recipient) => Object.assign(recipient, { quota }));
  }
}

/** Settles a mail that its slice has left UNKNOWN because the reply to its dot was late. Never rejects. */
export async function settleLate(
  deps: Pick<ActivityDeps, "env" | "orm" | "stopping" | "log" | "countMails">,
  dispatch: OpenedDispatch,
  mailed: Mailed<AllowedRecipient>,
): Promise<void> {
  const { item, outcome } = mailed;
  if (outcome.outcome === "unknown") return;
  const isOfAccount = "refusal" in outcome && outcome.refusal?.isAccounts;
  const settled = isOfAccount ? { item, outcome: UNDECIDED_YET } : mailed;
  const write = () => settleOutcomes(deps.orm.em.fork(), dispatch, [settled], deps.env);
  await throughOutage(deps, write).then(deps.countMails, (error: unknown) => {
    deps.log.warn({ sendId: dispatch.sendId, err: error }, "a late outcome could not be written: it stays unknown");
  });
}

const PATIENCE_MS = 120_000;
const INTERVAL_MS = 250;

/**
 * Runs `write` until it succeeds, through an outage of the database; once without `patient`.
 * @throws its error when that does not pass by itself, or the outage is too long
 */
async function throughOutage<T>(
  { env, stopping }: Pick<ActivityDeps, "env" | "stopping">,
  write: () => Promise<T>,
  { patient = true }: { patient?: boolean } = {},
): Promise<T> {
  const since = performance.now();
  for (;;) {
    try {
      return await write();
    } catch (error) {
      const isPassing = isConflict(error) || isUnreachable(error);
      const patienceMs = stopping.aborted ? env.SHUTDOWN_GRACE_MS : PATIENCE_MS;
      if (!isPassing || !patient || performance.now() - since > patienceMs) throw error;
      await delay(INTERVAL_MS);
    }
  }
}
