import { type RawBuilder, sql } from "kysely";
import type { SendStatus } from "../../db/entities/send.ts";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { figureRows } from "../analytics/figures.ts";
import { orNotFound } from "../errors.ts";
import { isWaiting, nextWaveAt, readSequence, type Sequence } from "./state.ts";
import type { Step } from "./steps.ts";

/** A step, and its mails and people as numbers. `waiting`: for the step, or in the wave that mails it. */
export type StepProgress = Pick<Step, "id" | "wait_minutes" | "time_of_day" | "send_days" | "subject"> &
  Record<"waiting" | "sent" | "opened" | "clicked" | "left", number>;

/** SQL: the steps in their order as JSON, `[]` of another campaign. @param row alias of its row of `campaigns` */
export function stepsProgress(row: string): RawBuilder<StepProgress[]> {
  const campaignId = sql.ref(`${row}.id`);
  return sql<StepProgress[]>`(
    select coalesce(json_agg(json_build_object('id', s.step_id, 'wait_minutes', v.wait_minutes, 'time_of_day', v.time_of_day,
      'send_days', v.send_days, 'subject', v.subject, 'waiting', coalesce(p.waiting, 0), 'sent', m.sent,
      'opened', m.opened, 'clicked', m.clicked, 'left', coalesce(p.gone, 0)) order by s.place), '[]')
    from sequence_steps s join sequence_step_versions v on v.id = s.version_id
    cross join lateral (
      select sum(a.sent) as sent, sum(a.opened) as opened, sum(a.clicked) as clicked
      from sequence_step_versions a where a.campaign_id = s.campaign_id and a.step_id = s.step_id) m
    left join (
      select e.step_id, count(*) filter (where e.state = 'ACTIVE') as waiting, count(*) filter (where e.state = 'LEFT') as gone
      from sequence_enrolments e where e.campaign_id = ${campaignId} and e.step_id is not null group by e.step_id
    ) p on p.step_id = s.step_id
    where s.campaign_id = ${campaignId} and s.removed_at is null)`;
}

/** People counted at most for operators. */
const MOST_COUNTED = 100_000;

/** Where a sequence is, at a price that does not grow with its people. */
export interface SequenceProgress extends Sequence {
  /** Since the last wave was claimed. */
  claimedMs: number | null;
  /** Until someone is due and a wave may begin, in ms; null when no person waits. */
  nextInMs: number | null;
  /** ISO 8601; null while no person waits. */
  nextDueAt: string | null;
  /** People who are in no wave, by step. */
  waiting: Record<string, number>;
  /** In the UTC day. */
  mailedToday: number;
}

/** @param tenant of this one alone @throws {ApiError} `not_found` */
export async function readProgress(em: EntityManager, id: string, tenant?: Tenant): Promise<SequenceProgress> {
  const sequence = await readSequence(em, id, { tenant });
  const today = sql`(clock_timestamp() at time zone 'UTC')::date`;
  const { rows } = await sql<Omit<SequenceProgress, keyof Sequence>>`
    select (extract(epoch from clock_timestamp() - q.claimed_at) * 1000)::float8 as "claimedMs",
      case when ${sequence.status === "ACTIVE"} and d.due_at is not null then greatest(0, ceil(extract(epoch from greatest(
        d.due_at, ${nextWaveAt}) - clock_timestamp()) * 1000)::float8) end as "nextInMs", ${isoInstant(sql`d.due_at`)} as "nextDueAt",
      (select coalesce(json_object_agg(step_id, people), '{}') from (
        select step_id, count(*)::int as people from (
          select e.step_id from sequence_enrolments e where ${isWaiting(id)} limit ${MOST_COUNTED}) w group by step_id) s) as waiting,
      (select coalesce(sum(sent), 0)::int
        from (${figureRows(sequence, { resourceId: id, from: today, to: today })}) f) as "mailedToday"
    from sequences q
    left join lateral (select e.due_at from sequence_enrolments e where ${isWaiting(id)} order by e.due_at limit 1) d on true
    where q.campaign_id = ${id} and ${ofTenant(sequence, "q")}`.execute(kysely(em));
  return { ...sequence, ...orNotFound(rows[0]) };
}

interface OpenWave {
  /** Of its send. */
  id: string;
  status: SendStatus;
  /** Why it is PAUSED. */
  reason: string | null;
}

/** Those that hold people, the oldest first. */
export async function readWaves(em: EntityManager, { openWaves, ...tenant }: Sequence): Promise<OpenWave[]> {
  const { rows } = await sql<OpenWave>`
    select s.id, s.status, case when s.status = 'PAUSED' then s.pause_reason end as reason
    from sends s where s.id = any(${openWaves}::text[]) and ${ofTenant(tenant, "s")} order by s.id`.execute(kysely(em));
  return rows;
}

export interface ShownSequence extends SequenceProgress {
  waves: OpenWave[];
  steps: StepProgress[];
  /** Mails of unknown outcome, by step. */
  unknown: Record<string, number>;
  people: Partial<Record<EnrolmentState, number>>;
}

/** @throws {ApiError} `not_found` */
export async function showSequence(em: EntityManager, tenant: Tenant, id: string): Promise<ShownSequence> {
  const progress = await readProgress(em, id, tenant);
  const { rows } = await sql<Pick<ShownSequence, "steps" | "people" | "unknown">>`
    select ${stepsProgress("c")} as steps, coalesce((select json_object_agg(p.state, p.count) from (
        select state, count(*)::int as count from sequence_enrolments where campaign_id = c.id and member_id <> address_hash group by state) p), '{}') as people,
      coalesce((select json_object_agg(u.step_id, u.count) from (
        select v.step_id, sum(k.count)::int as count from sends s join sequence_step_versions v on v.id = s.step_version_id
        join send_counts k on k.send_id = s.id and k.state = 'UNKNOWN'
        where s.resource_id = c.id and ${ofTenant(tenant, "s")} group by v.step_id) u), '{}') as unknown
    from campaigns c where c.id = ${id} and ${ofTenant(tenant, "c")}`.execute(kysely(em));
  return { ...progress, waves: await readWaves(em, progress), ...orNotFound(rows[0]) };
}
