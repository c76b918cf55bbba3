import {
  type Client,
  WithStartWorkflowOperation,
  type Workflow,
  WorkflowIdConflictPolicy,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  type WorkflowUpdateHandle,
  WorkflowUpdateStage,
} from "@temporalio/client";
import { openTemporal, type TemporalGateway } from "../api/temporal-gateway.ts";
import { SettingsError } from "../config/env.ts";
import { ApiError } from "../domain/errors.ts";
import { sendStart } from "../temporal/starts.ts";
import { RESTORED } from "./output.ts";
import type { Session } from "./session.ts";

/** A worker takes an update within a moment; one that is busy within seconds. */
const TAKEN_WITHIN_MS = 20_000;
/** A pause waits for the mails in flight, a resend for minutes. */
const ANSWERED_WITHIN_MS = 3_600_000;
const READ_WITHIN_MS = 3_000;

/** Runs `work` with a connection to the Temporal cluster. @throws {SettingsError} when the settings name none */
export async function withTemporal<T>(
  { env, hasTemporal }: Pick<Session, "env" | "hasTemporal">,
  work: (temporal: TemporalGateway) => Promise<T>,
): Promise<T> {
  if (!hasTemporal) {
    throw new SettingsError("Set TEMPORAL_ADDRESS, and TEMPORAL_NAMESPACE unless it is default: a workflow is asked.");
  }
  const temporal = openTemporal(env);
  try {
    return await work(temporal);
  } finally {
    await temporal.close();
  }
}

/**
 * Gives an update, and waits for its answer.
 * @throws {ApiError} `resource_state_invalid` with the workflow's reason; `service_unavailable`, which says whether the workflow has
 *   taken the update
 */
async function give(
  temporal: TemporalGateway,
  begin: (client: Client) => Promise<WorkflowUpdateHandle<string>>,
): Promise<string> {
  let isTaken = false;
  try {
    const update = await temporal.call(TAKEN_WITHIN_MS, begin);
    isTaken = true;
    return await temporal.call(ANSWERED_WITHIN_MS, () => update.result());
  } catch (error) {
    if (isTaken && error instanceof ApiError && error.code === "service_unavailable") {
      const message = `${error.message} The workflow has taken the command and carries it out: its details show the effect.`;
      throw new ApiError(error.code, message, { cause: error });
    }
    if (error instanceof WorkflowUpdateFailedError) {
      throw new ApiError("resource_state_invalid", error.cause?.message ?? error.message, { cause: error });
    }
    throw error;
  }
}

const waitForStage = WorkflowUpdateStage.ACCEPTED;

/** Gives a workflow an update of operators, with its input if it has one. @returns its answer; undefined when it does not run @throws {ApiError} as `give` */
export async function updateWorkflow(
  temporal: TemporalGateway,
  workflowId: string,
  name: string,
  input?: number | string,
): Promise<string | undefined> {
  try {
    return await give(temporal, ({ workflow }) =>
      workflow
        .getHandle(workflowId)
        .startUpdate<string, [number | string | undefined]>(name, { args: [input], waitForStage }),
    );
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

/** Gives an update to the workflow of a send that has ended, which starts again for it. @throws {ApiError} as `give` */
export function updateEndedSend(
  temporal: TemporalGateway,
  input: Parameters<typeof sendStart>[0],
  name: string,
): Promise<string> {
  const startWorkflowOperation = new WithStartWorkflowOperation("sendWorkflow", {
    ...sendStart(input),
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
  });
  return give(temporal, ({ workflow }) =>
    workflow.startUpdateWithStart<Workflow, string, []>(name, { startWorkflowOperation, waitForStage }),
  );
}

/** How a run ends that an operator cut off in the UI, or that failed. */
const CUT_OFF: ReadonlySet<string> = new Set(["TERMINATED", "FAILED", "TIMED_OUT"]);

/** The sentence that a workflow shows operators; null when no worker or no cluster answers. */
export async function readDetails(session: Session, workflowId: string): Promise<string | null> {
  try {
    return await withTemporal(session, (temporal) =>
      temporal.call(READ_WITHIN_MS, async (client) => {
        const handle = client.workflow.getHandle(workflowId);
        const { status } = await handle.describe();
        // The last details of a run that was cut off say what it was doing, as if it still did.
        if (CUT_OFF.has(status.name)) return `Its workflow is ${status.name}. ${RESTORED}`;
        const shown = await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata");
        return shown.currentDetails || null;
      }),
    );
  } catch {
    // The facts of Postgres are shown in any case.
    return null;
  }
}
