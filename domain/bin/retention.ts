import { sql } from "kysely";
import { BIN_DAYS } from "../../db/entities/bin.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { Pruning } from "../retention/pruning.ts";

const IS_OLD = sql`b.deleted_at < now() - make_interval(days => ${BIN_DAYS})`;

const pruning = (name: string, statement: (rows: number) => ReturnType<typeof sql>): Pruning => ({
  name,
  async prune(em: EntityManager, rows: number) {
    const { numAffectedRows = 0n } = await statement(rows).execute(kysely(em));
    return { rows: Number(numAffectedRows), more: numAffectedRows === BigInt(rows) };
  },
});

/** What leaves the bin: the people of a list first, since a statement takes so many rows alone, and then the records. */
export const BINNED: Pruning[] = [
  pruning(
    "bin_subscriptions",
    (rows) => sql`
      delete from bin_subscriptions where ctid = any(array(
        select s.ctid from bin b join bin_subscriptions s on s.list_id = b.id where ${IS_OLD}
        limit ${rows} for update of s skip locked))`,
  ),
  pruning(
    "bin",
    (rows) => sql`
      delete from bin where ctid = any(array(
        select b.ctid from bin b
        where ${IS_OLD} and not exists (select from bin_subscriptions s where s.list_id = b.id)
        limit ${rows} for update skip locked))`,
  ),
];
