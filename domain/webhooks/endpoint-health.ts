import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";

/** `unproven`: no success lately; `failing`: it failed several times in a row; its deliveries wait while one at a time probes it. */
export const ENDPOINT_HEALTH = ["unproven", "working", "failing"] as const;
export type EndpointHealth = (typeof ENDPOINT_HEALTH)[number];

export type EndpointChange = "failing" | "working" | "off";

/** Failures in a row after which an endpoint is `failing`. */
export const FAILING_AFTER = 5;
/** For how long a success shows that an endpoint answers, in hours. */
const SUCCESS_COUNTS_HOURS = 24;

/** The wait before the first probe of a failing endpoint. It doubles with each that fails, up to the longest; later: after an hour. */
export const FIRST_PROBE_SECONDS = 5;
export const LONGEST_PROBE_SECONDS = 60;
export const LONGEST_PROBE_SECONDS_LATER = 900;

/** An endpoint is switched off after this long without a success, in hours … */
export const SWITCH_OFF_HOURS = 72;
/** … and so many failures in a row. */
export const SWITCH_OFF_FAILURES = 20;

export const ENDPOINT_OFF = "The endpoint was switched off; replay this once it is on again.";

export const isFailing = (health: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${health}.consecutive_failures`)} >= ${sql.lit(FAILING_AFTER)})`;

/** One with a few failures since its success is still `working` and keeps its concurrency. @param health alias of `webhook_health` */
export const healthOf = (health: string): RawBuilder<EndpointHealth> => sql<EndpointHealth>`case
  when ${isFailing(health)} then ${sql.lit("failing" satisfies EndpointHealth)}
  when ${sql.ref(`${health}.last_success_at`)} > now() - make_interval(hours => ${sql.lit(SUCCESS_COUNTS_HOURS)}) then ${sql.lit("working" satisfies EndpointHealth)}
  else ${sql.lit("unproven" satisfies EndpointHealth)} end`;

interface CountedOutcome {
  status: DeliveryStatus;
  isProbe: boolean;
  askedWaitMs: number;
}

export interface Noted {
  webhookId: string;
  /** It is failing since now, or works after it was failing. */
  change: Exclude<EndpointChange, "off"> | null;
}

/** An update that counts outcomes by endpoint, in the order in which they came, and begins, continues or ends the probes of each. */
export function noteAttempts(byEndpoint: ReadonlyMap<string, readonly CountedOutcome[]>): RawBuilder<Noted> {
  const batches = [...byEndpoint].map(([webhookId, outcomes]) => {
    const lastSuccess = outcomes.findLastIndex(({ status }) => status === "SUCCEEDED");
    return {
      webhookId,
      succeeded: lastSuccess >= 0,
      failures: outcomes.length - 1 - lastSuccess,
      failed: outcomes.some(({ status }) => status !== "SUCCEEDED"),
      isProbe: outcomes.some(({ isProbe }) => isProbe),
      askedMs: Math.max(...outcomes.map(({ askedWaitMs }) => askedWaitMs)),
    };
  });
  // From the row itself, not from a join with it: the update may have waited for another one.
  const failures = sql`(case when b.succeeded then 0 else h.consecutive_failures end + b.failures)`;
  const asked = sql`now() + make_interval(secs => b."askedMs" / 1000)`;
  const longest = sql`case when h.failing_since < now() - interval '1 hour'
    then ${sql.lit(LONGEST_PROBE_SECONDS_LATER)} else ${sql.lit(LONGEST_PROBE_SECONDS)} end`;
  const begins = sql`(b.succeeded or not ${isFailing("h")} or h.probe_wait_seconds is null)`;
  const waitSeconds = sql`case when ${begins} then ${sql.lit(FIRST_PROBE_SECONDS)}
    when b."isProbe" then least(h.probe_wait_seconds * 2, ${longest}) else h.probe_wait_seconds end`;
  const whileFailing = (value: RawBuilder<unknown>) =>
    sql`case when ${failures} >= ${sql.lit(FAILING_AFTER)} then ${value} end`;
  return sql<Noted>`
    update webhook_health h
    set consecutive_failures = ${failures},
      last_success_at = case when b.succeeded then now() else h.last_success_at end,
      last_failure_at = case when b.failed then now() else h.last_failure_at end,
      failing_since = ${whileFailing(sql`case when b.succeeded or not ${isFailing("h")} then now()
        else coalesce(h.failing_since, now()) end`)},
      probe_wait_seconds = ${whileFailing(waitSeconds)},
      probe_at = ${whileFailing(sql`case when ${begins} or b."isProbe"
        then greatest(now() + make_interval(secs => ${waitSeconds}), ${asked}) else greatest(h.probe_at, ${asked}) end`)}
    from json_to_recordset(${JSON.stringify(batches)}::json) as b ("webhookId" text, succeeded boolean, failures int,
      failed boolean, "isProbe" boolean, "askedMs" float8)
    join webhook_health before on before.webhook_id = b."webhookId"
    where h.webhook_id = b."webhookId"
    returning h.webhook_id as "webhookId", case when h.failing_since = now()::timestamptz(3) then 'failing'
      when ${isFailing("before")} and not ${isFailing("h")} then 'working' end as change,
      h.consecutive_failures, h.last_success_at`;
}

export async function clearFailures(em: EntityManager, webhookId: string): Promise<void> {
  await kysely(em)
    .updateTable("webhook_health")
    .set({ consecutive_failures: 0, failing_since: null, probe_at: null, probe_wait_seconds: null })
    .where("webhook_id", "=", webhookId)
    .execute();
}

/**
 * Makes the next probe of a failing endpoint due now, and begins the waits anew: a probe that is under way would else set the longest
 * of them when it fails. @param tenant undefined for an operator @returns whether it is failing; for any other nothing changes
 */
export async function probeNow(em: EntityManager, tenant: Tenant | undefined, webhookId: string): Promise<boolean> {
  const isOwn = tenant
    ? sql`exists (select from webhook_endpoints e where e.id = h.webhook_id and ${ofTenant(tenant, "e")})`
    : sql`true`;
  const { numAffectedRows = 0n } = await sql`
    update webhook_health h set probe_at = now(), probe_wait_seconds = null
    where h.webhook_id = ${webhookId} and ${isFailing("h")} and ${isOwn}`.execute(kysely(em));
  return numAffectedRows > 0;
}

/** Switches off the endpoints whose failures call for it, with notices. @param noted name of the CTE with `noteAttempts` */
export const switchOffDead = (noted: string): RawBuilder<unknown> => sql`
  update webhook_endpoints e
  set active = false, disabled_at = now(), disabled_reason = 'delivery_failures', notice_due_at = now()
  from ${sql.table(noted)} n
  where e.id = n."webhookId" and e.active and n.consecutive_failures >= ${sql.lit(SWITCH_OFF_FAILURES)}
    and greatest(e.enabled_at, n.last_success_at) < now() - make_interval(hours => ${sql.lit(SWITCH_OFF_HOURS)})
  returning e.id`;
