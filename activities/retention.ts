import { setTimeout as delay } from "node:timers/promises";
import { Context } from "@temporalio/activity";
import { type PrunedBatch, type Pruning, pruneBatch, type RetentionSettings } from "../domain/retention/pruning.ts";
import { pruningsOf } from "../domain/retention/prunings.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";

/** They take some tens of ms, so long another statement may wait for a row that the batch holds. */
const BATCH_ROWS = 1_000;
/** The part of the time in which a run is in the database: a send beside it keeps its rate. */
const SHARE = 0.05;
const RUN_MS = 5 * 60_000;

export interface Pruned {
  rows: number;
  failed: number;
  /** It ended although rows were left. */
  more: boolean;
}

export type PruneDeps = Pick<ActivityDeps, "orm" | "log" | "stopping" | "countFailedPruning"> & {
  env: RetentionSettings;
};

export type RetentionActivities = ReturnType<typeof createRetentionActivities>;

export const createRetentionActivities = (deps: PruneDeps) => ({
  pruneExpired: () => {
    const { cancellationSignal } = Context.current();
    const stopping = AbortSignal.any([deps.stopping, cancellationSignal]);
    return whileBeating(() => pruneExpired({ ...deps, stopping }));
  },
});

interface PruneOptions {
  prunings?: readonly Pruning[];
  mostRows?: number;
  runMs?: number;
}

interface DuePruning {
  pruning: Pruning;
  /** Sends whose batches failed. */
  failed: string[];
}

/**
 * Prunes everything that is due, in batches, each a transaction of its own. All kinds take turns. A batch that fails
 * ends its send's turns, or its kind's, in this run.
 */
export async function pruneExpired(deps: PruneDeps, options: PruneOptions = {}): Promise<Pruned> {
  const { prunings = pruningsOf(deps.orm.em), mostRows = BATCH_ROWS, runMs = RUN_MS } = options;
  const result: Pruned = { rows: 0, failed: 0, more: false };
  const until = performance.now() + runMs;
  let due = prunings.map((pruning): DuePruning => ({ pruning, failed: [] }));
  while (due.length > 0) {
    const left: DuePruning[] = [];
    for (const one of due) {
      if (deps.stopping.aborted || performance.now() > until) return { ...result, more: true };
      const begunAt = performance.now();
      const batch = await takeTurn(deps, one, mostRows);
      result.rows += batch.rows;
      if (batch.isFailed) result.failed++;
      if (batch.more) left.push(one);
      if (batch.rows === 0 && !batch.more) continue;
      // A failed batch mostly waited for a lock, during which it cost the database nothing.
      const tookMs = batch.isFailed ? 0 : performance.now() - begunAt;
      await delay(tookMs * (1 / SHARE - 1), undefined, { signal: deps.stopping }).catch(() => undefined);
    }
    due = left;
  }
  return result;
}

async function takeTurn(
  { orm, log, env, countFailedPruning }: PruneDeps,
  { pruning, failed }: DuePruning,
  rows: number,
): Promise<PrunedBatch & { isFailed?: true }> {
  let sendId: string | undefined;
  const taking = (id: string) => {
    sendId = id;
  };
  try {
    return await pruneBatch(orm.em.fork(), pruning, rows, env, { failed, taking });
  } catch (error) {
    countFailedPruning();
    log.warn({ pruning: pruning.name, sendId, err: error }, "old rows could not be pruned; tried again later");
    if (sendId !== undefined) failed.push(sendId);
    return { rows: 0, more: sendId !== undefined, isFailed: true };
  }
}
