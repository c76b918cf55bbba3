import { setTimeout as delay } from "node:timers/promises";

/** Waits for so many ms, or until the process is asked to stop. */
export async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: stopping }).catch(() => undefined);
}
