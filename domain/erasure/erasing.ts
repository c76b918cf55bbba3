import type { RawBuilder } from "kysely";
import { type Database, type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { Mentions } from "./mentions.ts";

export type Table = keyof Database;

export interface ErasedRows {
  table: Table;
  action: "deleted" | "blanked";
  rows: number;
}

export interface Erasing {
  em: EntityManager;
  tenant: Tenant;
  email: string;
  placeholder: string;
  isResumed: boolean;
  mentions: Mentions;
  dryRun: boolean;
  count(table: Table, action: ErasedRows["action"], rows: number): void;
}

class DryRunDone<T> {
  readonly result: T;

  constructor(result: T) {
    this.result = result;
  }
}

/** In a short transaction, which a dry run rolls back. */
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

/** @returns the number of rows that the statement changed */
export async function countChanged(tx: EntityManager, statement: RawBuilder<unknown>): Promise<number> {
  const { numAffectedRows = 0n } = await statement.execute(kysely(tx));
  return Number(numAffectedRows);
}
