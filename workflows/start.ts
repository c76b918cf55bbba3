import { sendWorkflowId, TASK_QUEUES } from "./ids.ts";
import { RESOURCE_ID, TEAM_ID } from "./search-attributes.ts";
import type { SendInput } from "./send.ts";

/** How a send's workflow is started, whoever starts it: its id, its queue, and what operators find it by. */
export const sendStart = (input: SendInput) => ({
  workflowId: sendWorkflowId(input.previewId),
  taskQueue: TASK_QUEUES.sends,
  args: [input] as [SendInput],
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: RESOURCE_ID, value: input.newsletterId },
  ],
  staticSummary: `Send of ${input.newsletterId}`,
  priority: { fairnessKey: input.teamId },
});
