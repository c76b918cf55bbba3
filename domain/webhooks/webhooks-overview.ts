import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { isFailing } from "./endpoint-health.ts";
import type { EndpointState } from "./endpoint-list.ts";
import { endpointsWaiting } from "./queue.ts";

/** By the state of their endpoint, where `working` includes `unproven`. */
type ByState = Record<Exclude<EndpointState, "unproven">, number>;

/** The backlog of the webhooks of all teams. */
export interface WebhooksOverview {
  /** Age of the oldest change in the outbox, in seconds; 0 when none waits. */
  outboxAgeSeconds: number;
  /** Seconds for which the delivery that has waited longest could have been attempted; 0 when none waits. */
  waitingAgeSeconds: ByState;
  /** Deliveries that wait or are under way; each counted up to `MOST_WAITING`. */
  waiting: ByState;
  /** Endpoints that are on and `failing`. */
  failing: number;
  /** Endpoints that the platform has switched off. */
  switchedOff: number;
}

export const MOST_WAITING = 10_000;

export async function overviewWebhooks(em: EntityManager): Promise<WebhooksOverview> {
  const db = kysely(em);
  const { rows: singles } = await sql<{ outbox: number | null; failing: number; off: number }>`
    select
      (select extract(epoch from clock_timestamp() - created_at)::float8 from webhook_outbox order by seq limit 1)
        as outbox,
      (select count(*)::int from webhook_health h join webhook_endpoints e on e.id = h.webhook_id
        where ${isFailing("h")} and e.active) as failing,
      (select count(*)::int from webhook_endpoints
        where disabled_reason = 'delivery_failures' and origin <> 'LISTENER') as off`.execute(db);
  // Endpoint by endpoint: the first of each that waits is one step along the index, however many follow it.
  const { rows: ages } = await sql<{ state: keyof ByState; seconds: number; waiting: number }>`
    with recursive waiting as (${endpointsWaiting}), waits as (
      select w.webhook_id, case when not e.active then 'off' when ${isFailing("h")} then 'failing' else 'working' end as state, (
        select greatest(d.next_attempt_at, d.created_at) from webhook_deliveries d
        where d.webhook_id = w.webhook_id and d.next_attempt_at is not null order by d.next_attempt_at limit 1) as since
      from waiting w join webhook_health h on h.webhook_id = w.webhook_id join webhook_endpoints e on e.id = w.webhook_id
    )
    select f.state, greatest(extract(epoch from clock_timestamp() - (select min(since) from waits w where w.state = f.state)), 0)::float8
      as seconds, (
      select count(*)::int from (
        select from waits w cross join lateral (
          select from webhook_deliveries d where d.webhook_id = w.webhook_id and d.next_attempt_at is not null
          limit ${sql.lit(MOST_WAITING)}) d
        where w.state = f.state limit ${sql.lit(MOST_WAITING)}) counted) as waiting
    from (values ('working'), ('failing'), ('off')) f (state)`.execute(db);
  const [single] = singles;
  const byState = (figure: "seconds" | "waiting"): ByState => ({
    ...{ working: 0, failing: 0, off: 0 },
    ...Object.fromEntries(ages.map((age) => [age.state, age[figure]])),
  });
  return {
    outboxAgeSeconds: Math.max(0, single?.outbox ?? 0),
    waitingAgeSeconds: byState("seconds"),
    waiting: byState("waiting"),
    failing: single?.failing ?? 0,
    switchedOff: single?.off ?? 0,
  };
}
