import { Progress } from "../../config/progress.ts";

/** A progress whose loops and tasks are stalled after a short time without moving, so that a test need not wait for long. */
export class ImpatientProgress extends Progress {
  readonly #mostMs: number;

  constructor(mostMs = 1_000) {
    super();
    this.#mostMs = mostMs;
  }

  override watch(name: string, limitMs: number): ReturnType<Progress["watch"]> {
    return super.watch(name, Math.min(limitMs, this.#mostMs));
  }
}
