import { sql } from "kysely";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import type { Vault } from "../secrets/crypto.ts";

export interface PersonEnrolment {
  sequence_id: string;
  name: string;
  state: EnrolmentState;
  /** Why they LEFT. */
  reason: string | null;
  /** The number among the steps in use that they wait for, or waited for when they LEFT. */
  step: number | null;
  /** Null also while a wave holds them. */
  due_at: string | null;
  entered_at: string;
}

/** SQL, of an enrolment `e` of a sequence `q`: why it will leave once it is due; null while its member is there, or a wave holds it. */
const goneReason = (tenant: Tenant) => sql`case
  when e.state <> 'ACTIVE' or e.send_id is not null then null
  when q.list_id is null and not exists (select from contacts k where k.id = e.member_id and ${ofTenant(tenant, "k")}) then 'contact_deleted'
  when q.list_id is not null and not exists (select from subscribers k where k.id = e.member_id and ${ofTenant(tenant, "k")})
    then 'subscriber_deleted' end`;

const MAX_SHOWN = 100;

/** The sequences that a person is or was in, the latest first. @param email normalised */
export async function readEnrolments(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
): Promise<PersonEnrolment[]> {
  const member = (table: "subscribers" | "contacts") =>
    sql`select m.id from ${sql.table(table)} m where ${ofTenant(tenant, "m")} and m.email = ${email}`;
  const { rows } = await sql<PersonEnrolment>`
    select q.campaign_id as sequence_id, c.name, ${isoInstant(sql`e.entered_at`)} as entered_at,
      case when g.reason is null then e.state else 'LEFT' end as state, coalesce(g.reason, e.reason) as reason,
      case when e.send_id is null and g.reason is null then ${isoInstant(sql`e.due_at`)} end as due_at,
      (select count(*)::int from sequence_steps s where s.campaign_id = q.campaign_id and s.removed_at is null and s.place <= (
        select t.place from sequence_steps t where t.campaign_id = q.campaign_id and t.step_id = e.step_id)) as step
    from sequences q join campaigns c on c.id = q.campaign_id and ${ofTenant(tenant, "c")}
    -- By an address that they had before, or as a record that is deleted. The row of a new address has no member.
    join sequence_enrolments e on e.campaign_id = q.campaign_id and e.member_id <> e.address_hash
      and (e.address_hash = ${hashAddress(vault, tenant, email)} or e.member_id = any(array(
        ${member("subscribers")} union all ${member("contacts")})))
    cross join lateral (select ${goneReason(tenant)} as reason) g
    where ${ofTenant(tenant, "q")} order by e.entered_at desc, q.campaign_id limit ${sql.lit(MAX_SHOWN)}`.execute(
    kysely(em),
  );
  return rows;
}
