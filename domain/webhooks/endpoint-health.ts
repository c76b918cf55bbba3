import { sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import type { EntityManager } from "../../db/orm.ts";
import { executePrepared } from "../../db/prepared.ts";

/**
 * How an endpoint is expected to answer. `unproven`: no success lately and no failure since; `working`; `failing`: it
 * failed several times in a row.
 */
export type EndpointHealth = "unproven" | "working" | "failing";

/** Failures in a row after which an endpoint is `failing` and gets one group at a time: one that hangs ties up few workers. */
export const FAILING_AFTER = 5;
/** For how long a success shows that an endpoint answers, in hours. */
export const SUCCESS_COUNTS_HOURS = 24;

/** An endpoint is switched off after this long without a success, in hours … */
export const SWITCH_OFF_HOURS = 72;
/** … and so many failures in a row. */
export const SWITCH_OFF_FAILURES = 20;

/** Why a delivery is BLOCKED that was never sent because the platform had switched its endpoint off. */
export const ENDPOINT_OFF = "The endpoint was switched off; replay this once it is on again.";

/**
 * @param failures in a row
 * @param succeededLately within the last `SUCCESS_COUNTS_HOURS`
 */
export function endpointHealth(failures: number, succeededLately: boolean): EndpointHealth {
  if (failures >= FAILING_AFTER) return "failing";
  // An endpoint with a few failures keeps its concurrency.
  return failures > 0 || succeededLately ? "working" : "unproven";
}

/** Counts outcomes, in the order in which they came, and switches off an endpoint that failed for long enough. */
export async function updateHealth(
  em: EntityManager,
  webhookId: string,
  outcomes: readonly { status: DeliveryStatus }[],
): Promise<void> {
  const lastSuccess = outcomes.findLastIndex(({ status }) => status === "SUCCEEDED");
  const failuresSince = outcomes.length - 1 - lastSuccess;
  const succeeded = lastSuccess >= 0;
  const failed = outcomes.some(({ status }) => status !== "SUCCEEDED");
  await executePrepared(
    em,
    "attempt_health",
    sql`
    update webhook_health
    set consecutive_failures = case when ${succeeded} then 0 else consecutive_failures end + ${failuresSince}::int,
      last_success_at = case when ${succeeded} then now() else last_success_at end,
      last_failure_at = case when ${failed} then now() else last_failure_at end
    where webhook_id = ${webhookId}`,
  );
  if (failuresSince > 0) await switchOffWhenDead(em, webhookId);
}

/** Switches the endpoint off when its failures call for it; the notice to its owner is due with that. */
async function switchOffWhenDead(em: EntityManager, webhookId: string): Promise<void> {
  await executePrepared(
    em,
    "attempt_switch_off",
    sql`
    update webhook_endpoints e
    set active = false, disabled_at = now(), disabled_reason = 'delivery_failures', notice_due_at = now()
    from webhook_health h
    where e.id = ${webhookId} and h.webhook_id = e.id and e.active
      and h.consecutive_failures >= ${SWITCH_OFF_FAILURES}
      and greatest(e.enabled_at, h.last_success_at) < now() - make_interval(hours => ${SWITCH_OFF_HOURS})`,
  );
}
