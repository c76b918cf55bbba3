import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { Progress } from "../config/progress.ts";
import type { MikroORM } from "../db/orm.ts";
import type { Vault } from "../domain/secrets/crypto.ts";
import type { StateCounts } from "../domain/sends/ledger/counts.ts";
import type { AttemptOutcome } from "../domain/webhooks/outcomes.ts";

export interface ActivityDeps {
  env: Env;
  orm: MikroORM;
  vault: Vault;
  log: Logger;
  /** Finish the work in flight and begin no more. */
  stopping: AbortSignal;
  /** Watches loops and work under way: the process is not ready while one is stalled. */
  progress: Progress;
  countMails: (counts: StateCounts) => void;
  countAttempts: (outcomes: readonly Pick<AttemptOutcome, "status">[]) => void;
  countRelayFailure: () => void;
  countFailedPruning: () => void;
  workerId: string;
}
