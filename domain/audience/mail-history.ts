import { type RawBuilder, sql } from "kysely";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import type { RecipientState, ResourceType } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";

const MAX_MAILS = 100;
/** Recipients have no index by address, which each send would have to write: so many of them are looked through. */
const MAX_SENDS = 1_000;
const MAX_ROWS = 500_000;

/** A mail to an address, and what became of it. */
export interface HistoryMail {
  send_id: string;
  resource_type: ResourceType;
  resource_id: string;
  /** Of a mail of a sequence, that of its step. */
  subject: string | null;
  is_sequence: boolean;
  status: RecipientState;
  reason: string | null;
  updated_at: string;
  opens: number;
  clicks: number;
  /** Bounces and complaints, oldest first. */
  reports: { kind: string; created_at: string }[];
}

export interface MailHistory {
  mails: HistoryMail[];
  /** `before` of the next part, also where this one has no mail; null when all sends were looked through. */
  next: string | null;
}

/**
 * Reads the mails to an address of the latest sends, in one statement over a limited number of recipients. The mail that was sent last
 * comes first: a send may take days, and a later one be done before it.
 * @param email normalised
 * @param before a send: only older ones
 * @param more SQL: further names and values of each mail `m`, by its `id` and `seq`
 */
export async function readMailHistory(
  em: EntityManager,
  tenant: Tenant,
  email: string,
  before?: string,
  more: RawBuilder<unknown> = sql``,
): Promise<MailHistory> {
  const older = sql`and (s.send_at, s.id) < (
    select b.send_at, b.id from sends b where b.id = ${before} and ${ofTenant(tenant, "b")})`;
  const engaged = (kind: EngagementKind) => sql`coalesce((
    select e.count from engagements e where ${ofTenant(tenant, "e")} and e.send_id = m.id and e.seq = m.seq
      and e.kind = ${kind}), 0)`;
  const { rows } = await sql<MailHistory>`
    with latest as (
      select s.id, s.resource_type, s.resource_id, s.step_version_id, s.send_at,
        sum(s.recipients) over (order by s.send_at desc, s.id desc) - s.recipients as rows_before
      from sends s
      where ${ofTenant(tenant, "s")} and s.ledger_state in ('COMPLETE', 'NAMELESS') ${before === undefined ? sql`` : older}
      order by s.send_at desc, s.id desc limit ${sql.lit(MAX_SENDS + 1)}
    ), searched as materialized (
      select l.* from latest l where l.rows_before < ${sql.lit(MAX_ROWS)}
      order by l.send_at desc, l.id desc limit ${sql.lit(MAX_SENDS)}
    ), mails as materialized (
      select s.*, r.seq, r.state, r.reason, r.updated_at from searched s
      -- An address is once in a send. The limit keeps Postgres from a join that reads the recipients of all teams.
      cross join lateral (
        select r.seq, r.state, r.reason, r.updated_at from send_recipients r
        where r.send_id = s.id and r.email = ${email} limit 1) r
      order by s.send_at desc, s.id desc limit ${sql.lit(MAX_MAILS)}
    )
    select coalesce((
      select json_agg(json_build_object(
        'send_id', m.id, 'resource_type', m.resource_type, 'resource_id', m.resource_id,
        'is_sequence', m.step_version_id is not null, 'subject', coalesce(v.subject, n.subject, c.subject, n.name, c.name),
        'status', m.state, 'reason', m.reason, 'updated_at', ${isoInstant(sql.ref("m.updated_at"))},
        'opens', ${engaged("opened")}, 'clicks', ${engaged("clicked")},
        'reports', coalesce((
          select json_agg(json_build_object('kind', p.kind, 'created_at', ${isoInstant(sql.ref("p.created_at"))}) order by p.created_at)
          from mail_reports p where ${ofTenant(tenant, "p")} and p.send_id = m.id and p.seq = m.seq), '[]')${more}
      ) order by m.updated_at desc, m.send_at desc, m.id desc)
      from mails m
      left join newsletters n on n.id = m.resource_id and ${ofTenant(tenant, "n")}
      left join campaigns c on c.id = m.resource_id and ${ofTenant(tenant, "c")}
      left join sequence_step_versions v on v.id = m.step_version_id), '[]') as mails,
      case
        when (select count(*) from mails) = ${sql.lit(MAX_MAILS)}
          then (select m.id from mails m order by m.send_at, m.id limit 1)
        when (select count(*) from latest) > (select count(*) from searched)
          then (select s.id from searched s order by s.send_at, s.id limit 1)
      end as next`.execute(kysely(em));
  const [history] = rows;
  if (!history) throw new Error("a history returned no row");
  return history;
}
