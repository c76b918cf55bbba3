import { until } from "../../stack/until.ts";

/** Longer than a condition takes on the busiest machine. */
const PATIENCE_MS = 60_000;

interface EventuallyOptions {
  /** When the wait gives up, where the test checks a bound or waits for more than others do. */
  withinMs?: number | undefined;
  /** Completes "Waited in vain for …". */
  what?: string;
  everyMs?: number;
}

/** A condition that throws counts as not yet true. @throws {Error} in vain; its cause is the condition's last error */
export async function eventually<T>(
  condition: () => Promise<T> | T,
  { withinMs = PATIENCE_MS, what = "the condition", ...options }: EventuallyOptions = {},
): Promise<T> {
  const value = await until(what, async () => (await condition()) || undefined, { timeoutMs: withinMs, ...options });
  return value as T;
}
