import {
  type Client,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
  WorkflowNotFoundError,
} from "@temporalio/client";
import type { Logger } from "pino";
import type { UnfinishedSend } from "../domain/sends/operators/unfinished.ts";
import { TOKEN_LIFETIME_SECONDS } from "../domain/sends/plan/token.ts";
import { WAKE_UP } from "../temporal/ids.ts";
import { SEND_STATUS } from "../temporal/search-attributes.ts";
import { sendStart } from "../temporal/starts.ts";

/** How a run of a workflow ended. `none`: Temporal knows of no run. `cut_off`: an operator terminated it, or it failed. */
export type RunEnd = "running" | "none" | "in_order" | "cut_off";

export interface LatestRun {
  end: RunEnd;
  sendStatus?: string | undefined;
  runId?: string;
}

export async function readLatestRun(client: Client, workflowId: string): Promise<LatestRun> {
  try {
    const { status, typedSearchAttributes, runId } = await client.workflow.getHandle(workflowId).describe();
    const isRunning = status.name === "RUNNING" || status.name === "CONTINUED_AS_NEW" || status.name === "PAUSED";
    const end = isRunning ? "running" : status.name === "COMPLETED" ? "in_order" : "cut_off";
    return { end, sendStatus: typedSearchAttributes.get(SEND_STATUS), runId };
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return { end: "none" };
    throw error;
  }
}

/** @returns whether the workflow runs */
export async function wakeUp(client: Client, workflowId: string): Promise<boolean> {
  try {
    await client.workflow.getHandle(workflowId).signal(WAKE_UP);
    return true;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return false;
    throw error;
  }
}

/** Of these workflows those that Temporal lists as running, with the status that they show. */
export async function listRunning(client: Client, workflowIds: readonly string[]): Promise<Map<string, unknown>> {
  const listed = new Map<string, unknown>();
  if (workflowIds.length === 0) return listed;
  const query = `ExecutionStatus = 'Running' AND WorkflowId IN (${workflowIds.map((id) => `'${id}'`).join(", ")})`;
  for await (const { workflowId, typedSearchAttributes } of client.workflow.list({ query })) {
    listed.set(workflowId, typedSearchAttributes.get(SEND_STATUS));
  }
  return listed;
}

/** If a run began meanwhile, that one continues. */
export const ONE_RUN = {
  workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
  workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
} as const;

/** Starts a run that continues from the send's status in Postgres. @param sent by its workflow, where Postgres says less */
export async function startSend(
  client: Client,
  send: Omit<UnfinishedSend, "status" | "isDue">,
  sent?: number,
): Promise<void> {
  const { id: previewId, teamId, environment, type, resourceId } = send;
  const start = sendStart({
    ...{ previewId, teamId, environment, resource: { type, id: resourceId } },
    expiresInMs: TOKEN_LIFETIME_SECONDS * 1000,
    resume: sent === undefined ? {} : { setBack: { sent, isPaused: true } },
  });
  await client.workflow.start("sendWorkflow", { ...start, ...ONE_RUN });
}

const ITEMS_AT_ONCE = 16;
const ITEM_DEADLINE_MS = 15_000;

/** Several at once, each within a deadline. An item that fails leaves the others alone. @returns how many failed */
export async function forEachAlone<Item extends { id: string }>(
  client: Client,
  log: Logger,
  kind: string,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<number> {
  const queue = items.values();
  let failed = 0;
  const workers = Array.from({ length: ITEMS_AT_ONCE }, async () => {
    for (const item of queue) {
      try {
        await client.withDeadline(Date.now() + ITEM_DEADLINE_MS, () => work(item));
      } catch (error) {
        failed++;
        log.error({ kind, id: item.id, err: error }, "an item failed; tried again by the next pass");
      }
    }
  });
  await Promise.all(workers);
  return failed;
}
