export { checkAccountsWorkflow } from "./check-accounts.ts";
export { reconcileWorkflow } from "./reconcile.ts";
export { retentionWorkflow } from "./retention.ts";
export { sendWorkflow } from "./send.ts";
export { webhookDeliveryWorkflow } from "./webhook-delivery.ts";
export { webhookReplayWorkflow } from "./webhook-replay.ts";
