import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";

/** The settings that say how long data is kept, in days. */
export type RetentionSettings = Pick<Env, "LEDGER_DAYS" | "LEDGER_NAMES_DAYS">;

/** The result of one batch. */
export interface PrunedBatch {
  /** Rows that it deleted or changed. */
  rows: number;
  /** More rows may be due. */
  more: boolean;
}

/** The sends that one run meets in one kind of pruning. */
export interface SendsOfRun {
  /** Their batches failed in this run: it passes them by, so that they do not keep it from the sends behind them. */
  readonly failed: readonly string[];
  /** To be called with a send before its batch. */
  taking(sendId: string): void;
}

/** Deletes or shortens rows of one kind once their time has passed. */
export interface Pruning {
  /** For logs. */
  name: string;
  /**
   * Prunes one batch, in the caller's transaction. A batch leaves the database as if it were the last one: whichever process
   * comes next continues from there.
   * @param rows at most so many
   */
  prune(em: EntityManager, rows: number, settings: RetentionSettings, sends: SendsOfRun): Promise<PrunedBatch>;
}
