import { FairQueue } from "../../lib/fair-queue.ts";

/** No request has a longer deadline. */
const MOST_WAIT_MS = 75_000;

/** An answer, as far as is asked here: whether it has left the process, or its client has gone. */
export interface Answering {
  readonly closed: boolean;
  once(event: "close", act: () => void): unknown;
}

/**
 * Lets a few requests of each line (a caller, or a team) be in flight at once; more of the same line wait in order of
 * arrival. They bound memory, connections to other servers, and bursts: a request in flight may hold a body or an answer of 2 MiB.
 * Connections to Postgres are shared where they are taken.
 */
export class Turns {
  readonly #queue: FairQueue;

  constructor(atOnce: number) {
    this.#queue = new FairQueue({ places: Number.POSITIVE_INFINITY, most: atOnce, mostWaitMs: MOST_WAIT_MS });
  }

  /**
   * Waits for the turn of a line, which ends when the answer closes.
   * @throws {NoPlaceError} when it closed first
   */
  async take(key: string, answering: Answering): Promise<void> {
    answering.once("close", await this.#queue.take({ key, hasEnded: () => answering.closed }));
  }

  /**
   * Acts in a turn of a line, which ends with the act: a statement runs on after the client has gone.
   * @throws {NoPlaceError} as `take`
   */
  async during<T>(key: string, answering: Answering, act: () => Promise<T>): Promise<T> {
    const leave = await this.#queue.take({ key, hasEnded: () => answering.closed });
    try {
      return await act();
    } finally {
      leave();
    }
  }
}
