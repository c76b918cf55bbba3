import { proxyActivities } from "@temporalio/workflow";
import type { AccountCheckActivities, AccountsChecked } from "../activities/account-checks.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { TASK_QUEUES } from "./ids.ts";

// On the dispatch pool, which has the accounts' passwords and sends their mail: a server may accept logins from its
// addresses only.
const { checkAccounts } = proxyActivities<AccountCheckActivities>({
  taskQueue: TASK_QUEUES.dispatch,
  startToCloseTimeout: "30 minutes",
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  retry: { initialInterval: "1 second", maximumAttempts: 3 },
  summary: "log in to the accounts whose check is due",
});

export async function checkAccountsWorkflow(): Promise<AccountsChecked> {
  return await checkAccounts();
}
