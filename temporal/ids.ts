export const TASK_QUEUES = {
  sends: "sends",
  dispatch: "dispatch",
  webhooks: "webhooks",
  maintenance: "maintenance",
} as const;

/** A pool of workers; the intake of reports has no task queue. */
export type PoolName = keyof typeof TASK_QUEUES | "intake";

export const sendWorkflowId = (previewId: string): string => `send/${previewId}`;

export const endpointWorkflowId = (webhookId: string): string => `webhook-endpoint/${webhookId}`;

export const sequenceWorkflowId = (campaignId: string): string => `sequence/${campaignId}`;

export const orderedWorkflowId = (kind: "import" | "person", id: string): string => `${kind}/${id}`;

export const testMailWorkflowId = (testId: string): string => `test-mail/${testId}`;

export const ACCOUNT_CHECKS_ID = "account-checks";

export const RECONCILER_ID = "reconciler";

export const RETENTION_ID = "retention";

/** Name of the signal that lets a workflow look at Postgres: that of a send at its state, those of endpoints and sequences at what is due, those of an import, an export or an erasure at its row. */
export const WAKE_UP = "wakeUp";

/** Name of the header in which workflows carry the span that their activities belong to. */
export const SPAN_HEADER = "span";
