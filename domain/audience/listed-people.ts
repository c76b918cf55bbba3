import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { foundAddresses, MAX_FOUND, MAX_SORTED } from "./search.ts";
import { segmentContacts } from "./segments/segments.ts";

/** Of a person: by the reason for which the address is suppressed, or UNSUBSCRIBED once they have left each of their lists, unless they are a contact. */
export const PERSON_STATUSES = ["ACTIVE", "UNSUBSCRIBED", "INVALID", "SUPPRESSED"] as const;
type PersonStatus = (typeof PERSON_STATUSES)[number];

/** An address of the audience: a subscriber, a contact or both. */
export interface ListedPerson {
  email: string;
  first_name: string | null;
  last_name: string | null;
  subscriber_id: string | null;
  is_contact: boolean;
  /** Lists that mail them; null for one who is no subscriber. */
  lists: number | null;
  status: PersonStatus;
  /** As the first of the two. */
  created_at: string;
}

export interface PeoplePage {
  people: ListedPerson[];
  /** `after` of the next page, also where this one is empty; null on the last. */
  next: string | null;
  /** People of this page and of those behind it; only on the first page. */
  total: number | null;
  /** There are more, which were not counted. */
  has_more: boolean;
}

export interface PeopleFilter {
  /** Those whom a search finds: one page. */
  text?: string | undefined;
  /** Confirmed subscribers of it. */
  listId?: string | undefined;
  /** Contacts of it. */
  segmentId?: string | undefined;
  status?: PersonStatus | undefined;
  /** The last address that the page before looked at. */
  after?: string | undefined;
  /** People of a page. */
  limit?: number | undefined;
}

/** Addresses that one page looks at: a filter that few meet would have it read all. A list of no more members is read whole. */
const MAX_LOOKED_AT = 10_000;
const MAX_COUNTED = 500;

/**
 * A page of the people of a tenant, by address.
 * @throws {ApiError} `not_found` for the segment; `filter_unsupported`
 */
export async function listPeople(
  em: EntityManager,
  tenant: Tenant,
  { text, limit: asked = 50, listId, segmentId, status, after = "" }: PeopleFilter,
): Promise<PeoplePage> {
  const limit = text ? MAX_FOUND : asked;
  const mostMet = after ? limit + 1 : MAX_COUNTED + 1;
  const most = sql.lit(text ? MAX_SORTED : listId || segmentId || status ? MAX_LOOKED_AT : mostMet);
  const onList = sql`${ofTenant(tenant, "b")} and b.list_id = ${listId} and b.status = 'CONFIRMED'`;
  const subscriber = sql`subscribers s where ${ofTenant(tenant, "s")} and s.email = a.email`;
  const statusWhere = (hasLeft: RawBuilder<unknown>) => sql`coalesce((
    select case x.reason when 'UNSUBSCRIBED' then 'UNSUBSCRIBED' when 'bounce:hard' then 'INVALID' else 'SUPPRESSED' end
    from suppressions x where ${ofTenant(tenant, "x")} and x.email = a.email),
    case when ${hasLeft} then 'UNSUBSCRIBED' else 'ACTIVE' end)`;

  // Few members are looked up; many are met soon on the way through the addresses.
  const isShort =
    !text &&
    listId !== undefined &&
    !segmentId &&
    (await countTo(em, sql`subscriptions b where ${onList}`)) < MAX_LOOKED_AT;
  const table = sql.table(segmentId ? "contacts" : listId ? "subscribers" : "audience_addresses");
  const within = (row: string) => sql`${ofTenant(tenant, row)} and ${sql.ref(`${row}.email`)} > ${after}`;
  const lookedAt = text
    ? sql`select f.email from (${foundAddresses(tenant, "subscribers", text, { limit: MAX_SORTED })}) f union
        select f.email from (${foundAddresses(tenant, "contacts", text, { limit: MAX_SORTED })}) f`
    : isShort
      ? sql`select s.email from subscriptions b join subscribers s on s.id = b.subscriber_id and ${within("s")} where ${onList}`
      : sql`select a.email from ${table} a where ${within("a")} order by a.email limit ${most}`;
  const upTo = (row: string) =>
    text
      ? sql`${within(row)} and ${sql.ref(`${row}.email`)} in (select email from looked_at)`
      : sql`${within(row)} and ${sql.ref(`${row}.email`)} <= (select max(email) from looked_at)`;
  const among = segmentId
    ? sql`(${await segmentContacts(em, tenant, segmentId, upTo("c"))}) a where true`
    : text || isShort
      ? sql`looked_at a where true`
      : sql`${table} a where ${upTo("a")}`;
  // Read at once: without statistics Postgres would read all subscribers for each address.
  const left = sql`select s.email from subscribers s where ${upTo("s")} and (
    select bool_or(b.status = 'UNSUBSCRIBED') and not bool_or(b.status = 'CONFIRMED') from subscriptions b
    where ${ofTenant(tenant, "b")} and b.subscriber_id = s.id)
    and s.email not in (select c.email from contacts c where ${upTo("c")})`;
  const mayHaveLeft = !listId && !segmentId && (status === "ACTIVE" || status === "UNSUBSCRIBED");
  const hasStatus = status && sql`and ${statusWhere(mayHaveLeft ? sql`a.email in (${left})` : sql`false`)} = ${status}`;
  // Not by "exists", nor with the list in the condition: Postgres would read the whole list, for a join or for each person.
  const isMember = sql`and (
    select bool_or(b.list_id = ${listId} and b.status = 'CONFIRMED') from subscriptions b
    where ${ofTenant(tenant, "b")} and b.subscriber_id = ${text || segmentId ? sql`(select s.id from ${subscriber})` : sql`a.id`})`;

  const { rows } = await sql<PeoplePage>`
    with looked_at as materialized (${lookedAt}), met as materialized (
      select a.email from ${among} ${listId && !isShort ? isMember : sql``} ${hasStatus ?? sql``}
      order by a.email limit ${sql.lit(mostMet)}
    ), shown as materialized (select email from met order by email limit ${sql.lit(limit)})
    select coalesce((
      select json_agg(json_build_object(
        'email', coalesce(s.email_spelling, c.email_spelling, a.email),
        'first_name', case when s.named then s.first_name else c.first_name end,
        'last_name', case when s.named then s.last_name else c.last_name end,
        'subscriber_id', s.id, 'is_contact', c.id is not null, 'lists', b.lists,
        'status', ${statusWhere(sql`b.has_left and c.id is null`)}, 'created_at', ${isoInstant(sql`least(s.created_at, c.created_at)`)}) order by a.email)
      from shown a
      left join lateral (select s.*, coalesce(s.first_name, s.last_name) is not null as named from ${subscriber}) s on true
      left join lateral (
        select count(*) filter (where b.status = 'CONFIRMED') as lists,
          bool_or(b.status = 'UNSUBSCRIBED') and not bool_or(b.status = 'CONFIRMED') as has_left
        from subscriptions b where ${ofTenant(tenant, "b")} and b.subscriber_id = s.id) b on s.id is not null
      left join contacts c on ${ofTenant(tenant, "c")} and c.email = a.email
      where s.id is not null or c.id is not null), '[]') as people,
      case
        when ${Boolean(text)} then null
        when (select count(*) from met) > ${sql.lit(limit)} then (select max(email) from shown)
        when ${!isShort} and (select count(*) from looked_at) = ${most} then (select max(email) from looked_at)
      end as next,
      case when ${!after} then (select least(count(*), ${sql.lit(MAX_COUNTED)}) from met)::int end as total,
      (select count(*) from met) > ${sql.lit(MAX_COUNTED)}
        or ${!isShort} and (select count(*) from looked_at) >= ${most} as has_more`.execute(kysely(em));
  const [page] = rows;
  if (!page) throw new Error("a page returned no row");
  if (!page.has_more || after || text || listId || segmentId || status) return page;
  const total = await countTo(em, sql`audience_addresses a where ${ofTenant(tenant, "a")}`);
  return { ...page, total, has_more: total === MAX_LOOKED_AT };
}

/** The suppressions of a tenant, or those of a reason, up to the limit of a look. */
export async function countSuppressions(em: EntityManager, tenant: Tenant, reason: string | undefined) {
  // A condition that holds for every reason, too, would keep a prepared statement from the index.
  const isOfReason = reason === undefined ? sql`` : sql`and x.reason = ${reason}`;
  const total = await countTo(em, sql`suppressions x where ${ofTenant(tenant, "x")} ${isOfReason}`);
  return { total, has_more: total === MAX_LOOKED_AT };
}

/** @param rows SQL: a table and conditions @returns their number, up to the limit of a look */
async function countTo(em: EntityManager, rows: RawBuilder<unknown>): Promise<number> {
  const { rows: counted } = await sql<{ count: number }>`
    select count(*)::int as count from (select from ${rows} limit ${sql.lit(MAX_LOOKED_AT)}) r`.execute(kysely(em));
  return counted[0]?.count ?? 0;
}
