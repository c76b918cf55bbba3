import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { newId } from "../ids.ts";
import { notifyDue } from "./emit.ts";
import { holdEndpoint, refuseInactive } from "./replay-delivery.ts";
import { keepEvents } from "./retention.ts";

export const REPLAYABLE = ["FAILED", "BLOCKED"] as const satisfies DeliveryStatus[];

/** To each endpoint. */
export const DEFAULT_PER_SECOND = 100;
/** Deliveries that one call queues, which takes Postgres about a second. */
export const MOST_AT_ONCE = 10_000;

export interface ReplayFilter {
  teamId: string | null;
  webhookId: string | null;
  /** Of every type without any. */
  eventTypes?: readonly string[];
  statuses: readonly (typeof REPLAYABLE)[number][];
  /** Made from `since` until `until`. */
  since: Date;
  until: Date;
}

/** The deliveries of a filter that are worth replaying: final ones, while their event is kept. */
const matching = ({
  teamId,
  webhookId,
  eventTypes = [],
  statuses,
  since,
  until,
}: ReplayFilter): RawBuilder<unknown> => sql`
  webhook_deliveries d
  join webhook_endpoints e on e.id = d.webhook_id
  join webhook_events v on v.id = d.event_id
  where d.final_failure = any(${[...statuses]}::text[])
    and d.created_at >= ${since.toISOString()}::timestamptz and d.created_at < ${until.toISOString()}::timestamptz
    and (${teamId}::text is null or d.team_id = ${teamId}) and (${webhookId}::text is null or d.webhook_id = ${webhookId})
    and (${[...eventTypes]}::text[] = '{}' or d.event_type = any(${[...eventTypes]}::text[]))`;

export interface ReplayCount {
  webhookId: string;
  teamId: string;
  environment: Tenant["environment"];
  status: DeliveryStatus;
  /** An endpoint that is off gets nothing replayed. */
  active: boolean;
  deliveries: number;
}

/** Counts the deliveries of a filter, also those that stay because their endpoint is off. */
export async function countReplayable(em: EntityManager, filter: ReplayFilter): Promise<ReplayCount[]> {
  const { rows } = await sql<ReplayCount>`
    select d.webhook_id as "webhookId", d.team_id as "teamId", d.environment, d.status, e.active,
      count(*)::int as deliveries
    from ${matching(filter)} group by 1, 2, 3, 4, 5 order by 1, 4`.execute(kysely(em));
  return rows;
}

export interface Replayed {
  replayed: number;
  /** When the last of them is due, ISO 8601; null when none matched. */
  lastDueAt: string | null;
  /** Further deliveries match. */
  hasMore: boolean;
}

/**
 * Queues the deliveries of a filter once more, the oldest of an endpoint first, up to `MOST_AT_ONCE`. They are due one after the other,
 * behind the replays that their endpoint has waiting. An endpoint that is off is left alone. Call it in a transaction.
 * @param perSecond to each endpoint @param tenant undefined for all
 */
export async function replayDeliveries(
  em: EntityManager,
  filter: ReplayFilter,
  perSecond: number,
  tenant?: Tenant,
): Promise<Replayed> {
  const db = kysely(em);
  const { rows: matched } = await sql<{ id: string; eventId: string }>`
    select d.id, d.event_id as "eventId" from ${matching(filter)} and e.active and ${tenant ? ofTenant(tenant, "e") : sql`true`}
    order by d.webhook_id, d.created_at, d.id
    limit ${MOST_AT_ONCE + 1} for key share of e for update of d`.execute(db);
  const old = matched.slice(0, MOST_AT_ONCE);
  if (old.length === 0) return { replayed: 0, lastDueAt: null, hasMore: false };
  const ids = old.map(({ id }) => id);
  const { rows } = await sql<{ webhookId: string; lastDueAt: string }>`
    with replaced as (
      -- Both conditions: by the first Postgres knows how many rows it finds, also in a table without statistics.
      update webhook_deliveries d set superseded_by_id = n.id
      from unnest(${ids}::text[], ${ids.map(() => newId("delivery"))}::text[]) as n (old, id)
      where d.id = any(${ids}::text[]) and d.id = n.old returning d.*
    ), starts as materialized (
      select w.webhook_id, greatest(now(), (
        select q.next_attempt_at from webhook_deliveries q
        where q.webhook_id = w.webhook_id and q.next_attempt_at is not null and q.is_replay and q.status = 'PENDING'
        order by q.next_attempt_at desc limit 1)) as at
      from (select distinct webhook_id from replaced) w
    ), made as (
      insert into webhook_deliveries
        (id, team_id, environment, webhook_id, event_id, event_type, is_replay, replay_of_id, next_attempt_at)
      select r.superseded_by_id, r.team_id, r.environment, r.webhook_id, r.event_id, r.event_type, true, r.id, s.at + make_interval(
        secs => (row_number() over (partition by r.webhook_id order by r.created_at, r.id) - 1)::float8 / ${perSecond}::float8)
      from replaced r join starts s on s.webhook_id = r.webhook_id
      returning webhook_id, next_attempt_at
    )
    select webhook_id as "webhookId", ${isoInstant(sql`max(max(next_attempt_at)) over ()`)} as "lastDueAt"
    from made group by 1`.execute(db);
  const lastDueAt = rows[0]?.lastDueAt ?? null;
  const eventIds = old.map(({ eventId }) => eventId);
  await keepEvents(em, tenant, eventIds, lastDueAt);
  await notifyDue(
    em,
    rows.map(({ webhookId }) => webhookId),
  );
  return { replayed: old.length, lastDueAt, hasMore: matched.length > old.length };
}

/**
 * Queues deliveries of one endpoint once more, as `replayDeliveries` does.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when the endpoint is not active
 */
export async function replayOfEndpoint(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  chosen: Omit<ReplayFilter, "teamId" | "webhookId">,
): Promise<Replayed> {
  refuseInactive(await holdEndpoint(em, tenant, webhookId));
  return replayDeliveries(em, { teamId: tenant.teamId, webhookId, ...chosen }, DEFAULT_PER_SECOND, tenant);
}
