/** Why a send is paused whose workflow was terminated, failed or timed out. */
export const WORKFLOW_ENDED = "workflow_ended";

const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 5 * 60_000;

/**
 * How long a send waits after its account could not be used for the `count`th time in a row: 5 s, doubling, at most
 * 5 minutes. Nobody's mail is lost meanwhile, and a relay that comes back is found soon.
 */
export function troubleWaitMs(count: number): number {
  return Math.min(FIRST_WAIT_MS * 2 ** (Math.max(1, count) - 1), LONGEST_WAIT_MS);
}
