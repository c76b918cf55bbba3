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
const { reconcileReplays } = proxyActivities<ReconcileActivities>(options("start bulk replays that should run"));

/** Starts each workflow that should run and does not, but those of deliveries: the relays look after them. */
export async function reconcileWorkflow(): Promise<{ sends: Reconciliation }> {
  const both = [reconcileSends(), reconcileReplays()] as const;
  await Promise.allSettled(both);
  const [sends] = await Promise.all(both);
  return { sends };
}
