import { setImmediate as allRead } from "node:timers/promises";

/** A batch waits no longer for the one before it: that one's connection may be dead without a sign. */
const MAX_WAIT_MS = 1_000;

interface Batch<Result> {
  /** Calls that share it; known when it begins. */
  size: number;
  result: Promise<Result>;
}

/** The part that one call has in a batch. */
export interface Shared<Result> {
  result: Result;
  /** Calls that share the result, and which of them this one is, from 0. */
  size: number;
  place: number;
}

/**
 * Does one piece of work for all calls of one name that wait for it: while it runs, further calls gather for the next
 * run. A run begins when the process has handled all that it has received, so that requests which arrived together share
 * it. The work of a call always begins after the call.
 */
export class Batches<Result> {
  /** The batches that have not begun, by name. */
  readonly #gathering = new Map<string, Batch<Result>>();
  /** Resolves when the latest batch of a name that has begun needs no longer be waited for. */
  readonly #running = new Map<string, Promise<void>>();

  /**
   * @param work is given the number of calls that it is for
   * @throws what `work` throws
   */
  async join(name: string, work: (size: number) => Promise<Result>): Promise<Shared<Result>> {
    const batch = this.#gathering.get(name) ?? this.#gather(name, work);
    const place = batch.size++;
    const result = await batch.result;
    return { result, size: batch.size, place };
  }

  #gather(name: string, work: (size: number) => Promise<Result>): Batch<Result> {
    const batch: Batch<Result> = {
      size: 0,
      result: this.#runAfter(this.#running.get(name), name, () => work(batch.size)),
    };
    this.#gathering.set(name, batch);
    return batch;
  }

  async #runAfter(before: Promise<void> | undefined, name: string, work: () => Promise<Result>): Promise<Result> {
    await before;
    await allRead();
    this.#gathering.delete(name);
    const result = work();
    const running = endOf(result);
    this.#running.set(name, running);
    void running.then(() => this.#running.get(name) === running && this.#running.delete(name));
    return result;
  }
}

/** Resolves when a result is there, has failed, or takes too long to be waited for. */
function endOf(result: Promise<unknown>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, MAX_WAIT_MS).unref();
  const end = () => {
    clearTimeout(timer);
    resolve();
  };
  result.then(end, end);
  return promise;
}
