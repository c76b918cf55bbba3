import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { Progress } from "../config/progress.ts";
import type { MikroORM } from "../db/orm.ts";
import type { Vault } from "../domain/secrets/crypto.ts";
import type { StateCounts } from "../domain/sends/ledger.ts";
import type { AttemptOutcome } from "../domain/webhooks/outcomes.ts";

/** Given to every activity when its worker starts. */
export interface ActivityDeps {
  env: Env;
  orm: MikroORM;
  vault: Vault;
  log: Logger;
  /** Aborted when the process is asked to stop: finish the work in flight and begin no more. */
  stopping: AbortSignal;
  /** Is told of loops and of work under way, for the readiness of the process. */
  progress: Progress;
  /** Called with the number of recipients that came into each state; for the metrics. */
  countMails: (counts: StateCounts) => void;
  /** Called with the outcomes of attempts to deliver webhooks once they are committed; for the metrics. */
  countAttempts: (outcomes: readonly Pick<AttemptOutcome, "status">[]) => void;
  /** Hears of a pass of the webhooks' relay that failed, for the metrics. */
  countRelayFailure: () => void;
  /** Hears of a batch of old rows that could not be pruned, for the metrics. */
  countFailedPruning: () => void;
  /** Names this process among all workers. */
  workerId: string;
}
