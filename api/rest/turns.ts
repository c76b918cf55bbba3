import { unavailable } from "./failures.ts";

/** Requests of one line that are in flight, and those that wait for one of them to end. */
interface Line {
  running: number;
  waiting: (() => void)[];
}

/**
 * Lets a few requests of each line (a caller, or a team) be in flight at once; more of the same line wait in order of
 * arrival. A request in flight may hold a connection to Postgres, a body or an answer of 2 MiB.
 */
export class Turns {
  readonly #atOnce: number;
  readonly #lines = new Map<string, Line>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /**
   * Waits for the line's turn, which ends with the signal.
   * @throws {ApiError} `service_unavailable` when the signal came first
   */
  async take(lineId: string, ended: AbortSignal): Promise<void> {
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
    if (ended.aborted) {
      leave();
      throw unavailable(new Error("the client has gone, or got its answer, before its turn"));
    }
    ended.addEventListener("abort", leave, { once: true });
  }
}
