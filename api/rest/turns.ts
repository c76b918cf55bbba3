import { NoPlaceError } from "../../lib/fair-queue.ts";
import { unavailable } from "./failures.ts";

/** An answer, as far as is asked here: whether it has left the process, or its client has gone. */
export interface Answering {
  readonly closed: boolean;
  once(event: "close", act: () => void): unknown;
}

/**
 * Lets a few requests of each line (a caller, or a team) be in flight at once; more of the same line wait in order of
 * arrival. They bound memory and connections to other servers: a request in flight may hold a body or an answer of 2 MiB.
 * Connections to Postgres are shared where they are taken.
 */
export class Turns {
  readonly #atOnce: number;
  /** By line, while it has requests. */
  readonly #lines = new Map<string, { running: number; waiting: (() => void)[] }>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /**
   * Waits for the turn of a line, which ends when the answer closes.
   * @throws {ApiError} `service_unavailable` when it closed first
   */
  async take(lineId: string, answering: Answering): Promise<void> {
    answering.once("close", await this.#begin(lineId, answering));
  }

  /**
   * Acts in a turn of a line, which ends with the act: a statement runs on after the client has gone.
   * @throws {ApiError} as `take`
   */
  async during<T>(lineId: string, answering: Answering, act: () => Promise<T>): Promise<T> {
    const leave = await this.#begin(lineId, answering);
    try {
      return await act();
    } finally {
      leave();
    }
  }

  /** @returns ends the turn */
  async #begin(lineId: string, answering: Answering): Promise<() => void> {
    const line = this.#lines.get(lineId) ?? { running: 0, waiting: [] };
    this.#lines.set(lineId, line);
    if (line.running < this.#atOnce) line.running++;
    // A request that ends hands its turn on.
    else await new Promise<void>((resolve) => line.waiting.push(resolve));
    const leave = () => {
      const next = line.waiting.shift();
      if (next) next();
      else if (--line.running === 0) this.#lines.delete(lineId);
    };
    if (answering.closed) {
      leave();
      throw unavailable(new NoPlaceError(false));
    }
    return leave;
  }
}
