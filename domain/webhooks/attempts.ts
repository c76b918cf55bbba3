import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import {
  type AttemptKind,
  type EndpointChange,
  isFailing,
  isSteady,
  noteSuccesses,
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

/**
 * Writes outcomes, in the order in which they came, and the health of the endpoint that follows, in one transaction. An
 * endpoint that failed for long enough is switched off with it, and its owner's notice is due. A row that another attempt
 * closed meanwhile stays as it is.
 * @param retryInMs how long a RETRYING row waits for its next attempt, in ms; the end of the attempt may lengthen it
 * @returns the change of the endpoint, see `updateHealth`
 */
export function settleAttempts(
  em: EntityManager,
  webhookId: string,
  outcomes: readonly AttemptOutcome[],
  retryInMs: number,
  kind: AttemptKind,
): Promise<EndpointChange | undefined> {
  const counted = outcomes.filter(({ isTest }) => !isTest);
  return transaction(em, async (tx) => {
    // Locked in the order in which an endpoint is deleted: its health, then its deliveries.
    const change = counted.length > 0 ? await updateHealth(tx, webhookId, counted, kind) : undefined;
    const nextAttemptAt = sql`case when o.status = 'RETRYING'
      then now() + make_interval(secs => ${retryInMs / 1000}::float8) end`;
    await setOutcomes(outcomes, nextAttemptAt).execute(kysely(tx));
    return change;
  });
}

/** Outcomes of one endpoint. */
export interface EndpointOutcomes {
  webhookId: string;
  outcomes: readonly AttemptOutcome[];
}

/** Whether outcomes are successes, but for those of test deliveries. */
export const areSuccesses = (outcomes: readonly AttemptOutcome[]): boolean =>
  outcomes.every(({ status, isTest }) => isTest || status === "SUCCEEDED");

/**
 * Writes the successes of several endpoints in one statement. It rarely writes the rows of their health, which all groups of
 * an endpoint share: see `noteSuccesses`. Nothing of an endpoint that is not steady is written; use `settleAttempts` for it.
 * @param batches see `areSuccesses`
 * @returns the endpoints of which outcomes were written
 */
export async function writeSuccesses(
  em: EntityManager,
  batches: readonly EndpointOutcomes[],
): Promise<ReadonlySet<string>> {
  const webhookIds = [...new Set(batches.map(({ webhookId }) => webhookId))];
  const counted = batches.filter(({ outcomes }) => outcomes.some(({ isTest }) => !isTest));
  const noted = noteSuccesses(counted.map(({ webhookId }) => webhookId));
  const outcomes = batches.flatMap((batch) => batch.outcomes);
  // It waits for the disk: an outcome that a crash of Postgres took back would be repeated without a row that says so.
  const { rows } = await sql<{ webhook_id: string }>`
    with noted as (${noted}), written as (${setOutcomes(outcomes, sql`null`)} and d.webhook_id = any(array(
      select h.webhook_id from webhook_health h
      where h.webhook_id = any(${webhookIds}::text[]) and ${isSteady("h")}))
    returning d.webhook_id)
    select distinct webhook_id from written`.execute(kysely(em));
  return new Set(rows.map(({ webhook_id }) => webhook_id));
}

/**
 * An update of deliveries that are PENDING with their outcomes; its condition may be continued. Not to be prepared: a plan
 * that was kept from a nearly empty table compares each delivery with each outcome, 0.7 s for 60,000 of them.
 */
const setOutcomes = (
  outcomes: readonly AttemptOutcome[],
  nextAttemptAt: RawBuilder<unknown>,
): RawBuilder<unknown> => sql`
  update webhook_deliveries d
  set status = o.status, response_status = o.response_status, response_body = o.response_body,
    error_message = o.error_message, duration_ms = o.duration_ms, updated_at = now(), next_attempt_at = ${nextAttemptAt}
  from unnest(${outcomes.map(({ id }) => id)}::text[], ${outcomes.map(({ status }) => status)}::text[],
    ${outcomes.map(({ responseStatus }) => responseStatus)}::smallint[],
    ${outcomes.map(({ responseBody }) => responseBody)}::text[],
    ${outcomes.map(({ errorMessage }) => errorMessage)}::text[],
    ${outcomes.map(({ durationMs }) => durationMs)}::int[]
  ) as o (id, status, response_status, response_body, error_message, duration_ms)
  where d.id = o.id and d.status = 'PENDING'`;

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
interface EndedAttempt extends NamedValues {
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
export async function closeAttempt(em: EntityManager, ended: EndedAttempt): Promise<GroupLeft> {
  const { rows } = await close(em, ended);
  const [left] = rows;
  if (!left) throw new Error("an aggregate without a row");
  return left;
}

const close = defineStatement(
  (_em, { groupId, epoch, attemptsUsed }: EndedAttempt) => sql<GroupLeft>`
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
