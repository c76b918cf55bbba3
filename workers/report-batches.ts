import type { ActivityDeps } from "../activities/deps.ts";
import { isCancelled, isUnreachable } from "../db/unreachable.ts";
import { type MailReport, type ReportOutcome, recordReports } from "../domain/reports/record.ts";
import { logMove } from "../domain/sends/send-log.ts";
import { Batches } from "../lib/batches.ts";

/**
 * Records reports; those that arrive during a commit are committed together, so that a flood costs few transactions.
 * @returns resolves when the reports are committed; throws when Postgres did not take them
 */
export function openReportBatches({ orm, env, log }: Pick<ActivityDeps, "orm" | "env" | "log">) {
  const batches = new Batches<readonly MailReport[], PromiseSettledResult<ReportOutcome[]>[]>();
  const commit = (reports: readonly MailReport[]) =>
    recordReports(orm.em.fork(), reports, env, { onPause: (paused) => logMove(log, paused) });

  async function commitAll(
    calls: readonly (readonly MailReport[])[],
  ): Promise<PromiseSettledResult<ReportOutcome[]>[]> {
    try {
      const outcomes = await commit(calls.flat());
      return calls.map(({ length }) => ({ status: "fulfilled", value: outcomes.splice(0, length) }));
    } catch (error) {
      if (calls.length === 1 || isUnreachable(error) || isCancelled(error)) throw error;
      // One bad report must not block the others for ever: each is tried by itself.
      return Promise.allSettled(calls.map(commit));
    }
  }

  return async (reports: readonly MailReport[]): Promise<ReportOutcome[]> => {
    const { result, place } = await batches.join("", reports, commitAll);
    const own = result[place];
    if (own?.status !== "fulfilled") throw own?.reason;
    return own.value;
  };
}
