import type { RawBuilder } from "kysely";
import { type Database, type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { Mentions } from "./mentions.ts";

export type Table = keyof Database;

/** Rows of a table that an erasure changed, or would change. */
export interface ErasedRows {
  table: Table;
  action: "deleted" | "blanked";
  rows: number;
}

/** The erasure of one person under way. */
export interface Erasing {
  em: EntityManager;
  tenant: Tenant;
  email: string;
  /** Replaces the address in rows that stay. */
  placeholder: string;
  /** An earlier run was cut off. */
  isResumed: boolean;
  mentions: Mentions;
  dryRun: boolean;
  /** Adds rows to the report. */
  count(table: Table, action: ErasedRows["action"], rows: number): void;
}

/** Thrown to roll back the transaction of a dry run. */
class DryRunDone<T> {
  readonly result: T;

  constructor(result: T) {
    this.result = result;
  }
}

/** Runs a change in a short transaction, which a dry run rolls back. */
export async function change<T>(
  { em, dryRun }: Pick<Erasing, "em" | "dryRun">,
  work: (tx: EntityManager) => Promise<T>,
): Promise<T> {
  try {
    return await transaction(em, async (tx) => {
      const result = await work(tx);
      if (dryRun) throw new DryRunDone(result);
      return result;
    });
  } catch (thrown) {
    if (thrown instanceof DryRunDone) return thrown.result;
    throw thrown;
  }
}

/** Runs a statement. @returns the number of rows that it changed */
export async function countChanged(tx: EntityManager, statement: RawBuilder<unknown>): Promise<number> {
  const { numAffectedRows = 0n } = await statement.execute(kysely(tx));
  return Number(numAffectedRows);
}
