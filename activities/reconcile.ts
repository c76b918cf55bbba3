import { Context } from "@temporalio/activity";
import type { Client } from "@temporalio/client";
import type { Logger } from "pino";
import type { EntityManager } from "../db/orm.ts";
import { pauseSend, TERMINAL } from "../domain/sends/ledger/lifecycle.ts";
import {
  beginPass,
  completePass,
  readUnfinishedSends,
  type UnfinishedSend,
} from "../domain/sends/operators/unfinished.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";
import { sweepSegment } from "../domain/sequences/enrolments.ts";
import { forgetWakes, pauseSequence, type RunningSequence, readRunning, readWakes } from "../domain/sequences/state.ts";
import { leaveIneligible } from "../domain/sequences/waves.ts";
import { sendWorkflowId, sequenceWorkflowId } from "../temporal/ids.ts";
import { sequenceStart } from "../temporal/starts.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { reconcileOrderedWork } from "./ordered-work.ts";
import { forEachAlone, type LatestRun, listRunning, ONE_RUN, readLatestRun, startSend, wakeUp } from "./starts.ts";

/**
 * Temporal's list is a store of its own, which may hold workflows that are gone: each item is asked for once an hour.
 */
const ASKED_ANYWAY = 1 / 60;

export interface Reconciliation {
  looked: number;
  /** Those whose workflow was asked for, because Temporal's list did not show it as it should be. */
  asked: number;
  started: number;
  paused: number;
  failed: number;
}

/** `paused`: the workflow was started, and waits for an operator. */
type Restored = "running" | "started" | "paused";

export type ReconcileActivities = ReturnType<typeof createReconcileActivities>;

export const createReconcileActivities = (deps: ActivityDeps) => ({
  reconcileSends: () => whileBeating(() => reconcileSends(deps)),
  reconcileSequences: () => whileBeating(() => reconcileSequences(deps)),
  reconcileOrderedWork: () => whileBeating(() => reconcileOrderedWork(deps)),
});

/** Compares all open sends with their workflows, page by page. A send that fails leaves the others alone. */
async function reconcileSends({ orm, log, stopping }: ActivityDeps): Promise<Reconciliation> {
  const { client } = Context.current();
  const em = orm.em.fork();
  await beginPass(em);
  const result: Reconciliation = { looked: 0, asked: 0, started: 0, paused: 0, failed: 0 };
  for await (const page of readUnfinishedSends(em)) {
    stopping.throwIfAborted();
    const stale = await findStale(client, page);
    result.looked += page.length;
    result.asked += stale.length;
    result.failed += await forEachAlone(client, log, "sends", stale, async (send) => {
      const restored = await restoreSend(client, orm.em.fork(), log, send);
      if (restored !== "running") result.started++;
      if (restored === "paused") result.paused++;
    });
  }
  if (result.failed === 0) await completePass(em);
  return result;
}

async function restoreSend(client: Client, em: EntityManager, log: Logger, send: UnfinishedSend): Promise<Restored> {
  const run = await readLatestRun(client, sendWorkflowId(send.id));
  const { end } = run;
  if (end === "running") {
    // Complaints paused the send while its workflow waits for something else, or Postgres was restored.
    if (send.isDue || send.status !== run.sendStatus) await wakeUp(client, sendWorkflowId(send.id));
    return "running";
  }
  const { reason, sent } = await readEnd(client, send, run);
  const paused = reason !== undefined && (await pauseSend(em, send.id, reason)).changed;
  await startSend(client, send, sent);
  log.warn({ sendId: send.id, end, ...(paused && { reason }) }, "a send had no workflow; it has one again");
  return paused ? "paused" : "started";
}

/** Those that Temporal does not list as running with their status, those whose start has come, and some others. */
async function findStale(client: Client, page: readonly UnfinishedSend[]): Promise<UnfinishedSend[]> {
  const listed = await listRunning(
    client,
    page.map(({ id }) => sendWorkflowId(id)),
  );
  return page.filter(
    ({ id, status, isDue }) => isDue || listed.get(sendWorkflowId(id)) !== status || Math.random() < ASKED_ANYWAY,
  );
}

/** Wakes the workflows of sequences about which something was written; the rows of each go once it was woken. */
export async function wakeSequences({ orm, log }: ActivityDeps, client: Client): Promise<void> {
  const wakes = await readWakes(orm.em.fork());
  await forEachAlone(client, log, "sequence wakes", wakes, async ({ seqs, ...sequence }) => {
    const em = orm.em.fork();
    if (!(await wakeUp(client, sequenceWorkflowId(sequence.id)))) await restoreSequence(client, em, log, sequence);
    await forgetWakes(em, seqs);
  });
}

/**
 * Starts the workflow of a sequence that has none. One that was terminated, or failed, is PAUSED first, and so is one that
 * had ended in order before Postgres was restored: who is due may have had the mail.
 */
async function restoreSequence(
  client: Client,
  em: EntityManager,
  log: Logger,
  { id, teamId, status }: RunningSequence,
): Promise<void> {
  const { end } = await readLatestRun(client, sequenceWorkflowId(id));
  if (end === "running") return;
  const reason = { cut_off: PAUSE_REASONS.workflowEnded, in_order: PAUSE_REASONS.databaseRestored, none: undefined }[
    end
  ];
  if (reason && status === "ACTIVE") await pauseSequence(em, id, reason);
  const start = sequenceStart({ campaignId: id, teamId, wave: 0 });
  await client.workflow.start("sequenceWorkflow", { ...start, ...ONE_RUN });
  log.warn({ campaignId: id, end }, "a sequence had no workflow; it has one");
}

/** Starts the workflows of sequences that are missing, and sweeps the people of those that are due for it. */
async function reconcileSequences({ orm, log, vault, stopping }: ActivityDeps): Promise<void> {
  const { client } = Context.current();
  for await (const page of readRunning(orm.em.fork())) {
    stopping.throwIfAborted();
    const listed = await listRunning(
      client,
      page.map(({ id }) => sequenceWorkflowId(id)),
    );
    await forEachAlone(client, log, "sequences", page, async ({ sweep, ...sequence }) => {
      const em = orm.em.fork();
      const { id } = sequence;
      const workflow = sequenceWorkflowId(id);
      if (!listed.has(workflow)) await restoreSequence(client, em, log, sequence);
      // Postgres was restored: its workflow compares the waves, and continues or has the sequence PAUSED.
      else if (listed.get(workflow) !== sequence.status) await wakeUp(client, workflow);
      if (sweep !== "none") await sweepSegment(em, vault, id, sweep === "all people");
      if (sweep === "all people") await leaveIneligible(em, id);
    });
  }
}

/**
 * How the last run of a send ended. @returns `reason`, for which the send is PAUSED before its next run: an operator ended the run, or
 * it has mailed the send to its end although Postgres, which was restored, calls it open; `sent`, the mails that left in it: the next
 * run takes them over
 */
async function readEnd(
  client: Client,
  { id, status }: UnfinishedSend,
  { end, runId }: LatestRun,
): Promise<{ reason?: string; sent?: number }> {
  if (end === "cut_off") return { reason: PAUSE_REASONS.workflowEnded };
  if (end !== "in_order") return {};
  const { outcome, sent = 0 }: { outcome: string; sent?: number } = await client.workflow
    .getHandle(sendWorkflowId(id), runId)
    .result();
  // An operator may have ended it while Postgres did not know it, and a later restore knows it again.
  if ((outcome === "expired" || outcome === "refused") && sent === 0) return {};
  return TERMINAL.has(status) ? { sent } : { reason: PAUSE_REASONS.databaseRestored, sent };
}
