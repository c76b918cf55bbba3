import type { EntityManager } from "../../db/orm.ts";
import { eventually } from "./eventually.ts";

/** Waits for the maintenance pool; without the counts of requests, which each one changes. `teamId`: rows that hold it. */
export async function snapshotTables(em: EntityManager, teamId?: string): Promise<Record<string, string>> {
  await eventually(async () => (await countUnmaintained(em, teamId)) === 0, {
    what: "the maintenance pool and the relay",
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

/** Rows that the maintenance pool or the relay is about to change. */
async function countUnmaintained(em: EntityManager, teamId: string | undefined): Promise<number> {
  const [row] = await em.execute<{ open: number }[]>(
    `select ((select count(*) from confirmation_mails where settled_at is null and (team_id = ? or ?::text is null))
       + (select count(*) from subscriptions where confirmation_due_at <= now() and status = 'PENDING' and environment = 'LIVE'
         and (team_id = ? or ?::text is null))
       + (select count(*) from webhook_outbox where team_id = ? or ?::text is null)
       + (select count(*) from contact_status_checks where team_id = ? or ?::text is null)
       + (select count(*) from analytics_changes where team_id = ? or ?::text is null))::int as open`,
    Array.from({ length: 10 }, () => teamId).map((id) => id ?? null),
  );
  return row?.open ?? 0;
}
