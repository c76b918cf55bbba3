import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { newId } from "../ids.ts";
import { type EndpointHealth, healthOf, isFailing } from "./endpoint-health.ts";

// The queue of an endpoint: the deliveries with a `next_attempt_at`. One activity at a time owns it, under an epoch and a lease.
// Statements that look for due deliveries are not prepared: Postgres would keep the plan that it made for an empty table.

/** How long an endpoint stays with an activity that does not renew its lease, in seconds. */
const LEASE_SECONDS = 10;
const leaseEnd = sql`now() + make_interval(secs => ${sql.lit(LEASE_SECONDS)})`;

/** Before all others: a test delivery waits for no probe. */
export const TEST_DUE: RawBuilder<string> = sql<string>`'epoch'::timestamptz`;

export const INTERRUPTED = "The outcome is unknown: the service was interrupted during this attempt.";
const OUTCOME_UNKNOWN = `${INTERRUPTED} It is made again.`;
const EVENT_GONE = "Its event is kept no more, so it was not attempted again.";

/** An endpoint that an activity has taken, as it was then. */
export interface TakenEndpoint {
  webhookId: string;
  teamId: string;
  epoch: number;
  /** Of the endpoint's row: once it is another one, nothing more is claimed. */
  version: string;
  url: string;
  apiVersion: string;
  encryptedSecret: string;
  previousEncryptedSecret: string | null;
  encryptedHeaders: string | null;
  health: EndpointHealth;
  /** In a row. */
  failures: number;
  /** Deliveries that the epoch before had claimed and not settled. */
  claimed: string[];
}

/**
 * Takes an endpoint under a new epoch, which ends every earlier one. @param after only if this epoch is still the latest
 * @returns undefined when nothing may be sent to it: it is deleted, off or paused
 */
export async function takeEndpoint(
  em: EntityManager,
  webhookId: string,
  after?: number,
): Promise<TakenEndpoint | undefined> {
  const { rows } = await sql<TakenEndpoint>`
    update webhook_health h set epoch = abs(h.epoch) + 1, lease_until = ${leaseEnd} from webhook_endpoints e
    where h.webhook_id = ${webhookId} and e.id = h.webhook_id and e.active and h.paused_at is null
      and abs(h.epoch) = coalesce(${after ?? null}::int, abs(h.epoch))
    returning e.id as "webhookId", e.team_id as "teamId", h.epoch, e.xmin::text as version, e.url, e.api_version as "apiVersion",
      e.encrypted_secret as "encryptedSecret", e.encrypted_headers as "encryptedHeaders",
      case when e.previous_secret_expires_at > now() then e.previous_encrypted_secret end as "previousEncryptedSecret",
      ${healthOf("h")} as health, h.consecutive_failures as failures, h.claimed`.execute(kysely(em));
  return rows[0];
}

/** One delivery to be attempted. */
export interface DueDelivery {
  id: string;
  status: DeliveryStatus;
  eventId: string;
  type: string;
  isReplay: boolean;
  isTest: boolean;
  /** Attempts of the ladder before this one. */
  attemptsUsed: number;
  /** Since its first attempt was due. */
  ageMs: number;
  /** When it fell due, as Postgres writes it. */
  dueAt: string;
  /** JSON of the record the event is about. */
  object: string;
  /** ISO 8601. */
  eventCreatedAt: string;
}

interface Claim extends Pick<TakenEndpoint, "webhookId" | "epoch" | "version"> {
  /** Claimed before and not settled. */
  held: readonly string[];
  /** 0 renews the lease alone. */
  limit: number;
  /** Deliveries that fell due earlier are not looked at. */
  from: string;
  testsAlone: boolean;
  ladderLength: number;
}

/**
 * Claims deliveries that are due, and renews the lease. Of a failing endpoint tests, and others once its next probe is due. The next
 * attempt of one that failed before gets a row of its own, which is claimed instead.
 * @returns them, and whether further ones may be due; undefined when the endpoint or its queue was changed, it is off, paused or deleted, or has
 *   another owner
 */
export async function claimDue(
  em: EntityManager,
  claim: Claim,
): Promise<{ due: DueDelivery[]; isFull: boolean } | undefined> {
  const { webhookId, epoch, version, held, from, limit, testsAlone } = claim;
  const { rows } = await sql<DueDelivery | { id: string; object: null } | { id: null; object: null }>`
    with bounds as materialized (
      select case when ${testsAlone}::boolean then ${TEST_DUE} when not ${isFailing("h")} then now()
        when h.probe_at > now() then ${TEST_DUE} else 'infinity' end as until
      from webhook_health h where h.webhook_id = ${webhookId}
    ), due as materialized (
      select d.id, d.next_attempt_at from webhook_deliveries d
      where d.webhook_id = ${webhookId} and d.next_attempt_at between ${from}::timestamptz and (select until from bounds)
        and d.id <> all(${[...held]}::text[])
      order by d.next_attempt_at limit ${limit}
    ), claimed as (
      update webhook_health h
      set claimed = ${[...held]}::text[] || array(select id from due), lease_until = ${leaseEnd}
      from webhook_endpoints e
      where h.webhook_id = ${webhookId} and h.epoch = ${epoch} and h.paused_at is null
        and e.id = h.webhook_id and e.active and e.xmin::text = ${version}
      returning 1
    )
    select due.id, d.status, d.event_id as "eventId", d.event_type as type, d.is_replay as "isReplay", v.is_test as "isTest",
      d.attempts_used as "attemptsUsed", due.next_attempt_at::text as "dueAt", v.object,
      ceil(extract(epoch from now() - coalesce(
        (select f.created_at from webhook_deliveries f where f.id = d.first_id), d.created_at)) * 1000)::float8 as "ageMs",
      ${isoInstant(sql.ref("v.created_at"))} as "eventCreatedAt"
    from claimed left join due on true left join webhook_deliveries d on d.id = due.id
    left join webhook_events v on v.id = d.event_id
    order by due.next_attempt_at`.execute(kysely(em));
  if (rows.length === 0) return undefined;
  const gone = rows.flatMap(({ id, object }) => (id !== null && object === null ? [id] : []));
  if (gone.length > 0) await endWithoutEvent(em, gone);
  const due = rows.filter((row): row is DueDelivery => row.object !== null);
  const failed = due.flatMap(({ id, status }) => (status === "RETRYING" ? [id] : []));
  const retryOf = failed.length > 0 ? await beginRetries(em, claim, failed) : new Map<string, Retry>();
  const current = due.filter(({ id, status }) => status !== "RETRYING" || retryOf.has(id));
  return { due: current.map((one) => ({ ...one, ...retryOf.get(one.id) })), isFull: due.length + gone.length >= limit };
}

/** Ends deliveries FAILED whose event is gone: else they would be claimed for ever. */
async function endWithoutEvent(em: EntityManager, ids: readonly string[]): Promise<void> {
  await sql`
    update webhook_deliveries
    set status = 'FAILED', next_attempt_at = null, error_message = ${EVENT_GONE}, updated_at = now()
    where id = any(${[...ids]}::text[]) and next_attempt_at is not null`.execute(kysely(em));
}

/** Notes that the outcome of attempts is unknown, which the epoch before had claimed. They are made again, and use up no attempt. */
export async function noteUnknown(em: EntityManager, ids: readonly string[]): Promise<void> {
  await sql`
    update webhook_deliveries
    set status = 'RETRYING', attempts_used = attempts_used - 1, error_message = ${OUTCOME_UNKNOWN}, updated_at = now()
    where id = any(${[...ids]}::text[]) and status = 'PENDING'`.execute(kysely(em));
}

type Retry = Pick<DueDelivery, "id" | "attemptsUsed">;

/**
 * Closes rows of attempts that failed, each followed by a row of the next attempt, which is claimed, as far as the epoch is still the
 * latest. @returns the new ones by the ids of the old
 */
async function beginRetries(
  em: EntityManager,
  { webhookId, epoch, ladderLength }: Claim,
  ids: readonly string[],
): Promise<Map<string, Retry>> {
  const { rows } = await sql<Retry & { old: string }>`
    with owned as materialized (
      select from webhook_health where webhook_id = ${webhookId} and epoch = ${epoch} for update
    ), closed as (
      update webhook_deliveries d
      set status = 'FAILED', superseded_by_id = n.new, next_attempt_at = null, updated_at = now()
      from unnest(${[...ids]}::text[], ${ids.map(() => newId("delivery"))}::text[]) as n (old, new)
      join webhook_deliveries before on before.id = n.old
      where d.id = n.old and d.status = 'RETRYING' and exists (select from owned)
      returning d.*, before.next_attempt_at as due_at
    ), made as (
      insert into webhook_deliveries (id, first_id, team_id, environment, webhook_id, event_id, event_type, attempt,
        attempts_used, is_replay, replay_of_id, next_attempt_at)
      select superseded_by_id, coalesce(first_id, id), team_id, environment, webhook_id, event_id, event_type, attempt + 1,
        -- Only a probe of a delivery that is too young to be given up comes after the last attempt of the ladder.
        greatest(attempts_used, least(attempts_used + 1, ${ladderLength - 1})), is_replay, replay_of_id, least(due_at, now())
      from closed returning id, attempts_used
    ), marked as (
      update webhook_health set claimed = claimed || array(select superseded_by_id from closed)
      where webhook_id = ${webhookId} and exists (select from owned)
    )
    select c.id as old, m.id, m.attempts_used as "attemptsUsed" from closed c join made m on m.id = c.superseded_by_id`.execute(
    kysely(em),
  );
  return new Map(rows.map(({ old, ...retry }) => [old, retry]));
}

/** Ends a run with nothing in flight, and gives the lease back. */
export async function endRun(em: EntityManager, { webhookId, epoch }: TakenEndpoint): Promise<void> {
  await sql`
    update webhook_health set claimed = '{}', lease_until = null
    where webhook_id = ${webhookId} and abs(epoch) = ${epoch}`.execute(kysely(em));
}

/** The state of an endpoint's queue, for its workflow and for operators. */
export interface Rest {
  active: boolean;
  health: EndpointHealth;
  /** In a row. */
  failures: number;
  /** ISO 8601; null unless it is failing. */
  failingSince: string | null;
  paused: boolean;
  /** Counted up to `MOST_COUNTED`. */
  waiting: number;
  /** When something is to be done, ISO 8601; null when nothing is, or only a command lets it happen. */
  nextInMs: number | null;
  nextAt: string | null;
}

export const MOST_COUNTED = 1_000;

/**
 * Looks at the queue of an endpoint, after the lease was given up and in a statement of its own: deliveries that were committed before
 * are seen here, and those that come later find the endpoint free. @returns undefined when it is deleted
 */
export async function readRest(em: EntityManager, webhookId: string): Promise<Rest | undefined> {
  const { rows } = await sql<Rest>`
    select e.active, ${healthOf("h")} as health, h.consecutive_failures as failures,
      ${isoInstant(sql.ref("h.failing_since"))} as "failingSince", h.paused_at is not null as paused,
      (select count(*)::int from (select from webhook_deliveries d
        where d.webhook_id = e.id and d.next_attempt_at is not null limit ${sql.lit(MOST_COUNTED)}) w) as waiting,
      ceil(greatest(0, extract(epoch from n.at - now()) * 1000))::float8 as "nextInMs", ${isoInstant(sql`case when n.at < now() then now() else n.at end`)} as "nextAt"
    from webhook_endpoints e join webhook_health h on h.webhook_id = e.id
    -- What a dead run had claimed of an endpoint that is off is ended after its lease.
    cross join lateral (select case when h.paused_at is null then greatest(${nextDue}, case when not e.active then h.lease_until end) end as at) n
    where e.id = ${webhookId}`.execute(kysely(em));
  return rows[0];
}

/** When the next delivery of the endpoint `e` with health `h` may be claimed. */
const nextDue = sql<string>`(
  select case when not ${isFailing("h")} or d.next_attempt_at <= ${TEST_DUE} then d.next_attempt_at else h.probe_at end
  from webhook_deliveries d
  where d.webhook_id = e.id and d.next_attempt_at is not null
  order by d.next_attempt_at limit 1)`;

/** A recursive query, to be called `waiting`, for the endpoints that have a queue, and a null: one step along the index for each. */
export const endpointsWaiting = sql`
  (select webhook_id from webhook_deliveries where next_attempt_at is not null order by webhook_id limit 1)
  union all
  select (select d.webhook_id from webhook_deliveries d
    where d.next_attempt_at is not null and d.webhook_id > w.webhook_id order by d.webhook_id limit 1)
  from waiting w where w.webhook_id is not null`;

/** How long a delivery has been due before a sweep asks why, in seconds. */
const OVERDUE_SECONDS = 2;

export interface DueEndpoint {
  id: string;
  teamId: string;
  epoch: number;
  /** An activity has its lease. */
  isServed: boolean;
}

/**
 * Reads which endpoints are to be served. To be called after the commit of their deliveries: an activity gives its lease up and then
 * looks for deliveries, so that one of the two sees what the other wrote.
 * @param webhookIds of these alone; undefined for all that are overdue: the process that was to start their workflow died, or that did
 */
export async function readDueEndpoints(em: EntityManager, webhookIds?: readonly string[]): Promise<DueEndpoint[]> {
  const candidates = webhookIds
    ? sql`waiting as (select unnest(${[...webhookIds]}::text[]) as webhook_id)`
    : sql`recursive waiting as (${endpointsWaiting})`;
  const { rows } = await sql<DueEndpoint>`
    with ${candidates}
    select e.id, e.team_id as "teamId", h.epoch, coalesce(h.lease_until > now(), false) as "isServed"
    from waiting w join webhook_health h on h.webhook_id = w.webhook_id join webhook_endpoints e on e.id = h.webhook_id
    where not e.active or coalesce(h.lease_until > now(), false) or h.paused_at is null
      and ${nextDue} <= now() - make_interval(secs => ${webhookIds ? 0 : OVERDUE_SECONDS}::int)`.execute(kysely(em));
  return rows;
}
