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
  report: Map<Table, ErasedRows>;
}

export interface Step {
  tx: EntityManager;
  count(table: Table, action: ErasedRows["action"], rows: number): void;
  run(table: Table, action: ErasedRows["action"], statement: RawBuilder<unknown>): Promise<number>;
}

export async function change(erasing: Erasing, work: (step: Step) => Promise<unknown>): Promise<void> {
  const perform = async (tx: EntityManager) => {
    const done: ErasedRows[] = [];
    const count: Step["count"] = (table, action, rows) => void done.push({ table, action, rows });
    const run: Step["run"] = async (table, action, statement) => {
      const { numAffectedRows = 0n } = await statement.execute(kysely(tx));
      count(table, action, Number(numAffectedRows));
      return Number(numAffectedRows);
    };
    await work({ tx, count, run });
    return done;
  };
  const changed = await transaction(erasing.em, perform, { isRolledBack: erasing.dryRun });
  for (const { table, action, rows } of changed.filter((each) => each.rows > 0)) {
    erasing.report.set(table, { table, action, rows: (erasing.report.get(table)?.rows ?? 0) + rows });
  }
}
