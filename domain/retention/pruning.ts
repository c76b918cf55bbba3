import { sql } from "kysely";
import type { Env } from "../../config/env.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";

const LOCK_WAIT_MS = 500;
const STATEMENT_MS = 10_000;

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

type BatchOptions = [rows: number, settings: RetentionSettings, sends: SendsOfRun];

/** The batch of a statement that takes so many rows at most. */
export const batchOf = ({ numAffectedRows = 0n }: { numAffectedRows?: bigint }, rows: number): PrunedBatch => ({
  rows: Number(numAffectedRows),
  more: numAffectedRows === BigInt(rows),
});

export interface Pruning {
  name: string;
  /** At most so many rows, in the caller's transaction; whichever process comes next continues from there. */
  prune(em: EntityManager, ...batch: BatchOptions): Promise<PrunedBatch>;
}

/** Prunes a batch in a transaction of its own, which waits for no lock and runs no statement for long. */
export const pruneBatch = (em: EntityManager, pruning: Pruning, ...batch: BatchOptions): Promise<PrunedBatch> =>
  transaction(em, async (tx) => {
    await sql`select set_config('lock_timeout', ${`${LOCK_WAIT_MS}ms`}, true),
      set_config('statement_timeout', ${`${STATEMENT_MS}ms`}, true)`.execute(kysely(tx));
    return pruning.prune(tx, ...batch);
  });
