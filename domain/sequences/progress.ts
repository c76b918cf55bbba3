import { type RawBuilder, sql } from "kysely";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { figureRows } from "../analytics/figures.ts";
import { orNotFound } from "../errors.ts";
import { isWaiting, readSequence, type Sequence } from "./state.ts";

/** A step, and the people at it. */
export interface StepProgress {
  id: string;
  wait_minutes: number;
  /** `HH:MM` in the team's time zone. */
  time_of_day: string | null;
  /** ISO weekdays; none is any day. */
  send_days: number[];
  subject: string;
  /** For the step, or in the wave that mails it. */
  waiting: number;
  /** Mails that a server accepted. */
  sent: number;
  /** Mails that were opened, and those with a link that was followed. */
  opened: number;
  clicked: number;
  /** People who left the sequence when this step was the next one. */
  left: number;
}

/** SQL: the steps in their order as JSON, `[]` of another campaign. @param row alias of its row of `campaigns` */
export function stepsProgress(row: string): RawBuilder<StepProgress[]> {
  const campaignId = sql.ref(`${row}.id`);
  return sql<StepProgress[]>`(
    select coalesce(json_agg(json_build_object('id', s.step_id, 'wait_minutes', v.wait_minutes, 'time_of_day', v.time_of_day,
      'send_days', v.send_days, 'subject', v.subject, 'waiting', coalesce(p.waiting, 0), 'sent', s.sent,
      'opened', s.opened, 'clicked', s.clicked, 'left', coalesce(p.gone, 0)) order by s.place), '[]')
    from sequence_steps s join sequence_step_versions v on v.id = s.version_id
    left join (
      select e.step_id, count(*) filter (where e.state = 'ACTIVE') as waiting, count(*) filter (where e.state = 'LEFT') as gone
      from sequence_enrolments e where e.campaign_id = ${campaignId} and e.step_id is not null group by e.step_id
    ) p on p.step_id = s.step_id
    where s.campaign_id = ${campaignId} and s.removed_at is null)`;
}

/** SQL: mails of the UTC day that a server accepted. */
export function sentToday(tenant: Tenant, resourceId: string): RawBuilder<number> {
  const today = sql`(clock_timestamp() at time zone 'UTC')::date`;
  return sql<number>`(select coalesce(sum(sent), 0)::int from (${figureRows(tenant, { resourceId, from: today, to: today })}) f)`;
}

export interface SequenceProgress extends Sequence {
  steps: StepProgress[];
  people: Partial<Record<EnrolmentState, number>>;
  /** ISO 8601; null while no person waits. */
  nextDueAt: string | null;
  /** In the UTC day. */
  mailedToday: number;
}

/** @throws {ApiError} `not_found` */
export async function showSequence(em: EntityManager, tenant: Tenant, id: string): Promise<SequenceProgress> {
  const sequence = await readSequence(em, id, { tenant });
  const { rows } = await sql<Omit<SequenceProgress, keyof Sequence>>`
    select ${stepsProgress("c")} as steps, ${sentToday(tenant, id)} as "mailedToday",
      coalesce((select json_object_agg(p.state, p.count) from (
        select state, count(*)::int as count from sequence_enrolments where campaign_id = c.id group by state) p), '{}') as people,
      (select ${isoInstant(sql`min(e.due_at)`)} from sequence_enrolments e
        where ${isWaiting(id)}) as "nextDueAt"
    from campaigns c where c.id = ${id} and ${ofTenant(tenant, "c")}`.execute(kysely(em));
  return { ...sequence, ...orNotFound(rows[0]) };
}
