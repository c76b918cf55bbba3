import { type ActivityOptions, proxyActivities } from "@temporalio/workflow";
import type { AccountCheckActivities, AccountsChecked } from "../activities/account-checks.ts";
import type { ReconcileActivities, Reconciliation } from "../activities/reconcile.ts";
import type { Pruned, RetentionActivities } from "../activities/retention.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";

const options = (summary: string, more: ActivityOptions = {}): ActivityOptions => ({
  taskQueue: TASK_QUEUES.maintenance,
  startToCloseTimeout: "15 minutes",
  heartbeatTimeout: "30 seconds",
  retry: { initialInterval: "1 second", maximumAttempts: 3 },
  ...more,
  summary,
});

const { reconcileSends } = proxyActivities<ReconcileActivities>(options("start what should run"));
const { reconcileSequences } = proxyActivities<ReconcileActivities>(options("start and sweep sequences"));
const { reconcileOrderedWork } = proxyActivities<ReconcileActivities>(options("start imports and the like"));
const { pruneExpired } = proxyActivities<RetentionActivities>(options("delete what is kept no longer"));
const { checkAccounts } = proxyActivities<AccountCheckActivities>(
  options("log in to the accounts whose check is due", {
    // It has the accounts' passwords and sends their mail: a server may accept logins from its addresses only.
    taskQueue: TASK_QUEUES.dispatch,
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
  }),
);

/** Starts each workflow that should run and does not, but those of webhooks: the relays look after them. */
export async function reconcileWorkflow(): Promise<{ sends: Reconciliation }> {
  const all = [reconcileSends(), reconcileSequences(), reconcileOrderedWork()] as const;
  await Promise.allSettled(all);
  const [sends] = await Promise.all(all);
  return { sends };
}

export async function retentionWorkflow(): Promise<Pruned> {
  return await pruneExpired();
}

export async function checkAccountsWorkflow(): Promise<AccountsChecked> {
  return await checkAccounts();
}
