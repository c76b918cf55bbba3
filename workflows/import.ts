import { defineSignal, proxyActivities, setCurrentDetails, setHandler } from "@temporalio/workflow";
import type { ImportActivities } from "../activities/imports.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { TASK_QUEUES, WAKE_UP } from "./ids.ts";
import type { ImportInput } from "./start.ts";

const DETAILS = "Reads an uploaded file: a dry run, or the import. Cancel: the import fails, and changes nothing.";

/** Carries out a dry run or an import, as its row says. ID: import/{importId}. */
export async function importWorkflow(input: ImportInput): Promise<{ state: string }> {
  const { runImport } = proxyActivities<ImportActivities>({
    taskQueue: TASK_QUEUES.maintenance,
    startToCloseTimeout: "2 hours",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    // The file is deleted after a day, which ends it.
    retry: { initialInterval: "1 second", maximumInterval: "1 minute" },
    priority: { fairnessKey: input.teamId },
    summary: "read the file",
  });
  let isOrdered = true;
  setHandler(
    defineSignal(WAKE_UP),
    () => {
      isOrdered = true;
    },
    { description: "Look at the state of the import once more" },
  );
  let state = "";
  while (isOrdered) {
    isOrdered = false;
    setCurrentDetails(DETAILS);
    ({ state } = await runImport(input));
    setCurrentDetails(`Ended: ${state}.`);
  }
  return { state };
}
