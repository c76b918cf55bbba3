import { type RawBuilder, sql } from "kysely";
import type { Env } from "../../../config/env.ts";
import type { FieldValues } from "../../../db/entities/contact.ts";
import type { RecipientState } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { executePrepared } from "../../../db/statements.ts";
import { transaction } from "../../../db/transaction.ts";
import { elapsedMs } from "../../../lib/elapsed.ts";
import { orNoteReason } from "../../audience/suppressions.ts";
import { newId } from "../../ids.ts";
import { type Mailed, type MailOutcome, UNDECIDED } from "../../mail/outcome.ts";
import { recordSoftRefusals, type SoftBouncePolicy } from "../../reports/record.ts";
import { consentOf, isTrackedBy } from "../../tracking/modes.ts";
import { intoOutbox, isWanted, notifyRelay, notifyRelayAfterCommit, wantedTypes } from "../../webhooks/emit.ts";
import { emailRecord, suppressionRecord } from "../../webhooks/records.ts";
import { selectIneligible } from "../drafts/members.ts";
import type { StateCounts } from "./counts.ts";
import { isFreeFor, mayMail, type OpenedDispatch, SETTLEMENT_EVENTS } from "./lanes.ts";

/** A recipient whose row is SENDING: committed to be mailed by the attempt that staged it. */
export interface StagedRecipient {
  seq: number;
  email: string;
  firstName: string | null;
  lastName: string | null;
  listId: string | null;
  /** Null when it has none. */
  fields: FieldValues | null;
  /** `elapsedMs()` before the row was staged. */
  stagedAt: number;
  /** Their opens and clicks are counted. */
  tracked: boolean;
  /** It was DEFERRED before, and not QUEUED. */
  wasDeferred: boolean;
}

/** The rows that a statement may stage. */
export type StageRequest =
  /** At most `limit` QUEUED rows after `afterSeq`; rows up to and including that one were staged. */
  | { afterSeq: number; limit: number }
  /** Those of them that are DEFERRED and due, see `readDueRecipients`. */
  | { due: readonly number[] };

export interface StagedBatch {
  recipients: StagedRecipient[];
  /** Recipients that became SUPPRESSED instead. */
  suppressed: number;
  /** The next batch begins after it; undefined when there was no row, or the lane must stop. */
  lastSeq: number | undefined;
}

/**
 * Takes recipients to SENDING in one statement, which requires the send to be SENDING, its lane to be under this very
 * epoch and its account to be one that may mail. Those that may not be mailed any more become SUPPRESSED instead.
 * The shared locks on the send and the lane order this against a pause and `openDispatch`. While one of them is locked
 * it stages nothing: a statement that waited would stage by the do-not-mail list of before its wait. Rows are locked
 * where several lanes stage; alone, locks would add a fifth to the WAL.
 * Rows are joined by ctid because the planner has no statistics of a new send and would walk it once per recipient. The
 * limit is a literal: with a parameter each execution would be planned anew.
 */
export async function stageBatch(
  em: EntityManager,
  dispatch: OpenedDispatch,
  request: StageRequest,
): Promise<StagedBatch> {
  const { sendId, accountId, epoch, rules, shared, tracking } = dispatch;
  const tracked = tracking === "OFF" ? sql`false` : isTrackedBy(tracking, consentOf(dispatch, "p"));
  const stagedAt = elapsedMs();
  const wasDeferred = "due" in request;
  const isWanted = wasDeferred
    ? sql`r.seq = any(${request.due}::int[]) and r.state = 'DEFERRED' and r.retry_at <= now()`
    : sql`r.seq > ${request.afterSeq} and r.state = 'QUEUED'`;
  const { rows } = await executePrepared(
    em,
    sql<Omit<StagedRecipient, "stagedAt" | "wasDeferred"> & { state: RecipientState }>`
    with live as (
      select s.id, s.team_id, s.environment, s.resource_id
      from sends s join send_lanes l on l.send_id = s.id and l.account_id = ${accountId}
      where s.id = ${sendId} and ${ofTenant(dispatch, "s")} and s.status = 'SENDING' and l.epoch = ${epoch}
        and exists (select 1 from email_accounts a where a.id = l.account_id and ${ofTenant(dispatch, "a")} and ${mayMail("a")})
      for share of s, l skip locked
    ), picked as (
      select r.ctid as row, r.email, r.member_id, r.list_id, live.team_id, live.environment, live.resource_id
      from live join send_recipients r on r.send_id = live.id
      where r.send_id = ${sendId} and ${isWanted} and ${isFreeFor(dispatch, "r")}
      order by r.seq ${wasDeferred ? sql`` : sql`limit ${sql.lit(request.limit)}`}
      ${shared ? sql`for update of r skip locked` : sql``}
    ), checked as materialized (${selectIneligible[rules](sql`p.row, ${tracked} as tracked`)}
    )
    update send_recipients r
    set state = case when c.ineligible is null then 'SENDING' else 'SUPPRESSED' end,
      epoch = ${epoch}, ${shared ? sql`account_id = ${accountId},` : sql``} reason = c.ineligible, updated_at = now(), tracked = c.tracked,
      ${wasDeferred ? sql`first_deferred_at = r.first_deferred_at + (now() - r.retry_at), retry_at = null,` : sql``}
      attempts = r.attempts + case when c.ineligible is null then 1 else 0 end
    from checked c where r.ctid = c.row
    returning r.seq, r.state, r.email, r.first_name as "firstName", r.last_name as "lastName", r.list_id as "listId", r.fields,
      r.tracked`,
  );
  const staged = rows.filter(({ state }) => state === "SENDING");
  const recipients = staged.map((row) => Object.assign(row, { stagedAt, wasDeferred }));
  const lastSeq = rows.length === 0 ? undefined : Math.max(...rows.map(({ seq }) => seq));
  return { recipients, suppressed: rows.length - recipients.length, lastSeq };
}

/**
 * Takes back the rows of a staging statement whose answer was lost, should it have committed: no recipient was handed
 * on.
 */
export async function unstageUnanswered(
  em: EntityManager,
  { sendId, accountId, epoch }: OpenedDispatch,
  request: StageRequest,
): Promise<void> {
  const wasDeferred = "due" in request;
  await kysely(em)
    .updateTable("send_recipients")
    .set(({ eb }) => ({
      state: wasDeferred ? "DEFERRED" : "QUEUED",
      retry_at: wasDeferred ? sql<string>`now()` : null,
      account_id: null,
      attempts: eb("attempts", "-", 1),
      updated_at: sql<string>`now()`,
    }))
    .where("send_id", "=", sendId)
    .where((eb) =>
      wasDeferred
        ? eb("seq", "=", sql<number>`any(${request.due}::int[])`)
        : // Deferred rows that were staged before may be in flight.
          eb.and([eb("seq", ">", request.afterSeq), eb("first_deferred_at", "is", null)]),
    )
    .where("state", "=", "SENDING")
    .where(sql<boolean>`${isFreeFor({ sendId, accountId }, "send_recipients")}`)
    .where("epoch", "=", epoch)
    .execute();
}

export type MailedRecipient = Mailed<Pick<StagedRecipient, "seq">>;

export type SettlementPolicy = Pick<Env, "DEFERRAL_LADDER_SECONDS" | "DEFERRAL_WINDOW_SECONDS"> & SoftBouncePolicy;

/** A DEFERRED one expires once its window has passed. */
const STATES = {
  sent: "SENT",
  rejected: "REJECTED",
  deferred: "DEFERRED",
  unknown: "UNKNOWN",
  account_failure: "QUEUED",
  not_attempted: "QUEUED",
} as const satisfies Record<MailOutcome["outcome"], RecipientState>;

/** A code; never the server's text. */
function reasonOf(outcome: MailOutcome): string | null {
  switch (outcome.outcome) {
    case "sent":
    case "account_failure":
    case "not_attempted":
      return null;
    default: {
      if (outcome.reason === UNDECIDED) return UNDECIDED;
      const { reason, code, enhanced } = outcome;
      const detail = [code, enhanced].filter((part) => part !== undefined).join("_");
      return detail ? `${reason}:${detail}` : reason;
    }
  }
}

export type SettlingDispatch = Pick<
  OpenedDispatch,
  "sendId" | "accountId" | "epoch" | "shared" | "resource" | "eventsWanted"
> &
  Tenant;

/**
 * Settles outcomes in one statement: the ledger, a suppression per hard bounce, and the events that endpoints of the
 * team want. An undecided row takes its decision. A row found UNKNOWN takes its true outcome, unless that would put it
 * back in the queue of a send that has
 * ended. A row that goes back is held by no lane; one that was deferred before is due at once. Teams without such
 * endpoints have a statement without events, a fifth cheaper; should an endpoint want them by now, it settles nothing.
 * @returns the number of rows that came into each state; QUEUED for all that were not mailed
 */
async function settleBatch(
  em: EntityManager,
  dispatch: SettlingDispatch,
  mails: readonly MailedRecipient[],
  policy: SettlementPolicy,
): Promise<StateCounts> {
  if (!dispatch.eventsWanted) {
    const settled = await runSettlement(em, dispatch, mails, policy, false);
    if (settled.length > 0) return countsOf(settled);
  }
  const settled = await runSettlement(em, dispatch, mails, policy, true);
  if (settled[0]?.recorded) (em.isInTransaction() ? notifyRelayAfterCommit : notifyRelay)(em);
  return countsOf(settled);
}

interface Settled {
  state: RecipientState | null;
  count: number;
  /** An event was recorded for the relay. */
  recorded?: boolean;
}

const countsOf = (rows: readonly Settled[]): StateCounts =>
  Object.fromEntries(rows.flatMap(({ state, count }) => (state === null ? [] : [[state, count]])));

/** SQL: a row that was not mailed is no deferral. */
const countSettled = sql`
  select case when unbegun then 'QUEUED' else state end as state, count(*)::int as count from settled group by 1`;

async function runSettlement(
  em: EntityManager,
  dispatch: SettlingDispatch,
  mails: readonly MailedRecipient[],
  { DEFERRAL_LADDER_SECONDS: ladder, DEFERRAL_WINDOW_SECONDS: windowSeconds }: SettlementPolicy,
  withEvents: boolean,
): Promise<Settled[]> {
  const { sendId, accountId, epoch, shared, teamId, environment } = dispatch;
  const seqs = mails.map(({ item }) => item.seq);
  const bounced = mails.flatMap(({ item, outcome }) =>
    outcome.outcome === "rejected" && outcome.suppress ? [{ id: newId("suppression"), ...item }] : [],
  );
  const bounces = bounced.length > 0;
  const mayRun = withEvents ? sql`true` : sql`not ${isWanted(dispatch, ...SETTLEMENT_EVENTS)}`;
  // A batch without a bounce has a statement without suppressions: an insert has its cost even when it inserts nothing.
  const { rows } = await executePrepared(
    em,
    sql<Settled>`
      with outcome as (
        select * from unnest(
          ${seqs}::int[],
          ${mails.map(({ outcome }) => STATES[outcome.outcome])}::text[],
          ${mails.map(({ outcome }) => reasonOf(outcome))}::text[]
        ) as o (seq, state, reason)
      ), timed as materialized (
        select r.ctid as row, o.reason, r.first_deferred_at, o.state = 'QUEUED' as unbegun,
          case when o.state = 'QUEUED' and r.first_deferred_at is not null then 'DEFERRED' else o.state end as state,
          case when o.state = 'DEFERRED' then now() + make_interval(secs =>
              (${ladder}::int[])[least(greatest(r.attempts::int, 1), ${ladder.length}::int)])
            when o.state = 'QUEUED' and r.first_deferred_at is not null then now() end as retry_at,
          coalesce(r.first_deferred_at, now()) + make_interval(secs => ${windowSeconds}::int) as expires_at
        from send_recipients r join outcome o on o.seq = r.seq
        where r.send_id = ${sendId} and r.seq = any(${seqs}::int[]) and ${mayRun}
      ), settled as (
        update send_recipients r
        set state = case when not t.unbegun and t.retry_at > t.expires_at then 'EXPIRED' else t.state end,
          reason = t.reason,
          ${shared ? sql`account_id = case when t.unbegun then null else r.account_id end,` : sql``}
          attempts = r.attempts - t.unbegun::int,
          first_deferred_at = case when t.state = 'DEFERRED' then coalesce(t.first_deferred_at, now())
            else r.first_deferred_at end,
          retry_at = case when t.unbegun or t.retry_at <= t.expires_at then t.retry_at end,
          updated_at = now()
        from timed t
        where r.ctid = t.row and r.epoch = ${epoch} ${shared ? sql`and r.account_id = ${accountId}` : sql``}
          and (r.state = 'SENDING'
            or (r.state in ('DEFERRED', 'EXPIRED') and r.reason = ${UNDECIDED} and t.reason is distinct from ${UNDECIDED})
            or (r.state = 'UNKNOWN' and (t.state in ('SENT', 'REJECTED')
            or (t.state <> 'UNKNOWN' and exists (
              select 1 from sends s where s.id = ${sendId} and ${ofTenant(dispatch, "s")}
                and s.status in ('SENDING', 'PAUSED') for share)))))
        returning ${withEvents ? sql`r.*` : sql`r.state, r.seq`}, t.unbegun
      )${
        bounces
          ? sql`, suppressed as (
        insert into suppressions (id, team_id, environment, email, email_spelling, reason)
        select b.id, ${teamId}, ${environment}, r.email, r.email_spelling, 'bounce:hard'
        from unnest(${bounced.map(({ id }) => id)}::text[], ${bounced.map(({ seq }) => seq)}::int[]) as b (id, seq)
        join settled on settled.seq = b.seq
        -- From the ledger, where an erased address is gone.
        cross join lateral (select r.email, r.email_spelling from send_recipients r
          where r.send_id = ${sendId} and r.seq = b.seq offset 0) r
        where ${mayRun}
        ${orNoteReason}
      )`
          : sql``
      }${withEvents ? recordAndCount(dispatch, bounces) : sql` ${countSettled}`}`,
  );
  return rows;
}

function recordAndCount(dispatch: SettlingDispatch, bounces: boolean): RawBuilder<unknown> {
  const { sendId, resource } = dispatch;
  const mails = sql`
        select w.type, ${emailRecord("s", { sendId, resource }, sql`s.state`)} as object
        from wanted w join settled s
          on w.type = case s.state when 'SENT' then 'email.sent' when 'REJECTED' then 'email.rejected' end`;
  const suppressions = sql`
        select w.type, ${suppressionRecord("b")} from wanted w cross join suppressed b where b.is_new and w.type = 'suppression.added'`;
  return sql`,
      wanted as materialized (${wantedTypes(dispatch, SETTLEMENT_EVENTS)}),
      recorded as (${intoOutbox(dispatch, bounces ? sql`${mails} union all ${suppressions}` : mails)} returning 1)
      select s.state, s.count, e.recorded from (select exists (select from recorded) as recorded) e
      left join (${countSettled}) s on true`;
}

const SHORT_SETTLEMENT_TRIES = 3;

async function settleAll(...args: Parameters<typeof settleBatch>): Promise<StateCounts> {
  const [, , mails] = args;
  const counts: StateCounts = {};
  for (let tries = 1, missing = mails.length; ; tries++) {
    for (const [state, count] of Object.entries(await settleBatch(...args)) as [RecipientState, number][]) {
      counts[state] = (counts[state] ?? 0) + count;
      missing -= count;
    }
    if (missing <= 0 || tries === SHORT_SETTLEMENT_TRIES) return counts;
  }
}

/**
 * Settles all outcomes that are still this attempt's. A row that another statement moves meanwhile (the attempt was
 * presumed dead just then) is missed by its ctid: the count shows it, and the settlement is made once more. Refusals
 * that count like soft bounces are counted in the same transaction. @returns the number of rows that came into each
 * state
 */
export function settleOutcomes(
  em: EntityManager,
  dispatch: SettlingDispatch,
  mails: readonly MailedRecipient[],
  policy: SettlementPolicy,
): Promise<StateCounts> {
  const isSoft = (outcome: MailOutcome) => "isSoftBounce" in outcome && outcome.isSoftBounce === true;
  const refused = mails.filter(({ outcome }) => isSoft(outcome)).map(({ item }) => item.seq);
  if (refused.length === 0) return settleAll(em, dispatch, mails, policy);
  return transaction(em, async (tx) => {
    const counts = await settleAll(tx, dispatch, mails, policy);
    // Those that were deferred are tried again, unless their time has passed.
    if (counts.REJECTED || counts.EXPIRED) await recordSoftRefusals(tx, dispatch, refused, policy);
    return counts;
  });
}
