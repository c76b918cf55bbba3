import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { daysAgo } from "./expired.ts";
import type { Pruning } from "./pruning.ts";

/**
 * Adds up the credit entries of sends, one entry per team, month and kind, of whole months in UTC. The sums of the entries
 * stay, and with them the balances. An entry of a send that is not settled stays, and so do grants, whose `cause` keeps a
 * grant from being made twice.
 */
export const creditEntries: Pruning = {
  name: "credit entries",
  async prune(em, rows, { CREDIT_ENTRY_DAYS }) {
    const month = sql`date_trunc('month', created_at, 'UTC')`;
    const { rows: rolledUp } = await sql<{ entries: number }>`
      with taken as (
        delete from credit_entries where ctid = any(array(
          select e.ctid from credit_entries e
          where e.send_id is not null and e.created_at < date_trunc('month', ${daysAgo(CREDIT_ENTRY_DAYS)}, 'UTC')
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
