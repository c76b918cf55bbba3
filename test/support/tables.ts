import type { EntityManager } from "../../db/orm.ts";
import { eventually } from "./eventually.ts";

/**
 * Every table of the database with its row count and a digest over its rows, in any order. Two snapshots are
 * equal when nothing was committed between them; sequences are not looked at. It first waits for the confirmation mails
 * that the maintenance pool is about to send: their rows change when the relay has answered. The counts of requests are
 * left out: every request changes them, a dry run and a refused one too.
 * @param teamId only the rows that hold this id somewhere: for a test that shares its database with others
 */
export async function snapshotTables(em: EntityManager, teamId?: string): Promise<Record<string, string>> {
  await eventually(async () => (await countOpenConfirmations(em, teamId)) === 0, {
    withinMs: 20_000,
    what: "the confirmation mails that are due",
  });
  const tables = await em.execute<{ name: string }[]>(
    "select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'request_counts'",
  );
  const snapshot: Record<string, string> = {};
  for (const { name } of tables) {
    const [row] = await em.execute<{ rows: string; digest: string }[]>(
      `select count(*)::text as rows, coalesce(sum(('x' || left(md5(t::text), 15))::bit(60)::bigint), 0)::text as digest
       from "${name}" t ${teamId === undefined ? "" : "where t::text like ?"}`,
      teamId === undefined ? [] : [`%${teamId}%`],
    );
    snapshot[name] = `${row?.rows} rows, ${row?.digest}`;
  }
  return snapshot;
}

async function countOpenConfirmations(em: EntityManager, teamId: string | undefined): Promise<number> {
  const [row] = await em.execute<{ open: number }[]>(
    `select ((select count(*) from confirmation_mails where settled_at is null and (team_id = ? or ?::text is null))
       + (select count(*) from subscriptions where confirmation_due_at <= now() and status = 'PENDING' and environment = 'LIVE'
         and (team_id = ? or ?::text is null)))::int as open`,
    [teamId, teamId, teamId, teamId].map((id) => id ?? null),
  );
  return row?.open ?? 0;
}
