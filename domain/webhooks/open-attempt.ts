import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus, GroupLane, GroupPhase } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { defineStatement, executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { endGroup } from "./end-group.ts";
import { ENDPOINT_OFF, type EndpointHealth, healthOf, isFailing, isSteady } from "./endpoint-health.ts";
import { COUNTS_FOR_TEAM, TAKES_PLACE } from "./grouping.ts";
import { moreGroups, OLD_GROUPS } from "./plan-groups.ts";
import { queueKey } from "./waiting.ts";

/** A place outlives the longest attempt activity; it is given back long before, unless its worker died. */
const SLOT_SECONDS = 60;

/** The workflow of a group is presumed dead when its next attempt is this late, in seconds. */
const LATE_SECONDS = 120;

/** When an attempt that begins now is late. */
const LATE_AT = sql`now() + make_interval(secs => ${sql.lit(LATE_SECONDS)})`;
/** The epoch of a group's first attempt. */
const FIRST_EPOCH = 1;

/** The secret before a rotation, while it signs too. @param endpoint alias of `webhook_endpoints` */
const previousSecret = (endpoint: string): RawBuilder<string | null> => sql<string | null>`case
  when ${sql.ref(`${endpoint}.previous_secret_expires_at`)} > now()
  then ${sql.ref(`${endpoint}.previous_encrypted_secret`)} end`;

const INTERRUPTED = "The outcome is unknown: the service was interrupted during this attempt.";
const OUTCOME_UNKNOWN = `${INTERRUPTED} It is made again.`;
const EVENT_GONE = "Its event is kept no more, so it was not attempted again.";

/** One delivery to be attempted. */
export interface DueDelivery {
  id: string;
  eventId: string;
  type: string;
  isReplay: boolean;
  /** It brings an example: it is attempted once. */
  isTest: boolean;
  /** JSON of the record the event is about. */
  object: string;
  /** ISO 8601. */
  eventCreatedAt: string;
}

/** The endpoint of a group's deliveries, as it is at the beginning of the attempt. */
export interface Destination {
  webhookId: string;
  url: string;
  apiVersion: string;
  encryptedSecret: string;
  /** During a rotation. */
  previousEncryptedSecret: string | null;
  encryptedHeaders: string | null;
  health: EndpointHealth;
  isSteady: boolean;
}

export type OpenedAttempt =
  | {
      state: "open";
      epoch: number;
      destination: Destination;
      due: DueDelivery[];
      /** Deliveries that ended FAILED now, because their event is kept no more. */
      failed: number;
      isProbe: boolean;
      /** The last attempt of the ladder ends a delivery. */
      mayGiveUp: boolean;
      /** The version of the endpoint's row, with which `takeMore` is called; null when the group may take no more. */
      endpointVersion: string | null;
    }
  /** Its deliveries wait in Postgres again: the endpoint is failing, or has no place for another group that retries. */
  | { state: "returned"; deliveries: number }
  /** Nothing is left to attempt: the endpoint is gone or off, or the group had ended. */
  | { state: "ended"; failed: number; blocked: number };

/** The number of the group's attempt; the first is 1. */
interface GroupAttempt {
  groupId: string;
  attempt: number;
  /** Attempts before this one that operators asked for, which use up none of the ladder. */
  extra?: number;
  /** The length of the ladder, in ms: a probe gives no delivery up that is younger. */
  keepForMs: number;
}

/**
 * Begins an attempt of a group, or continues it, in one transaction. Deliveries that were in flight when an earlier
 * begin of the same attempt was cut off are closed as unknown and get a new row in this attempt; those that failed in the
 * attempt before get their next row. A repeated call changes nothing more.
 */
export async function openAttempt(
  em: EntityManager,
  { groupId, attempt, extra = 0, keepForMs }: GroupAttempt,
): Promise<OpenedAttempt> {
  const first = attempt === 1 ? await openFirst(em, groupId) : undefined;
  if (first) return first;
  return transaction(em, async (tx) => {
    const group = await lockGroup(tx, groupId);
    if (!group) return { state: "ended", failed: 0, blocked: 0 };
    if (group.endpoint_id === null) {
      await kysely(tx).deleteFrom("webhook_groups").where("id", "=", groupId).execute();
      return { state: "ended", failed: 0, blocked: 0 };
    }
    if (!group.active) {
      // A delivery in flight may have arrived, so it is not BLOCKED.
      const untried = group.attempting
        ? ({ status: "FAILED", why: `${INTERRUPTED} ${ENDPOINT_OFF}` } as const)
        : ({ status: "BLOCKED", why: ENDPOINT_OFF } as const);
      return { state: "ended", ...(await endGroup(tx, groupId, ENDPOINT_OFF, untried)) };
    }
    if (group.attempting) await replaceRows(tx, groupId, "PENDING", OUTCOME_UNKNOWN);
    const isEndpointFailing = group.health === "failing";
    const isProbe = group.lane === "PROBE" && group.phase === "FIRST" && isEndpointFailing;
    const mustWait =
      (isEndpointFailing && !isProbe && group.lane !== "TEST") ||
      (group.phase === "RETRYING" && !(await hasFreePlace(tx, groupId, group)));
    if (mustWait)
      return { state: "returned", deliveries: await returnGroup(tx, groupId, group.attempt - extra, attempt - extra) };

    const epoch = group.epoch + 1;
    if (group.attempt < attempt) await replaceRows(tx, groupId, "RETRYING", null);
    await beginAttempt(tx, groupId, attempt, epoch);
    return {
      state: "open",
      epoch,
      ...(await readDue(tx, groupId)),
      isProbe,
      mayGiveUp: !isProbe || (await isOlder(tx, groupId, keepForMs)),
      endpointVersion: null,
      destination: {
        webhookId: group.webhook_id,
        url: group.url,
        apiVersion: group.api_version,
        encryptedSecret: group.encrypted_secret,
        previousEncryptedSecret: group.previous_encrypted_secret,
        encryptedHeaders: group.encrypted_headers,
        health: group.health,
        isSteady: group.is_steady,
      },
    };
  });
}

/**
 * Begins the first attempt of a group of new deliveries in one statement.
 * @returns undefined when that is not possible: the attempt was begun before, or the endpoint is off, failing or gone
 */
async function openFirst(em: EntityManager, groupId: string): Promise<OpenedAttempt | undefined> {
  const { rows } = await beginFirst(em, { groupId });
  const begun = rows[0]?.begun;
  if (!begun) return undefined;
  const { endpointVersion, ...destination } = begun;
  const due = rows.flatMap(({ begun: _, ...row }) => (row.id === null ? [] : [row]));
  return {
    state: "open",
    epoch: FIRST_EPOCH,
    ...(await endWithoutEvent(em, groupId, due)),
    isProbe: false,
    mayGiveUp: true,
    endpointVersion,
    destination,
  };
}

const beginFirst = defineStatement(
  (_em, { groupId }: { groupId: string }) => sql<
    DueRow & { begun: (Destination & { endpointVersion: string }) | null }
  >`
    with begun as (
      update webhook_groups g
      set attempting = true, epoch = ${FIRST_EPOCH}, begun_at = now(), due_at = ${LATE_AT}
      from webhook_endpoints e join webhook_health h on h.webhook_id = e.id
      where g.id = ${groupId} and g.lane = 'NEW' and g.phase = 'FIRST' and g.attempt = 1 and g.epoch = 0
        and not g.attempting and e.id = g.webhook_id and e.active and not ${isFailing("h")}
      returning e.id as "webhookId", e.xmin::text as "endpointVersion", e.url, e.api_version as "apiVersion", e.encrypted_secret as "encryptedSecret",
        ${previousSecret("e")} as "previousEncryptedSecret", e.encrypted_headers as "encryptedHeaders",
        ${healthOf("h")} as health, ${isSteady("h")} as "isSteady"
    ), due as (${dueRows(groupId)})
    select due.*, case when row_number() over (order by due.id) = 1 then to_json(begun) end as begun
    from begun left join due on true order by due.id`,
);

interface GroupRow {
  team_id: string;
  lane: GroupLane;
  phase: GroupPhase;
  attempt: number;
  epoch: number;
  attempting: boolean;
  webhook_id: string;
  /** Null when the endpoint is gone; then all below is too. */
  endpoint_id: string | null;
  active: boolean;
  url: string;
  api_version: string;
  encrypted_secret: string;
  encrypted_headers: string | null;
  previous_encrypted_secret: string | null;
  health: EndpointHealth;
  is_steady: boolean;
}

/** The group with its endpoint; it is locked until the transaction ends. */
async function lockGroup(em: EntityManager, groupId: string): Promise<GroupRow | undefined> {
  const { rows } = await executePrepared(
    em,
    "attempt_group",
    sql<GroupRow>`
    select g.team_id, g.lane, g.phase, g.attempt, g.epoch, g.attempting, g.webhook_id, e.id as endpoint_id, e.active, e.url, e.api_version,
      e.encrypted_secret, e.encrypted_headers,
      ${healthOf("h")} as health, ${isSteady("h")} as is_steady,
      ${previousSecret("e")} as previous_encrypted_secret
    from webhook_groups g
    left join webhook_endpoints e on e.id = g.webhook_id
    left join webhook_health h on h.webhook_id = g.webhook_id
    where g.id = ${groupId} for update of g`,
  );
  return rows[0];
}

/** Whether the endpoint and its team have room for a group that retries, or the group has a place already. */
async function hasFreePlace(em: EntityManager, groupId: string, group: GroupRow): Promise<boolean> {
  const { team_id: teamId, webhook_id: webhookId } = group;
  const db = kysely(em);
  // Two groups at once would each count the places without the other.
  await sql`select from webhook_health where webhook_id = ${webhookId} for update`.execute(db);
  const { rows } = await sql<{ taken: number; of_team: number }>`
    select (count(*) filter (where webhook_id = ${webhookId} and ${TAKES_PLACE}))::int as taken, count(*)::int as of_team
    from webhook_groups
    where team_id = ${teamId} and ${COUNTS_FOR_TEAM} and id <> ${groupId}`.execute(db);
  const [{ taken, of_team } = { taken: 0, of_team: 0 }] = rows;
  return moreGroups(OLD_GROUPS, taken, of_team) > 0;
}

/**
 * Ends a group without an attempt: its deliveries wait in Postgres for the relay to put them in another one.
 * @param made the number in the ladder of the latest attempt that was begun; it used up one of the ladder of those that failed in it
 * @param next the attempt that would have been made
 */
async function returnGroup(em: EntityManager, groupId: string, made: number, next: number): Promise<number> {
  const db = kysely(em);
  const { numAffectedRows = 0n } = await sql`
    update webhook_deliveries
    set group_id = null, attempts_used = case when status = 'RETRYING' then ${made}::int else ${next}::int - 1 end
    where group_id = ${groupId} and status in ('PENDING', 'RETRYING')`.execute(db);
  await db.deleteFrom("webhook_groups").where("id", "=", groupId).execute();
  return Number(numAffectedRows);
}

/** Whether the delivery of a probe was first queued so long ago. */
async function isOlder(em: EntityManager, groupId: string, ms: number): Promise<boolean> {
  const { rows } = await sql<{ older: boolean }>`
    select coalesce(f.created_at < now() - make_interval(secs => ${ms / 1000}::float8), true) as older
    from webhook_deliveries d left join webhook_deliveries f on f.id = ${queueKey("d")}
    where d.group_id = ${groupId} and d.status = 'PENDING' limit 1`.execute(kysely(em));
  return rows[0]?.older ?? true;
}

/** Closes a group's rows of one status as FAILED, each followed by a new PENDING one. @param why null keeps theirs */
async function replaceRows(
  em: EntityManager,
  groupId: string,
  status: DeliveryStatus,
  why: string | null,
): Promise<void> {
  const db = kysely(em);
  const { rows: closed } = await sql<{ id: string }>`
    update webhook_deliveries
    set status = 'FAILED', retried = true, next_attempt_at = null, error_message = coalesce(${why}, error_message), updated_at = now()
    where group_id = ${groupId} and status = ${status} returning id`.execute(db);
  if (closed.length === 0) return;
  await sql`
    insert into webhook_deliveries
      (id, first_id, team_id, environment, webhook_id, event_id, event_type, group_id, attempt, is_replay, replay_of_id)
    select n.id, ${queueKey("d")}, d.team_id, d.environment, d.webhook_id, d.event_id, d.event_type, d.group_id,
      d.attempt + 1, d.is_replay, d.replay_of_id
    from unnest(${closed.map(({ id }) => id)}::text[], ${closed.map(() => newId("delivery"))}::text[]) as n (old, id)
    join webhook_deliveries d on d.id = n.old`.execute(db);
}

/** Notes that the attempt is under way, and leases a place to a group that retries. */
async function beginAttempt(em: EntityManager, groupId: string, attempt: number, epoch: number): Promise<void> {
  await executePrepared(
    em,
    "attempt_begin",
    sql`
    update webhook_groups
    set attempting = true, epoch = ${epoch}, attempt = ${attempt}, begun_at = coalesce(begun_at, now()),
      slot_until = case when phase = 'RETRYING' then now() + make_interval(secs => ${SLOT_SECONDS}) end,
      due_at = ${LATE_AT}
    where id = ${groupId}`,
  );
}

/** A delivery to be attempted; its event is kept no more when `object` is null. */
export type DueRow = DueDelivery | { id: string; object: null } | { id: null; object: null };

/** The columns of a delivery to be attempted, `d`, and of its event, `v`. */
export const dueColumns = sql`d.id, d.event_id as "eventId", d.event_type as type, d.is_replay as "isReplay",
  v.is_test as "isTest", v.object, ${isoInstant(sql.ref("v.created_at"))} as "eventCreatedAt"`;

/** A query for the deliveries of a group that are to be attempted. */
const dueRows = (groupId: string): RawBuilder<DueRow> => sql`
  select ${dueColumns}
  from webhook_deliveries d left join webhook_events v on v.id = d.event_id
  where d.group_id = ${groupId} and d.status = 'PENDING'`;

/** The deliveries to be attempted. */
async function readDue(em: EntityManager, groupId: string): Promise<{ due: DueDelivery[]; failed: number }> {
  const { rows } = await executePrepared(em, "attempt_due", sql<DueRow>`${dueRows(groupId)} order by d.id`);
  return endWithoutEvent(em, groupId, rows);
}

/** Ends deliveries FAILED whose event is gone: else their group would look for it for ever. */
export async function endWithoutEvent(
  em: EntityManager,
  groupId: string,
  rows: readonly DueRow[],
): Promise<{ due: DueDelivery[]; failed: number }> {
  const due = rows.filter((row) => row.object !== null);
  const failed = rows.length - due.length;
  if (failed > 0) {
    const gone = rows.filter((row) => row.object === null).map(({ id }) => id);
    await sql`
      update webhook_deliveries set status = 'FAILED', error_message = ${EVENT_GONE}, updated_at = now()
      where id = any(${gone}::text[]) and group_id = ${groupId}`.execute(kysely(em));
  }
  return { due, failed };
}
