import type { EntityManager } from "../../db/orm.ts";

/**
 * Every table of the database with its row count and a digest over its rows, in any order. Two snapshots are
 * equal when nothing was committed between them; sequences are not looked at.
 * @param teamId only the rows that hold this id somewhere: for a test that shares its database with others
 */
export async function snapshotTables(em: EntityManager, teamId?: string): Promise<Record<string, string>> {
  const tables = await em.execute<{ name: string }[]>(
    "select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
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
