import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

export interface LimitedRecords {
  table:
    | "api_keys"
    | "campaigns"
    | "contact_fields"
    | "forms"
    | "imports"
    | "lists"
    | "newsletters"
    | "person_requests"
    | "segments"
    | "templates"
    | "webhook_endpoints";
  name: string;
  condition?: RawBuilder<boolean>;
  remedy?: string;
}

/** Lets one transaction of a tenant at a time count its records and add to them; the others wait for its end. */
export async function lockRecords(em: EntityManager, { teamId, environment }: Tenant, table: string): Promise<void> {
  if (!em.isInTransaction()) throw new Error("a place is held until a transaction ends, and there is none");
  const lock = `${table}/${teamId}/${environment}`;
  await sql`select pg_advisory_xact_lock(hashtextextended(${lock}, 0))`.execute(kysely(em));
}

/**
 * Until the caller's transaction ends: of several that race for the last place one wins.
 * @param places how many are to be added @throws {ApiError} `resource_limit_reached`
 */
export async function holdPlace(
  em: EntityManager,
  tenant: Tenant,
  { table, name, condition = sql<boolean>`true`, remedy = "delete one first" }: LimitedRecords,
  limit: number,
  places = 1,
): Promise<void> {
  await lockRecords(em, tenant, table);
  // Counts no further than the limit, which may have been lowered since.
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from (
      select from ${sql.table(table)} where ${ofTenant(tenant)} and ${condition} limit ${limit}) r`.execute(kysely(em));
  const count = rows[0]?.count ?? 0;
  if (count + places <= limit) return;
  throw new ApiError("resource_limit_reached", `The team has ${limit} ${name}, as many as it may; ${remedy}.`);
}
