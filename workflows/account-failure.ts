/** Why a send is paused whose workflow was terminated, failed or timed out. */
export const WORKFLOW_ENDED = "workflow_ended";

/** Account failures in a row after which operators see the send. */
export const FAILURES_TO_OPERATOR = 3;

const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 5 * 60_000;

/**
 * How long a send waits after its account failed for the `count`th time in a row, in ms: 5 s, doubling, at most 5
 * minutes. No mail is lost meanwhile, and a server that comes back is found soon.
 */
export function accountFailureWaitMs(count: number): number {
  return Math.min(FIRST_WAIT_MS * 2 ** (Math.max(1, count) - 1), LONGEST_WAIT_MS);
}
