import { setTimeout as delay } from "node:timers/promises";
import { isConflict } from "../../db/transaction.ts";
import type { ActivityDeps } from "../deps.ts";
import { failureCode } from "../failures.ts";

const PATIENCE_MS = 120_000;
const INTERVAL_MS = 250;

/**
 * Runs `write` until it succeeds, through an outage of the database; once without `patient`.
 * @throws its error when that does not pass by itself, or the outage is too long
 */
export async function throughOutage<T>(
  { env, stopping }: Pick<ActivityDeps, "env" | "stopping">,
  write: () => Promise<T>,
  { patient = true }: { patient?: boolean } = {},
): Promise<T> {
  const since = performance.now();
  for (;;) {
    try {
      return await write();
    } catch (error) {
      const isPassing = isConflict(error) || failureCode(error) === "dependency_unavailable";
      const patienceMs = stopping.aborted ? env.SHUTDOWN_GRACE_MS : PATIENCE_MS;
      if (!isPassing || !patient || performance.now() - since > patienceMs) throw error;
      await delay(INTERVAL_MS);
    }
  }
}
