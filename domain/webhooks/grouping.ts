import { type RawBuilder, sql } from "kysely";
import type { GroupLane } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF, type EndpointHealth, FIRST_PROBE_SECONDS, healthOf, isFailing } from "./endpoint-health.ts";
import { type EndpointLoad, planGroups, roomOf, type WaitingDeliveries } from "./plan-groups.ts";
import {
  endpointsWaiting,
  endWaiting,
  isWaiting,
  isWaitingAgain,
  isWaitingNew,
  oldestWaiting,
  queueKey,
} from "./waiting.ts";

/**
 * The second group that is not full is formed only when a delivery has waited this long, in ms: the first is then held
 * up by a slow answer. Otherwise the first ends sooner, and deliveries that wait for it share the cost of one workflow.
 */
const HELD_UP_MS = 200;
/** After this long another probe may be formed: the workflow of the one before is held, or was lost. In seconds. */
const PROBE_SECONDS = 120;
/** Deliveries that one call ends because their endpoints are off: it keeps the health of other endpoints locked meanwhile. */
const MOST_ENDED = 5_000;

/**
 * The condition that a group takes one of its endpoint's places for deliveries that are not new: a BACKLOG group at its
 * first attempt, or any group that retries, by its lease.
 */
export const TAKES_PLACE = sql<boolean>`(lane = 'BACKLOG' and phase = 'FIRST'
  or phase = 'RETRYING' and slot_until > now())`;

/** The condition that a group counts among those that its team has under way. */
export const COUNTS_FOR_TEAM = sql<boolean>`(lane = 'NEW' and phase = 'FIRST' or ${TAKES_PLACE})`;

/** A group that was formed, or whose workflow was never started. */
export interface Group {
  id: string;
  webhookId: string;
  teamId: string;
  size: number;
  /** The attempt it begins with; the first is 1. */
  attempt: number;
  /** Its endpoint succeeded lately and has not failed since: the first attempt needs no activity of its own. */
  localFirstAttempt: boolean;
}

interface Candidate {
  webhook_id: string;
  team_id: string;
  environment: Tenant["environment"];
  active: boolean;
  failures: number;
  health: EndpointHealth;
  backlog_until: string;
  probed_id: string;
  new_groups: number;
  old_groups: number;
  team_groups: number;
  probes: number;
  is_probed: boolean;
}

/** A group that is to be written. */
export interface NewGroup extends Group {
  environment: Tenant["environment"];
  lane: GroupLane;
  attemptsUsed: number;
  /** Its deliveries. */
  ids: string[];
}

/**
 * Puts waiting deliveries together in groups, as far as their endpoints have room for more. The caller starts a workflow
 * for each; should that fail, `unstartedGroups` finds them. A failing endpoint gets a probe when that is due. What waits
 * for an endpoint that is off ends here, without a workflow.
 */
export function formGroups(em: EntityManager): Promise<Group[]> {
  return transaction(em, async (tx) => {
    const candidates = await lockCandidates(tx);
    let mayEnd = MOST_ENDED;
    for (const { webhook_id, active } of candidates) {
      if (!active && mayEnd > 0) mayEnd -= await endWaiting(tx, webhook_id, ENDPOINT_OFF, "BLOCKED", mayEnd);
    }
    const vacancies = candidates.filter((candidate) => candidate.active && hasRoom(candidate));
    if (vacancies.length === 0) return [];
    const waiting = await readWaiting(tx, vacancies);
    const groups = formOf(vacancies, waiting);
    if (groups.length > 0) await writeGroups(tx, groups);
    const probes = groups.filter(({ lane }) => lane === "PROBE");
    if (probes.length > 0) await noteProbes(tx, probes);
    return groups;
  });
}

/**
 * Plans groups of deliveries that are about to be written, for endpoints that no other new delivery waits for: a delivery
 * that gets its group later has a second version of its row, in all indexes. Those that are in none wait for `formGroups`.
 * @param em the transaction that writes the deliveries and, with `groupRows`, the groups
 * @param written ids of the deliveries by endpoint, oldest first
 */
export async function planWritten(em: EntityManager, written: ReadonlyMap<string, string[]>): Promise<NewGroup[]> {
  const candidates = await lockFree(em, [...written.keys()]);
  const waiting = [...written].map(
    ([webhookId, fresh]) => [webhookId, { fresh, isHeldUp: false, old: [], next: null }] as const,
  );
  return formOf(candidates.filter(hasRoom), new Map(waiting));
}

/**
 * Endpoints that deliveries wait for, less those that another relay is forming groups of, and less failing ones whose
 * next probe is not due.
 */
async function lockCandidates(em: EntityManager): Promise<Candidate[]> {
  const { rows } = await executePrepared(
    em,
    "relay_candidates",
    sql<Candidate>`
    with recursive waiting as (${endpointsWaiting})
    ${candidatesOf(sql`waiting`)}
    where not e.active or not ${isFailing("h")} or coalesce(h.probe_at <= now(), true)
    for update of h skip locked`,
  );
  return rows;
}

/** Those of the endpoints that are on, do not fail and have no new delivery that waits, as far as no other relay locks them. */
async function lockFree(em: EntityManager, webhookIds: readonly string[]): Promise<Candidate[]> {
  const { rows } = await executePrepared(
    em,
    "relay_free",
    sql<Candidate>`
    ${candidatesOf(sql`unnest(${webhookIds}::text[])`)}
    where e.active and not ${isFailing("h")} and (
      select d.id from webhook_deliveries d where d.webhook_id = w.webhook_id and ${isWaitingNew("d")}
      order by ${queueKey("d")} limit 1) is null
    for update of h skip locked`,
  );
  return rows;
}

/** The beginning of a query for endpoints with their load. @param endpoints a source of rows of one column, their ids */
const candidatesOf = (endpoints: RawBuilder<unknown>): RawBuilder<Candidate> => sql`
    select w.webhook_id, e.team_id, e.environment, e.active, h.consecutive_failures as failures,
      ${healthOf("h")} as health, h.backlog_until, h.probed_id, g.*, t.*
    from ${endpoints} as w (webhook_id) join webhook_endpoints e on e.id = w.webhook_id join webhook_health h on h.webhook_id = e.id
    cross join lateral (
      select count(*) filter (where lane = 'NEW' and phase = 'FIRST')::int as new_groups,
        count(*) filter (where ${TAKES_PLACE})::int as old_groups,
        count(*) filter (where lane = 'PROBE' and phase = 'FIRST')::int as probes,
        coalesce(bool_or(lane = 'PROBE' and phase = 'FIRST'
          and created_at > now() - make_interval(secs => ${sql.lit(PROBE_SECONDS)})), false) as is_probed
      from webhook_groups where webhook_id = w.webhook_id) g
    cross join lateral (
      select count(*)::int as team_groups from webhook_groups where team_id = e.team_id and ${COUNTS_FOR_TEAM}) t`;

const loadOf = ({ health, new_groups, old_groups, team_groups, probes, is_probed }: Candidate): EndpointLoad => ({
  health,
  newGroups: new_groups,
  oldGroups: old_groups,
  teamGroups: team_groups,
  probes,
  isProbed: is_probed,
});

function hasRoom(candidate: Candidate): boolean {
  const { fresh, old, probe } = roomOf(loadOf(candidate));
  return fresh + old + probe > 0;
}

async function readWaiting(
  em: EntityManager,
  candidates: readonly Candidate[],
): Promise<Map<string, WaitingDeliveries>> {
  const rooms = candidates.map((candidate) => roomOf(loadOf(candidate)));
  const pair = (delivery: string) => sql`json_build_object(
    'id', ${sql.ref(`${delivery}.id`)}, 'attemptsUsed', ${sql.ref(`${delivery}.attempts_used`)})`;
  const fresh = sql`d.webhook_id = r.webhook_id and ${isWaitingNew("d")} and ${queueKey("d")} > r.backlog_until`;
  const { rows } = await executePrepared(
    em,
    "relay_waiting",
    sql<WaitingDeliveries & { webhook_id: string }>`
    select r.webhook_id, array(
      select d.id from webhook_deliveries d where ${fresh} order by ${queueKey("d")} limit r.fresh) as fresh, coalesce((
      select d.created_at < now() - make_interval(secs => ${HELD_UP_MS / 1000}::float8) from webhook_deliveries d
      where ${fresh} and r.fresh > 0 order by ${queueKey("d")} limit 1), false) as "isHeldUp", coalesce((
      select json_agg(${pair("o")} order by o.key) from (
        (select d.id, d.attempts_used, ${queueKey("d")} as key from webhook_deliveries d
          where d.webhook_id = r.webhook_id and ${isWaitingNew("d")} and ${queueKey("d")} <= r.backlog_until
          order by ${queueKey("d")} limit r.old)
        union all
        (select d.id, d.attempts_used, ${queueKey("d")} as key from webhook_deliveries d
          where d.webhook_id = r.webhook_id and ${isWaitingAgain("d")} order by ${queueKey("d")} limit r.old)
        order by key limit r.old) o), '[]') as old, coalesce(
      (select ${pair("n")} from ${oldestWaiting(sql`r.webhook_id`, sql`r.probe`, sql`r.probed_id`)} n),
      (select ${pair("n")} from ${oldestWaiting(sql`r.webhook_id`, sql`r.probe`)} n)) as next
    from unnest(${candidates.map(({ webhook_id }) => webhook_id)}::text[],
      ${candidates.map(({ backlog_until }) => backlog_until)}::text[],
      ${candidates.map(({ probed_id }) => probed_id)}::text[], ${rooms.map((room) => room.fresh)}::int[],
      ${rooms.map(({ old }) => old)}::int[], ${rooms.map(({ probe }) => probe)}::int[]
    ) as r (webhook_id, backlog_until, probed_id, fresh, old, probe)`,
  );
  return new Map(rows.map((row) => [row.webhook_id, row]));
}

/** The groups of one call: those planned for an endpoint count when its team's next one is planned. */
function formOf(candidates: readonly Candidate[], waiting: ReadonlyMap<string, WaitingDeliveries>): NewGroup[] {
  const formed = new Map<string, number>();
  return candidates.flatMap((candidate) => {
    const { team_id, webhook_id } = candidate;
    const before = formed.get(team_id) ?? 0;
    const load = loadOf({ ...candidate, team_groups: candidate.team_groups + before });
    const groups = groupsOf(candidate, load, waiting.get(webhook_id));
    formed.set(team_id, before + groups.length);
    return groups;
  });
}

function groupsOf(candidate: Candidate, load: EndpointLoad, waiting: WaitingDeliveries | undefined): NewGroup[] {
  if (!waiting) return [];
  const { webhook_id, team_id, environment, failures, health } = candidate;
  return planGroups(load, waiting).map(({ lane, attemptsUsed, ids }) => ({
    // A delivery that waits again may have given its id to an earlier group, whose workflow has ended.
    id: (lane === "NEW" ? ids[0] : undefined) ?? newId("group"),
    webhookId: webhook_id,
    teamId: team_id,
    environment,
    lane,
    attempt: attemptsUsed + 1,
    attemptsUsed,
    localFirstAttempt: lane === "NEW" && failures === 0 && health === "working",
    size: ids.length,
    ids,
  }));
}

/** A query for the rows of groups. One that continues the ladder stands as if the attempt before had just ended. */
export const groupRows = (groups: readonly NewGroup[]): RawBuilder<unknown> => sql`
  select * from unnest(${groups.map(({ id }) => id)}::text[], ${groups.map(({ teamId }) => teamId)}::text[],
    ${groups.map(({ environment }) => environment)}::text[], ${groups.map(({ webhookId }) => webhookId)}::text[],
    ${groups.map(({ size }) => size)}::smallint[], ${groups.map(({ lane }) => lane)}::text[],
    ${groups.map(({ attemptsUsed }) => Math.max(1, attemptsUsed))}::smallint[]
  ) as g (${GROUP_COLUMNS})`;

/** The columns of `groupRows`. */
export const GROUP_COLUMNS = sql.raw("id, team_id, environment, webhook_id, size, lane, attempt");

/** Writes groups of deliveries that wait. */
async function writeGroups(em: EntityManager, groups: readonly NewGroup[]): Promise<void> {
  await executePrepared(em, "relay_groups", sql`insert into webhook_groups (${GROUP_COLUMNS}) ${groupRows(groups)}`);
  // Not prepared, so that it is planned for this many ids and the table of now. A plan that was kept from a nearly empty
  // table compared each delivery that waits with each id: 20 s, with the health of all endpoints locked.
  await sql`
    update webhook_deliveries d set group_id = m.group_id
    from unnest(${groups.flatMap(({ ids }) => ids)}::text[],
      ${groups.flatMap(({ id, ids }) => ids.map(() => id))}::text[]) as m (id, group_id)
    where d.id = m.id and ${isWaiting("d")}`.execute(kysely(em));
}

/** Remembers whose turn it was. The next probe is due by the outcome of this one; without any, after the same wait again. */
async function noteProbes(em: EntityManager, probes: readonly NewGroup[]): Promise<void> {
  await sql`
    update webhook_health h set probed_id = ${queueKey("d")},
      probe_at = now() + make_interval(secs => coalesce(h.probe_wait_seconds, ${FIRST_PROBE_SECONDS}::int))
    from webhook_deliveries d
    where d.id = any(${probes.flatMap(({ ids }) => ids)}::text[]) and h.webhook_id = d.webhook_id`.execute(kysely(em));
}

/** The attempt that a group continues with: the one under way, which is not over while a delivery is PENDING, or the next. */
const nextAttempt = sql<number>`g.attempt + case when exists (
  select from webhook_deliveries d where d.group_id = g.id and d.status = 'PENDING') then 0 else 1 end`;

/** How long a group may stand without its first attempt before its workflow is started once more, in seconds. */
const UNSTARTED_SECONDS = 5;
/** Older ones are left to the reconciler: an operator may have ended their workflow. */
export const UNSTARTED_UNTIL_SECONDS = 120;
/** Such groups that are read at once. */
const UNSTARTED_PAGE = 200;

/**
 * Groups whose first attempt has not begun: the relay that formed them may have died before it started their workflow, and no
 * relay formed the group of a test delivery. Those of tests come first, the others oldest first. All of them are read, a page at a time: while Temporal is slow,
 * hundreds that were started may stand before one that was not.
 */
export async function* unstartedGroups(em: EntityManager): AsyncGenerator<Group, void, void> {
  let rows: (Group & { isNoTest: boolean; createdAt: string })[];
  let last = { isNoTest: false, createdAt: "-infinity", id: "" };
  do {
    ({ rows } = await sql<(typeof rows)[number]>`
      select id, webhook_id as "webhookId", team_id as "teamId", size, ${nextAttempt} as attempt,
        false as "localFirstAttempt", lane <> 'TEST' as "isNoTest", created_at::text as "createdAt"
      from webhook_groups g
      where begun_at is null and (created_at < now() - make_interval(secs => ${UNSTARTED_SECONDS}) or lane = 'TEST')
        and created_at > now() - make_interval(secs => ${UNSTARTED_UNTIL_SECONDS})
        and (lane <> 'TEST', created_at, id) > (${last.isNoTest}::boolean, ${last.createdAt}::timestamptz, ${last.id})
      order by lane <> 'TEST', created_at, id limit ${sql.lit(UNSTARTED_PAGE)}`.execute(kysely(em)));
    yield* rows;
    last = rows.at(-1) ?? last;
  } while (rows.length === UNSTARTED_PAGE);
}

/** How late an attempt is before its workflow is presumed dead, in seconds. */
const OVERDUE_SECONDS = 60;

/** A group whose attempt should have been made by now, with the attempt that it continues with. */
export type OverdueGroup = Omit<Group, "localFirstAttempt">;

/** Groups that are overdue, in order of their ids. */
export async function overdueGroups(em: EntityManager, after: string, limit: number): Promise<OverdueGroup[]> {
  const { rows } = await sql<OverdueGroup>`
    select id, webhook_id as "webhookId", team_id as "teamId", size, ${nextAttempt} as attempt
    from webhook_groups g
    where due_at < now() - make_interval(secs => ${OVERDUE_SECONDS}) and id > ${after}
    order by id limit ${limit}`.execute(kysely(em));
  return rows;
}
