import { pino } from "pino";
import { createSendActivities, type SendActivities } from "../../activities/sends.ts";
import { Progress } from "../../config/progress.ts";
import { type MikroORM, openDatabase } from "../../db/orm.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { stack } from "./stack.ts";

/** In the test's process. */
export async function openSendSteps(vault: Vault): Promise<{ steps: SendActivities; orm: MikroORM }> {
  const { env } = await stack();
  const orm = await openDatabase(env.DATABASE_URL, { poolMax: 2 });
  const log = pino({ level: "silent" });
  const deps = {
    ...{ env, orm, vault, log, workerId: "test", progress: new Progress() },
    ...{ stopping: new AbortController().signal, countMails: () => {} },
    ...{ countAttempts: () => {}, countRelayFailure: () => {}, countFailedPruning: () => {} },
  };
  return { steps: createSendActivities(deps), orm };
}
