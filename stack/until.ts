import { setTimeout as pause } from "node:timers/promises";

interface UntilOptions {
  /** How long the condition may take. */
  timeoutMs: number;
  /** How often it is looked at; after 25 ms at first and ever more rarely, every 100 ms at least, unless given. */
  everyMs?: number;
  /** Gives up early. */
  signal?: AbortSignal;
}

const FIRST_LOOK_MS = 25;
const LONGEST_LOOK_MS = 100;

/**
 * Waits until `check` gives something other than false, null or undefined, and returns it.
 * @param what completes the sentence "Waited in vain for …"
 * @throws {Error} when the time is up; its cause is the last thing `check` threw, if it threw
 */
export async function until<T>(
  what: string,
  check: () => T | Promise<T>,
  { timeoutMs, everyMs, signal }: UntilOptions,
): Promise<Exclude<T, false | null | undefined>> {
  const deadline = performance.now() + timeoutMs;
  for (let lookMs = everyMs ?? FIRST_LOOK_MS; ; lookMs = everyMs ?? Math.min(lookMs * 1.1, LONGEST_LOOK_MS)) {
    let cause: unknown;
    try {
      const value = await check();
      if (value !== false && value !== null && value !== undefined) {
        return value as Exclude<T, false | null | undefined>;
      }
    } catch (error) {
      cause = error;
    }
    if (performance.now() >= deadline) throw new Error(`Waited in vain for ${what} (${timeoutMs} ms)`, { cause });
    await pause(lookMs, undefined, signal ? { signal } : {});
  }
}
