import type { FilledMessage } from "../../domain/mail/message.ts";
import { NOT_ATTEMPTED, type SmtpResult } from "./result.ts";

/**
 * How a drain ended. `done`: the batches came to their end and every message has its result. `stopped`: the signal or
 * `close` came first. `account`: the account is in trouble, `trouble` is the result that showed it.
 */
export type DrainEnd = { ended: "done" | "stopped" } | { ended: "account"; trouble: SmtpResult };

export interface DrainOptions<T> {
  /** Makes the message when a connection is free for it; what it throws becomes `rejected`, `unsendable` */
  fill: (item: T) => FilledMessage;
  /** Asked right before an item is begun; what may not begin gets `not_attempted`. By default everything may */
  mayBegin?: ((item: T) => boolean) | undefined;
  /** Called once per item, in the order in which the answers come */
  onResult: (item: T, result: SmtpResult) => void;
  /** No new message is begun once it is aborted; those in hand are finished */
  signal?: AbortSignal | undefined;
}

/** A message that waits for a connection or is in hand. */
export interface Job {
  readonly owner: JobOwner;
  /** Connections it was tried on */
  attempts: number;
  mayBegin(): boolean;
  /** @throws what the caller's `fill` throws */
  message(): FilledMessage;
  settle(result: SmtpResult): void;
}

/** What the queue tells a drain about its jobs. */
export interface JobOwner {
  readonly stopped: boolean;
  /** Its jobs that wait for a connection */
  waiting: number;
  /** Asks for the next batch when the jobs run short. */
  askIfShort(): void;
  stop(end: DrainEnd): void;
}

/** What a drain needs of the pool's queue. */
export interface JobQueue {
  /** Jobs that may wait before a drain asks for its next batch */
  readonly wanted: number;
  add(jobs: readonly Job[]): void;
  /** Takes this owner's waiting jobs out. */
  withdraw(owner: JobOwner): Job[];
}

/** One caller's batches on their way through a pool. */
export class Drain<T> implements JobOwner {
  waiting = 0;
  readonly #batches: AsyncIterator<readonly T[]>;
  readonly #options: DrainOptions<T>;
  readonly #queue: JobQueue;
  #end: DrainEnd | undefined;
  #failure: { error: unknown } | undefined;
  #asking = false;
  #unsettled = 0;
  #finished: (() => void) | undefined;

  constructor(batches: AsyncIterable<readonly T[]>, options: DrainOptions<T>, queue: JobQueue) {
    this.#batches = batches[Symbol.asyncIterator]();
    this.#options = options;
    this.#queue = queue;
  }

  get stopped(): boolean {
    return this.#end !== undefined && this.#end.ended !== "done";
  }

  async run(): Promise<DrainEnd> {
    const { signal } = this.#options;
    const onAbort = () => this.stop({ ended: "stopped" });
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort);
    await new Promise<void>((resolve) => {
      this.#finished = resolve;
      this.askIfShort();
      this.#finishIfDone();
    });
    signal?.removeEventListener("abort", onAbort);
    await this.#batches.return?.();
    if (this.#failure) throw this.#failure.error;
    return this.#end ?? { ended: "done" };
  }

  /** No further batch is asked for, and nothing that waits is begun. */
  stop(end: DrainEnd): void {
    if (!this.stopped) this.#end = end;
    for (const job of this.#queue.withdraw(this)) job.settle(NOT_ATTEMPTED);
    this.#finishIfDone();
  }

  askIfShort(): void {
    if (this.#asking || this.#end || this.waiting >= this.#queue.wanted) return;
    this.#asking = true;
    this.#batches.next().then(
      (next) => {
        this.#asking = false;
        if (next.done) this.#end ??= { ended: "done" };
        else this.#take(next.value);
        this.askIfShort();
        this.#finishIfDone();
      },
      (error: unknown) => {
        this.#asking = false;
        this.#fail(error);
      },
    );
  }

  #take(items: readonly T[]): void {
    this.#unsettled += items.length;
    if (this.stopped) for (const item of items) this.#settle(item, NOT_ATTEMPTED);
    else this.#queue.add(items.map((item) => this.#job(item)));
  }

  #job(item: T): Job {
    let filled: FilledMessage | undefined;
    return {
      owner: this,
      attempts: 0,
      mayBegin: () => this.#options.mayBegin?.(item) ?? true,
      message: () => {
        filled ??= this.#options.fill(item);
        return filled;
      },
      settle: (result) => this.#settle(item, result),
    };
  }

  #settle(item: T, result: SmtpResult): void {
    this.#unsettled--;
    try {
      this.#options.onResult(item, result);
    } catch (error) {
      // A caller that cannot take down results must not have more mail sent for it.
      this.#failure ??= { error };
      this.stop({ ended: "stopped" });
    }
    if (result.outcome === "account") this.stop({ ended: "account", trouble: result });
    this.#finishIfDone();
  }

  /** What was staged is still sent: it is the next batch that cannot be had. */
  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#end ??= { ended: "done" };
    this.#finishIfDone();
  }

  #finishIfDone(): void {
    if (this.#end && !this.#asking && this.#unsettled === 0) this.#finished?.();
  }
}
