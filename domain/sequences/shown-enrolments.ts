import { type RawBuilder, sql } from "kysely";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import type { Vault } from "../secrets/crypto.ts";
import { readSequence } from "./state.ts";

interface ShownEnrolment {
  state: EnrolmentState;
  /** Why they LEFT. */
  reason: string | null;
  /** The number among the steps in use that they wait for, or waited for when they LEFT. */
  step: number | null;
  /** Null also while a wave holds them. */
  due_at: string | null;
  entered_at: string;
}

/** One of a person's sequences. */
export interface PersonEnrolment extends ShownEnrolment {
  sequence_id: string;
  name: string;
}

/** One of a sequence's people. Without an address they are no subscriber or contact any more. */
export interface EnrolledPerson extends ShownEnrolment {
  /** Of the subscriber or contact. */
  id: string;
  email: string | null;
  first_name: string | null;
  last_name: string | null;
}

/** SQL: the subscriber or contact `m` of an enrolment `e`, if it is there. */
function memberOf(tenant: Tenant): RawBuilder<unknown> {
  // The offset keeps Postgres, without statistics, from an index by the tenant: it would read all its people for each row.
  const of = (table: "subscribers" | "contacts") => sql`
    select p.id, coalesce(p.email_spelling, p.email) as email, p.first_name, p.last_name
    from (select o.* from ${sql.table(table)} o where o.id = e.member_id offset 0) p where ${ofTenant(tenant, "p")}`;
  return sql`left join lateral (${of("subscribers")} union all ${of("contacts")}) m on true`;
}

/** SQL, of `memberOf`: they have no member any more, and leave at the next sweep or when they are due. */
const IS_GONE = sql`(e.state = 'ACTIVE' and e.send_id is null and m.id is null)`;

/** SQL: the columns of `ShownEnrolment`, of an enrolment `e` of a sequence `q`. */
const SHOWN = sql`
    case when ${IS_GONE} then 'LEFT' else e.state end as state,
    case when not ${IS_GONE} then e.reason when q.list_id is null then 'contact_deleted' else 'subscriber_deleted' end as reason,
    (select count(*)::int from sequence_steps s where s.campaign_id = q.campaign_id and s.removed_at is null and s.place <= (
      select t.place from sequence_steps t where t.campaign_id = q.campaign_id and t.step_id = e.step_id)) as step,
    case when e.send_id is null and not ${IS_GONE} then ${isoInstant(sql`e.due_at`)} end as due_at,
    ${isoInstant(sql`e.entered_at`)} as entered_at`;

const MAX_SHOWN = 100;

/** The sequences that a person is or was in, the latest first. @param email normalised */
export async function readEnrolments(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
): Promise<PersonEnrolment[]> {
  const ids = (table: "subscribers" | "contacts") =>
    sql`select k.id from ${sql.table(table)} k where ${ofTenant(tenant, "k")} and k.email = ${email}`;
  const { rows } = await sql<PersonEnrolment>`
    select q.campaign_id as sequence_id, c.name, ${SHOWN}
    from sequences q join campaigns c on c.id = q.campaign_id and ${ofTenant(tenant, "c")}
    -- By an address that they had before, or as a record that is deleted. The row of a new address has no member.
    join sequence_enrolments e on e.campaign_id = q.campaign_id and e.member_id <> e.address_hash
      and (e.address_hash = ${hashAddress(vault, tenant, email)}
        or e.member_id = any(array(${ids("subscribers")} union all ${ids("contacts")})))
    ${memberOf(tenant)}
    where ${ofTenant(tenant, "q")} order by e.entered_at desc, q.campaign_id limit ${sql.lit(MAX_SHOWN)}`.execute(
    kysely(em),
  );
  return rows;
}

interface EnrolledFilter {
  state?: EnrolmentState | undefined;
  /** The step that they wait for, or waited for when they LEFT. */
  stepId?: string | undefined;
  /** `next` of the page before. */
  after?: string | undefined;
}

const PAGE = 50;
/** Rows that a page walks at most in search of a state or a step: no index holds them. */
const MAX_WALKED = 10_000;

/**
 * A page of the people of a sequence, those who came into the audience last first.
 * @returns `next`: `after` of the next page, also where this one is empty; null on the last @throws {ApiError} `not_found`
 */
export async function pageEnrolled(
  em: EntityManager,
  tenant: Tenant,
  sequenceId: string,
  { state, stepId, after }: EnrolledFilter,
): Promise<{ people: EnrolledPerson[]; next: string | null }> {
  await readSequence(em, sequenceId, { tenant });
  const { rows } = await sql<{ people: EnrolledPerson[]; next: string | null }>`
    with walked as materialized (
      select w.campaign_id, w.member_id, w.state, w.reason, w.step_id, w.due_at, w.send_id, w.entered_at from sequence_enrolments w
      where w.campaign_id = ${sequenceId} and w.member_id <> w.address_hash ${after ? sql`and w.member_id < ${after}` : sql``}
      order by w.member_id desc limit ${sql.lit(MAX_WALKED)}
    ), found as materialized (
      select w.* from walked w where ${state ? sql`w.state = ${state}` : sql`true`} ${stepId ? sql`and w.step_id = ${stepId}` : sql``}
      order by w.member_id desc limit ${sql.lit(PAGE + 1)}
    ), shown as materialized (select f.* from found f order by f.member_id desc limit ${sql.lit(PAGE)})
    select coalesce((
        select json_agg(r order by r.id desc) from (
          select e.member_id as id, m.email, m.first_name, m.last_name, ${SHOWN}
          from shown e join sequences q on q.campaign_id = e.campaign_id and ${ofTenant(tenant, "q")} ${memberOf(tenant)}) r), '[]') as people,
      case when (select count(*) from found) > ${sql.lit(PAGE)} then (select min(member_id) from shown)
        when (select count(*) from walked) = ${sql.lit(MAX_WALKED)} then (select min(member_id) from walked) end as next`.execute(
    kysely(em),
  );
  const [page] = rows;
  if (!page) throw new Error("a page returned no row");
  return page;
}
