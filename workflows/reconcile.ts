import { proxyActivities } from "@temporalio/workflow";
import type { ReconcileActivities, Reconciliation } from "../activities/reconcile.ts";
import { TASK_QUEUES } from "./ids.ts";

const options = (summary: string) =>
  ({
    taskQueue: TASK_QUEUES.maintenance,
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: "30 seconds",
    retry: { initialInterval: "1 second", maximumAttempts: 3 },
    summary,
  }) as const;

const { reconcileSends } = proxyActivities<ReconcileActivities>(options("start what should run"));
const { reconcileDeliveries } = proxyActivities<ReconcileActivities>(options("start deliveries that should run"));

/**
 * Starts each workflow that should run and does not. Run by the schedule of the same name. Sends and deliveries do not wait
 * for each other, and a failure of one leaves the other alone.
 */
export async function reconcileWorkflow(): Promise<{ sends: Reconciliation; deliveries: Reconciliation }> {
  const both = [reconcileSends(), reconcileDeliveries()] as const;
  await Promise.allSettled(both);
  const [sends, deliveries] = await Promise.all(both);
  return { sends, deliveries };
}
