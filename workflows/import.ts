import { defineSignal, proxyActivities, setCurrentDetails, setHandler } from "@temporalio/workflow";
import type { ImportActivities } from "../activities/imports.ts";
import { TASK_QUEUES, WAKE_UP } from "../temporal/ids.ts";
import type { ImportInput } from "../temporal/starts.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";

const DETAILS =
  "Carries out a dry run of an uploaded file, its import or its undo. Cancel: that fails; what is done stays.";

/** Carries out a dry run, an import or its undo, as its row says. ID: import/{importId}. */
export async function importWorkflow(input: ImportInput): Promise<{ state: string }> {
  const { runImport } = proxyActivities<ImportActivities>({
    taskQueue: TASK_QUEUES.maintenance,
    startToCloseTimeout: "2 hours",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    // An attempt may only have waited for a place: the interval does not grow with them. The file is deleted after a day.
    retry: { initialInterval: "5 seconds", backoffCoefficient: 1 },
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
