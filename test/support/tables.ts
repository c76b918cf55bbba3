import type { EntityManager } from "../../db/orm.ts";
import { eventually } from "./eventually.ts";

/** Waits for the maintenance pool; without the counts of requests, which each one changes. `teamId`: rows that hold it. */
export async function snapshotTables(em: EntityManager, teamId?: string): Promise<Record<string, string>> {
  await eventually(async () => (await countUnmaintained(em, teamId)) === 0, {
    what: "the maintenance pool and the relay",
  });
  const tables = await em.execute<{ name: string; hasTeam: boolean }[]>(
    `select t.table_name as name, c.column_name is not null as "hasTeam" from information_schema.tables t
     left join information_schema.columns c on (c.table_schema, c.table_name, c.column_name) = (t.table_schema, t.table_name, 'team_id')
     where t.table_schema = 'public' and t.table_type = 'BASE TABLE' and t.table_name <> 'request_counts'`,
  );
  // As text, the other teams' mails and files would be read, too.
  const ofTeam = ({ hasTeam }: { hasTeam: boolean }) =>
    hasTeam ? "where team_id = ?" : "where t::text like '%' || ? || '%'";
  const digests = tables.map(
    (table) => `select '${table.name}' as name, count(*) || ' rows, ' ||
      coalesce(sum(('x' || left(md5(t::text), 15))::bit(60)::bigint), 0) as digest
      from "${table.name}" t ${teamId === undefined ? "" : ofTeam(table)}`,
  );
  const rows = await em.execute<{ name: string; digest: string }[]>(
    digests.join(" union all "),
    teamId === undefined ? [] : tables.map(() => teamId),
  );
  return Object.fromEntries(rows.map(({ name, digest }) => [name, digest]));
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
