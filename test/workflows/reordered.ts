import { sleep } from "@temporalio/workflow";
import { sendWorkflow as original } from "../../workflows/send.ts";
import type { SendInput, SendOutcome } from "../../workflows/send-messages.ts";

/** The send's workflow after a change that forgets running workflows: a wait comes first now. */
export async function sendWorkflow(input: SendInput): Promise<SendOutcome> {
  await sleep("1 second");
  return original(input);
}
