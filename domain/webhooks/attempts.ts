import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import type { EntityManager } from "../../db/orm.ts";
import { executePrepared } from "../../db/prepared.ts";
import { isoInstant } from "../../db/sql.ts";
import { transaction } from "../../db/transaction.ts";
import {
  type AttemptKind,
  type EndpointChange,
  hasSucceededLately,
  isFailing,
  updateHealth,
} from "./endpoint-health.ts";

/** The statuses an attempt can give a delivery. */
export const ATTEMPT_OUTCOMES = ["SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const satisfies DeliveryStatus[];

/** The outcome of one delivery's attempt. */
export interface AttemptOutcome {
  id: string;
  status: (typeof ATTEMPT_OUTCOMES)[number];
  responseStatus: number | null;
  responseBody: string | null;
  errorMessage: string | null;
  durationMs: number;
  /** Of a test delivery, which says nothing about the endpoint's health. */
  isTest?: boolean;
}

/** The facts of an attempt that decide on how its outcomes are written. */
interface SettledAttempt extends AttemptKind {
  /** The endpoint had succeeded lately when the attempt began, so further successes probably change nothing of its health. */
  succeededLately?: boolean;
}

/**
 * Writes outcomes, in the order in which they came, and the health of the endpoint that follows, in one transaction. An
 * endpoint that failed for long enough is switched off with it, and its owner's notice is due. A row that another attempt
 * closed meanwhile stays as it is. Successes of an endpoint that has succeeded lately change nothing of its health but a
 * second: a statement of their own writes them alone.
 * @param retryInMs how long a RETRYING row waits for its next attempt, in ms; the end of the attempt may lengthen it
 * @returns the state that the endpoint came into, see `updateHealth`
 */
export async function settleAttempts(
  em: EntityManager,
  webhookId: string,
  outcomes: readonly AttemptOutcome[],
  retryInMs: number,
  { succeededLately = false, ...kind }: SettledAttempt,
): Promise<EndpointChange | undefined> {
  const counted = outcomes.filter(({ isTest }) => !isTest);
  if (succeededLately && counted.every(({ status }) => status === "SUCCEEDED")) {
    // One statement, and no lock of the row that all groups of the endpoint share. It waits for the disk: an outcome that a
    // crash of Postgres took back would be repeated without a row that says so.
    const { numAffectedRows = 0n } = await writeOutcomes(em, outcomes, { retryInMs, ifSucceededLately: webhookId });
    if (numAffectedRows > 0n) return undefined;
  }
  return transaction(em, async (tx) => {
    await writeOutcomes(tx, outcomes, { retryInMs });
    return counted.length > 0 ? updateHealth(tx, webhookId, counted, kind) : undefined;
  });
}

/** @param ifSucceededLately an endpoint: nothing is written unless it has succeeded lately and not failed since */
function writeOutcomes(
  em: EntityManager,
  outcomes: readonly AttemptOutcome[],
  { retryInMs, ifSucceededLately }: { retryInMs: number; ifSucceededLately?: string },
) {
  const condition =
    ifSucceededLately === undefined
      ? sql``
      : sql`and exists (
        select from webhook_health h where h.webhook_id = ${ifSucceededLately} and ${hasSucceededLately("h")})`;
  return executePrepared(
    em,
    ifSucceededLately === undefined ? "attempt_outcomes" : "attempt_successes",
    sql`
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
      where d.id = o.id and d.status = 'PENDING' ${condition}`,
  );
}

/** The deliveries of a group that have not ended. */
export interface GroupLeft {
  /** Not attempted yet in this attempt of the group. */
  pending: number;
  retrying: number;
  /** Until the next attempt of the RETRYING rows, in ms, and when that is, ISO 8601; null without such rows. */
  waitMs: number | null;
  nextAttemptAt: string | null;
  /** Of those RETRYING: they wait in Postgres, because the endpoint is failing. The group has ended. */
  returned: number;
}

/** An attempt that ends, or its part. */
interface EndedAttempt {
  groupId: string;
  epoch: number;
  /** Attempts of the ladder that the deliveries have used up by now. */
  attemptsUsed: number;
}

/**
 * Ends an attempt, or its part: gives the place back, and removes the group when none of its deliveries is left. After a
 * whole attempt the deliveries that are left wait together, as long as the one that waits longest; those of a failing
 * endpoint leave the group and wait in Postgres. Does nothing when another process has taken the attempt over.
 */
export async function closeAttempt(
  em: EntityManager,
  { groupId, epoch, attemptsUsed }: EndedAttempt,
): Promise<GroupLeft> {
  const { rows } = await executePrepared(
    em,
    "attempt_close",
    sql<GroupLeft>`
    with left_over as (
      select count(*) filter (where status = 'PENDING')::int as pending,
        count(*) filter (where status = 'RETRYING')::int as retrying, max(next_attempt_at) as retry_at,
        coalesce((select ${isFailing("h")} from webhook_groups g join webhook_health h on h.webhook_id = g.webhook_id
          where g.id = ${groupId}), false) as failing
      from webhook_deliveries where group_id = ${groupId} and status in ('PENDING', 'RETRYING')
    ), gone as (
      delete from webhook_groups g using left_over l
      where g.id = ${groupId} and g.epoch = ${epoch} and l.pending = 0 and (l.retrying = 0 or l.failing)
      returning g.id
    ), returned as (
      update webhook_deliveries d set group_id = null, attempts_used = ${attemptsUsed}::int
      from left_over l, gone g
      where d.group_id = g.id and l.failing and d.status = 'RETRYING'
      returning d.id
    ), kept as (
      update webhook_groups g
      set attempting = false, slot_until = null, phase = case when l.pending = 0 then 'RETRYING' else g.phase end,
        due_at = case when l.pending = 0 then l.retry_at else now() end
      from left_over l
      where g.id = ${groupId} and g.epoch = ${epoch} and (l.pending > 0 or (l.retrying > 0 and not l.failing))
      returning g.id
    ), levelled as (
      update webhook_deliveries d set next_attempt_at = l.retry_at, updated_at = now()
      from left_over l, kept k
      where d.group_id = k.id and l.pending = 0 and d.status = 'RETRYING' and d.next_attempt_at < l.retry_at
    )
    select pending, retrying, (select count(*)::int from returned) as returned, greatest(0, ceil(extract(epoch from retry_at - now()) * 1000))::int as "waitMs",
      ${isoInstant(sql.ref("retry_at"))} as "nextAttemptAt"
    from left_over`,
  );
  const [left] = rows;
  if (!left) throw new Error("an aggregate without a row");
  return left;
}
