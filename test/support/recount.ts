import { type RawBuilder, sql } from "kysely";
import { FIGURES, type Figure } from "../../db/entities/analytics.ts";
import { UNKNOWN_REPORTER, WITHDRAWN } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { WHOLE_TENANT } from "../../domain/analytics/figures.ts";

/** A kept figure that differs from the number of facts. */
interface Difference {
  /** Empty for opt-outs of none. */
  resourceId: string;
  /** As `2026-11-21`. */
  day: string;
  figure: Figure;
  kept: number;
  counted: number;
}

/** Figures of hits about which a rule has decided. */
const marks = (of: (mark: string) => RawBuilder<unknown>) =>
  sql.join(["opened_unknown", "opened_machine", "clicked_unknown", "clicked_machine"].map(of));

/** Query: rows (resource_id, day, figure, count) by all facts of the tenant. */
const countedFacts = (tenant: Tenant): RawBuilder<unknown> => sql`
  select c.resource_id, c.day, f.figure, f.count from (
    select resource_id, day, count(*) filter (where accepted) as sent, count(*) filter (where accepted and tracked) as tracked,
      count(*) filter (where accepted and hard) as bounced_hard,
      count(*) filter (where accepted and soft and not hard) as bounced_soft,
      count(*) filter (where accepted and complaint) as complained,
      sum(opened) filter (where accepted) as opened, count(opened) filter (where accepted) as opened_unique,
      sum(clicked) filter (where accepted) as clicked, count(clicked) filter (where accepted) as clicked_unique,
      ${marks((mark) => sql`sum(${sql.id(mark)}) filter (where accepted) as ${sql.id(mark)}`)},
      count(*) filter (where state = 'REJECTED') as rejected, count(*) filter (where state = 'SUPPRESSED') as suppressed,
      count(*) filter (where state = 'UNKNOWN' and not accepted) as unknown
    from (
      select s.resource_id, (r.updated_at at time zone 'UTC')::date as day, r.state, r.tracked, coalesce(p.hard, false) as hard,
        coalesce(p.soft, false) as soft, coalesce(p.complaint, false) as complaint, e.opened, e.clicked,
        ${marks((mark) => sql.ref(`h.${mark}`))},
        r.state = 'SENT' or (r.state = 'UNKNOWN' and (p.seq is not null or e.seq is not null or h.seq is not null)) as accepted
      from sends s join send_recipients r on r.send_id = s.id
      left join (
        select send_id, seq, bool_or(kind = 'bounce:hard') as hard, bool_or(kind = 'bounce:soft') as soft,
          bool_or(kind = 'complaint') and not bool_or(kind = ${WITHDRAWN}) as complaint
        from mail_reports where ${ofTenant(tenant)} and kind <> ${UNKNOWN_REPORTER} group by send_id, seq
      ) p on p.send_id = r.send_id and p.seq = r.seq
      left join (
        select send_id, seq, sum(count) filter (where kind = 'opened') as opened,
          sum(count) filter (where kind = 'clicked') as clicked
        from engagements where ${ofTenant(tenant)} group by send_id, seq
      ) e on e.send_id = r.send_id and e.seq = r.seq
      left join (
        select send_id, seq, ${marks(
          (mark) => sql`sum(count) filter (where kind || '_' || by = ${sql.lit(mark)}) as ${sql.id(mark)}`,
        )}
        from marked_hits group by send_id, seq
      ) h on h.send_id = r.send_id and h.seq = r.seq
      where ${ofTenant(tenant, "s")}
    ) mails group by resource_id, day
  ) c cross join lateral (values ${sql.join(
    FIGURES.filter((figure) => figure !== "unsubscribed" && figure !== "complaints_received").map(
      (figure) => sql`(${sql.lit(figure)}, ${sql.ref(`c.${figure}`)}::bigint)`,
    ),
  )}) f (figure, count)
  union all
  select s.resource_id, (p.created_at at time zone 'UTC')::date, 'complaints_received', count(*)
  from mail_reports p join sends s on s.id = p.send_id and ${ofTenant(tenant, "s")}
  where ${ofTenant(tenant, "p")} and p.kind = 'complaint' and not exists (
    select from mail_reports w where w.send_id = p.send_id and w.seq = p.seq and w.kind = ${WITHDRAWN} and ${ofTenant(tenant, "w")}
  ) group by 1, 2
  union all
  select coalesce(campaign_id, ${WHOLE_TENANT}), (unsubscribed_at at time zone 'UTC')::date, 'unsubscribed', count(*)
  from unsubscribes where ${ofTenant(tenant)} group by 1, 2`;

/** Query: the same rows as they are kept. Those of resources are subtracted from the tenant's, which then hold the rest. */
const keptFigures = (tenant: Tenant): RawBuilder<unknown> => sql`
  select o.resource_id, d.day, f.figure, f.count * o.sign as count
  from analytics_days d
  cross join lateral (values (d.resource_id, 1), (${WHOLE_TENANT}, -1)) o (resource_id, sign)
  cross join lateral (values ${sql.join(
    FIGURES.map((figure) => sql`(${sql.lit(figure)}, ${sql.ref(`d.${figure}`)})`),
  )}) f (figure, count)
  where ${ofTenant(tenant, "d")} and (d.resource_id <> ${WHOLE_TENANT} or o.sign = 1)
  union all
  select resource_id, day, figure, count from analytics_changes where ${ofTenant(tenant)}`;

/** Query: the figures that differ. Those of sends whose ledger is deleted cannot be counted, and stay. */
const differingFigures = (tenant: Tenant): RawBuilder<unknown> => sql`
  select resource_id, day, figure, coalesce(k.count, 0) as kept, coalesce(c.count, 0) as counted
  from (select resource_id, day, figure, sum(count) as count from (${keptFigures(tenant)}) f group by 1, 2, 3) k
  full join (select * from (${countedFacts(tenant)}) f) c using (resource_id, day, figure)
  where coalesce(k.count, 0) <> coalesce(c.count, 0) and (
    figure = 'unsubscribed' or resource_id = ${WHOLE_TENANT} or resource_id in (
      select s.resource_id from sends s
      where ${ofTenant(tenant, "s")} and s.ledger_state in ('COMPLETE', 'NAMELESS') and exists (select from send_recipients r where r.send_id = s.id)))`;

/**
 * Counts the tenant's facts anew, also while mails go out. @param repair add what a figure lacks @returns the figures that
 * differ
 */
export async function recountFigures(
  em: EntityManager,
  tenant: Tenant,
  { repair }: { repair: boolean },
): Promise<Difference[]> {
  const repaired = repair
    ? sql`insert into analytics_changes (team_id, environment, resource_id, day, figure, count)
        select ${tenant.teamId}, ${tenant.environment}, resource_id, day, figure, counted - kept from differing
        returning 1`
    : sql`select 1`;
  const { rows } = await sql<Difference>`
    with differing as materialized (${differingFigures(tenant)}), repaired as (${repaired})
    select resource_id as "resourceId", to_char(day, 'YYYY-MM-DD') as day, figure, kept::float8, counted::float8
    from differing order by resource_id, day, figure`.execute(kysely(em));
  return rows;
}
