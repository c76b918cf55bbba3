import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import type { MikroORM } from "../db/orm.ts";
import type { Vault } from "../domain/crypto.ts";
import type { StateCounts } from "../domain/sends/ledger.ts";
import type { AttemptOutcome } from "../domain/webhooks/attempts.ts";

/** What every activity is given when its worker starts. */
export interface ActivityDeps {
  env: Env;
  orm: MikroORM;
  vault: Vault;
  log: Logger;
  /** Aborted when the process is asked to stop: finish what is in hand, begin nothing. */
  stopping: AbortSignal;
  /** Hears of recipients whose rows came to stand at these states, for the metrics. */
  countMails: (counts: StateCounts) => void;
  /** Hears what attempts to deliver webhooks came to, once that is written; for the metrics. */
  countAttempts: (outcomes: readonly Pick<AttemptOutcome, "status">[]) => void;
  /** Hears of a pass of the webhooks' relay that failed, for the metrics. */
  countRelayFailure: () => void;
  /** Names this process among all workers. */
  workerId: string;
}
