import type { TestMail } from "../domain/sends/test-mail.ts";
import {
  endpointWorkflowId,
  importWorkflowId,
  replayWorkflowId,
  sendWorkflowId,
  sequenceWorkflowId,
  TASK_QUEUES,
  testMailWorkflowId,
  WAKE_UP,
} from "./ids.ts";
import { RESOURCE_ID, TEAM_ID, WEBHOOK_ID } from "./search-attributes.ts";
import type { SendInput } from "./send-messages.ts";

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

export const testMailStart = (test: TestMail) => ({
  workflowId: testMailWorkflowId(test.testId),
  taskQueue: TASK_QUEUES.sends,
  args: [test] as [TestMail],
  typedSearchAttributes: [
    { key: TEAM_ID, value: test.teamId },
    { key: RESOURCE_ID, value: test.resource.id },
  ],
  staticSummary: `Test mail of ${test.resource.type} ${test.resource.id}`,
  priority: { fairnessKey: test.teamId },
});

export interface SequenceInput {
  campaignId: string;
  teamId: string;
  /** The last wave that Temporal knows of. */
  wave: number;
}

export const sequenceStart = (input: SequenceInput) => ({
  workflowId: sequenceWorkflowId(input.campaignId),
  taskQueue: TASK_QUEUES.sends,
  args: [input] as [SequenceInput],
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: RESOURCE_ID, value: input.campaignId },
  ],
  staticSummary: `Sequence ${input.campaignId}`,
  priority: { fairnessKey: input.teamId },
});

export interface EndpointInput {
  webhookId: string;
  teamId: string;
}

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

export interface ReplayInput {
  replayId: string;
}

export const replayStart = (input: ReplayInput) => ({
  workflowId: replayWorkflowId(input.replayId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [ReplayInput],
  staticSummary: "Bulk replay of webhook deliveries",
});

export interface ImportInput {
  importId: string;
  teamId: string;
  environment: "LIVE" | "TEST";
}

/** For a signal with start: the workflow looks at the state of its import once more. */
export const importStart = (input: ImportInput) => ({
  workflowId: importWorkflowId(input.importId),
  taskQueue: TASK_QUEUES.sends,
  args: [input] as [ImportInput],
  signal: WAKE_UP,
  typedSearchAttributes: [
    { key: TEAM_ID, value: input.teamId },
    { key: RESOURCE_ID, value: input.importId },
  ],
  staticSummary: "Import of an uploaded file",
  priority: { fairnessKey: input.teamId },
});
