import type { Client } from "@temporalio/client";
import type { Logger } from "pino";
import type { EntityManager } from "../db/orm.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";
import { forgetWakes, pauseSequence, type RunningSequence, readWakes } from "../domain/sequences/state.ts";
import { sequenceWorkflowId } from "../workflows/ids.ts";
import { sequenceStart } from "../workflows/start.ts";
import type { ActivityDeps } from "./deps.ts";
import { forEachAlone, ONE_RUN, readLatestRun, wakeUp } from "./starts.ts";

/** Wakes the workflows of sequences about which something was written; the rows of each go once it was woken. */
export async function wakeSequences({ orm, log }: ActivityDeps, client: Client): Promise<void> {
  const wakes = await readWakes(orm.em.fork());
  await forEachAlone(client, log, "sequence wakes", wakes, async ({ seqs, ...sequence }) => {
    const em = orm.em.fork();
    if (!(await wakeUp(client, sequenceWorkflowId(sequence.id)))) await restoreSequence(client, em, log, sequence);
    await forgetWakes(em, seqs);
  });
}

/** Starts the workflow of a sequence that has none. One that was terminated, or failed, is PAUSED first. */
export async function restoreSequence(
  client: Client,
  em: EntityManager,
  log: Logger,
  { id, teamId, status }: RunningSequence,
): Promise<void> {
  const { end } = await readLatestRun(client, sequenceWorkflowId(id));
  if (end === "running") return;
  if (end === "cut_off" && status === "ACTIVE") await pauseSequence(em, id, PAUSE_REASONS.workflowEnded);
  const start = sequenceStart({ campaignId: id, teamId, wave: 0 });
  await client.workflow.start("sequenceWorkflow", { ...start, ...ONE_RUN });
  log.warn({ campaignId: id, end }, "a sequence had no workflow; it has one");
}
