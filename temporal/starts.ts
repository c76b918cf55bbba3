import type { TestMail } from "../domain/sends/plan/test-mail.ts";
import type { SendResource } from "../domain/sends/resource.ts";
import {
  endpointWorkflowId,
  orderedWorkflowId,
  sendWorkflowId,
  sequenceWorkflowId,
  TASK_QUEUES,
  testMailWorkflowId,
  WAKE_UP,
} from "./ids.ts";
import { RESOURCE_ID, TEAM_ID, WEBHOOK_ID } from "./search-attributes.ts";

/** By what operators find a workflow, and the team with whose work it shares the workers fairly. */
const ofTeam = (teamId: string, about: typeof RESOURCE_ID | typeof WEBHOOK_ID, id: string) => ({
  typedSearchAttributes: [
    { key: TEAM_ID, value: teamId },
    { key: about, value: id },
  ],
  priority: { fairnessKey: teamId },
});

/** Input of a send's workflow from outside. */
export interface SendStart {
  previewId: string;
  teamId: string;
  environment: "LIVE" | "TEST";
  resource: SendResource;
  expiresInMs: number;
  /** The run continues from the send's status in Postgres; absent in the first run of a preview. */
  resume?: { setBack?: SetBack };
}

/** See `isSetBack`. */
export interface SetBack {
  sent: number;
  /** The send was paused for it, unless Postgres does not know the send any more. */
  isPaused: boolean;
}

/** A task that a stopping worker took and dropped is another's after this long, while the client of a preview still waits. */
const SEND_TASK_TIMEOUT_MS = 5_000;

export const sendStart = (input: SendStart) => ({
  workflowId: sendWorkflowId(input.previewId),
  taskQueue: TASK_QUEUES.sends,
  workflowTaskTimeout: SEND_TASK_TIMEOUT_MS,
  args: [input] as [SendStart],
  ...ofTeam(input.teamId, RESOURCE_ID, input.resource.id),
  staticSummary: `Send of ${input.resource.type} ${input.resource.id}`,
});

export const testMailStart = (test: TestMail) => ({
  workflowId: testMailWorkflowId(test.testId),
  taskQueue: TASK_QUEUES.sends,
  args: [test] as [TestMail],
  ...ofTeam(test.teamId, RESOURCE_ID, test.resource.id),
  staticSummary: `Test mail of ${test.resource.type} ${test.resource.id}`,
});

export interface SequenceInput {
  campaignId: string;
  teamId: string;
  /** The last wave that Temporal knows of. */
  wave: number;
  /** Since when its runs have failed, in ms of the workflow's clock. */
  failingSince?: number | undefined;
}

export const sequenceStart = (input: SequenceInput) => ({
  workflowId: sequenceWorkflowId(input.campaignId),
  taskQueue: TASK_QUEUES.sends,
  args: [input] as [SequenceInput],
  ...ofTeam(input.teamId, RESOURCE_ID, input.campaignId),
  staticSummary: `Sequence ${input.campaignId}`,
});

export interface EndpointInput {
  webhookId: string;
  teamId: string;
}

export const endpointStart = (input: EndpointInput) => ({
  workflowId: endpointWorkflowId(input.webhookId),
  taskQueue: TASK_QUEUES.webhooks,
  args: [input] as [EndpointInput],
  ...ofTeam(input.teamId, WEBHOOK_ID, input.webhookId),
  staticSummary: `Deliveries to ${input.webhookId}`,
});

/** Work that the state of a row in Postgres orders. */
export interface OrderedWork {
  kind: "import" | "person";
  id: string;
  teamId: string;
  environment: "LIVE" | "TEST";
}

/** For a signal with start: the workflow looks at the state of its row once more. */
export const orderedStart = (work: OrderedWork) => ({
  workflowId: orderedWorkflowId(work.kind, work.id),
  taskQueue: TASK_QUEUES.sends,
  args: [work] as [OrderedWork],
  signal: WAKE_UP,
  ...ofTeam(work.teamId, RESOURCE_ID, work.id),
  staticSummary: work.kind === "import" ? "Import of an uploaded file" : "Export or erasure of a person",
});
