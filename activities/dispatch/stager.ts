import type { EntityManager } from "../../db/orm.ts";
import { type OpenedDispatch, saveCursor } from "../../domain/sends/lanes.ts";
import { type StageRequest, stageBatch, unstageUnanswered } from "../../domain/sends/staging.ts";
import type { ActivityDeps } from "../deps.ts";
import type { Allowance, AllowedRecipient } from "./allowance.ts";
import { throughOutage } from "./outage.ts";

interface StagerOptions {
  deps: ActivityDeps;
  em: EntityManager;
  dispatch: OpenedDispatch;
  allowance: Allowance;
  /** Deferred rows that are due: they are staged first. */
  due: readonly number[];
  /**
   * Asked after each DISPATCH_SLICE_ROWS rows, once the lane's cursor is saved.
   * @returns deferred rows that are due by now; undefined to end the slice
   */
  checkpoint: () => Promise<readonly number[] | undefined>;
  /** Rows that the account's pool takes at a time at present. */
  batchSize: () => number;
  /** Nothing more is staged once it is aborted. */
  signal: AbortSignal;
}

/** Rows that one statement stages at most. */
const MOST_ROWS = 100;

/** First part of a slice: takes recipients from the ledger, batch by batch, within the account's limits. */
export class Stager {
  readonly #options: StagerOptions;
  /** The last row that was staged. */
  afterSeq: number;
  /** No row was left to stage, or the lane must not continue. */
  isExhausted = false;
  /** Postgres has lost a part of this attempt, or another one took over: the workflow must look at the send first. */
  isStopped = false;
  /** Milliseconds until the account may mail again, when its hourly or daily limit is used up. */
  limitWaitMs: number | undefined;
  #due: readonly number[];
  /** The request of the last statement, whose answer may be lost. */
  #asked: StageRequest | undefined;
  #staged = 0;
  /** The number of staged rows at which the next checkpoint is made. */
  #checkpointAt: number;
  #ahead: Promise<readonly AllowedRecipient[] | undefined> = Promise.resolve(undefined);

  constructor(options: StagerOptions) {
    this.#options = options;
    this.afterSeq = options.dispatch.afterSeq;
    this.#due = options.due;
    this.#checkpointAt = options.deps.env.DISPATCH_SLICE_ROWS;
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

  /**
   * Ends the staging, once `signal` is aborted or the batches have ended.
   * @returns recipients that were staged ahead and are in no batch
   */
  async close(): Promise<readonly AllowedRecipient[]> {
    try {
      return (await this.#ahead) ?? [];
    } catch (error) {
      const { deps, em, dispatch } = this.#options;
      const asked = this.#asked;
      if (asked) await throughOutage(deps, () => unstageUnanswered(em, dispatch, asked));
      // Postgres may commit the statement yet. The attempt fails, so that the next one looks for its rows.
      throw error;
    }
  }

  #stageAhead(): void {
    this.#ahead = this.#stageNext();
    // It may fail before it is awaited.
    this.#ahead.catch(() => undefined);
  }

  /** The next batch, once there is room for it; undefined when there is none, or no more may be staged. */
  async #stageNext(): Promise<readonly AllowedRecipient[] | undefined> {
    const { allowance, signal, batchSize } = this.#options;
    while (!signal.aborted) {
      if (this.#staged >= this.#checkpointAt && !(await this.#passCheckpoint())) return undefined;
      const rows = () => Math.min(MOST_ROWS, batchSize(), this.#checkpointAt - this.#staged);
      const limit = await allowance.takeRows(rows, signal);
      if (limit === 0) return undefined;
      const batch = await this.#stage(limit);
      allowance.returnRows(limit - batch.length);
      if (this.isExhausted || this.limitWaitMs !== undefined) return undefined;
      if (batch.length > 0) return batch;
    }
    return undefined;
  }

  async #passCheckpoint(): Promise<boolean> {
    const { deps, em, dispatch, checkpoint } = this.#options;
    this.isStopped = !(await saveCursor(em, dispatch, this.afterSeq));
    const due = this.isStopped ? undefined : await checkpoint();
    if (!due) return false;
    this.#due = due;
    this.#checkpointAt = this.#staged + deps.env.DISPATCH_SLICE_ROWS;
    return true;
  }

  async #stage(limit: number): Promise<readonly AllowedRecipient[]> {
    const { deps, em, dispatch, allowance } = this.#options;
    const share = await allowance.takeMails(limit);
    if (share.granted === 0) {
      this.limitWaitMs = share.retryInMs;
      return [];
    }
    const due = this.#due.slice(0, share.granted);
    const request = due.length > 0 ? { due } : { afterSeq: this.afterSeq, limit: share.granted };
    this.#asked = request;
    const { recipients, suppressed, lastSeq } = await stageBatch(em, dispatch, request);
    this.#asked = undefined;
    this.#due = this.#due.slice(due.length);
    deps.countMails({ SUPPRESSED: suppressed });
    await allowance.returnMails(share, share.granted - recipients.length);
    if (due.length === 0) {
      if (lastSeq === undefined) this.isExhausted = true;
      else this.afterSeq = lastSeq;
    }
    this.#staged += recipients.length;
    return recipients.map((recipient) => Object.assign(recipient, { share }));
  }
}
