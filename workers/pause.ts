import { setTimeout as delay } from "node:timers/promises";

/** Waits, but no longer than until the process is asked to stop. */
export async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: stopping }).catch(() => undefined);
}
