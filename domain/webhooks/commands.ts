import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { ENDPOINT_OFF, probeNow } from "./endpoint-health.ts";
import { notifyDue } from "./notify.ts";
import { INTERRUPTED } from "./queue.ts";

/** Deliveries that one statement changes of a queue. */
const CHANGED_AT_ONCE = 1_000;

/**
 * Ends the deliveries that wait for an endpoint. Those that were never attempted become `untried`, the others are FAILED: also one
 * that was cut off, which may have arrived. Deliveries in flight are left to their activity. @returns how many
 */
async function endWaiting(
  em: EntityManager,
  webhookId: string,
  why: string,
  untried: "BLOCKED" | "FAILED",
): Promise<number> {
  for (let total = 0; ; ) {
    const { numAffectedRows = 0n } = await sql`
    update webhook_deliveries d
    set status = case when d.status = 'PENDING' and not w.cut_off then ${untried} else 'FAILED' end, next_attempt_at = null,
      error_message = concat_ws(' ', case when w.cut_off then ${INTERRUPTED}::text else d.error_message end, ${why}::text),
      updated_at = now()
    from (
      select q.id, q.id = any(h.claimed) as cut_off from webhook_health h cross join lateral (
        select d.id from webhook_deliveries d
        where d.webhook_id = h.webhook_id and d.next_attempt_at is not null
          and (d.id <> all(h.claimed) or coalesce(h.lease_until <= now(), true))
        order by d.next_attempt_at limit ${sql.lit(CHANGED_AT_ONCE)} for update skip locked) q
      where h.webhook_id = ${webhookId}) w
    where d.id = w.id`.execute(kysely(em));
    total += Number(numAffectedRows);
    if (numAffectedRows < CHANGED_AT_ONCE) return total;
  }
}

const CANCELLED = "An operator gave it up; it can be replayed.";

/** It is paused meanwhile, so that no run claims a delivery that is given up. @returns how many */
async function giveUpWaiting(em: EntityManager, webhookId: string): Promise<number> {
  const wasPaused = await setPaused(em, webhookId, true);
  try {
    return await endWaiting(em, webhookId, CANCELLED, "FAILED");
  } finally {
    if (!wasPaused) await setPaused(em, webhookId, false);
  }
}

/** Blocks what waits for an endpoint that is off. Not to be called in a transaction. @returns how many deliveries */
export const blockWaiting = (em: EntityManager, webhookId: string): Promise<number> =>
  endWaiting(em, webhookId, ENDPOINT_OFF, "BLOCKED");

/**
 * Makes the deliveries of an endpoint that wait for their next attempt due now, and the probe of a failing one. It uses up none of
 * the ladder. @param ids of these alone @returns how many
 */
export async function retryWaiting(em: EntityManager, webhookId: string, ids?: readonly string[]): Promise<number> {
  await probeNow(em, undefined, webhookId);
  for (let total = 0; ; ) {
    const { numAffectedRows = 0n } = await sql`
      update webhook_deliveries set next_attempt_at = now(), attempts_used = attempts_used - 1
      where id = any(array(
        select id from webhook_deliveries
        where webhook_id = ${webhookId} and next_attempt_at > now() and status = 'RETRYING'
          and (${ids === undefined} or id = any(${[...(ids ?? [])]}::text[]))
        limit ${sql.lit(CHANGED_AT_ONCE)} for update skip locked))`.execute(kysely(em));
    total += Number(numAffectedRows);
    if (numAffectedRows < CHANGED_AT_ONCE) return total;
  }
}

/** @returns whether it was paused before */
async function setPaused(em: EntityManager, webhookId: string, isPaused: boolean): Promise<boolean> {
  const { rows } = await sql<{ was: boolean }>`
    with before as (select paused_at from webhook_health where webhook_id = ${webhookId} for update)
    update webhook_health set paused_at = ${isPaused ? sql`coalesce(before.paused_at, now())` : sql`null`} from before
    where webhook_id = ${webhookId} returning before.paused_at is not null as was`.execute(kysely(em));
  return rows[0]?.was ?? false;
}

export type EndpointCommand = "retryNow" | "pause" | "resume" | "cancelWaiting";

/**
 * Carries out a command of operators, and has the endpoint served. Not to be called in a transaction.
 * @returns how many deliveries are attempted now, or given up
 */
export async function commandEndpoint(em: EntityManager, webhookId: string, command: EndpointCommand): Promise<number> {
  let deliveries = 0;
  if (command === "retryNow") deliveries = await retryWaiting(em, webhookId);
  else if (command === "cancelWaiting") deliveries = await giveUpWaiting(em, webhookId);
  else await setPaused(em, webhookId, command === "pause");
  await notifyDue(em, [webhookId]);
  return deliveries;
}
