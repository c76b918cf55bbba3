import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { prepared } from "../../db/pool.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { EVENT_KEPT } from "./retention.ts";

/** Deliveries one workflow carries at most. Source: the design; at 100 the cost of a workflow is shared widely enough. */
export const GROUP_SIZE = 100;

/**
 * Groups of an endpoint that may be at their first attempt at once: so many full ones, and so many that are not. What
 * comes meanwhile waits in Postgres, so that the busier an endpoint is, the fuller its groups get.
 */
const FULL_GROUPS = 6;
const PARTIAL_GROUPS = 2;
/**
 * The second that is not full goes only when something has waited this long, in ms: the first is then held up by a slow
 * answer. Otherwise it is over in less, and what waits for it shares the cost of one workflow.
 */
const HELD_UP_MS = 200;

/** Failures in a row after which an endpoint gets one group at a time: one that hangs ties up few workers. */
export const FAILING_AFTER = 5;

/** A success is proof for this long, in hours, that an endpoint answers; before one, it is tried with one group. */
const PROVEN_HOURS = 24;

/** How much one pass takes from the outbox: a transaction that holds its rows for milliseconds. */
const OUTBOX_ROWS = 500;
const MAX_DELIVERIES = 4_000;

/** Why a delivery is BLOCKED that never left because the platform had switched its endpoint off. */
export const ENDPOINT_OFF = "The endpoint was switched off; replay this once it is on again.";

export interface FannedOut {
  /** Rows taken from the outbox. */
  taken: number;
  /** As many as one look takes: there may be more. */
  full: boolean;
  deliveries: number;
}

interface Endpoint {
  id: string;
  team_id: string;
  environment: Tenant["environment"];
  events: string[];
  active: boolean;
}

const tenantKey = ({ team_id, environment }: Pick<Endpoint, "team_id" | "environment">) => `${team_id}/${environment}`;

/**
 * Takes the oldest changes from the outbox and writes an event for each that somebody wants, with a PENDING delivery per
 * endpoint, in one transaction. An endpoint that the platform has switched off gets BLOCKED ones, which can be replayed.
 * Any number of relays may do this at once.
 */
export function fanOut(em: EntityManager): Promise<FannedOut> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const locked = await db
      .selectFrom("webhook_outbox")
      .selectAll()
      .orderBy("seq")
      .limit(OUTBOX_ROWS)
      .forUpdate()
      .skipLocked()
      .modifyEnd(prepared("relay_outbox"))
      .execute();
    if (locked.length === 0) return { taken: 0, full: false, deliveries: 0 };
    const endpoints = await readEndpoints(tx, locked);

    const events: { id: string; row: (typeof locked)[number]; object: string }[] = [];
    const deliveries: { id: string; event: string; type: string; endpoint: Endpoint }[] = [];
    let taken = 0;
    for (const row of locked) {
      if (deliveries.length >= MAX_DELIVERIES) break;
      taken++;
      const wanted = endpoints.get(tenantKey(row))?.filter(({ events }) => events.includes(row.type)) ?? [];
      if (wanted.length === 0) continue;
      for (const object of splitObjects(row.objects)) {
        const id = newId("event");
        events.push({ id, row, object });
        for (const endpoint of wanted) deliveries.push({ id: newId("delivery"), event: id, type: row.type, endpoint });
      }
    }
    const done = locked.slice(0, taken);
    if (events.length > 0) {
      await sql`${prepared("relay_events")} insert into webhook_events (id, team_id, environment, type, object, created_at, kept_until)
        select *, now() + ${EVENT_KEPT} from unnest(
          ${events.map(({ id }) => id)}::text[], ${events.map(({ row }) => row.team_id)}::text[],
          ${events.map(({ row }) => row.environment)}::text[], ${events.map(({ row }) => row.type)}::text[],
          ${events.map(({ object }) => object)}::text[],
          ${events.map(({ row }) => new Date(row.created_at).toISOString())}::timestamptz[])`.execute(db);
      await sql`${prepared("relay_deliveries")} insert into webhook_deliveries
          (id, team_id, environment, webhook_id, event_id, event_type, status, group_id, error_message)
        select id, team_id, environment, webhook_id, event_id, event_type,
          case when active then 'PENDING' else 'BLOCKED' end, case when active then null else id end,
          case when active then null else ${ENDPOINT_OFF} end
        from unnest(
          ${deliveries.map(({ id }) => id)}::text[], ${deliveries.map(({ endpoint }) => endpoint.team_id)}::text[],
          ${deliveries.map(({ endpoint }) => endpoint.environment)}::text[],
          ${deliveries.map(({ endpoint }) => endpoint.id)}::text[], ${deliveries.map(({ event }) => event)}::text[],
          ${deliveries.map(({ type }) => type)}::text[], ${deliveries.map(({ endpoint }) => endpoint.active)}::boolean[]
        ) as d (id, team_id, environment, webhook_id, event_id, event_type, active)`.execute(db);
    }
    await sql`${prepared("relay_taken")} delete from webhook_outbox where seq = any(${done.map(({ seq }) => seq)}::bigint[])`.execute(
      db,
    );
    return { taken, full: taken < locked.length || locked.length === OUTBOX_ROWS, deliveries: deliveries.length };
  });
}

/** The endpoints that get anything written, by tenant. They cannot be deleted before the deliveries are there. */
async function readEndpoints(
  em: EntityManager,
  rows: readonly Pick<Endpoint, "team_id" | "environment">[],
): Promise<Map<string, Endpoint[]>> {
  const tenants = new Map(rows.map((row) => [tenantKey(row), row]));
  const { rows: endpoints } = await sql<Endpoint>`${prepared("relay_endpoints")}
    select id, team_id, environment, events, active from webhook_endpoints
    where (team_id, environment) in (select * from unnest(
        ${[...tenants.values()].map(({ team_id }) => team_id)}::text[],
        ${[...tenants.values()].map(({ environment }) => environment)}::text[]))
      and (active or disabled_reason = 'delivery_failures')
    for key share`.execute(kysely(em));
  return Map.groupBy(endpoints, tenantKey);
}

/** The texts of the records in a row of the outbox. */
function splitObjects(objects: string): string[] {
  const parsed: unknown[] = JSON.parse(objects);
  // Most rows hold one, whose text is there already.
  return parsed.length === 1 ? [objects.slice(1, -1)] : parsed.map((object) => JSON.stringify(object));
}

/** A group that was made, or whose workflow was never started. */
export interface Group {
  id: string;
  webhookId: string;
  teamId: string;
  size: number;
  /** Its endpoint answered lately, and did not fail since. */
  healthy: boolean;
}

/**
 * Puts waiting deliveries together in groups, as far as their endpoints have room for another first attempt. Whoever
 * calls starts a workflow for each; should that fail, `unstartedGroups` finds them.
 */
export function formGroups(em: EntityManager): Promise<Group[]> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    // One relay at a time has an endpoint in hand; the others pass it by.
    const { rows: candidates } = await sql<{
      webhook_id: string;
      team_id: string;
      environment: Tenant["environment"];
      failures: number;
      proven: boolean;
      busy: number;
    }>`${prepared("relay_candidates")}
      with recursive waiting as (
        (select webhook_id from webhook_deliveries where group_id is null order by webhook_id limit 1)
        union all
        select (select d.webhook_id from webhook_deliveries d
          where d.group_id is null and d.webhook_id > w.webhook_id order by d.webhook_id limit 1)
        from waiting w where w.webhook_id is not null
      )
      select w.webhook_id, e.team_id, e.environment, h.consecutive_failures as failures,
        h.consecutive_failures = 0
          and coalesce(h.last_success_at > now() - make_interval(hours => ${PROVEN_HOURS}::int), false) as proven, (
        select count(*)::int from webhook_groups g where g.webhook_id = w.webhook_id and g.phase = 'FIRST') as busy
      from waiting w join webhook_endpoints e on e.id = w.webhook_id join webhook_health h on h.webhook_id = e.id
      for update of h skip locked`.execute(db);
    const room = candidates
      .map((candidate) => {
        // One that fails now and then is no stranger: it keeps its room until it fails several times in a row.
        const trusted = candidate.proven || (candidate.failures > 0 && candidate.failures < FAILING_AFTER);
        const full = Math.max(0, (trusted ? FULL_GROUPS : 1) - candidate.busy);
        return { ...candidate, trusted, full };
      })
      .filter(({ full }) => full > 0);
    if (room.length === 0) return [];

    const { rows: waiting } = await sql<{
      webhook_id: string;
      ids: string[];
      held_up: boolean;
    }>`${prepared("relay_waiting")}
      select r.webhook_id, array(
        select id from webhook_deliveries where webhook_id = r.webhook_id and group_id is null
        order by id limit r.most) as ids, coalesce((
        select created_at < now() - make_interval(secs => ${HELD_UP_MS / 1000}::float8) from webhook_deliveries
        where webhook_id = r.webhook_id and group_id is null order by id limit 1), false) as held_up
      from unnest(${room.map(({ webhook_id }) => webhook_id)}::text[],
        ${room.map(({ full }) => full * GROUP_SIZE)}::int[]) as r (webhook_id, most)`.execute(db);
    const waitingOf = new Map(waiting.map((row) => [row.webhook_id, row]));

    const groups: (Group & { environment: Tenant["environment"]; ids: string[] })[] = [];
    for (const { webhook_id, team_id, environment, proven, trusted, busy } of room) {
      const { ids = [], held_up = false } = waitingOf.get(webhook_id) ?? {};
      const partial = (trusted && held_up ? PARTIAL_GROUPS : 1) - busy;
      for (let from = 0; from < ids.length; from += GROUP_SIZE) {
        const members = ids.slice(from, from + GROUP_SIZE);
        const [id] = members;
        if (id === undefined || (members.length < GROUP_SIZE && from / GROUP_SIZE >= partial)) break;
        groups.push({
          id,
          webhookId: webhook_id,
          teamId: team_id,
          environment,
          healthy: proven,
          size: members.length,
          ids: members,
        });
      }
    }
    if (groups.length === 0) return [];
    await sql`${prepared("relay_groups")} insert into webhook_groups (id, team_id, environment, webhook_id, size)
      select * from unnest(${groups.map(({ id }) => id)}::text[], ${groups.map(({ teamId }) => teamId)}::text[],
        ${groups.map(({ environment }) => environment)}::text[], ${groups.map(({ webhookId }) => webhookId)}::text[],
        ${groups.map(({ size }) => size)}::smallint[])`.execute(db);
    await sql`${prepared("relay_members")} update webhook_deliveries d set group_id = m.group_id
      from unnest(${groups.flatMap(({ ids }) => ids)}::text[],
        ${groups.flatMap(({ id, ids }) => ids.map(() => id))}::text[]) as m (id, group_id)
      where d.id = m.id and d.group_id is null`.execute(db);
    return groups;
  });
}

/** How long a group may stand without its first attempt before its workflow is started once more, in seconds. */
const UNSTARTED_SECONDS = 5;
/** The reconciler looks after those that are older: among them are some that an operator ended. */
const UNSTARTED_UNTIL_SECONDS = 120;

/** Groups whose first attempt nobody began: the relay that made them may have died before it started their workflow. */
export async function unstartedGroups(em: EntityManager, limit: number): Promise<Group[]> {
  const { rows } = await sql<Group>`
    select id, webhook_id as "webhookId", team_id as "teamId", size, false as healthy from webhook_groups
    where begun_at is null and created_at < now() - make_interval(secs => ${UNSTARTED_SECONDS})
      and created_at > now() - make_interval(secs => ${UNSTARTED_UNTIL_SECONDS})
    order by created_at limit ${limit}`.execute(kysely(em));
  return rows;
}

/** How late an attempt is before its workflow is taken for lost, in seconds. */
const OVERDUE_SECONDS = 60;

/** A group whose attempt should have been made by now. */
export interface OverdueGroup extends Omit<Group, "healthy"> {
  /** The rung of the ladder it goes on with. */
  rung: number;
}

/** Groups that are overdue, in order of their ids. */
export async function overdueGroups(em: EntityManager, after: string, limit: number): Promise<OverdueGroup[]> {
  const { rows } = await sql<OverdueGroup>`
    select id, webhook_id as "webhookId", team_id as "teamId", size, rung + case when exists (
      select from webhook_deliveries d where d.group_id = g.id and d.status = 'PENDING') then 0 else 1 end as rung
    from webhook_groups g
    where due_at < now() - make_interval(secs => ${OVERDUE_SECONDS}) and id > ${after}
    order by id limit ${limit}`.execute(kysely(em));
  return rows;
}
