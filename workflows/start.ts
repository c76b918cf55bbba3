import { endpointWorkflowId, replayWorkflowId, sendWorkflowId, TASK_QUEUES } from "./ids.ts";
import { RESOURCE_ID, TEAM_ID, WEBHOOK_ID } from "./search-attributes.ts";
import type { SendInput } from "./send-messages.ts";
import type { EndpointInput } from "./webhook-endpoint.ts";
import type { ReplayInput } from "./webhook-replay.ts";

export const sendStart = (input: SendInput) => ({
  workflowId: sendWorkflowId(input.previewId),
  taskQueue: TASK_QUEUES.sends,
  args: [input] as [SendInput],
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: RESOURCE_ID, value: input.resource.id },
  ],
  staticSummary: `Send of ${input.resource.type} ${input.resource.id}`,
  priority: { fairnessKey: input.teamId },
});

export const endpointStart = (input: EndpointInput) => ({
  workflowId: endpointWorkflowId(input.webhookId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [EndpointInput],
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: WEBHOOK_ID, value: input.webhookId },
  ],
  staticSummary: `Deliveries to ${input.webhookId}`,
  priority: { fairnessKey: input.teamId },
});

export const replayStart = (input: ReplayInput) => ({
  workflowId: replayWorkflowId(input.replayId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [ReplayInput],
  staticSummary: "Bulk replay of webhook deliveries",
});
