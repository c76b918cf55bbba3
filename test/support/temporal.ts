import { Client, Connection, type WorkflowHandle } from "@temporalio/client";
import { RECONCILER_ID, sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "./eventually.ts";
import { stack } from "./stack.ts";

/** As many events as make a run continue as a new one. */
const LONG_HISTORY = 3_000;
const SIGNALS_AT_ONCE = 100;

/** A client of the stack's Temporal. */
export async function temporalClient(): Promise<{ client: Client; close: () => Promise<void> }> {
  const { temporal } = await stack();
  const connection = await Connection.connect({ address: temporal.address });
  const client = new Client({ connection, namespace: temporal.namespace });
  return { client, close: () => connection.close() };
}

/**
 * Lets the stack's reconciler run by a trigger alone. It would take up the sends that tests keep from every worker, and those
 * that a test with a namespace of its own left unfinished.
 */
export async function holdReconciler(): Promise<void> {
  const { client, close } = await temporalClient();
  const schedule = client.schedule.getHandle(RECONCILER_ID);
  const running = async () => (await schedule.describe()).info.runningActions.length > 0;
  try {
    await eventually(() => schedule.pause("held by the tests").then(() => true), { what: "the reconciler's schedule" });
    await eventually(async () => !(await running()), { what: "the end of the reconciler's run" });
  } finally {
    await close();
  }
}

/** Waits until the details that operators read of a send hold all of these texts. */
export const untilDetails = (client: Client, sendId: string, texts: string | readonly string[], withinMs = 20_000) =>
  eventually(
    async () => {
      const handle = client.workflow.getHandle(sendWorkflowId(sendId));
      const { currentDetails } = await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata");
      return [texts].flat().every((text) => currentDetails.includes(text));
    },
    { what: `"${[texts].flat().join('", "')}" in the details`, withinMs },
  );

/** Fills a history, as weeks of waiting would: with signals that the workflow has no handler for. */
export async function makeLong(handle: WorkflowHandle): Promise<void> {
  while ((await handle.describe()).historyLength < LONG_HISTORY) {
    await Promise.all(Array.from({ length: SIGNALS_AT_ONCE }, () => handle.signal("nothing")));
  }
}
