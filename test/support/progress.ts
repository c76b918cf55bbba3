import { Progress } from "../../config/progress.ts";

/** A progress whose loops and tasks are stalled after a second without moving, so that a test need not wait for long. */
export class ImpatientProgress extends Progress {
  override watch(name: string, limitMs: number): ReturnType<Progress["watch"]> {
    return super.watch(name, Math.min(limitMs, 1_000));
  }
}
