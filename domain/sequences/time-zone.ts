import { sql } from "kysely";
import { ENVIRONMENTS } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { dueAt } from "./due.ts";
import { isWaiting } from "./state.ts";

/**
 * Lets those who wait for a time of day or a day wait for the next one of the team's new time zone, which the caller's
 * transaction has written. One who is due, or was before a resume spread them, stays so.
 */
export async function followTimeZone(em: EntityManager, teamId: string, timeZone: string): Promise<void> {
  for (const environment of ENVIRONMENTS) {
    const tenant = { teamId, environment };
    // As `entering` of `readSequence`: who enters meanwhile has entered by the old zone before, or enters by the new one.
    const { rows } = await sql<{ id: string }>`
      select q.campaign_id as id from sequences q join campaigns c on c.id = q.campaign_id and ${ofTenant(tenant, "c")}
      where ${ofTenant(tenant, "q")} and c.status <> 'STOPPED' order by q.campaign_id for update of q, c`.execute(
      kysely(em),
    );
    const ids = rows.map(({ id }) => id);
    // From now on: the time of the new zone may have passed today, and a mail at once would come at any hour.
    const since = sql`greatest(coalesce(e.passed_at, e.entered_at), statement_timestamp() - make_interval(mins => v.wait_minutes))`;
    await sql`
      with moved as (
        update sequence_enrolments e set due_at = date_trunc('milliseconds', ${dueAt(since, sql`${timeZone}`)})
        from sequence_steps s join sequence_step_versions v on v.id = s.version_id
        where s.campaign_id = any(${ids}::text[]) and ${isWaiting(sql`s.campaign_id`)} and e.step_id = s.step_id
          and (v.time_of_day is not null or v.send_days <> '{}')
          and e.due_at > statement_timestamp() and e.fell_due_at is null
        returning e.campaign_id
      ) insert into sequence_wakes (campaign_id) select distinct campaign_id from moved`.execute(kysely(em));
  }
}
