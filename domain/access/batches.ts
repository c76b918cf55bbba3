import { setImmediate as allRead } from "node:timers/promises";
import { Lines } from "../../db/lines.ts";

/** A batch waits no longer for the one before it: that one's connection may be dead without a sign. */
const MAX_WAIT_MS = 1_000;

interface Batch<Result> {
  /** Calls that share it; known when it begins. */
  size: number;
  result: Promise<Result>;
}

/** The batches of one name. */
class Line<Result> {
  /** The batch that has not begun. */
  gathering: Batch<Result> | undefined;
  /** Resolves when the latest batch that has begun needs no longer be waited for. */
  running: Promise<void> | undefined;
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
  readonly #waitForMore: (name: string) => Promise<unknown> | undefined;
  readonly #lines = new Lines(
    () => new Line<Result>(),
    ({ gathering, running }) => gathering === undefined && running === undefined,
  );

  /**
   * @param waitForMore delays the run of a name while further calls are expected; its promise must resolve, because nothing
   * else ends the delay
   */
  constructor(waitForMore: (name: string) => Promise<unknown> | undefined = () => undefined) {
    this.#waitForMore = waitForMore;
  }

  /**
   * @param work is given the number of calls that it is for
   * @throws what `work` throws
   */
  async join(name: string, work: (size: number) => Promise<Result>): Promise<Shared<Result>> {
    const line = this.#lines.of(name);
    line.gathering ??= this.#gather(name, line, work);
    const batch = line.gathering;
    const place = batch.size++;
    const result = await batch.result;
    return { result, size: batch.size, place };
  }

  #gather(name: string, line: Line<Result>, work: (size: number) => Promise<Result>): Batch<Result> {
    const batch: Batch<Result> = { size: 0, result: this.#runAfter(name, line, () => work(batch.size)) };
    return batch;
  }

  async #runAfter(name: string, line: Line<Result>, work: () => Promise<Result>): Promise<Result> {
    await line.running;
    await allRead();
    await this.#waitForMore(name);
    line.gathering = undefined;
    const result = work();
    const running = endOf(result);
    line.running = running;
    void running.then(() => {
      if (line.running === running) line.running = undefined;
    });
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
