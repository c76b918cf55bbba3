import type { ActivityDeps } from "../activities/deps.ts";
import { type MailReport, type ReportOutcome, recordReports } from "../domain/reports/record.ts";

/** Reports that one call records at most. */
const MAX_BATCH = 500;

interface Waiting {
  reports: readonly MailReport[];
  resolve(outcomes: ReportOutcome[]): void;
  reject(reason: unknown): void;
}

/**
 * Records the reports of many connections: those that come while a batch is being committed are the next batch, so that a
 * flood costs few transactions. Its callers wait, so that no more of them wait than there are connections.
 */
export class ReportRecorder {
  readonly #deps: Pick<ActivityDeps, "orm" | "env">;
  #waiting: Waiting[] = [];
  #running: Promise<void> | undefined;

  constructor(deps: Pick<ActivityDeps, "orm" | "env">) {
    this.#deps = deps;
  }

  /** Resolves when the reports are committed. @throws when Postgres did not take them */
  record(reports: readonly MailReport[]): Promise<ReportOutcome[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ reports, resolve, reject });
      this.#running ??= this.#run().finally(() => {
        this.#running = undefined;
      });
    });
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#commit(batch);
      } catch {
        // One bad report must not hold the others back for ever: each is tried by itself.
        for (const waiting of batch) await this.#commit([waiting]).catch(waiting.reject);
      }
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
    const { orm, env } = this.#deps;
    const all = batch.flatMap(({ reports }) => reports);
    const outcomes = await recordReports(orm.em.fork(), all, env);
    let start = 0;
    for (const { reports, resolve } of batch) {
      resolve(outcomes.slice(start, start + reports.length));
      start += reports.length;
    }
  }
}
