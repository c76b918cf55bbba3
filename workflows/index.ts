export { checkAccountsWorkflow } from "./check-accounts.ts";
export { reconcileWorkflow } from "./reconcile.ts";
export { retentionWorkflow } from "./retention.ts";
export { sendWorkflow } from "./send.ts";
export { webhookEndpointWorkflow } from "./webhook-endpoint.ts";
export { webhookReplayWorkflow } from "./webhook-replay.ts";
