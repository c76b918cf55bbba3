import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { notifyDue } from "./emit.ts";
import { ENDPOINT_OFF, probeNow } from "./endpoint-health.ts";
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
    with health as (
      -- Refuses a claim that began before; its run takes the endpoint anew.
      update webhook_health set epoch = -abs(epoch) where webhook_id = ${webhookId} returning claimed, lease_until
    )
    update webhook_deliveries d
    set status = case when d.status = 'PENDING' and not w.cut_off then ${untried} else 'FAILED' end, next_attempt_at = null,
      error_message = concat_ws(' ', case when w.cut_off then ${INTERRUPTED}::text else d.error_message end, ${why}::text),
      updated_at = now()
    from (
      select q.id, q.id = any(h.claimed) as cut_off from health h cross join lateral (
        select d.id from webhook_deliveries d
        where d.webhook_id = ${webhookId} and d.next_attempt_at is not null
          and (d.id <> all(h.claimed) or coalesce(h.lease_until <= now(), true))
        order by d.next_attempt_at limit ${sql.lit(CHANGED_AT_ONCE)} for update skip locked) q) w
    where d.id = w.id`.execute(kysely(em));
    total += Number(numAffectedRows);
    if (numAffectedRows < CHANGED_AT_ONCE) return total;
  }
}

const CANCELLED = "An operator gave it up; it can be replayed.";

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

async function setPaused(em: EntityManager, webhookId: string, isPaused: boolean): Promise<void> {
  await sql`
    update webhook_health set paused_at = ${isPaused ? sql`coalesce(paused_at, now())` : sql`null`}
    where webhook_id = ${webhookId}`.execute(kysely(em));
}

export type EndpointCommand = "retryNow" | "pause" | "resume" | "cancelWaiting";

/**
 * Carries out a command of operators, and has the endpoint served. Not to be called in a transaction.
 * @returns how many deliveries are attempted now, or given up
 */
export async function commandEndpoint(em: EntityManager, webhookId: string, command: EndpointCommand): Promise<number> {
  let deliveries = 0;
  if (command === "retryNow") deliveries = await retryWaiting(em, webhookId);
  else if (command === "cancelWaiting") deliveries = await endWaiting(em, webhookId, CANCELLED, "FAILED");
  else await setPaused(em, webhookId, command === "pause");
  await notifyDue(em, [webhookId]);
  return deliveries;
}
