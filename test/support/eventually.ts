import { until } from "../../stack/until.ts";

interface EventuallyOptions {
  /** When the wait gives up. Long by default, because a busy machine is no reason to fail. */
  withinMs?: number;
  /** Completes "Waited in vain for …". */
  what?: string;
  /** How often the condition is looked at. */
  everyMs?: number;
}

/**
 * Waits until `condition` gives something true, and gives it back. A condition that throws counts as not yet true.
 * @throws {Error} when that does not happen in time; its cause is the last error of the condition
 */
export async function eventually<T>(
  condition: () => Promise<T> | T,
  { withinMs = 20_000, what = "the condition", ...options }: EventuallyOptions = {},
): Promise<T> {
  const value = await until(what, async () => (await condition()) || undefined, { timeoutMs: withinMs, ...options });
  return value as T;
}
