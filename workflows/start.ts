import { deliveryWorkflowId, replayWorkflowId, sendWorkflowId, TASK_QUEUES } from "./ids.ts";
import { RESOURCE_ID, TEAM_ID, WEBHOOK_ID } from "./search-attributes.ts";
import type { SendInput } from "./send-messages.ts";
import type { DeliveryInput } from "./webhook-delivery.ts";
import type { ReplayInput } from "./webhook-replay.ts";

/** The options that every start of a send's workflow has: its id, its queue, and the attributes that operators search by. */
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

/** A group of deliveries, as Postgres knows it. */
interface StartedGroup {
  id: string;
  webhookId: string;
  teamId: string;
  /** Deliveries in it. */
  size: number;
}

/**
 * The same for a group of deliveries.
 * @param ladder waits before each attempt, in seconds
 */
export const deliveryStart = (
  { id, webhookId, teamId, size }: StartedGroup,
  ladder: readonly number[],
  more: Pick<DeliveryInput, "localFirstAttempt" | "resume">,
) => ({
  workflowId: deliveryWorkflowId(id),
  taskQueue: TASK_QUEUES.webhooks,
  args: [{ groupId: id, webhookId, teamId, ladderMs: ladder.map((seconds) => seconds * 1000), ...more }] as [
    DeliveryInput,
  ],
  typedSearchAttributes: [
    { key: TEAM_ID, value: teamId },
    { key: WEBHOOK_ID, value: webhookId },
  ],
  staticSummary: `${size} ${size === 1 ? "delivery" : "deliveries"} to ${webhookId}`,
  priority: { fairnessKey: teamId },
});

/** The same for a bulk replay. */
export const replayStart = (input: ReplayInput) => ({
  workflowId: replayWorkflowId(input.replayId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [ReplayInput],
  staticSummary: "Bulk replay of webhook deliveries",
});
