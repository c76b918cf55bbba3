import { setTimeout as delay, setImmediate as received } from "node:timers/promises";

/** A batch waits no longer for the one before it, whose connection may be dead without a sign. */
const MAX_WAIT_MS = 1_000;

interface Batch<Item, Result> {
  items: Item[];
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
 * Does one piece of work for all calls of one name that wait for it: while it runs, further calls gather for the next run. A
 * run begins when all that the process has received is read, so that requests which arrived together share it. The work of
 * a call always begins after the call.
 */
export class Batches<Item, Result> {
  readonly #gathering = new Map<string, Batch<Item, Result>>();
  /** By name, the latest run that has begun and not ended. */
  readonly #running = new Map<string, Promise<Result>>();

  /** @throws what `work` throws */
  async join(name: string, item: Item, work: (items: readonly Item[]) => Promise<Result>): Promise<Shared<Result>> {
    const batch = this.#gathering.get(name) ?? this.#gather(name, work);
    const place = batch.items.push(item) - 1;
    const result = await batch.result;
    return { result, size: batch.items.length, place };
  }

  #gather(name: string, work: (items: readonly Item[]) => Promise<Result>): Batch<Item, Result> {
    const items: Item[] = [];
    const batch = { items, result: this.#run(name, () => work(items)) };
    this.#gathering.set(name, batch);
    return batch;
  }

  async #run(name: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#running.get(name);
    if (before) await Promise.race([before.catch(() => undefined), delay(MAX_WAIT_MS, undefined, { ref: false })]);
    await received();
    this.#gathering.delete(name);
    const result = work();
    this.#running.set(name, result);
    const end = () => {
      if (this.#running.get(name) === result) this.#running.delete(name);
    };
    result.then(end, end);
    return result;
  }
}
