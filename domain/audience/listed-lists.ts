import { sql } from "kysely";
import type { Optin } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";

export interface ListedList {
  id: string;
  name: string;
  description: string | null;
  optin: Optin;
  created_at: string;
  has_archive: boolean;
  /** Confirmed subscribers, up to `MOST_COUNTED`. */
  members: number;
  /** Of them, those who came in the last 30 days, less those who were members before and unsubscribed since; up to as many. */
  growth: number;
  /** Those who left it, up to as many; null unless the list is asked for by its id. */
  unsubscribed: number | null;
}

export const MOST_COUNTED = 1_000_000;

interface ListFilter {
  /** This one alone. */
  id?: string | undefined;
  /** Part of the name, in any case. */
  text?: string | undefined;
  /** The last id of the page before. */
  after?: string | undefined;
  limit: number;
}

/** The lists of a tenant by name, with their members. */
export async function listLists(
  em: EntityManager,
  tenant: Tenant,
  { id, text = "", after, limit }: ListFilter,
): Promise<ListedList[]> {
  const since = sql`now() - interval '30 days'`;
  const ofList = sql`s.list_id = l.id and ${ofTenant(tenant, "s")}`;
  const { rows } = await sql<ListedList>`
    select l.id, l.name, l.description, l.optin, l.has_archive, ${isoInstant(sql`l.created_at`)} as created_at,
      m.members, m.came - g.gone as growth, case when ${id !== undefined} then (
        select count(*)::int from (select from subscriptions s where ${ofList} and s.status = 'UNSUBSCRIBED' limit ${MOST_COUNTED}) c
      ) end as unsubscribed
    from (
      select l.id, l.name, l.description, l.optin, l.has_archive, l.created_at from lists l
      where ${ofTenant(tenant, "l")} and strpos(lower(l.name), lower(${text}::text)) > 0
        and (${id ?? null}::text is null or l.id = ${id ?? null})
        and (${after ?? null}::text is null or (lower(l.name), l.id) > (
          select lower(a.name), a.id from lists a where a.id = ${after ?? null} and ${ofTenant(tenant, "a")}))
      order by lower(l.name), l.id limit ${limit}
    ) l cross join lateral (
      select count(*)::int as members, count(*) filter (where c.confirmed_at >= ${since})::int as came
      from (select s.confirmed_at from subscriptions s where ${ofList} and s.status = 'CONFIRMED' limit ${MOST_COUNTED}) c
    ) m cross join lateral (
      select count(*)::int as gone from (
        select from subscriptions s where ${ofList} and s.status = 'UNSUBSCRIBED' and s.updated_at >= ${since}
          and s.unsubscribed_at >= ${since} and s.confirmed_at < ${since} limit ${MOST_COUNTED}) c
    ) g order by lower(l.name), l.id`.execute(kysely(em));
  return rows;
}
