import { setTimeout as delay } from "node:timers/promises";
import { Context } from "@temporalio/activity";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import type { PrunedBatch, Pruning, RetentionSettings, SendsOfRun } from "../domain/retention/pruning.ts";
import { pruningsOf } from "../domain/retention/prunings.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";

const MOST_ROWS = 10_000;
const LEAST_ROWS = 100;
const FIRST_ROWS = 1_000;
/** So long may another statement wait for a row that the batch holds. */
const BATCH_MS = 200;
const LOCK_WAIT_MS = 500;
const STATEMENT_MS = 10_000;
/** The part of the time in which a run is in the database. */
const SHARE = 0.25;
/** The same while a send mails. */
const SHARE_BESIDE_SENDS = 0.05;
const RUN_MS = 5 * 60_000;

export interface Pruned {
  rows: number;
  failed: number;
  /** It ended although rows were left. */
  more: boolean;
}

export interface RetentionActivities {
  pruneExpired(): Promise<Pruned>;
}

export type PruneDeps = Pick<ActivityDeps, "orm" | "log" | "stopping" | "countFailedPruning"> & {
  env: RetentionSettings;
};

export const createRetentionActivities = (deps: PruneDeps): RetentionActivities => ({
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

interface Turns {
  pruning: Pruning;
  rows: number;
  /** Sends whose batches failed. */
  failed: string[];
}

/**
 * Prunes everything that is due, in batches, each a transaction of its own. All kinds take turns. A batch that fails
 * ends its send's turns, or its kind's, in this run.
 */
export async function pruneExpired(deps: PruneDeps, options: PruneOptions = {}): Promise<Pruned> {
  const { prunings = pruningsOf(deps.orm.em), mostRows = MOST_ROWS, runMs = RUN_MS } = options;
  const result: Pruned = { rows: 0, failed: 0, more: false };
  const until = performance.now() + runMs;
  let due = prunings.map((pruning): Turns => ({ pruning, rows: FIRST_ROWS, failed: [] }));
  while (due.length > 0) {
    const left: Turns[] = [];
    for (const turns of due) {
      if (deps.stopping.aborted || performance.now() > until) return { ...result, more: true };
      const turn = await takeTurn(deps, turns, mostRows);
      result.rows += turn.rows;
      if (turn.isFailed) result.failed++;
      if (turn.more) left.push(turns);
      if (turn.pauseAfterMs !== undefined) await pause(deps.orm.em.fork(), turn.pauseAfterMs, deps.stopping);
    }
    due = left;
  }
  return result;
}

interface Turn {
  rows: number;
  isFailed: boolean;
  more: boolean;
  /** Of the batch, by which the next pause is measured; undefined for no pause. */
  pauseAfterMs: number | undefined;
}

async function takeTurn(deps: PruneDeps, turns: Turns, mostRows: number): Promise<Turn> {
  const { orm, log, env, countFailedPruning } = deps;
  const { pruning, failed } = turns;
  const rows = Math.min(turns.rows, mostRows);
  const begunAt = performance.now();
  let sendId: string | undefined;
  const taking = (id: string) => {
    sendId = id;
  };
  try {
    const batch = await pruneBatch(orm.em.fork(), pruning, rows, env, { failed, taking });
    const tookMs = performance.now() - begunAt;
    turns.rows = nextRows(rows, batch.rows, tookMs);
    const isIdle = batch.rows === 0 && !batch.more;
    return { ...batch, isFailed: false, pauseAfterMs: isIdle ? undefined : tookMs };
  } catch (error) {
    countFailedPruning();
    log.warn({ pruning: pruning.name, sendId, err: error }, "old rows could not be pruned; tried again later");
    if (sendId === undefined) return { rows: 0, isFailed: true, more: false, pauseAfterMs: undefined };
    failed.push(sendId);
    turns.rows = FIRST_ROWS;
    // Most failures are waits for a lock, during which the batch cost the database nothing: pause as after a usual batch.
    return { rows: 0, isFailed: true, more: true, pauseAfterMs: BATCH_MS };
  }
}

function pruneBatch(
  em: EntityManager,
  pruning: Pruning,
  rows: number,
  settings: RetentionSettings,
  sends: SendsOfRun,
): Promise<PrunedBatch> {
  return transaction(em, async (tx) => {
    await sql`select set_config('lock_timeout', ${`${LOCK_WAIT_MS}ms`}, true),
      set_config('statement_timeout', ${`${STATEMENT_MS}ms`}, true)`.execute(kysely(tx));
    return pruning.prune(tx, rows, settings, sends);
  });
}

/** As many as take `BATCH_MS`, and at most twice as many as before. */
function nextRows(limit: number, pruned: number, tookMs: number): number {
  if (pruned < limit && tookMs < BATCH_MS) return limit;
  const inTime = Math.round((limit * BATCH_MS) / Math.max(tookMs, 1));
  return Math.max(LEAST_ROWS, Math.min(inTime, limit * 2, MOST_ROWS));
}

export const pauseMs = (tookMs: number, { beside }: { beside: "sends" | "nothing" }): number =>
  tookMs * (1 / (beside === "sends" ? SHARE_BESIDE_SENDS : SHARE) - 1);

async function pause(em: EntityManager, tookMs: number, stopping: AbortSignal): Promise<void> {
  const { rows } = await sql<{ mails: boolean }>`
    select exists (select from sends where status = 'SENDING') as mails`
    .execute(kysely(em))
    // The next batch fails too, and says why.
    .catch(() => ({ rows: [] }));
  const waitMs = pauseMs(tookMs, { beside: rows[0]?.mails === false ? "nothing" : "sends" });
  await delay(waitMs, undefined, { signal: stopping }).catch(() => undefined);
}
