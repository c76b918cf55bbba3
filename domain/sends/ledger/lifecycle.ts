import { sql } from "kysely";
import type { BroadcastStatus, SendStatus } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { limitStatements } from "../../../db/statements.ts";
import { transaction } from "../../../db/transaction.ts";
import { moveCredits } from "../../teams/credits.ts";
import { emit } from "../../webhooks/emit.ts";
import { campaignRow, newsletterRow } from "../../webhooks/records.ts";
import { COMPLAINT_THRESHOLD, complaintLimit, complaintRate } from "../complaint-rate.ts";
import { PAUSE_REASONS } from "../pause-reasons.ts";
import type { SendResource } from "../resource.ts";
import type { SendMove } from "../send-log.ts";
import { countStates, sentCount } from "./counts.ts";
import { closeAttempts, closedEpochs, laneAccounts } from "./lanes.ts";
import { markUnknown, readInFlightMs } from "./unknown.ts";

/** Statuses a send never leaves. */
export const TERMINAL: ReadonlySet<BroadcastStatus> = new Set(["SENT", "CANCELLED", "FAILED"]);

export interface SendState {
  status: SendStatus;
  /** By the database clock; 0 or less when it may start. */
  startsInMs: number;
  recipients: number;
  /** Mails that a server accepted. */
  sent: number;
  /** ISO 8601: SENDING since it began, PAUSED since then. */
  since: string;
  /** ISO 8601, with the days to which it is restricted, as operators read them. */
  startsAt: string;
  /** Why it is paused, see `pauseSend`; null when an operator paused it. */
  pauseReason: string | null;
  /** By the database clock; null while it is not paused. 1.0 does not give it. */
  pausedForMs?: number | null;
  resumes: number;
  /** If that paused it: a fraction of the delivered mail. */
  complaintRate?: number | null;
  accountIds: string[];
  /** See `closedEpochs`. */
  closedEpochs: Record<string, number>;
}

/** A send after a command, and whether the command had its effect. */
export interface ChangedSend {
  changed: boolean;
  state: SendState | undefined;
  /** Missing when its status is as before. */
  from?: SendStatus;
}

const pausedSince = sql`coalesce(s.paused_at, s.updated_at)`;

/** @returns undefined when the send was never confirmed */
export async function readSend(em: EntityManager, sendId: string): Promise<SendState | undefined> {
  const { rows } = await sql<SendState>`
    select s.status, ceil(extract(epoch from s.send_at - clock_timestamp()) * 1000)::float8 as "startsInMs",
      s.recipients, ${sentCount} as sent,
      ${isoInstant(sql`case s.status when 'SENDING' then s.started_at when 'PAUSED' then ${pausedSince} else s.updated_at end`)} as since, (
        select ${isoInstant(sql`s.send_at`)} || case when days = '' then '' else ' (' || days || ' in ' || t.time_zone || ')' end
        from teams t, lateral (
          select coalesce(string_agg((array['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'])[day], ', ' order by day), '') as days
          from unnest(coalesce(
            (select n.send_days from newsletters n where n.id = s.resource_id),
            (select c.send_days from campaigns c where c.id = s.resource_id))) as d (day)
        ) allowed where t.id = s.team_id) as "startsAt",
      s.pause_reason as "pauseReason", s.resumes,
      case when s.status = 'PAUSED' then floor(extract(epoch from clock_timestamp() - ${pausedSince}) * 1000)::float8 end as "pausedForMs",
      case when s.pause_reason = ${PAUSE_REASONS.complaints} then s.complaint_rate end as "complaintRate",
      ${laneAccounts} as "accountIds", ${closedEpochs} as "closedEpochs"
    from sends s where s.id = ${sendId}`.execute(kysely(em));
  return rows[0];
}

type SendStep = "started" | "paused" | "completed" | "cancelled";

const ROWS = { newsletter: newsletterRow, campaign: campaignRow };

const emitStep = (em: EntityManager, tenant: Tenant, { type, id }: SendResource, step: "scheduled" | SendStep) =>
  emit(em, tenant, `${type}.${step}`, ROWS[type](id));

export async function markScheduled(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  send: { id: string; sendAt: Date },
): Promise<void> {
  await kysely(em)
    .updateTable(`${resource.type}s`)
    .set({ status: "SCHEDULED", send_id: send.id, send_at: send.sendAt })
    .where("id", "=", resource.id)
    .where(ofTenant(tenant))
    .execute();
  await emitStep(em, tenant, resource, "scheduled");
}

/** A resource that was SENT stays SENT: later outcomes of its unknown recipients concern the send alone. */
async function markMoved(
  em: EntityManager,
  { teamId, environment }: Tenant,
  resource: SendResource,
  sendId: string,
  step: SendStep | undefined,
): Promise<void> {
  const tenant = { teamId, environment };
  const moved = await sql`
    update ${sql.table(`${resource.type}s`)} r
    set status = s.status, status_reason = s.pause_reason, started_at = s.started_at, completed_at = s.completed_at
    from sends s
    where s.id = ${sendId} and ${ofTenant(tenant, "s")} and r.id = s.resource_id and ${ofTenant(tenant, "r")}
      and r.send_id = s.id and r.status <> 'SENT'`.execute(kysely(em));
  if (step && (moved.numAffectedRows ?? 0n) > 0n) await emitStep(em, tenant, resource, step);
}

interface Move {
  from: readonly SendStatus[];
  to: SendStatus;
  pauseReason?: string | null;
}

/**
 * Takes a send and its resource to `to`, in the caller's transaction; one that is there already has succeeded, without
 * an event. @returns whether the send is at `to` now
 */
async function move(em: EntityManager, sendId: string, { from, to, pauseReason = null }: Move): Promise<boolean> {
  const { rows } = await sql<Tenant & SendResource & { hasMoved: boolean; isFirstStart: boolean }>`
    update sends s set status = ${to}, pause_reason = ${pauseReason},
      paused_at = case when ${to === "PAUSED"} then case when s.status = 'PAUSED' then ${pausedSince} else now() end end,
      started_at = case when ${to === "SENDING"} then coalesce(s.started_at, now()) else s.started_at end,
      completed_at = case when ${TERMINAL.has(to)} then coalesce(s.completed_at, now()) else s.completed_at end,
      resumes = s.resumes + (s.status = 'PAUSED' and ${to === "SENDING" || to === "SCHEDULED"})::int
    from sends was
    where s.id = ${sendId} and was.id = s.id and s.status = any(${[...from, to]}::text[])
    returning s.team_id as "teamId", s.environment, s.resource_type as type, s.resource_id as id,
      was.status <> s.status as "hasMoved", was.started_at is null as "isFirstStart"`.execute(kysely(em));
  const [moved] = rows;
  if (!moved) return false;
  await markMoved(em, moved, moved, sendId, moved.hasMoved ? stepTo(to, moved.isFirstStart) : undefined);
  return true;
}

/** A cancel changes the row of each recipient, in one statement. */
const FINISH_LIMIT_MS = 1_500_000;

/** A resume is no event. */
function stepTo(to: SendStatus, firstStart: boolean): SendStep | undefined {
  switch (to) {
    case "SENDING":
      return firstStart ? "started" : undefined;
    case "PAUSED":
      return "paused";
    case "SENT":
    case "FAILED":
      return "completed";
    case "CANCELLED":
      return "cancelled";
    case "SCHEDULED":
      return undefined;
  }
}

function change(
  em: EntityManager,
  sendId: string,
  choose: (before: SendState, isSettled: boolean) => Move | undefined,
): Promise<ChangedSend> {
  return transaction(em, async (tx) => {
    const send = await kysely(tx)
      .selectFrom("sends")
      .select(sql<boolean>`settled_at is not null`.as("isSettled"))
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirst();
    const before = send && (await readSend(tx, sendId));
    const chosen = before && choose(before, send.isSettled);
    const changed = chosen !== undefined && (await move(tx, sendId, chosen));
    const state = changed ? await readSend(tx, sendId) : before;
    return { changed, state, ...(before && before.status !== state?.status && { from: before.status }) };
  });
}

/** SCHEDULED to SENDING, once its time has come by the database clock. */
export function beginSend(em: EntityManager, sendId: string): Promise<ChangedSend> {
  return change(em, sendId, ({ startsInMs }) => (startsInMs > 0 ? undefined : { from: ["SCHEDULED"], to: "SENDING" }));
}

/** Reasons that no further pause hides, the gravest first: an operator who resumes the send has to know of them. */
const KEPT_REASONS: readonly (string | null)[] = [PAUSE_REASONS.databaseRestored, PAUSE_REASONS.complaints];

/**
 * A send that is paused for one of `KEPT_REASONS` keeps it, unless it is paused for a graver one.
 * @param pauseReason a code when no operator paused it; where several accounts have failed, the code of each behind its
 *   id
 */
export function pauseSend(em: EntityManager, sendId: string, pauseReason: string | null = null): Promise<ChangedSend> {
  return change(em, sendId, (before) => {
    const kept = KEPT_REASONS.find((reason) => reason === before.pauseReason || reason === pauseReason);
    return { from: ["SCHEDULED", "SENDING"], to: "PAUSED", pauseReason: kept ?? pauseReason };
  });
}

const resumption = ({ startsInMs }: SendState): Move => ({
  from: ["PAUSED"],
  to: startsInMs > 0 ? "SCHEDULED" : "SENDING",
});

/** Unlike an operator's resume it leaves the limit of complaints as it is. */
export const resumeForClient = (em: EntityManager, sendId: string): Promise<ChangedSend> =>
  change(em, sendId, resumption);

/**
 * For a send that complaints had paused, a further rise counts from the present rate.
 * @param areGone by an operator's word: refusals that name a mailbox as unknown are believed from now on
 * @param resumes of the send when the command was given: a second try, after a further pause, changes nothing
 */
export function resumeSend(
  em: EntityManager,
  sendId: string,
  areGone = false,
  resumes = Number.POSITIVE_INFINITY,
): Promise<ChangedSend> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select(["team_id as teamId", "environment", "status", "complaint_rate", "resumes"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirst();
    if (send && send.resumes > resumes) return { changed: true, state: await readSend(tx, sendId) };
    const resumed = await change(tx, sendId, resumption);
    if (areGone) await db.updateTable("send_lanes").set({ are_gone: true }).where("send_id", "=", sendId).execute();
    if (send?.status === "PAUSED" && send.complaint_rate !== null) {
      const countsFrom = sql<number | null>`(select case when rate >= ${sql.lit(COMPLAINT_THRESHOLD)} then rate end
        from (select ${complaintRate(send)} as rate) c)`;
      await db
        .updateTable("sends")
        .set({ complaint_rate: countsFrom })
        .where("id", "=", sendId)
        .where(ofTenant(send))
        .execute();
    }
    return resumed;
  });
}

/**
 * Pauses each SENDING send of a team whose limit the team's complaint rate has reached. It stages no recipient once
 * this has committed. @returns the sends that it paused, for the caller's log
 */
export async function pauseForComplaints(em: EntityManager, tenant: Tenant): Promise<SendMove[]> {
  const overLimit = (from: EntityManager) =>
    kysely(from)
      .selectFrom("sends as s")
      .select("s.id")
      .where(ofTenant(tenant, "s"))
      .where("s.status", "=", "SENDING")
      .where(sql<boolean>`${complaintRate(tenant)} >= ${complaintLimit}`)
      .orderBy("s.id");
  if ((await overLimit(em).execute()).length === 0) return [];
  return transaction(em, async (tx) => {
    // Read again under the lock: an operator's resume at this moment sets a new limit.
    const paused = await overLimit(tx).forUpdate().execute();
    const moves: SendMove[] = [];
    for (const { id } of paused) {
      await move(tx, id, { from: ["SENDING"], to: "PAUSED", pauseReason: PAUSE_REASONS.complaints });
      const { rows } = await sql<{ rate: number }>`
        update sends set complaint_rate = ${complaintRate(tenant)} where id = ${id} and ${ofTenant(tenant)}
        returning complaint_rate as rate`.execute(kysely(tx));
      moves.push({
        ...{ sendId: id, teamId: tenant.teamId, from: "SENDING", status: "PAUSED", reason: PAUSE_REASONS.complaints },
        ...(rows[0] && { complaintRate: rows[0].rate }),
      });
    }
    return moves;
  });
}

/**
 * Stops a send for good; mails in flight are finished first, see `finishSend`. One that had ended and mails its unknown
 * recipients again is SENT as before.
 */
export const cancelSend = (em: EntityManager, sendId: string): Promise<ChangedSend> =>
  change(em, sendId, ({ status }, isSettled) =>
    status === "SENT" ? undefined : { from: ["SCHEDULED", "SENDING", "PAUSED"], to: isSettled ? "SENT" : "CANCELLED" },
  );

export interface SettledSend {
  /** SENDING, or PAUSED meanwhile, when recipients are still to be mailed: then nothing was settled. */
  status: SendStatus;
  sent: number;
  unknown: number;
  /** For which an operator may decide about the unknown ones; 0 when there is nothing to decide. */
  reviewMs: number;
  /** Of a send that has just ended: for so long late replies may settle unknown ones. */
  lateMs?: number;
  /** Missing when its status is as before. */
  from?: SendStatus;
  /** By this very call. */
  cancelled: number;
  /** By this very call. */
  lost: number;
}

/**
 * Ends a send: waiting recipients of a cancelled one become CANCELLED, credits of SENT and UNKNOWN mail are consumed
 * and all others released, once, and the status becomes SENT, or FAILED when no mail went out. One that had ended
 * before is SENT as before, and recipients that were not mailed again are UNKNOWN. Changes nothing while recipients of
 * a send that is SENDING wait: an attempt that was presumed dead may have put one back. Rows that are SENDING then have
 * no live attempt: they become UNKNOWN.
 */
export function finishSend(em: EntityManager, sendId: string): Promise<SettledSend> {
  return transaction(em, async (tx) => {
    await limitStatements(tx, FINISH_LIMIT_MS);
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select(["team_id as teamId", "environment", "status", "recipients", "settled_at"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirstOrThrow();
    const settled = send.settled_at !== null;
    let cancelled = 0;
    if (send.status === "CANCELLED" || send.status === "SENT") {
      const ended = await db
        .updateTable("send_recipients")
        .set({
          state: send.status === "SENT" ? "UNKNOWN" : "CANCELLED",
          retry_at: null,
          updated_at: sql<string>`now()`,
        })
        .where("send_id", "=", sendId)
        .where("state", "in", ["QUEUED", "DEFERRED"])
        .executeTakeFirst();
      if (send.status === "CANCELLED") cancelled = Number(ended.numUpdatedRows);
    }
    let states = await countStates(tx, sendId);
    let lost = 0;
    const isLeft = () => !TERMINAL.has(send.status) && (states.QUEUED ?? 0) + (states.DEFERRED ?? 0) > 0;
    if (!isLeft() && (states.SENDING ?? 0) > 0) {
      lost = await closeAttempts(tx, sendId);
      // An attempt that ended in order leaves no row SENDING, unless Postgres lost commits while it mailed.
      lost += await markUnknown(tx, sendId);
      // A worker that is presumed dead may have settled some meanwhile. From now on that waits for this transaction.
      states = await countStates(tx, sendId);
    }
    const { SENT: sent = 0, UNKNOWN: unknown = 0 } = states;
    const counts = { sent, unknown, cancelled, lost };
    if (isLeft()) return { ...counts, status: send.status, reviewMs: 0 };
    const status = TERMINAL.has(send.status) ? send.status : settled || sent + unknown > 0 ? "SENT" : "FAILED";
    if (!settled) {
      const used = sent + unknown;
      const ofSend = { sendId, cause: "settle" };
      await moveCredits(tx, send, { ...ofSend, kind: "CONSUME", amount: used });
      await moveCredits(tx, send, { ...ofSend, kind: "RELEASE", amount: send.recipients - used });
      await db.updateTable("sends").set({ settled_at: sql<string>`now()` }).where("id", "=", sendId).execute();
    }
    if (status !== send.status) await move(tx, sendId, { from: [send.status], to: status });
    const hasJustEnded = send.status !== "SENT";
    const reviewMs = await openReview(tx, sendId, status === "SENT" ? unknown : 0, hasJustEnded);
    const late = hasJustEnded && reviewMs > 0 ? await readInFlightMs(tx, sendId) : undefined;
    return {
      ...counts,
      status,
      reviewMs,
      ...(late && { lateMs: late }),
      ...(status !== send.status && { from: send.status }),
    };
  });
}

const REVIEW = sql`interval '7 days'`;

/**
 * Opens the review of a send that has just ended with unknown outcomes, or keeps it open; without any, closes it. One
 * that an operator closed stays closed. @returns milliseconds until it closes by itself; 0 when there is nothing to
 * review
 */
async function openReview(em: EntityManager, sendId: string, unknown: number, hasJustEnded: boolean): Promise<number> {
  if (unknown === 0) {
    await closeReview(em, sendId);
    return 0;
  }
  const row = await kysely(em)
    .updateTable("sends")
    .set({
      review_until: sql<string>`case when review_until > clock_timestamp() then review_until else clock_timestamp() + ${REVIEW} end`,
    })
    .where("id", "=", sendId)
    .$if(!hasJustEnded, (query) => query.where("review_until", ">", sql<string>`clock_timestamp()`))
    .returning(sql<number>`ceil(extract(epoch from review_until - clock_timestamp()) * 1000)::float8`.as("ms"))
    .executeTakeFirst();
  return row?.ms ?? 0;
}

export async function closeReview(em: EntityManager, sendId: string): Promise<void> {
  await kysely(em)
    .updateTable("sends")
    .set({ review_until: null })
    .where("id", "=", sendId)
    .where("review_until", "is not", null)
    .execute();
}
