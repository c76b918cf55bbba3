/** Task queues: one per pool of workers. */
export const TASK_QUEUES = { sends: "sends", dispatch: "dispatch", maintenance: "maintenance" } as const;

/** A send's workflow. One id for preview, confirm and everything after. */
export const sendWorkflowId = (previewId: string): string => `send/${previewId}`;

/** The schedule that starts what should run and does not, and the workflow it runs. */
export const RECONCILER_ID = "reconciler";
