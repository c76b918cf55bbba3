import { sleep } from "@temporalio/workflow";
import { sendWorkflow as original } from "../../workflows/send.ts";
import type { SendInput, SendOutcome } from "../../workflows/send-messages.ts";

/** The send's workflow as somebody might change it without thinking of those that run: a wait comes first now. */
export async function sendWorkflow(input: SendInput): Promise<SendOutcome> {
  await sleep("1 second");
  return original(input);
}
