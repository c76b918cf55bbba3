import { setImmediate as nextTurn } from "node:timers/promises";
import type { FilledMessage } from "../../domain/mail/message.ts";
import { type AccountFailure, type Mailed, type MailOutcome, NOT_ATTEMPTED } from "../../domain/mail/outcome.ts";

/** `done`: every message has its outcome. `stopped`: the signal or `close` came first. */
export type DrainEnd = { ended: "done" | "stopped" } | { ended: "account_failure"; failure: AccountFailure };

export interface DrainOptions<T> {
  /** Composes the message when a connection is free for it; if it throws, the outcome is `rejected`, `unsendable` */
  fill: (item: T) => FilledMessage;
  /** Asked right before an item is begun; one that may not begin gets `not_attempted`. By default all may */
  mayBegin?: ((item: T) => boolean) | undefined;
  signal?: AbortSignal | undefined;
  /** Given the outcome of an item that was `unknown` because the reply to its dot was late; also after the end. */
  onLate?: ((mailed: Mailed<T>) => void) | undefined;
}

export interface Job {
  readonly owner: JobOwner;
  attempts: number;
  /** It was taken back once, so it follows no other message */
  isAlone?: boolean;
  mayBegin(): boolean;
  /** @throws the error of the caller's `fill` */
  message(): FilledMessage;
  /** A second outcome is that of a late reply. */
  settle(outcome: MailOutcome): void;
}

export interface JobOwner {
  readonly stopped: boolean;
  waiting: number;
  askIfShort(): void;
  stop(end: DrainEnd): void;
}

export interface JobQueue {
  /** With fewer waiting jobs a drain asks for its next batch */
  wanted(): number;
  join(owner: JobOwner): void;
  leave(owner: JobOwner): void;
  add(jobs: readonly Job[]): void;
  withdraw(owner: JobOwner): Job[];
}

/**
 * One caller's batches on their way through a pool. Iterating it yields the outcomes, all that came since the last step
 * together.
 */
export class Drain<T> implements JobOwner, AsyncIterable<readonly Mailed<T>[]> {
  waiting = 0;
  readonly #batches: AsyncIterator<readonly T[]>;
  readonly #options: DrainOptions<T>;
  readonly #queue: JobQueue;
  #end: DrainEnd | undefined;
  #failure: { error: unknown } | undefined;
  #asking = false;
  #open = 0;
  #mailed: Mailed<T>[] = [];
  #wakeConsumer: (() => void) | undefined;

  constructor(batches: AsyncIterable<readonly T[]>, options: DrainOptions<T>, queue: JobQueue) {
    this.#batches = batches[Symbol.asyncIterator]();
    this.#options = options;
    this.#queue = queue;
  }

  get end(): DrainEnd {
    return this.#end ?? { ended: "stopped" };
  }

  get stopped(): boolean {
    return this.#end !== undefined && this.#end.ended !== "done";
  }

  /** @throws the error of `batches`, after the items already given have had their outcomes */
  async *[Symbol.asyncIterator](): AsyncGenerator<readonly Mailed<T>[], void, void> {
    const { signal } = this.#options;
    const onAbort = () => this.stop({ ended: "stopped" });
    this.#queue.join(this);
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort);
    try {
      this.askIfShort();
      for (;;) {
        if (this.#mailed.length === 0) {
          if (this.#isFinished) break;
          await this.#change();
          // Outcomes that come in the same turn of the event loop are taken together.
          await nextTurn();
        }
        const mailed = this.#mailed;
        this.#mailed = [];
        if (mailed.length > 0) yield mailed;
      }
    } finally {
      // A consumer that leaves early must not have more mail sent.
      if (!this.#isFinished) this.stop({ ended: "stopped" });
      while (!this.#isFinished) await this.#change();
      signal?.removeEventListener("abort", onAbort);
      this.#queue.leave(this);
      await this.#batches.return?.();
    }
    if (this.#failure) throw this.#failure.error;
  }

  /** No further batch is asked for, and no waiting message is begun. */
  stop(end: DrainEnd): void {
    if (!this.stopped) this.#end = end;
    for (const job of this.#queue.withdraw(this)) job.settle(NOT_ATTEMPTED);
    this.#wake();
  }

  askIfShort(): void {
    if (this.#asking || this.#end || this.waiting >= this.#queue.wanted()) return;
    this.#asking = true;
    this.#batches.next().then(
      (next) => {
        this.#asking = false;
        if (next.done) this.#end ??= { ended: "done" };
        else this.#take(next.value);
        this.askIfShort();
        this.#wake();
      },
      (error: unknown) => {
        this.#asking = false;
        // The items already given are still sent.
        this.#failure ??= { error };
        this.#end ??= { ended: "done" };
        this.#wake();
      },
    );
  }

  get #isFinished(): boolean {
    return this.#end !== undefined && !this.#asking && this.#open === 0;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wakeConsumer = resolve;
    });
  }

  #wake(): void {
    if (this.#mailed.length === 0 && !this.#isFinished) return;
    this.#wakeConsumer?.();
    this.#wakeConsumer = undefined;
  }

  #take(items: readonly T[]): void {
    this.#open += items.length;
    if (this.stopped) for (const item of items) this.#settle(item, NOT_ATTEMPTED);
    else this.#queue.add(items.map((item) => this.#job(item)));
  }

  #job(item: T): Job {
    let filled: FilledMessage | undefined;
    let isSettled = false;
    return {
      owner: this,
      attempts: 0,
      mayBegin: () => this.#options.mayBegin?.(item) ?? true,
      message: () => {
        filled ??= this.#options.fill(item);
        return filled;
      },
      settle: (outcome) => {
        if (isSettled) this.#options.onLate?.({ item, outcome });
        else this.#settle(item, outcome);
        isSettled = true;
      },
    };
  }

  #settle(item: T, outcome: MailOutcome): void {
    this.#open--;
    this.#mailed.push({ item, outcome });
    if (outcome.outcome === "account_failure") this.stop({ ended: "account_failure", failure: outcome });
    this.#wake();
  }
}
