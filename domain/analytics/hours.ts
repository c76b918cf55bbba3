import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";

/** People whose first response came in the hour, or in five minutes of the first hours. */
interface HourOfSend {
  /** Its beginning. */
  hour: string;
  opened: number;
  clicked: number;
}

/** A chart shows each of these hours; few mails are opened later. */
const HOURS = 48;
/** In so many, five minutes stand for an hour: most responses are of them, and a line needs more than one. */
const FIRST_HOURS = 3;
/** The first recipients of a larger send stand for all: the time of a report does not grow with the send. */
export const MAX_RECIPIENTS = 100_000;

/**
 * The first opens and clicks in the hours after a newsletter or campaign began to go out, from the hour of its start to the last one
 * with a response. Empty for one without any, and for a sequence.
 */
export async function readHours(
  em: EntityManager,
  tenant: Tenant,
  resourceId: string,
): Promise<{ unit: "minute" | "hour"; hours: HourOfSend[] }> {
  const { rows } = await sql<HourOfSend & { isFirst: boolean }>`
    with sent as (
      select s.id, s.started_at, s.started_at > now() - make_interval(hours => ${FIRST_HOURS}) as is_first from sends s
      where ${ofTenant(tenant, "s")} and s.resource_id = ${resourceId} and s.step_version_id is null and s.started_at is not null
      order by s.send_at desc limit 1
    ), started as (
      select s.id, s.is_first, make_interval(mins => case when s.is_first then 5 else 60 end) as step,
        case when s.is_first then date_bin('5 minutes', s.started_at, 'epoch') else date_trunc('hour', s.started_at) end as at
      from sent s
    ), hours as (
      select date_bin(s.step, e.first_at, s.at) as hour,
        count(*) filter (where e.kind = 'opened')::int as opened, count(*) filter (where e.kind = 'clicked')::int as clicked
      from started s join engagements e on e.send_id = s.id and ${ofTenant(tenant, "e")}
      where e.seq <= ${MAX_RECIPIENTS} and e.first_at < s.at + make_interval(hours => ${HOURS}) group by 1
    )
    select s.is_first as "isFirst", ${isoInstant(sql.ref("hour"))} as hour, coalesce(h.opened, 0) as opened, coalesce(h.clicked, 0) as clicked
    from started s cross join generate_series(s.at, (select max(hour) from hours), s.step) hour left join hours h using (hour)
    order by hour`.execute(kysely(em));
  const hours = rows.map(({ isFirst: _, ...hour }) => hour);
  return { unit: rows[0]?.isFirst ? "minute" : "hour", hours };
}
