import { sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { isDue, isWaiting } from "./state.ts";

export interface ListedSequence {
  id: string;
  name: string;
  status: BroadcastStatus;
  /** Why it is PAUSED; null where a command paused it. */
  status_reason: string | null;
  /** Of its list or segment; null for one that was deleted. */
  target: string | null;
  from_email: string;
  steps: number;
}

interface SequenceFilter {
  status?: BroadcastStatus | undefined;
  /** Part of the name, in any case. */
  name?: string | undefined;
  /** The last id of the page before. */
  after?: string | undefined;
  limit: number;
}

/** The newest first. */
export async function listSequences(
  em: EntityManager,
  tenant: Tenant,
  { status, name = "", after, limit }: SequenceFilter,
): Promise<ListedSequence[]> {
  const { rows } = await sql<ListedSequence>`
    select c.id, c.name, c.status, c.status_reason, coalesce(l.name, g.name) as target, q.from_email,
      (select count(*)::int from sequence_steps s where s.campaign_id = c.id and s.removed_at is null) as steps
    from sequences q join campaigns c on c.id = q.campaign_id and ${ofTenant(tenant, "c")}
    left join lists l on l.id = q.list_id and ${ofTenant(tenant, "l")}
    left join segments g on g.id = q.segment_id and ${ofTenant(tenant, "g")}
    where ${ofTenant(tenant, "q")} and (${status ?? null}::text is null or c.status = ${status ?? null})
      and strpos(lower(c.name), lower(${name}::text)) > 0 and (${after ?? null}::text is null or c.id < ${after ?? null})
    order by c.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}

interface FoundSequence extends Pick<ListedSequence, "id" | "name" | "status" | "status_reason"> {
  team: string;
  /** In no wave. */
  waiting: number;
  next_due_at: string | null;
}

/** Sequences of all teams, or of one: those that are PAUSED, then the newest. */
export async function findSequences(
  em: EntityManager,
  { statuses, teamId, limit }: { statuses?: BroadcastStatus[] | undefined; teamId?: string | undefined; limit: number },
): Promise<FoundSequence[]> {
  const { rows } = await sql<FoundSequence>`
    select c.id, c.team_id as team, c.name, c.status, c.status_reason, w.waiting, ${isoInstant(sql`w.due_at`)} as next_due_at
    from (
      select * from campaigns c where c.is_drip and (${statuses ?? null}::text[] is null or c.status = any(${statuses ?? null}::text[]))
        and (${teamId ?? null}::text is null or c.team_id = ${teamId ?? null}) order by c.status <> 'PAUSED', c.id desc limit ${limit}
    ) c cross join lateral (
      select count(*)::int as waiting, min(e.due_at) as due_at from sequence_enrolments e where ${isWaiting(sql.ref("c.id"))}
    ) w order by c.status <> 'PAUSED', c.id desc`.execute(kysely(em));
  return rows;
}

/** The body and the conditions of a step; `StepProgress` has the rest. */
export interface StepContent {
  id: string;
  body: string;
  stop_if: unknown;
  skip_if: unknown;
}

export interface SequenceContent {
  steps: StepContent[];
  list_name: string | null;
  segment_name: string | null;
  /** Confirmed subscribers of its list; null for a segment. */
  subscribers: number | null;
  /** People who are due. */
  due: number;
}

/** @param sequenceId of a sequence of the tenant */
export async function readSequenceContent(
  em: EntityManager,
  tenant: Tenant,
  sequenceId: string,
): Promise<SequenceContent | undefined> {
  const { rows } = await sql<SequenceContent>`
    select l.name as list_name, g.name as segment_name,
      case when q.list_id is not null then (select count(*)::int from subscriptions b
        where ${ofTenant(tenant, "b")} and b.list_id = q.list_id and b.status = 'CONFIRMED') end as subscribers,
      (select count(*)::int from sequence_enrolments e where ${isDue(sequenceId)}) as due,
      (select coalesce(json_agg(json_build_object('id', s.step_id, 'body', v.body, 'stop_if', v.stop_if, 'skip_if', v.skip_if)
          order by s.place), '[]')
        from sequence_steps s join sequence_step_versions v on v.id = s.version_id
        where s.campaign_id = q.campaign_id and s.removed_at is null) as steps
    from sequences q
    left join lists l on l.id = q.list_id and ${ofTenant(tenant, "l")}
    left join segments g on g.id = q.segment_id and ${ofTenant(tenant, "g")}
    where q.campaign_id = ${sequenceId} and ${ofTenant(tenant, "q")}`.execute(kysely(em));
  return rows[0];
}
