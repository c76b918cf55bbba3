/** Why a send is paused, beside null for an operator's own pause and the code of a failed account. */
export const PAUSE_REASONS = {
  complaints: "complaint_rate_exceeded",
  /** A restore or a failover may have lost commits: recipients that had their mail may be queued again. */
  databaseRestored: "database_restored",
  client: "paused_by_client",
  /** The account's server refuses all recipients alike, or the account. */
  refusals: "policy_refusals",
  /** Ten mails in a row could not be composed. */
  unsendable: "mails_unsendable",
  /** Its workflow was terminated, failed or timed out. */
  workflowEnded: "workflow_ended",
  /** Of a sequence: no wave could be claimed for an hour. */
  claimFailed: "claim_failed",
} as const;

/** Input of a resume after `refusals`: the server is right that the mailboxes which it refuses do not exist. */
export const GONE = "gone";
