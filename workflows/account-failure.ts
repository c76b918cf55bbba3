/** Account failures in a row after which operators see the send. */
export const FAILURES_TO_OPERATOR = 3;

const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 5 * 60_000;

/** In ms: 5 s, doubling, at most 5 minutes. */
export function accountFailureWaitMs(count: number): number {
  return Math.min(FIRST_WAIT_MS * 2 ** (Math.max(1, count) - 1), LONGEST_WAIT_MS);
}
