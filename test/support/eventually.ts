import { setTimeout as sleep } from "node:timers/promises";

const POLL_MS = 25;

/**
 * Waits until `condition` gives something true, and gives it back. What it throws counts as not yet.
 * @throws {Error} when that does not happen in time; its cause is what the condition threw last
 */
export async function eventually<T>(
  condition: () => Promise<T> | T,
  { withinMs = 5_000, what = "the condition" }: { withinMs?: number; what?: string } = {},
): Promise<T> {
  const deadline = Date.now() + withinMs;
  for (;;) {
    let cause: unknown;
    try {
      const result = await condition();
      if (result) return result;
    } catch (error) {
      cause = error;
    }
    if (Date.now() > deadline) throw new Error(`${what} did not come true within ${withinMs} ms`, { cause });
    await sleep(POLL_MS);
  }
}
