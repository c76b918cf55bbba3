/** Why a send is paused, beside null for an operator's own pause and the code of a failed account. */
export const PAUSE_REASONS = {
  complaints: "complaint_rate_exceeded",
  /** A restore or a failover may have lost commits: recipients that had their mail may be queued again. */
  databaseRestored: "database_restored",
  client: "paused_by_client",
  /** Its workflow was terminated, failed or timed out. */
  workflowEnded: "workflow_ended",
} as const;
