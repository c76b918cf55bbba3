import { proxyActivities } from "@temporalio/workflow";
import type { Pruned, RetentionActivities } from "../activities/retention.ts";
import { TASK_QUEUES } from "./ids.ts";

const { pruneExpired } = proxyActivities<RetentionActivities>({
  taskQueue: TASK_QUEUES.maintenance,
  startToCloseTimeout: "15 minutes",
  heartbeatTimeout: "30 seconds",
  retry: { initialInterval: "1 second", maximumAttempts: 3 },
  summary: "delete what is kept no longer",
});

export async function retentionWorkflow(): Promise<Pruned> {
  return await pruneExpired();
}
