/** Task queues: one per pool of workers. */
export const TASK_QUEUES = { sends: "sends", dispatch: "dispatch" } as const;

/** A send's workflow. One id for preview, confirm and everything after. */
export const sendWorkflowId = (previewId: string): string => `send/${previewId}`;
