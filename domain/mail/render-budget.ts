import { TemplateError } from "./template-problem.ts";

/** CPU time that composing one recipient's message may take, in milliseconds. Real newsletters take less than 1 ms. */
const RENDER_BUDGET_MS = 200;
/**
 * CPU time that composing a message may take at the preview, in milliseconds. The same work takes more CPU time on a busy
 * machine: what the preview accepts must not be refused to a recipient later.
 */
export const PREVIEW_BUDGET_MS = RENDER_BUDGET_MS / 4;
/** Small steps between two looks at the clock; together they take a few microseconds. */
const STEPS_PER_CHECK = 32;
/** The longest step there is, in milliseconds: a filter that searches a text for another. */
const LONGEST_STEP_MS = 10;

/**
 * The time that the templates of one recipient share. A recipient must not be refused because the machine was busy, or
 * because the process collected garbage just then. So it is CPU time of this thread, and of the time between two checks
 * at most that of the longest step counts.
 */
export class RenderBudget {
  readonly #limitMs: number;
  readonly #cpuAtStart = process.threadCpuUsage();
  #checkedAt = performance.now();
  #usedMs = 0;
  #steps = 0;

  constructor(limitMs = RENDER_BUDGET_MS) {
    this.#limitMs = limitMs;
  }

  /** Counts a small step. @throws {TemplateError} `limits`, when the time is used up */
  step(): void {
    if (++this.#steps % STEPS_PER_CHECK === 0) this.check();
  }

  /** @throws {TemplateError} `limits`, when the time is used up */
  check(): void {
    const now = performance.now();
    this.#usedMs += Math.min(now - this.#checkedAt, LONGEST_STEP_MS);
    this.#checkedAt = now;
    if (this.#usedMs <= this.#limitMs) return;
    const { user, system } = process.threadCpuUsage(this.#cpuAtStart);
    const cpuMs = (user + system) / 1_000;
    if (cpuMs > this.#limitMs) {
      throw new TemplateError({
        kind: "limits",
        message: `one message takes more than ${this.#limitMs} ms to compose`,
      });
    }
    this.#usedMs = cpuMs;
  }
}
