import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";

export type RetentionSettings = Pick<Env, "LEDGER_DAYS" | "LEDGER_NAMES_DAYS">;

export interface PrunedBatch {
  rows: number;
  more: boolean;
}

export interface SendsOfRun {
  /** The run passes them by, so that they do not keep it from the sends behind them. */
  readonly failed: readonly string[];
  taking(sendId: string): void;
}

export interface Pruning {
  name: string;
  /** At most so many rows, in the caller's transaction; whichever process comes next continues from there. */
  prune(em: EntityManager, rows: number, settings: RetentionSettings, sends: SendsOfRun): Promise<PrunedBatch>;
}
