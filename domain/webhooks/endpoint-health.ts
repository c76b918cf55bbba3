import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { newId } from "../ids.ts";

/**
 * How an endpoint is expected to answer. `unproven`: no success lately and no failure since; `working`; `failing`: it
 * failed several times in a row, and its deliveries wait while one at a time probes it.
 */
export const ENDPOINT_HEALTH = ["unproven", "working", "failing"] as const;
export type EndpointHealth = (typeof ENDPOINT_HEALTH)[number];

/** A change of an endpoint that the writing of outcomes reports. `gone`: the endpoint was deleted before. */
export type EndpointChange = "failing" | "working" | "off" | "gone";

/** Failures in a row after which an endpoint is `failing`. */
export const FAILING_AFTER = 5;
/** For how long a success shows that an endpoint answers, in hours. */
const SUCCESS_COUNTS_HOURS = 24;

/**
 * The wait before the first probe of a failing endpoint, in seconds. It doubles with each probe that fails, up to a
 * minute during the first hour and to a quarter of an hour from then on.
 */
export const FIRST_PROBE_SECONDS = 5;
export const LONGEST_PROBE_SECONDS = 60;
export const LONGEST_PROBE_SECONDS_LATER = 900;

/** An endpoint is switched off after this long without a success, in hours … */
export const SWITCH_OFF_HOURS = 72;
/** … and so many failures in a row. */
export const SWITCH_OFF_FAILURES = 20;

/** Why a delivery is BLOCKED that was never sent because the platform had switched its endpoint off. */
export const ENDPOINT_OFF = "The endpoint was switched off; replay this once it is on again.";

/** @param health alias of `webhook_health` */
export const isFailing = (health: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${health}.consecutive_failures`)} >= ${sql.lit(FAILING_AFTER)})`;

/**
 * An endpoint's health. One with a few failures is still `working` and keeps its concurrency.
 * @param health alias of `webhook_health`
 */
export const healthOf = (health: string): RawBuilder<EndpointHealth> => sql<EndpointHealth>`case
  when ${isFailing(health)} then ${sql.lit("failing" satisfies EndpointHealth)}
  when ${sql.ref(`${health}.consecutive_failures`)} > 0 or ${sql.ref(`${health}.last_success_at`)} >
    now() - make_interval(hours => ${sql.lit(SUCCESS_COUNTS_HOURS)}) then ${sql.lit("working" satisfies EndpointHealth)}
  else ${sql.lit("unproven" satisfies EndpointHealth)} end`;

/** A success is noted only if none was noted within this time, in seconds. */
const NOTED_EVERY_SECONDS = 1;
/** A success later than this after the latest one is written with the lock of the endpoint's health, in hours. */
const STEADY_HOURS = 1;

/**
 * The condition that an endpoint has not failed since its latest success, which was within the last hour: a further success
 * changes only the time of it.
 * @param health alias of `webhook_health`
 */
export const isSteady = (health: string): RawBuilder<boolean> =>
  sql<boolean>`coalesce(${sql.ref(`${health}.consecutive_failures`)} = 0 and ${sql.ref(`${health}.last_success_at`)} >
    now() - make_interval(hours => ${sql.lit(STEADY_HOURS)}), false)`;

/**
 * An update that notes a success of those of the endpoints that are steady, if none of the last second is noted. It skips
 * rows that another transaction holds: the next success of such an endpoint is noted, within the hour.
 */
export const noteSuccesses = (webhookIds: string[]): RawBuilder<unknown> => sql`
  update webhook_health set last_success_at = now()
  where webhook_id in (
    select h.webhook_id from webhook_health h
    where h.webhook_id = any(${webhookIds}::text[]) and ${isSteady("h")}
      and h.last_success_at < now() - make_interval(secs => ${sql.lit(NOTED_EVERY_SECONDS)})
    for update skip locked)`;

/** The facts of an attempt that decide on the probes of its endpoint. */
export interface AttemptKind {
  /** The attempt was a probe. */
  isProbe: boolean;
  /** The longest wait that an answer asked for, in ms: no probe comes earlier. */
  askedWaitMs: number;
}

/**
 * Counts outcomes, in the order in which they came, begins, continues or ends the probes of the endpoint, and switches
 * off one that failed for long enough.
 * @returns the state that it came into by them: `failing`, `working` after it was failing, or `off`; `gone` when it was deleted before
 */
export async function updateHealth(
  em: EntityManager,
  webhookId: string,
  outcomes: readonly { status: DeliveryStatus }[],
  { isProbe, askedWaitMs }: AttemptKind,
): Promise<EndpointChange | undefined> {
  const lastSuccess = outcomes.findLastIndex(({ status }) => status === "SUCCEEDED");
  const failuresSince = outcomes.length - 1 - lastSuccess;
  const succeeded = sql<boolean>`${lastSuccess >= 0}::boolean`;
  const failed = outcomes.some(({ status }) => status !== "SUCCEEDED");
  // From the row itself, not from a join with it: the update may have waited for another one.
  const failures = sql`(case when ${succeeded} then 0 else consecutive_failures end + ${failuresSince}::int)`;
  const asked = sql`now() + make_interval(secs => ${askedWaitMs / 1000}::float8)`;
  const longest = sql`case when failing_since < now() - interval '1 hour'
    then ${sql.lit(LONGEST_PROBE_SECONDS_LATER)} else ${sql.lit(LONGEST_PROBE_SECONDS)} end`;
  const begins = sql`(${succeeded} or not ${isFailing("webhook_health")} or probe_wait_seconds is null)`;
  const waitSeconds = sql`case when ${begins} then ${sql.lit(FIRST_PROBE_SECONDS)}
    when ${isProbe}::boolean then least(probe_wait_seconds * 2, ${longest}) else probe_wait_seconds end`;
  const whileFailing = (value: RawBuilder<unknown>) =>
    sql`case when ${failures} >= ${sql.lit(FAILING_AFTER)} then ${value} end`;
  const workingSince = newId("delivery");
  const { rows } = await executePrepared(
    em,
    "attempt_health",
    sql<{ fails: boolean | null; works: boolean }>`
    update webhook_health
    set consecutive_failures = ${failures},
      last_success_at = case when ${succeeded} then now() else last_success_at end,
      last_failure_at = case when ${failed}::boolean then now() else last_failure_at end,
      failing_since = ${whileFailing(sql`case when ${succeeded} or not ${isFailing("webhook_health")} then now()
        else coalesce(failing_since, now()) end`)},
      probe_wait_seconds = ${whileFailing(waitSeconds)},
      probe_at = ${whileFailing(sql`case when ${begins} or ${isProbe}::boolean
        then greatest(now() + make_interval(secs => ${waitSeconds}), ${asked}) else greatest(probe_at, ${asked}) end`)},
      backlog_until = case when ${succeeded} and ${isFailing("webhook_health")} then ${workingSince}
        else backlog_until end
    where webhook_id = ${webhookId}
    returning failing_since = now()::timestamptz(3) as fails, backlog_until = ${workingSince} as works`,
  );
  const [health] = rows;
  if (!health) return "gone";
  if (failuresSince > 0 && (await switchOffWhenDead(em, webhookId))) return "off";
  const { fails, works } = health;
  return fails ? "failing" : works ? "working" : undefined;
}

/** Forgets the failures of an endpoint. The deliveries that waited for it are a backlog from then on. */
export async function clearFailures(em: EntityManager, webhookId: string): Promise<void> {
  await kysely(em)
    .updateTable("webhook_health")
    .set({
      consecutive_failures: 0,
      failing_since: null,
      probe_at: null,
      probe_wait_seconds: null,
      backlog_until: newId("delivery"),
    })
    .where("webhook_id", "=", webhookId)
    .execute();
}

/**
 * Makes the next probe of a failing endpoint due now, and begins the waits between probes anew: a probe that is under way
 * would else set the longest of them when it fails.
 * @returns whether it is failing; for any other nothing changes
 */
export async function probeNow(em: EntityManager, tenant: Tenant, webhookId: string): Promise<boolean> {
  const { numAffectedRows = 0n } = await sql`
    update webhook_health h set probe_at = now(), probe_wait_seconds = null
    where h.webhook_id = ${webhookId} and ${isFailing("h")}
      and exists (select from webhook_endpoints e where e.id = h.webhook_id and ${ofTenant(tenant, "e")})`.execute(
    kysely(em),
  );
  return numAffectedRows > 0;
}

/**
 * Switches the endpoint off when its failures call for it; the notice to its owner is due with that.
 * @returns whether it did
 */
async function switchOffWhenDead(em: EntityManager, webhookId: string): Promise<boolean> {
  const { rows } = await executePrepared(
    em,
    "attempt_switch_off",
    sql`
    update webhook_endpoints e
    set active = false, disabled_at = now(), disabled_reason = 'delivery_failures', notice_due_at = now()
    from webhook_health h
    where e.id = ${webhookId} and h.webhook_id = e.id and e.active
      and h.consecutive_failures >= ${SWITCH_OFF_FAILURES}
      and greatest(e.enabled_at, h.last_success_at) < now() - make_interval(hours => ${SWITCH_OFF_HOURS})
    returning e.id`,
  );
  return rows.length > 0;
}
