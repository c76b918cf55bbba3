/** Task queues: one per pool of workers. */
export const TASK_QUEUES = {
  sends: "sends",
  dispatch: "dispatch",
  webhooks: "webhooks",
  maintenance: "maintenance",
} as const;

/** A pool of workers; the intake of reports has no task queue. */
export type PoolName = keyof typeof TASK_QUEUES | "intake";

/** A send's workflow. One id for preview, confirm and everything after. */
export const sendWorkflowId = (previewId: string): string => `send/${previewId}`;

/** The workflow of all deliveries to an endpoint. */
export const endpointWorkflowId = (webhookId: string): string => `webhook-endpoint/${webhookId}`;

/** The workflow of a bulk replay. */
export const replayWorkflowId = (replayId: string): string => `webhook-replay/${replayId}`;

/** The schedule that checks sending accounts, and the workflow that it runs. */
export const ACCOUNT_CHECKS_ID = "account-checks";

/** The schedule that starts missing workflows, and the workflow that it runs. */
export const RECONCILER_ID = "reconciler";

/** The schedule that deletes rows whose time has passed, and the workflow that it runs. */
export const RETENTION_ID = "retention";

/** Name of the signal that lets a workflow look at Postgres: that of a send at its state, that of an endpoint at what is due. */
export const WAKE_UP = "wakeUp";
