/** The pause reason of a send that a client of the API paused. */
export const CLIENT_PAUSE = "paused_by_client";

/** The pause reason of a send whose workflow was terminated, failed or timed out. */
export const WORKFLOW_ENDED = "workflow_ended";
