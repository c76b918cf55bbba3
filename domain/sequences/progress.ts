import { type RawBuilder, sql } from "kysely";
import { type BroadcastStatus, CAMPAIGN_STATUSES, type SendStatus } from "../../db/entities/send.ts";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { figureRows } from "../analytics/figures.ts";
import { orNotFound } from "../errors.ts";
import { isDue, isWaiting, nextWaveAt, readSequence, type Sequence } from "./state.ts";
import { STEP_CONTENT, STEP_TIMES, type Step } from "./steps.ts";

type Counts = Record<"waiting" | "sent" | "opened" | "clicked" | "left", number>;
/** A step without its content, and its mails and people as numbers. `waiting`: for the step, or in the wave that mails it. */
type StepProgress = Omit<Step, "body" | "stop_if" | "skip_if"> & Counts;

/**
 * SQL: the steps in their order as JSON, `[]` of another campaign. @param row alias of its row of `campaigns`
 * @param more SQL: further arguments of `json_build_object`, beginning with a comma
 */
export function stepsProgress(row: string, more: RawBuilder<unknown> = sql``): RawBuilder<StepProgress[]> {
  const campaignId = sql.ref(`${row}.id`);
  return sql<StepProgress[]>`(
    select coalesce(json_agg(json_build_object(${STEP_TIMES}, 'waiting', coalesce(p.waiting, 0), 'sent', m.sent,
      'opened', m.opened, 'clicked', m.clicked, 'left', coalesce(p.gone, 0) ${more}) order by s.place), '[]')
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

/** People who wait are counted up to so many. */
const MOST_COUNTED = 100_000;
/** People counted of each sequence of a page; no index holds their states. */
const MOST_LISTED = 1_000;

interface SequenceFilter {
  /** Of all teams unless given. */
  tenant?: Tenant | undefined;
  statuses?: readonly BroadcastStatus[] | undefined;
  /** Part of the name, in any case. */
  name?: string | undefined;
  /** The last id of the page before; not for operators. */
  after?: string | undefined;
  /** Those that are PAUSED come first, and people who wait are counted. */
  isForOperators?: boolean;
  limit: number;
}

export interface ListedSequence {
  id: string;
  team: string;
  name: string;
  status: BroadcastStatus;
  status_reason: string | null;
  /** Of its list or segment; null for one that was deleted. */
  target: string | null;
  from_email: string;
  steps: number;
  /** People in no wave, counted for operators alone: each sequence may have 100,000 of them. */
  waiting: number | null;
  /** By state; null of 1,000 and more, and for operators. */
  people: Partial<Record<EnrolmentState, number>> | null;
  next_due_at: string | null;
}

/** The newest first. */
export async function listSequences(
  em: EntityManager,
  { tenant, statuses, name = "", after, isForOperators = false, limit }: SequenceFilter,
): Promise<ListedSequence[]> {
  const waiting = isWaiting(sql.ref("c.id"));
  const { rows } = await sql<ListedSequence>`
    select c.id, c.team_id as team, c.name, c.status, c.status_reason, coalesce(l.name, g.name) as target, q.from_email,
      (select count(*)::int from sequence_steps s where s.campaign_id = c.id and s.removed_at is null) as steps,
      case when ${isForOperators} then (
        select count(*)::int from (select from sequence_enrolments e where ${waiting} limit ${MOST_COUNTED}) w) end as waiting,
      case when not ${isForOperators} then (
        select case when coalesce(sum(p.count), 0) < ${MOST_LISTED} then coalesce(json_object_agg(p.state, p.count), '{}') end from (
          select state, count(*)::int as count from (
            select e.state from sequence_enrolments e where e.campaign_id = c.id and e.member_id <> e.address_hash
            limit ${MOST_LISTED}) e group by state) p) end as people,
      ${isoInstant(sql`(select min(e.due_at) from sequence_enrolments e where ${waiting})`)} as next_due_at
    from sequences q join campaigns c on c.id = q.campaign_id
    left join lists l on l.id = q.list_id left join segments g on g.id = q.segment_id
    where ${tenant ? sql`${ofTenant(tenant, "q")} and ${ofTenant(tenant, "c")}` : sql`true`}
      and c.status = any(${statuses ?? CAMPAIGN_STATUSES}::text[])
      and strpos(lower(c.name), lower(${name}::text)) > 0 and (${after ?? null}::text is null or c.id < ${after ?? null})
    order by ${isForOperators ? sql`c.status <> 'PAUSED',` : sql``} c.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}

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
        from (${figureRows(sequence, { resourceIds: [id], from: today, to: today })}) f) as "mailedToday"
    from sequences q
    left join lateral (select e.due_at from sequence_enrolments e where ${isWaiting(id)} order by e.due_at limit 1) d on true
    where q.campaign_id = ${id} and ${ofTenant(sequence, "q")}`.execute(kysely(em));
  return { ...sequence, ...orNotFound(rows[0]) };
}

/** The sends of the waves that hold people, the oldest first. `reason`: why one is PAUSED. */
export async function readWaves(em: EntityManager, { openWaves, ...tenant }: Sequence) {
  const { rows } = await sql<{ id: string; status: SendStatus; reason: string | null }>`
    select s.id, s.status, case when s.status = 'PAUSED' then s.pause_reason end as reason
    from sends s where s.id = any(${openWaves}::text[]) and ${ofTenant(tenant, "s")} order by s.id`.execute(kysely(em));
  return rows;
}

export interface ShownSequence extends SequenceProgress {
  /** Names of its list or segment; null for one that was deleted. */
  listName: string | null;
  segmentName: string | null;
  waves: Awaited<ReturnType<typeof readWaves>>;
  steps: (Step & Counts)[];
  people: Partial<Record<EnrolmentState, number>>;
  /** People who are due. */
  due: number;
  /** Mails of unknown outcome, by step. */
  unknown: Record<string, number>;
  /** ISO 8601: the last change of its campaign, and that of its steps. */
  updatedAt: string;
  stepsUpdatedAt: string;
}

/** @throws {ApiError} `not_found` */
export async function showSequence(em: EntityManager, tenant: Tenant, id: string): Promise<ShownSequence> {
  const progress = await readProgress(em, id, tenant);
  const { rows } = await sql<Omit<ShownSequence, keyof SequenceProgress | "waves">>`
    select l.name as "listName", g.name as "segmentName", ${stepsProgress("c", sql`, ${STEP_CONTENT}`)} as steps,
      coalesce((select json_object_agg(p.state, p.count) from (
        select state, count(*)::int as count from sequence_enrolments where campaign_id = c.id and member_id <> address_hash group by state) p), '{}') as people,
      (select count(*)::int from sequence_enrolments e where ${isDue(id)}) as due,
      coalesce((select json_object_agg(u.step_id, u.count) from (
        select v.step_id, sum(k.count)::int as count from sends s join sequence_step_versions v on v.id = s.step_version_id
        join send_counts k on k.send_id = s.id and k.state = 'UNKNOWN'
        where s.resource_id = c.id and ${ofTenant(tenant, "s")} group by v.step_id) u), '{}') as unknown,
      ${isoInstant(sql`c.updated_at`)} as "updatedAt", ${isoInstant(sql`q.updated_at`)} as "stepsUpdatedAt"
    from campaigns c join sequences q on q.campaign_id = c.id and ${ofTenant(tenant, "q")}
    left join lists l on l.id = ${progress.listId} and ${ofTenant(tenant, "l")}
    left join segments g on g.id = ${progress.segmentId} and ${ofTenant(tenant, "g")}
    where c.id = ${id} and ${ofTenant(tenant, "c")}`.execute(kysely(em));
  return { ...progress, waves: await readWaves(em, progress), ...orNotFound(rows[0]) };
}
