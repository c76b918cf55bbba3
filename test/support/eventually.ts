import { until } from "../../stack/until.ts";

/** The least that a wait lasts that is no bound under test: a busy machine is no reason to fail. */
const PATIENCE_MS = 60_000;
/** A shorter wait is a bound that its test checks. */
const LONGEST_BOUND_MS = 15_000;

interface EventuallyOptions {
  /** When the wait gives up; rather later where that is more than `LONGEST_BOUND_MS`, as by default. */
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
  { withinMs = PATIENCE_MS, what = "the condition", ...options }: EventuallyOptions = {},
): Promise<T> {
  const timeoutMs = withinMs > LONGEST_BOUND_MS ? Math.max(withinMs, PATIENCE_MS) : withinMs;
  const value = await until(what, async () => (await condition()) || undefined, { timeoutMs, ...options });
  return value as T;
}
