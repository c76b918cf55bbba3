import { sql } from "kysely";
import { type Column, columnsOf } from "../../db/columns.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { BINNED } from "../bin/retention.ts";
import { unconfirmedSignUps } from "../forms/unconfirmed.ts";
import { presumedDeadListeners } from "../webhooks/listener.ts";
import { DELIVERIES } from "../webhooks/retention.ts";
import { LEDGERS } from "./ledgers.ts";
import { batchOf, type Pruning } from "./pruning.ts";

/** Rows that another transaction holds are left for the next batch. */
const expired = ({ table, column, retention }: Column): Pruning => ({
  name: table,
  async prune(em, rows) {
    const deleted = await sql`
      delete from ${sql.table(table)} where ctid = any(array(
        select ctid from ${sql.table(table)} where ${sql.ref(column)} < now() - ${retention}::interval
        limit ${rows} for update skip locked))`.execute(kysely(em));
    return batchOf(deleted, rows);
  },
});

const CREDIT_ENTRY_DAYS = 400;

/**
 * Adds up credit entries of settled sends per team, month (UTC) and kind, so that balances stay. Grants stay: their
 * `cause` keeps a grant from being made twice.
 */
export const creditEntries: Pruning = {
  name: "credit entries",
  async prune(em, rows) {
    const month = sql`date_trunc('month', created_at, 'UTC')`;
    const { rows: rolledUp } = await sql<{ entries: number }>`
      with taken as (
        delete from credit_entries where ctid = any(array(
          select e.ctid from credit_entries e
          where e.send_id is not null
            and e.created_at < date_trunc('month', now() - make_interval(days => ${CREDIT_ENTRY_DAYS}::int), 'UTC')
            and exists (select from sends s where s.id = e.send_id and s.settled_at is not null)
          order by e.created_at limit ${rows} for update of e skip locked))
        returning id, team_id, environment, kind, amount, created_at
      ), added as (
        insert into credit_entries as e (id, team_id, environment, kind, amount, send_id, cause, created_at)
        select min(id), team_id, environment, kind, sum(amount), null, 'rolled_up', ${month}
        from taken group by team_id, environment, kind, ${month}
        on conflict (team_id, environment, kind, created_at) where send_id is null and kind <> 'GRANT'
          do update set amount = e.amount + excluded.amount
      )
      select count(*)::int as entries from taken`.execute(kysely(em));
    const [{ entries } = { entries: 0 }] = rolledUp;
    return { rows: entries, more: entries === rows };
  },
};

export const pruningsOf = (em: EntityManager): Pruning[] => [
  ...columnsOf(em)
    .filter(({ table, retention }) => retention !== undefined && table !== "bin")
    .map(expired),
  ...BINNED,
  presumedDeadListeners,
  ...DELIVERIES,
  unconfirmedSignUps,
  creditEntries,
  ...LEDGERS,
];
