const JITTER = 0.2;

/**
 * The wait before an attempt, in ms: that of the ladder, give or take a fifth, so that deliveries which failed together
 * are not all retried together.
 * @param random 0 to 1
 */
export function jittered(waitMs: number, random: number): number {
  return Math.round(waitMs * (1 - JITTER + 2 * JITTER * random));
}
