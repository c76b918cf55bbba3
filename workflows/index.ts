export { sendWorkflow } from "./send.ts";
