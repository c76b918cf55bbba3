import { deliveryWorkflowId, replayWorkflowId, sendWorkflowId, TASK_QUEUES } from "./ids.ts";
import { RESOURCE_ID, TEAM_ID, WEBHOOK_ID } from "./search-attributes.ts";
import type { SendInput } from "./send.ts";
import type { DeliveryInput } from "./webhook-delivery.ts";
import type { ReplayInput } from "./webhook-replay.ts";

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

/** The same for a group of deliveries. */
export const deliveryStart = (input: DeliveryInput, deliveries: number) => ({
  workflowId: deliveryWorkflowId(input.groupId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [DeliveryInput],
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: WEBHOOK_ID, value: input.webhookId },
  ],
  staticSummary: `${deliveries} for ${input.webhookId}`,
  priority: { fairnessKey: input.teamId },
});

/** The same for a bulk replay. */
export const replayStart = (input: ReplayInput) => ({
  workflowId: replayWorkflowId(input.replayId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [ReplayInput],
  staticSummary: "Bulk replay of webhook deliveries",
});
