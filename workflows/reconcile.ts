import { proxyActivities } from "@temporalio/workflow";
import type { ReconcileActivities, Reconciled } from "../activities/reconcile.ts";
import { TASK_QUEUES } from "./ids.ts";

const { reconcileSends } = proxyActivities<ReconcileActivities>({
  taskQueue: TASK_QUEUES.maintenance,
  startToCloseTimeout: "10 minutes",
  heartbeatTimeout: "30 seconds",
  retry: { initialInterval: "1 second", maximumAttempts: 3 },
  summary: "start what should run",
});

/** Starts the workflow of every send that should run and does not. Run by the schedule of the same name. */
export function reconcileWorkflow(): Promise<Reconciled> {
  return reconcileSends();
}
