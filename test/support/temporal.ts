import { Client, Connection, type WorkflowHandle } from "@temporalio/client";
import { ACCOUNT_CHECKS_ID, RECONCILER_ID, RETENTION_ID } from "../../temporal/ids.ts";
import { eventually } from "./eventually.ts";
import { stack } from "./stack.ts";

/** As many events as make a run continue as a new one. */
const LONG_HISTORY = 3_000;
const SIGNALS_AT_ONCE = 100;

export async function temporalClient(): Promise<{ client: Client; close: () => Promise<void> }> {
  const { temporal } = await stack();
  const connection = await Connection.connect({ address: temporal.address });
  const client = new Client({ connection, namespace: temporal.namespace });
  return { client, close: () => connection.close() };
}

/** The reconciler would take up sends that tests keep from workers; the others would do what a test itself counts. */
export async function holdSchedules(): Promise<void> {
  const { client, close } = await temporalClient();
  const hold = async (id: string) => {
    const schedule = client.schedule.getHandle(id);
    const running = async () => (await schedule.describe()).info.runningActions.length > 0;
    await eventually(() => schedule.pause("held by the tests").then(() => true), { what: `the schedule ${id}` });
    await eventually(async () => !(await running()), { what: `the end of the run of ${id}` });
  };
  try {
    await Promise.all([RECONCILER_ID, ACCOUNT_CHECKS_ID, RETENTION_ID].map(hold));
  } finally {
    await close();
  }
}

/** The details that operators read of a workflow. */
export async function detailsOf(handle: WorkflowHandle): Promise<string> {
  const { currentDetails } = await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata");
  return currentDetails;
}

/** Waits until these details match, or hold all of these texts. */
export const untilDetails = (
  handle: WorkflowHandle,
  texts: RegExp | string | readonly string[],
  withinMs?: number,
): Promise<string> =>
  eventually(
    async () => {
      const details = await detailsOf(handle);
      const isShown =
        texts instanceof RegExp ? texts.test(details) : [texts].flat().every((text) => details.includes(text));
      if (!isShown) throw new Error(details);
      return details;
    },
    { what: `${texts} in the details`, withinMs },
  );

/** Fills a history, as weeks of waiting would: with signals that the workflow has no handler for. */
export async function makeLong(handle: WorkflowHandle): Promise<void> {
  while ((await handle.describe()).historyLength < LONG_HISTORY) {
    await Promise.all(Array.from({ length: SIGNALS_AT_ONCE }, () => handle.signal("nothing")));
  }
}
