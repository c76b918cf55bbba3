import type { EntityManager } from "../../db/orm.ts";
import type { OpenedDispatch } from "../../domain/sends/lanes.ts";
import { type StageRequest, stageBatch, unstageUnanswered } from "../../domain/sends/staging.ts";
import type { ActivityDeps } from "../deps.ts";
import type { Allowance, AllowedRecipient } from "./allowance.ts";
import { throughOutage } from "./outage.ts";

/** Whether a slice continues at a checkpoint, or another one follows it. `due`: deferred rows that are due by now. */
export type CheckpointResult = { continues: true; due: readonly number[] } | { continues: false };

/** Batches that are staged while a checkpoint is under way: its statements take about as long. */
const CHECKPOINT_BATCHES = 3;

interface StagerOptions {
  deps: ActivityDeps;
  em: EntityManager;
  dispatch: OpenedDispatch;
  allowance: Allowance;
  /** The lane's cursor: rows up to and including this `seq` were staged. */
  afterSeq: number;
  /** Deferred rows that are due: they are staged first. */
  due: readonly number[];
  /**
   * Moves the lane's cursor in Postgres, shortly before DISPATCH_SLICE_ROWS rows are staged.
   * @returns false when no slice of the lane may follow before its workflow has looked at the send
   */
  saveCursor: (afterSeq: number) => Promise<boolean>;
  /** Asked once the cursor is saved, whether as many more may be staged. */
  checkpoint: () => Promise<CheckpointResult>;
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
  #afterSeq: number;
  #due: readonly number[];
  /** The request of the last statement, whose answer may be lost. */
  #asked: StageRequest | undefined;
  #staged = 0;
  /** The number of staged rows at which the next checkpoint is awaited. */
  #checkpointAt: number;
  /** The next checkpoint, once it is under way. */
  #checkpoint: Promise<CheckpointResult> | undefined;
  #stopped = false;
  #exhausted = false;
  #limitWaitMs: number | undefined;
  #ahead: Promise<readonly AllowedRecipient[] | undefined> = Promise.resolve(undefined);

  constructor(options: StagerOptions) {
    this.#options = options;
    this.#afterSeq = options.afterSeq;
    this.#due = options.due;
    this.#checkpointAt = options.deps.env.DISPATCH_SLICE_ROWS;
  }

  /** The last row that was staged. */
  get afterSeq(): number {
    return this.#afterSeq;
  }

  /** No row was left to stage, or the lane must not continue. */
  get exhausted(): boolean {
    return this.#exhausted;
  }

  /** Postgres has lost a part of this attempt, or another one took over: no slice of the lane may follow now. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Milliseconds until the account may mail again; undefined unless its hourly or daily limit is used up. */
  get limitWaitMs(): number | undefined {
    return this.#limitWaitMs;
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
    } finally {
      // One under way may lease connections of the account, which must not outlive the slice.
      await this.#checkpoint?.catch(() => undefined);
    }
  }

  #stageAhead(): void {
    this.#ahead = this.#stageNext();
    // It may fail before it is awaited.
    this.#ahead.catch(() => undefined);
  }

  /** The next batch, once there is room for it; undefined when there is none, or no more may be staged. */
  async #stageNext(): Promise<readonly AllowedRecipient[] | undefined> {
    const { allowance, signal } = this.#options;
    while (!signal.aborted) {
      if (!(await this.#beginCheckpoint())) return undefined;
      if (this.#staged >= this.#checkpointAt && !(await this.#passCheckpoint())) return undefined;
      const limit = await allowance.takeRows(
        () => Math.min(this.#batchSize, this.#checkpointAt - this.#staged),
        signal,
      );
      if (limit === 0) return undefined;
      const batch = await this.#stage(limit);
      allowance.returnRows(limit - batch.length);
      if (this.#exhausted || this.#limitWaitMs !== undefined) return undefined;
      if (batch.length > 0) return batch;
    }
    return undefined;
  }

  /** Most rows of a batch at present. */
  get #batchSize(): number {
    return Math.min(MOST_ROWS, this.#options.batchSize());
  }

  /**
   * Begins the next checkpoint once it is near, so that connections do not wait for its statements.
   * @returns false when nothing more may be staged
   */
  async #beginCheckpoint(): Promise<boolean> {
    const { deps, saveCursor, checkpoint, signal } = this.#options;
    const rowsAhead = Math.min(CHECKPOINT_BATCHES * this.#batchSize, deps.env.DISPATCH_SLICE_ROWS / 2);
    if (this.#checkpoint || this.#staged < this.#checkpointAt - rowsAhead) return true;
    // Between two stagings: the update locks the lane's row, and a staging beside it would stage nothing.
    this.#stopped = !(await saveCursor(this.#afterSeq));
    if (this.#stopped || signal.aborted) return false;
    this.#checkpoint = checkpoint();
    // It may fail before it is awaited.
    this.#checkpoint.catch(() => undefined);
    return true;
  }

  async #passCheckpoint(): Promise<boolean> {
    const { deps } = this.#options;
    const result = await this.#checkpoint;
    this.#checkpoint = undefined;
    if (!result?.continues) return false;
    this.#due = result.due;
    this.#checkpointAt = this.#staged + deps.env.DISPATCH_SLICE_ROWS;
    return true;
  }

  async #stage(limit: number): Promise<readonly AllowedRecipient[]> {
    const { deps, em, dispatch, allowance } = this.#options;
    const share = await allowance.takeMails(limit);
    if (share.granted === 0) {
      this.#limitWaitMs = share.retryInMs;
      return [];
    }
    const due = this.#due.slice(0, share.granted);
    const request = due.length > 0 ? { due } : { afterSeq: this.#afterSeq, limit: share.granted };
    this.#asked = request;
    const { recipients, suppressed, lastSeq } = await stageBatch(em, dispatch, request);
    this.#asked = undefined;
    this.#due = this.#due.slice(due.length);
    deps.countMails({ SUPPRESSED: suppressed });
    await allowance.returnMails(share, share.granted - recipients.length);
    if (due.length === 0) {
      if (lastSeq === undefined) this.#exhausted = true;
      else this.#afterSeq = lastSeq;
    }
    this.#staged += recipients.length;
    return recipients.map((recipient) => Object.assign(recipient, { share }));
  }
}
