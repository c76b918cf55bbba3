import { pino } from "pino";
import { type PruneDeps, type Pruned, pruneExpired } from "../../activities/retention.ts";
import type { RetentionSettings } from "../../domain/retention/pruning.ts";
import { backdoor } from "./factories.ts";
import { stack } from "./stack.ts";

/** The shortest time for which ledgers may be kept: 13 months, for which the links in mails work. */
export const LEAST_LEDGER_DAYS = 397;

/** The stack prunes too: a test that looks at rows between two batches needs shorter times than the stack's. */
export async function prune(
  settings: Partial<RetentionSettings> = {},
  {
    stopping = new AbortController().signal,
    log = pino({ level: "silent" }),
    countFailedPruning = () => {},
    ...options
  }: Parameters<typeof pruneExpired>[1] & Partial<Pick<PruneDeps, "stopping" | "log" | "countFailedPruning">> = {},
): Promise<Pruned> {
  const { env } = await stack();
  const { orm } = await backdoor();
  return pruneExpired({ orm, log, stopping, countFailedPruning, env: { ...env, ...settings } }, options);
}
