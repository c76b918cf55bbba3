import { type RawBuilder, sql } from "kysely";

/** Days after the present one that can hold the next allowed time: a week of days, and a day whose time has passed. */
const DAYS_AHEAD = 8;

/**
 * SQL: when a step of version `v` is due for one who passed the step before at `since`: after the wait, at the next time of
 * day and day of the week that it allows, in the time zone. A time that the change of clocks leaves out or brings twice is one instant.
 */
export const dueAt = (since: RawBuilder<unknown>, timeZone: RawBuilder<unknown>) => {
  const waited = sql`(${since} + make_interval(mins => v.wait_minutes))`;
  return sql`case when v.time_of_day is null and v.send_days = '{}' then ${waited} else (
      select min(allowed.at) from generate_series(0, ${sql.lit(DAYS_AHEAD)}) n
      cross join lateral (select (${waited} at time zone ${timeZone})::date + n as day) d
      cross join lateral (select case when v.time_of_day is null then greatest(${waited}, d.day::timestamp at time zone ${timeZone})
        else (d.day + v.time_of_day::time) at time zone ${timeZone} end as at) allowed
      where allowed.at >= ${waited} and (v.send_days = '{}' or extract(isodow from d.day) = any(v.send_days))
    ) end`;
};

/**
 * SQL, for `left join lateral (…) on true`: `step_id` and `due_at` of the step that follows `passed`, the id of the step that was
 * passed at `since`, or null before the first. No row when none follows.
 */
export const nextStep = (
  campaignId: RawBuilder<unknown>,
  passed: RawBuilder<unknown>,
  since: RawBuilder<unknown>,
): RawBuilder<unknown> => sql`
  select s.step_id, date_trunc('milliseconds', ${dueAt(since, sql`t.time_zone`)}) as due_at
  from sequence_steps s join sequence_step_versions v on v.id = s.version_id
  join sequences q on q.campaign_id = s.campaign_id join teams t on t.id = q.team_id
  where s.campaign_id = ${campaignId} and s.removed_at is null and s.place > coalesce((
    select p.place from sequence_steps p where p.campaign_id = ${campaignId} and p.step_id = ${passed}), 0)
  order by s.place limit 1`;
