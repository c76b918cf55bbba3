import { type RawBuilder, sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import type { TrackingMode } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { PAUSE_REASONS } from "../sends/pause-reasons.ts";
import { draftTracking } from "../tracking/modes.ts";

/** How a sequence is moved on from its status. */
const MOVED_BY: Partial<Record<BroadcastStatus, string>> = {
  DRAFT: "sequence:start starts it",
  ACTIVE: "it runs already",
  PAUSED: "sequence:resume continues it, sequence:stop ends it",
  STOPPED: "it has ended for good; sequence:create makes another one",
};

export const wrongState = ({ status }: Pick<Sequence, "status">, remedy = MOVED_BY[status]): ApiError =>
  new ApiError("resource_state_invalid", `It is ${status}: ${remedy}.`);

export interface Sequence extends Tenant {
  campaignId: string;
  name: string;
  status: BroadcastStatus;
  /** Why it is PAUSED; null where an operator paused it. */
  reason: string | null;
  /** One of the two is null. */
  listId: string | null;
  segmentId: string | null;
  fromEmail: string;
  fromName: string | null;
  apiKeyId: string | null;
  wave: number;
  openWaves: string[];
  /** The last wave was claimed long enough ago. */
  mayClaim: boolean;
  /** Of its next waves: by its own choice, which null leaves to its team. */
  tracking: TrackingMode;
  ownTracking: boolean | null;
  teamTracking: TrackingMode;
  includeMembers: boolean;
  /** As text of Postgres, as the next one. */
  startedAt: string | null;
  /** When changed contacts were last looked at. */
  sweptAt: string | null;
  areMembersNoted: boolean;
}

/** SQL: enrolments `e` that wait for a wave, and those whom one may claim. */
export const isWaiting = (campaignId: string | RawBuilder<unknown>): RawBuilder<unknown> =>
  sql`e.campaign_id = ${campaignId} and e.state = 'ACTIVE' and e.send_id is null`;
export const isDue = (campaignId: string): RawBuilder<unknown> =>
  sql`${isWaiting(campaignId)} and e.due_at <= now()::timestamptz(3)`;

/** SQL, of a row `q` of `sequences`: when the next wave may be claimed, if one was claimed. */
export const nextWaveAt = sql`(q.claimed_at + interval '3 seconds')`;

/** People who wait in a sequence that has ended become LEFT, without an event. */
export async function endWaiting(em: EntityManager, campaignId: string): Promise<void> {
  await sql`update sequence_enrolments e set state = 'LEFT', reason = 'stopped', due_at = null, fell_due_at = null
    where ${isWaiting(campaignId)}`.execute(kysely(em));
}

async function selectSequences(
  em: EntityManager,
  condition: RawBuilder<unknown>,
  tenant?: Tenant,
  locking = sql``,
): Promise<Sequence[]> {
  const ofOne = tenant ? sql`and ${ofTenant(tenant, "q")} and ${ofTenant(tenant, "c")}` : sql``;
  const { rows } = await sql<Sequence>`
    select q.campaign_id as "campaignId", q.team_id as "teamId", q.environment, c.name, c.status, c.status_reason as reason,
      q.list_id as "listId", q.segment_id as "segmentId", q.from_email as "fromEmail", c.from_name as "fromName",
      q.api_key_id as "apiKeyId", q.wave, q.open_waves as "openWaves",
      coalesce(${nextWaveAt} <= clock_timestamp(), true) as "mayClaim", ${draftTracking("c")} as tracking,
      c.tracking as "ownTracking", t.tracking as "teamTracking",
      q.include_members as "includeMembers", q.started_at as "startedAt", q.swept_at as "sweptAt", q.members_noted_at is not null as "areMembersNoted"
    from sequences q join campaigns c on c.id = q.campaign_id join teams t on t.id = c.team_id
    where ${condition} ${ofOne} order by q.campaign_id ${locking}`.execute(kysely(em));
  return rows;
}

/**
 * @param options `tenant`: of this one alone. `lock`: two kinds that exclude each other; `claim` lets people enter meanwhile, and
 *   `entering`, for changes on which entering depends, waits for transactions in which people enter, and they for it
 * @throws {ApiError} `not_found`
 */
export async function readSequence(
  em: EntityManager,
  campaignId: string,
  { lock, tenant }: { lock?: "claim" | "entering"; tenant?: Tenant | undefined } = {},
): Promise<Sequence> {
  const locking = { claim: sql`for no key update of q, c`, entering: sql`for update of q, c`, none: sql`` };
  const [found] = await selectSequences(em, sql`q.campaign_id = ${campaignId}`, tenant, locking[lock ?? "none"]);
  return orNotFound(found, "sequence");
}

/** The ACTIVE and PAUSED sequences; they and their steps stay as they are until the transaction ends. */
export const lockRunning = (em: EntityManager, tenant: Tenant, which: RawBuilder<unknown>): Promise<Sequence[]> =>
  selectSequences(em, sql`${which} and c.status in ('ACTIVE', 'PAUSED')`, tenant, sql`for key share of q, c`);

/** Has the workflow of a sequence look at Postgres, once the caller's transaction is committed: see `readWakes`. */
export async function wakeSequence(em: EntityManager, campaignId: string): Promise<void> {
  await kysely(em).insertInto("sequence_wakes").values({ campaign_id: campaignId }).execute();
}

/** Also wakes its workflow. @returns the sequence as it is then */
export async function moveSequence(
  em: EntityManager,
  sequence: Sequence,
  status: BroadcastStatus,
  reason: string | null,
): Promise<Sequence> {
  const { campaignId } = sequence;
  await sql`
    update campaigns set status = ${status}, status_reason = ${reason}
    where id = ${campaignId} and ${ofTenant(sequence)}`.execute(kysely(em));
  await wakeSequence(em, campaignId);
  return { ...sequence, status, reason };
}

/**
 * Nothing is claimed from its commit on; waves under way continue. One that is PAUSED keeps its reason, unless a client paused it.
 * @param reason null for an operator's command
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a DRAFT or one that is STOPPED
 */
export function pauseSequence(em: EntityManager, id: string, reason: string | null): Promise<Sequence> {
  return transaction(em, async (tx) => {
    const sequence = await readSequence(tx, id, { lock: "claim" });
    if (sequence.status === "PAUSED" && (sequence.reason !== PAUSE_REASONS.client || sequence.reason === reason)) {
      return sequence;
    }
    if (sequence.status !== "ACTIVE" && sequence.status !== "PAUSED") throw wrongState(sequence);
    return moveSequence(tx, sequence, "PAUSED", reason);
  });
}

/** Pauses those that cannot run any more, in the caller's transaction. */
export async function pauseRunning(
  em: EntityManager,
  tenant: Tenant,
  which: RawBuilder<unknown>,
  reason: string,
): Promise<void> {
  for (const { campaignId } of await lockRunning(em, tenant, which)) await pauseSequence(em, campaignId, reason);
}

/** A sequence that needs a workflow. */
export interface RunningSequence {
  id: string;
  teamId: string;
  status: string;
}

/** `sweep`: those of its people whom the reconciler is due to look at. */
type WatchedSequence = RunningSequence & { sweep: "none" | "changed contacts" | "all people" };

const PAGE = 500;
const RUNNING = sql`c.is_drip and c.status in ('ACTIVE', 'PAUSED')`;

/** A contact whose transaction began so long before it committed is found by the next sweep. */
export const OVERLAP = sql`interval '1 minute'`;

/** Page by page. All people are due every quarter of an hour, once the members at the start are noted. */
export async function* readRunning(em: EntityManager): AsyncGenerator<WatchedSequence[]> {
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { rows }: { rows: WatchedSequence[] } = await sql<WatchedSequence>`
      select c.id, c.team_id as "teamId", c.status, case
          when q.members_noted_at is null then 'none'
          -- Its people wait for a list that may be restored.
          when exists (select from bin b where b.id = q.list_id) then 'none'
          when coalesce(q.swept_all_at < now() - interval '15 minutes', true) then 'all people'
          when q.segment_id is not null and exists (select from contacts k
            where k.team_id = q.team_id and k.environment = q.environment and k.email_status = 'ACTIVE'
              and k.updated_at >= q.swept_at - ${OVERLAP}) then 'changed contacts'
          else 'none' end as sweep
      from sequences q join campaigns c on c.id = q.campaign_id
      where q.campaign_id > ${after} and ${RUNNING} order by q.campaign_id limit ${PAGE}`.execute(kysely(em));
    yield rows;
    after = rows[PAGE - 1]?.id;
  }
}

/**
 * For a restored database, before a process mails by it: pauses each sequence that runs. Their workflows look at it at once: one that
 * met the restore only when an operator resumes would pause the sequence again. @returns how many
 */
export async function holdSequences(em: EntityManager): Promise<number> {
  const { numAffectedRows = 0n } = await sql`
    with held as (
      update campaigns c set status = 'PAUSED', status_reason = ${PAUSE_REASONS.databaseRestored} where ${RUNNING} returning c.id
    ) insert into sequence_wakes (campaign_id) select id from held`.execute(kysely(em));
  return Number(numAffectedRows);
}

/** @returns the sequences whose workflows are to be woken, with their rows */
export async function readWakes(em: EntityManager): Promise<(RunningSequence & { seqs: string[] })[]> {
  const { rows } = await sql<RunningSequence & { seqs: string[] }>`
    select c.id, c.team_id as "teamId", c.status, array_agg(w.seq::text) as seqs
    from sequence_wakes w join campaigns c on c.id = w.campaign_id group by c.id`.execute(kysely(em));
  return rows;
}

export async function forgetWakes(em: EntityManager, seqs: readonly string[]): Promise<void> {
  await sql`delete from sequence_wakes where seq = any(${[...seqs]}::bigint[])`.execute(kysely(em));
}
