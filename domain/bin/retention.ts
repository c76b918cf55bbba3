import { sql } from "kysely";
import { BIN_DAYS } from "../../db/entities/bin.ts";
import { kysely } from "../../db/orm.ts";
import { batchOf, type Pruning } from "../retention/pruning.ts";

const IS_OLD = sql`b.deleted_at < now() - make_interval(days => ${BIN_DAYS})`;

/** Empties the bin: of a list its people first, so that each statement deletes so many rows at most, and then records. */
export const BINNED: readonly Pruning[] = [
  {
    name: "bin_subscriptions",
    async prune(em, rows) {
      const deleted = await sql`
        delete from bin_subscriptions where ctid = any(array(
          select s.ctid from bin b join bin_subscriptions s on s.list_id = b.id where ${IS_OLD}
          limit ${rows} for update of s skip locked))`.execute(kysely(em));
      return batchOf(deleted, rows);
    },
  },
  {
    name: "bin",
    async prune(em, rows) {
      const deleted = await sql`
        delete from bin where ctid = any(array(
          select b.ctid from bin b
          where ${IS_OLD} and not exists (select from bin_subscriptions s where s.list_id = b.id)
          limit ${rows} for update skip locked))`.execute(kysely(em));
      return batchOf(deleted, rows);
    },
  },
];
