import { sql } from "kysely";
import type { GroupPhase } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { EndpointState } from "./backlog.ts";
import { isFailing } from "./endpoint-health.ts";
import { endpointsWaiting, oldestWaiting } from "./waiting.ts";

/** By the state of their endpoint, where `working` includes `unproven`. */
type ByState = Record<Exclude<EndpointState, "unproven">, number>;

/** The backlog of the webhooks of all teams. */
export interface WebhooksOverview {
  /** Age of the oldest change in the outbox, in seconds; 0 when none waits. */
  outboxAgeSeconds: number;
  /**
   * Seconds for which the delivery that has waited longest could have been attempted; 0 when none waits. Failing
   * endpoints are counted apart: they get little at once, so their deliveries may wait for long. So are those that are
   * off: the relay ends what waits for them, many at a time.
   */
  waitingAgeSeconds: ByState;
  /** Deliveries that no workflow carries; each counted up to `MOST_WAITING`. */
  waiting: ByState;
  /** Groups of deliveries that workflows carry. */
  groups: Record<GroupPhase, number>;
  /** Endpoints that are on and `failing`. */
  failing: number;
  /** Endpoints that the platform has switched off. */
  switchedOff: number;
}

/** Deliveries that wait are counted up to this number, for each state: a dead endpoint's hide no others. */
export const MOST_WAITING = 10_000;

/**
 * Measures the backlog of all teams, along the partial index of waiting deliveries and the small table of groups: the
 * log, which keeps 30 days, is not read. A delivery waits since it was written, and in a group since its attempt fell
 * due.
 */
export async function overviewWebhooks(em: EntityManager): Promise<WebhooksOverview> {
  const db = kysely(em);
  const { rows: singles } = await sql<{
    outbox: number | null;
    failing: number;
    off: number;
    first: number;
    retrying: number;
  }>`
    select
      (select extract(epoch from clock_timestamp() - created_at)::float8 from webhook_outbox order by seq limit 1)
        as outbox,
      (select count(*)::int from webhook_health h join webhook_endpoints e on e.id = h.webhook_id
        where ${isFailing("h")} and e.active) as failing,
      (select count(*)::int from webhook_endpoints
        where disabled_reason = 'delivery_failures' and origin <> 'LISTENER') as off,
      (select count(*)::int from webhook_groups where phase = 'FIRST') as first,
      (select count(*)::int from webhook_groups where phase = 'RETRYING') as retrying`.execute(db);
  // Endpoint by endpoint: the first of each that waits is one step along the index, however many follow it.
  const state = sql`case when not e.active then 'off' when ${isFailing("h")} then 'failing' else 'working' end`;
  const { rows: ages } = await sql<{ state: keyof ByState; seconds: number; waiting: number }>`
    with recursive waiting as (${endpointsWaiting}), waits as (
      select w.webhook_id, ${state} as state, (
        select created_at from ${oldestWaiting(sql`w.webhook_id`, sql`1`)} o) as since
      from waiting w join webhook_health h on h.webhook_id = w.webhook_id join webhook_endpoints e on e.id = w.webhook_id
    ), counted as (
      select f.state, c.waiting from (values ('working'), ('failing'), ('off')) f (state) cross join lateral (
        select count(*)::int as waiting from (
          select from waits w cross join lateral ${oldestWaiting(sql`w.webhook_id`, sql.lit(MOST_WAITING))} d
          where w.state = f.state limit ${sql.lit(MOST_WAITING)}) d) c
    ), since as (
      select state, since from waits
      union all
      select ${state}, g.due_at
      from webhook_groups g join webhook_health h on h.webhook_id = g.webhook_id
      join webhook_endpoints e on e.id = g.webhook_id where g.due_at < clock_timestamp()
    )
    select s.state, greatest(extract(epoch from clock_timestamp() - min(s.since)), 0)::float8 as seconds,
      coalesce((select waiting from counted c where c.state = s.state), 0) as waiting
    from since s group by s.state`.execute(db);
  const [single] = singles;
  const byState = (figure: "seconds" | "waiting"): ByState => ({
    ...{ working: 0, failing: 0, off: 0 },
    ...Object.fromEntries(ages.map((age) => [age.state, age[figure]])),
  });
  return {
    outboxAgeSeconds: Math.max(0, single?.outbox ?? 0),
    waitingAgeSeconds: byState("seconds"),
    waiting: byState("waiting"),
    groups: { FIRST: single?.first ?? 0, RETRYING: single?.retrying ?? 0 },
    failing: single?.failing ?? 0,
    switchedOff: single?.off ?? 0,
  };
}
