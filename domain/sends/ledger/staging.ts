import { sql } from "kysely";
import type { FieldValues } from "../../../db/entities/contact.ts";
import type { RecipientState } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant } from "../../../db/orm.ts";
import { executePrepared } from "../../../db/statements.ts";
import { elapsedMs } from "../../../lib/elapsed.ts";
import { selectIneligible } from "../drafts/members.ts";
import { isFreeFor, mayMail, type OpenedDispatch } from "./lanes.ts";

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
  /** It was DEFERRED before, and not QUEUED. */
  wasDeferred: boolean;
}

/** The rows that a statement may stage. */
export type StageRequest =
  /** At most `limit` QUEUED rows after `afterSeq`; rows up to and including that one were staged. */
  | { afterSeq: number; limit: number }
  /** Those of them that are DEFERRED and due, see `readDue`. */
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
  const { sendId, accountId, epoch, rules, shared } = dispatch;
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
    ), checked as materialized (${selectIneligible[rules](sql`p.row`)}
    )
    update send_recipients r
    set state = case when c.ineligible is null then 'SENDING' else 'SUPPRESSED' end,
      epoch = ${epoch}, ${shared ? sql`account_id = ${accountId},` : sql``} reason = c.ineligible, updated_at = now(),
      ${wasDeferred ? sql`first_deferred_at = r.first_deferred_at + (now() - r.retry_at), retry_at = null,` : sql``}
      attempts = r.attempts + case when c.ineligible is null then 1 else 0 end
    from checked c where r.ctid = c.row
    returning r.seq, r.state, r.email, r.first_name as "firstName", r.last_name as "lastName", r.list_id as "listId", r.fields`,
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
