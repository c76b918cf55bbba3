export { reconcileWorkflow } from "./reconcile.ts";
export { sendWorkflow } from "./send.ts";
