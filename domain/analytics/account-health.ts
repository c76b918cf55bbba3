import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { DEFAULT_DAYS, type Overview, readOverview } from "./overview.ts";

/**
 * The figures of an account's mails of the last days. A newsletter or campaign counts for the accounts of its last send.
 * @returns `isShared` where another account mails a part of them: they count as a whole
 */
export async function readAccountHealth(
  em: EntityManager,
  tenant: Tenant,
  accountId: string,
): Promise<Overview & { isShared: boolean }> {
  const recent = (table: string) => sql`
    select resource_id from ${sql.table(table)} where ${ofTenant(tenant)} and day > now() - make_interval(days => ${DEFAULT_DAYS})`;
  const { rows } = await sql<{ id: string; shared: boolean }>`
    select r.resource_id as id, lanes.accounts > 1 as shared
    from (${recent("analytics_days")} union ${recent("analytics_changes")}) r
    cross join lateral (
      select s.id from sends s where s.resource_id = r.resource_id and ${ofTenant(tenant, "s")} order by s.send_at desc limit 1
    ) last
    cross join lateral (
      select count(*) as accounts, bool_or(l.account_id = ${accountId}) as mails from send_lanes l where l.send_id = last.id
    ) lanes
    where lanes.mails`.execute(kysely(em));
  const overview = await readOverview(em, tenant, { resourceIds: rows.map(({ id }) => id) });
  return { ...overview, isShared: rows.some(({ shared }) => shared) };
}
