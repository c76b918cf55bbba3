export { checkAccountsWorkflow, reconcileWorkflow, retentionWorkflow } from "./maintenance.ts";
export { orderedWorkflow } from "./ordered-work.ts";
export { sendWorkflow } from "./send.ts";
export { sequenceWorkflow } from "./sequence.ts";
export { testMailWorkflow } from "./test-mail.ts";
export { webhookEndpointWorkflow } from "./webhook-endpoint.ts";
