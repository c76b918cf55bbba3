import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { prepared } from "../../db/pool.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF, FAILING_AFTER } from "./relay.ts";

/** Groups of an endpoint that may retry at once; first attempts have room of their own and never wait for a retry. */
const RETRY_SLOTS = 2;
/** A slot outlives the longest attempt activity; it is given back long before, unless its worker died. */
const SLOT_SECONDS = 60;

/** An endpoint is switched off after this long without a success, in hours … */
export const SWITCH_OFF_HOURS = 72;
/** … and so many failures in a row. */
export const SWITCH_OFF_FAILURES = 20;

/** What is left of a group is taken for lost when its next attempt is this late, in seconds. */
const LATE_SECONDS = 120;

const INTERRUPTED = "The outcome is unknown: the service was interrupted during this attempt.";
const OUTCOME_UNKNOWN = `${INTERRUPTED} It is made again.`;

/** One delivery to be attempted. */
export interface DueDelivery {
  id: string;
  eventId: string;
  type: string;
  isReplay: boolean;
  /** JSON of the record the event is about. */
  object: string;
  /** ISO 8601. */
  eventCreatedAt: string;
}

/** Where a group's deliveries go, as it stands at the beginning of the attempt. */
export interface Destination {
  webhookId: string;
  url: string;
  apiVersion: string;
  encryptedSecret: string;
  /** During a rotation. */
  previousEncryptedSecret: string | null;
  encryptedHeaders: string | null;
  /** It failed several times in a row: not much is asked of it at once. */
  failing: boolean;
}

export type OpenedAttempt =
  | { state: "open"; epoch: number; destination: Destination; due: DueDelivery[] }
  /** Its endpoint's slots for retries are taken. */
  | { state: "busy" }
  /** Nothing is left to do: the endpoint is gone or off, or the group was over. */
  | { state: "over"; failed: number; blocked: number };

interface Moment {
  groupId: string;
  /** 0 is the first attempt. */
  rung: number;
}

/**
 * Begins a group's attempt on a rung, or goes on with it, in one transaction. What an attempt before this one had in
 * hand when it was cut off is closed as unknown and gets a new row on the same rung; what failed on the rung before
 * gets its next row. Doing it again changes nothing more.
 */
export function openAttempt(em: EntityManager, { groupId, rung }: Moment): Promise<OpenedAttempt> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const { rows } = await sql<GroupRow>`${prepared("attempt_group")}
      select g.rung, g.epoch, g.attempting, g.webhook_id, e.id as endpoint_id, e.active, e.url, e.api_version,
        e.encrypted_secret, e.encrypted_headers, h.consecutive_failures,
        case when e.previous_secret_expires_at > now() then e.previous_encrypted_secret end as previous_encrypted_secret
      from webhook_groups g
      left join webhook_endpoints e on e.id = g.webhook_id
      left join webhook_health h on h.webhook_id = g.webhook_id
      where g.id = ${groupId} for update of g`.execute(db);
    const [group] = rows;
    if (!group) return { state: "over", failed: 0, blocked: 0 };
    if (group.endpoint_id === null) {
      await db.deleteFrom("webhook_groups").where("id", "=", groupId).execute();
      return { state: "over", failed: 0, blocked: 0 };
    }
    if (!group.active) {
      // What was in hand may have arrived: that is not BLOCKED.
      const inHand = ["FAILED", `${INTERRUPTED} ${ENDPOINT_OFF}`] as const;
      const [pending, why] = group.attempting ? inHand : (["BLOCKED", ENDPOINT_OFF] as const);
      return { state: "over", ...(await giveUp(tx, groupId, pending, ENDPOINT_OFF, why)) };
    }
    if (rung > 0 && !(await takeSlot(tx, groupId, group.webhook_id))) return { state: "busy" };

    const epoch = group.epoch + 1;
    if (group.attempting) await succeedRows(tx, groupId, "PENDING", OUTCOME_UNKNOWN);
    if (group.rung < rung) await succeedRows(tx, groupId, "RETRYING", null);
    await sql`${prepared("attempt_begin")} update webhook_groups
      set attempting = true, epoch = ${epoch}, rung = ${rung}, begun_at = coalesce(begun_at, now()),
        slot_until = case when ${rung}::int > 0 then now() + make_interval(secs => ${SLOT_SECONDS}) end,
        due_at = now() + make_interval(secs => ${LATE_SECONDS})
      where id = ${groupId}`.execute(db);
    const due = await sql<DueDelivery>`${prepared("attempt_due")}
      select d.id, d.event_id as "eventId", d.event_type as type, d.is_replay as "isReplay", v.object,
        to_char(v.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "eventCreatedAt"
      from webhook_deliveries d join webhook_events v on v.id = d.event_id
      where d.group_id = ${groupId} and d.status = 'PENDING' order by d.id`.execute(db);
    return {
      state: "open",
      epoch,
      due: due.rows,
      destination: {
        webhookId: group.webhook_id,
        url: group.url,
        apiVersion: group.api_version,
        encryptedSecret: group.encrypted_secret,
        previousEncryptedSecret: group.previous_encrypted_secret,
        encryptedHeaders: group.encrypted_headers,
        failing: group.consecutive_failures >= FAILING_AFTER,
      },
    };
  });
}

interface GroupRow {
  rung: number;
  epoch: number;
  attempting: boolean;
  webhook_id: string;
  /** Null when the endpoint is gone; then all below is too. */
  endpoint_id: string | null;
  active: boolean;
  url: string;
  api_version: string;
  encrypted_secret: string;
  encrypted_headers: string | null;
  previous_encrypted_secret: string | null;
  consecutive_failures: number;
}

/** Leases one of the endpoint's slots for retries to a group, or keeps the one it has. */
async function takeSlot(em: EntityManager, groupId: string, webhookId: string): Promise<boolean> {
  const db = kysely(em);
  // Two groups at once would each count the slots without the other.
  await sql`select from webhook_health where webhook_id = ${webhookId} for update`.execute(db);
  const { rows } = await sql<{ taken: number }>`
    select count(*)::int as taken from webhook_groups
    where webhook_id = ${webhookId} and phase = 'CLIMBING' and slot_until > now() and id <> ${groupId}`.execute(db);
  return (rows[0]?.taken ?? 0) < RETRY_SLOTS;
}

/** Closes a group's rows of one status as FAILED, each followed by a new PENDING one. @param why null keeps theirs */
async function succeedRows(
  em: EntityManager,
  groupId: string,
  status: DeliveryStatus,
  why: string | null,
): Promise<void> {
  const db = kysely(em);
  const { rows: closed } = await sql<{ id: string }>`
    update webhook_deliveries
    set status = 'FAILED', next_attempt_at = null, error_message = coalesce(${why}, error_message), updated_at = now()
    where group_id = ${groupId} and status = ${status} returning id`.execute(db);
  if (closed.length === 0) return;
  await sql`
    insert into webhook_deliveries
      (id, team_id, environment, webhook_id, event_id, event_type, group_id, attempt, is_replay, replay_of_id)
    select n.id, d.team_id, d.environment, d.webhook_id, d.event_id, d.event_type, d.group_id, d.attempt + 1,
      d.is_replay, d.replay_of_id
    from unnest(${closed.map(({ id }) => id)}::text[], ${closed.map(() => newId("delivery"))}::text[]) as n (old, id)
    join webhook_deliveries d on d.id = n.old`.execute(db);
}

/**
 * Ends a group whose deliveries cannot go on: those PENDING get `untried`, those that failed before are FAILED.
 */
async function giveUp(
  em: EntityManager,
  groupId: string,
  untried: "BLOCKED" | "FAILED",
  why: string,
  whyUntried = why,
): Promise<{ failed: number; blocked: number }> {
  const { rows } = await sql<{ status: DeliveryStatus }>`
    with ended as (
      update webhook_deliveries
      set status = case when status = 'PENDING' then ${untried} else 'FAILED' end, next_attempt_at = null,
        error_message = case when status = 'PENDING' then ${whyUntried} else concat_ws(' ', error_message, ${why}::text) end,
        updated_at = now()
      where group_id = ${groupId} and status in ('PENDING', 'RETRYING') returning status
    ), gone as (delete from webhook_groups where id = ${groupId})
    select status from ended`.execute(kysely(em));
  const blocked = rows.filter(({ status }) => status === "BLOCKED").length;
  return { failed: rows.length - blocked, blocked };
}

/** Ends a group at an operator's wish. @returns how many deliveries were given up */
export async function cancelGroup(em: EntityManager, groupId: string): Promise<number> {
  const { failed, blocked } = await giveUp(em, groupId, "FAILED", "An operator gave it up; it can be replayed.");
  return failed + blocked;
}

/** What an attempt can come to. */
export const ATTEMPT_OUTCOMES = ["SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const satisfies DeliveryStatus[];

/** What an attempt came to. */
export interface AttemptOutcome {
  id: string;
  status: (typeof ATTEMPT_OUTCOMES)[number];
  responseStatus: number | null;
  responseBody: string | null;
  errorMessage: string | null;
  durationMs: number;
}

/**
 * Writes outcomes, in the order in which they came, and what they say of the endpoint, in one transaction. One that
 * failed for long enough is switched off with it, and its owner's notice is due. A row that another attempt closed
 * meanwhile stays as it is.
 * @param retryInMs how long what is RETRYING waits for its next attempt, in ms; the end of the attempt may lengthen it
 */
export function settleAttempts(
  em: EntityManager,
  webhookId: string,
  outcomes: readonly AttemptOutcome[],
  retryInMs: number,
): Promise<void> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    await sql`${prepared("attempt_outcomes")}
      update webhook_deliveries d
      set status = o.status, response_status = o.response_status, response_body = o.response_body,
        error_message = o.error_message, duration_ms = o.duration_ms, updated_at = now(),
        next_attempt_at = case when o.status = 'RETRYING'
          then now() + make_interval(secs => ${retryInMs / 1000}::float8) end
      from unnest(${outcomes.map(({ id }) => id)}::text[], ${outcomes.map(({ status }) => status)}::text[],
        ${outcomes.map(({ responseStatus }) => responseStatus)}::smallint[],
        ${outcomes.map(({ responseBody }) => responseBody)}::text[],
        ${outcomes.map(({ errorMessage }) => errorMessage)}::text[],
        ${outcomes.map(({ durationMs }) => durationMs)}::int[]
      ) as o (id, status, response_status, response_body, error_message, duration_ms)
      where d.id = o.id and d.status = 'PENDING'`.execute(db);
    await noteHealth(tx, webhookId, outcomes);
  });
}

async function noteHealth(em: EntityManager, webhookId: string, outcomes: readonly AttemptOutcome[]): Promise<void> {
  const db = kysely(em);
  const lastSuccess = outcomes.findLastIndex(({ status }) => status === "SUCCEEDED");
  const failuresSince = outcomes.length - 1 - lastSuccess;
  const succeeded = lastSuccess >= 0;
  const failed = outcomes.some(({ status }) => status !== "SUCCEEDED");
  await sql`${prepared("attempt_health")}
    update webhook_health
    set consecutive_failures = case when ${succeeded} then 0 else consecutive_failures end + ${failuresSince}::int,
      last_success_at = case when ${succeeded} then now() else last_success_at end,
      last_failure_at = case when ${failed} then now() else last_failure_at end
    where webhook_id = ${webhookId}`.execute(db);
  if (failuresSince > 0) await switchOff(em, webhookId);
}

async function switchOff(em: EntityManager, webhookId: string): Promise<void> {
  await sql`${prepared("attempt_switch_off")}
    update webhook_endpoints e
    set active = false, disabled_at = now(), disabled_reason = 'delivery_failures', notice_due_at = now()
    from webhook_health h
    where e.id = ${webhookId} and h.webhook_id = e.id and e.active
      and h.consecutive_failures >= ${SWITCH_OFF_FAILURES}
      and greatest(e.enabled_at, h.last_success_at) < now() - make_interval(hours => ${SWITCH_OFF_HOURS})`.execute(
    kysely(em),
  );
}

export interface GroupLeft {
  /** Not attempted yet on this rung. */
  pending: number;
  retrying: number;
  /** Until what is RETRYING is attempted next, in ms, and when that is, ISO 8601; null when nothing is. */
  waitMs: number | null;
  nextAttemptAt: string | null;
}

/**
 * Ends an attempt, or its part: gives the slot back, and removes the group when nothing is left of it. What is left of
 * one that is over waits together, as long as the one that waits longest. Does nothing when another attempt took over.
 */
export async function closeAttempt(
  em: EntityManager,
  { groupId, epoch }: { groupId: string; epoch: number },
): Promise<GroupLeft> {
  const { rows } = await sql<GroupLeft>`${prepared("attempt_close")}
    with left_over as (
      select count(*) filter (where status = 'PENDING')::int as pending,
        count(*) filter (where status = 'RETRYING')::int as retrying, max(next_attempt_at) as retry_at
      from webhook_deliveries where group_id = ${groupId} and status in ('PENDING', 'RETRYING')
    ), gone as (
      delete from webhook_groups g using left_over l
      where g.id = ${groupId} and g.epoch = ${epoch} and l.pending = 0 and l.retrying = 0
    ), kept as (
      update webhook_groups g
      set attempting = false, slot_until = null, phase = case when l.pending = 0 then 'CLIMBING' else g.phase end,
        due_at = case when l.pending = 0 then l.retry_at else now() end
      from left_over l where g.id = ${groupId} and g.epoch = ${epoch} and (l.pending > 0 or l.retrying > 0)
      returning g.id
    ), levelled as (
      update webhook_deliveries d set next_attempt_at = l.retry_at, updated_at = now()
      from left_over l, kept k
      where d.group_id = k.id and l.pending = 0 and d.status = 'RETRYING' and d.next_attempt_at < l.retry_at
    )
    select pending, retrying, greatest(0, ceil(extract(epoch from retry_at - now()) * 1000))::int as "waitMs",
      to_char(retry_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "nextAttemptAt"
    from left_over`.execute(kysely(em));
  const [left] = rows;
  if (!left) throw new Error("an aggregate without a row");
  return left;
}

/** Notes that a group could not retry yet, so that it is not taken for lost meanwhile. */
export async function postponeGroup(em: EntityManager, groupId: string, waitMs: number): Promise<void> {
  await sql`update webhook_groups set due_at = now() + make_interval(secs => ${waitMs / 1000}::float8)
    where id = ${groupId}`.execute(kysely(em));
}
