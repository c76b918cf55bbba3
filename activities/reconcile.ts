import { Context } from "@temporalio/activity";
import {
  type Client,
  WorkflowExecutionAlreadyStartedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
  WorkflowNotFoundError,
} from "@temporalio/client";
import type { EntityManager } from "../db/orm.ts";
import { pauseSend } from "../domain/sends/lifecycle.ts";
import { TOKEN_LIFETIME_SECONDS } from "../domain/sends/token.ts";
import { readUnfinishedSends, type UnfinishedSend } from "../domain/sends/unfinished.ts";
import { endReplay, unfinishedReplays } from "../domain/webhooks/bulk-replay.ts";
import { type OverdueGroup, overdueGroups } from "../domain/webhooks/grouping.ts";
import { deliveryWorkflowId, replayWorkflowId, sendWorkflowId, WAKE_UP } from "../workflows/ids.ts";
import { SEND_STATUS } from "../workflows/search-attributes.ts";
import { deliveryStart, replayStart, sendStart, WORKFLOW_ENDED } from "../workflows/start.ts";
import type { ActivityDeps } from "./deps.ts";

const PAGE = 500;

export interface Reconciled {
  /** Sends that have not ended or whose unknown outcomes wait for a decision; or groups that are overdue. */
  looked: number;
  /** Workflows that were missing and run now. */
  started: number;
  /** Those of them that were restored paused, or on hold, because their workflow had been terminated or had failed. */
  paused: number;
}

export interface ReconcileActivities {
  /** Starts the workflow of every send that should have one and has none. */
  reconcileSends(): Promise<Reconciled>;
  /** Starts the workflow of every group of deliveries whose next attempt is overdue and that has none. */
  reconcileDeliveries(): Promise<Reconciled>;
}

export function createReconcileActivities({ orm, log, env }: ActivityDeps): ReconcileActivities {
  return {
    reconcileSends: async () => {
      const context = Context.current();
      const em = orm.em.fork();
      const result: Reconciled = { looked: 0, started: 0, paused: 0 };
      for (let after = ""; ; ) {
        const page = await readUnfinishedSends(em, after, PAGE);
        for (const send of page) {
          context.heartbeat();
          const { end, sendStatus } = await readLatestRun(context.client, sendWorkflowId(send.id));
          result.looked++;
          if (end === "running") {
            // Complaints paused the send while its workflow waits for something else.
            if (send.status === "PAUSED" && sendStatus !== "PAUSED") await wakeUp(context.client, send.id);
            continue;
          }
          const paused = end === "cut_off" && (await pauseSend(em, send.id, WORKFLOW_ENDED)).changed;
          await start(context.client, send);
          result.started++;
          if (paused) result.paused++;
          log.warn({ sendId: send.id, end, paused }, "a send had no workflow; it has one again");
        }
        const last = page.at(-1);
        if (!last || page.length < PAGE) return result;
        after = last.id;
      }
    },
    reconcileDeliveries: async () => {
      const context = Context.current();
      const em = orm.em.fork();
      const result: Reconciled = { looked: 0, started: 0, paused: 0 };
      for (let after = ""; ; ) {
        const page = await overdueGroups(em, after, PAGE);
        for (const group of page) {
          context.heartbeat();
          result.looked++;
          const end = await endOfRun(context.client, deliveryWorkflowId(group.id));
          if (end === "running") continue;
          const held = end === "cut_off";
          await startAgain(context.client, group, env.WEBHOOK_LADDER_SECONDS, held);
          result.started++;
          if (held) result.paused++;
          log.warn({ groupId: group.id, end, held }, "deliveries had no workflow; they have one again");
        }
        const last = page.at(-1);
        if (last && page.length === PAGE) {
          after = last.id;
          continue;
        }
        await reconcileReplays(context.client, em);
        return result;
      }
    },
  };
}

/** Continues a bulk replay that has no workflow; ends one whose workflow an operator ended. */
async function reconcileReplays(client: Client, em: EntityManager): Promise<void> {
  for (const replayId of await unfinishedReplays(em)) {
    const end = await endOfRun(client, replayWorkflowId(replayId));
    if (end === "none") await begin(client, "webhookReplayWorkflow", replayStart({ replayId }));
    else if (end === "cut_off") await endReplay(em, replayId);
  }
}

async function startAgain(client: Client, group: OverdueGroup, ladder: readonly number[], held: boolean) {
  const resume = { attempt: group.attempt, held };
  await begin(client, "webhookDeliveryWorkflow", deliveryStart(group, ladder, { resume }));
}

/**
 * How a run of a workflow ended. `none`: Temporal knows of no run, or of one that ended in order before its send or group
 * had ended. `cut_off`: an operator terminated it, or it failed.
 */
type RunEnd = "running" | "none" | "cut_off";

/** The latest run of a workflow. `sendStatus`: the status that it shows operators, if it is that of a send. */
async function readLatestRun(
  client: Client,
  workflowId: string,
): Promise<{ end: RunEnd; sendStatus?: string | undefined }> {
  try {
    const { status, typedSearchAttributes } = await client.workflow.getHandle(workflowId).describe();
    const isRunning = status.name === "RUNNING" || status.name === "CONTINUED_AS_NEW" || status.name === "PAUSED";
    const end = isRunning ? "running" : status.name === "COMPLETED" ? "none" : "cut_off";
    return { end, sendStatus: typedSearchAttributes.get(SEND_STATUS) };
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return { end: "none" };
    throw error;
  }
}

const endOfRun = async (client: Client, workflowId: string): Promise<RunEnd> =>
  (await readLatestRun(client, workflowId)).end;

/** Makes the workflow of a send read its state. A workflow that has ended meanwhile needs no wake-up. */
async function wakeUp(client: Client, sendId: string): Promise<void> {
  try {
    await client.workflow.getHandle(sendWorkflowId(sendId)).signal(WAKE_UP);
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
  }
}

/** Starts a run that continues from the send's status in Postgres. If a run began meanwhile, that one continues it. */
async function start(client: Client, send: UnfinishedSend): Promise<void> {
  const input: Parameters<typeof sendStart>[0] = {
    previewId: send.id,
    teamId: send.team_id,
    environment: send.environment,
    resource: { type: send.resource_type, id: send.resource_id },
    expiresInMs: TOKEN_LIFETIME_SECONDS * 1000,
    resume: { lanes: [] },
  };
  await begin(client, "sendWorkflow", sendStart(input));
}

async function begin(
  client: Client,
  workflow: "sendWorkflow" | "webhookDeliveryWorkflow" | "webhookReplayWorkflow",
  start: ReturnType<typeof sendStart> | ReturnType<typeof deliveryStart> | ReturnType<typeof replayStart>,
): Promise<void> {
  try {
    await client.workflow.start(workflow, {
      ...start,
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
      workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
    });
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
  }
}
