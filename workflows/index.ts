export { importWorkflow } from "./import.ts";
export { checkAccountsWorkflow, reconcileWorkflow, retentionWorkflow } from "./maintenance.ts";
export { sendWorkflow } from "./send.ts";
export { sequenceWorkflow } from "./sequence.ts";
export { testMailWorkflow } from "./test-mail.ts";
export { webhookEndpointWorkflow } from "./webhook-endpoint.ts";
