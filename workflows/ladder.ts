const JITTER = 0.2;

/**
 * The wait before an attempt, in ms: that of the ladder, give or take a fifth, so that deliveries which failed together
 * are not all retried together.
 * @param random 0 to 1
 */
export function jittered(waitMs: number, random: number): number {
  return Math.round(waitMs * (1 - JITTER + 2 * JITTER * random));
}

const FIRST_BUSY_MS = 5_000;
const LONGEST_BUSY_MS = 5 * 60_000;

/**
 * How long a group waits that found no free slot for the `count`th time in a row, in ms: 5 s, doubling up to 5 minutes.
 * With short waits many groups of one endpoint that hangs would keep the workers busy with asking.
 */
export function busyWaitMs(count: number, random: number): number {
  return jittered(Math.min(FIRST_BUSY_MS * 2 ** (Math.max(1, count) - 1), LONGEST_BUSY_MS), random);
}
