import { defineSignal, proxyActivities, setCurrentDetails, setHandler } from "@temporalio/workflow";
import type { OrderedWorkActivities } from "../activities/ordered-work.ts";
import { TASK_QUEUES, WAKE_UP } from "../temporal/ids.ts";
import type { OrderedWork } from "../temporal/starts.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";

const DETAILS = {
  import: "Carries out a dry run of an uploaded file, its import or its undo. Cancel: that fails; what is done stays.",
  person: "Exports or erases a person. Cancel: that fails; an address that is refused stays refused.",
};

/** Carries out what the state of a row orders. ID: import/{importId} or person/{requestId}. */
export async function orderedWorkflow(work: OrderedWork): Promise<{ state: string }> {
  const { runOrdered } = proxyActivities<OrderedWorkActivities>({
    taskQueue: TASK_QUEUES.maintenance,
    startToCloseTimeout: "2 hours",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    // An attempt may only have waited for a place: the interval does not grow with them. A file is deleted after a day.
    retry: { initialInterval: "5 seconds", backoffCoefficient: 1 },
    priority: { fairnessKey: work.teamId },
    summary: "carry out the order",
  });
  let isOrdered = true;
  setHandler(
    defineSignal(WAKE_UP),
    () => {
      isOrdered = true;
    },
    { description: "Look at the state of the row once more" },
  );
  let state = "";
  while (isOrdered) {
    isOrdered = false;
    setCurrentDetails(DETAILS[work.kind]);
    ({ state } = await runOrdered(work));
    setCurrentDetails(`Ended: ${state}.`);
  }
  return { state };
}
