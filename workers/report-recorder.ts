import type { ActivityDeps } from "../activities/deps.ts";
import { isCancelled, isUnreachable } from "../db/unreachable.ts";
import { type MailReport, type ReportOutcome, recordReports } from "../domain/reports/record.ts";
import { logMove } from "../domain/sends/send-log.ts";

/** Reports that one call records at most. */
const MAX_BATCH = 500;

interface Waiting {
  reports: readonly MailReport[];
  resolve(outcomes: ReportOutcome[]): void;
  reject(reason: unknown): void;
}

/**
 * Records reports in batches: those that arrive during a commit form the next one, so that a flood costs few transactions.
 * Each connection waits for its commit, so the queue holds one call per connection at most.
 */
export class ReportRecorder {
  readonly #deps: Pick<ActivityDeps, "orm" | "env" | "log">;
  #waiting: Waiting[] = [];
  #isRunning = false;

  constructor(deps: Pick<ActivityDeps, "orm" | "env" | "log">) {
    this.#deps = deps;
  }

  /** Reports that wait for a batch to take them. */
  get waiting(): number {
    return this.#waiting.reduce((sum, { reports }) => sum + reports.length, 0);
  }

  /** Resolves when the reports are committed. @throws when Postgres did not take them */
  record(reports: readonly MailReport[]): Promise<ReportOutcome[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ reports, resolve, reject });
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#commit(batch);
      } catch (error) {
        await this.#commitEach(batch, error);
      }
    }
    // No await between reading the queue and this line: a report that arrives later begins another run.
    this.#isRunning = false;
  }

  /** One bad report must not block the others for ever: each is tried by itself, unless the failure concerns all. */
  async #commitEach(batch: readonly Waiting[], error: unknown): Promise<void> {
    const isOfAll = batch.length === 1 || isUnreachable(error) || isCancelled(error);
    for (const waiting of batch) {
      if (isOfAll) waiting.reject(error);
      else await this.#commit([waiting]).catch(waiting.reject);
    }
  }

  #takeBatch(): Waiting[] {
    let count = 0;
    const end = this.#waiting.findIndex(({ reports }) => {
      count += reports.length;
      return count > MAX_BATCH;
    });
    return this.#waiting.splice(0, end === -1 ? this.#waiting.length : Math.max(end, 1));
  }

  async #commit(batch: readonly Waiting[]): Promise<void> {
    const { orm, env, log } = this.#deps;
    const all = batch.flatMap(({ reports }) => reports);
    const outcomes = await recordReports(orm.em.fork(), all, env, {
      onPause: (paused) => logMove(log, paused),
    });
    let start = 0;
    for (const { reports, resolve } of batch) {
      resolve(outcomes.slice(start, start + reports.length));
      start += reports.length;
    }
  }
}
