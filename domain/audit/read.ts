import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ID_PREFIX, type IdKind } from "../ids.ts";

/** The tables of records with a name. */
const TABLES: Partial<Record<IdKind, string>> = {
  ...{ newsletter: "newsletters", campaign: "campaigns", template: "templates", list: "lists", segment: "segments" },
  ...{ form: "forms", webhook: "webhook_endpoints", apiKey: "api_keys", import: "imports", image: "images" },
};

/** Undefined lets all through. */
export interface AuditFilter {
  memberId?: string | undefined;
  way?: string | undefined;
  /** The prefix of the record's id. */
  kind?: string | undefined;
  /** So many days back. */
  days?: number | undefined;
}

/**
 * Entries of the audit log, the newest first, with the names that their members, keys and records have now.
 * @param after the last id of the page before; "" for the first
 */
export async function readEntries(
  em: EntityManager,
  tenant: Tenant,
  { memberId = null, way = null, kind = null, days = null }: { [Name in keyof AuditFilter]: AuditFilter[Name] | null },
  { after, limit }: { after: string; limit: number },
) {
  const member = (id: string) =>
    sql`(select name from members where team_id = ${tenant.teamId} and id = ${sql.ref(id)})`;
  const record = (table: string, id: string, column = "name") =>
    sql`(select ${sql.ref(`o.${column}`)} from ${sql.table(table)} o where ${ofTenant(tenant, "o")} and o.id = ${sql.ref(id)})`;
  const named = Object.entries(TABLES).map(([kind, table]) => [kind, record(table, "a.object_id")] as const);
  const names = [
    ...named,
    ["account", record("email_accounts", "a.object_id", "email")] as const,
    ["dkimKey", record("dkim_keys", "a.object_id", "domain")] as const,
    ["reportSource", record("report_sources", "a.object_id", "provider")] as const,
    ["member", member("a.object_id")] as const,
  ].map(([kind, name]) => sql`when ${sql.lit(ID_PREFIX[kind as IdKind])} then ${name}`);
  return kysely(em)
    .selectFrom("audit_entries as a")
    .select(["a.id", "a.way", "a.credential", "a.act", "a.object_id", "a.count", "a.request_id"])
    .select([
      isoInstant(sql`a.created_at`).as("at"),
      sql<string | null>`coalesce(${member("a.member_id")}, ${record("api_keys", "a.credential")})`.as("by"),
      sql<string | null>`coalesce(case split_part(a.object_id, '_', 1) ${sql.join(names, sql` `)} end,
        ${record("bin", "a.object_id")})`.as("object_name"),
    ])
    .where(ofTenant(tenant, "a"))
    .where(sql<boolean>`(${memberId}::text is null or a.member_id = ${memberId})
      and (${way}::text is null or a.way = ${way})
      and (${kind}::text is null or split_part(a.object_id, '_', 1) = ${kind})
      and (${days}::int is null or a.created_at >= now() - make_interval(days => ${days}::int))
      and (${after}::text = '' or (a.created_at, a.id) < (
        select c.created_at, c.id from audit_entries c where ${ofTenant(tenant, "c")} and c.id = ${after}))`)
    .orderBy("a.created_at", "desc")
    .orderBy("a.id", "desc")
    .limit(limit)
    .execute();
}
