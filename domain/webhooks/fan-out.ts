import { type Selectable, sql } from "kysely";
import { type Database, type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/prepared.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF } from "./endpoint-health.ts";
import { GROUP_COLUMNS, type Group, groupRows, type NewGroup, planWritten } from "./grouping.ts";
import { EVENT_KEPT } from "./retention.ts";

/** How much one pass takes from the outbox: a transaction that holds its rows for milliseconds. */
const OUTBOX_ROWS = 500;
const MAX_DELIVERIES = 4_000;
/** The same for the texts of the rows: one row may hold those of 500 records, of 1 KB and more. */
const MOST_BYTES = 4 * 1024 * 1024;
/** Teams that one pass takes rows of, and how many it takes of each at least. */
const TEAMS = 20;
const TEAM_ROWS = OUTBOX_ROWS / TEAMS;

export interface FannedOut {
  /** Rows taken from the outbox. */
  taken: number;
  /** There may be more. */
  full: boolean;
  /** For the next call: it begins with the team after this one. */
  after: string;
  /** Groups of the deliveries, as far as their endpoints had room at once. The caller starts a workflow for each. */
  groups: Group[];
  /** Endpoints of the other deliveries. */
  waiting: Set<string>;
}

/** A statement that is prepared names its columns: the result of `*` changes with a migration, which no connection survives. */
const OUTBOX_COLUMNS = ["seq", "team_id", "environment", "type", "objects", "created_at"] as const;
type OutboxRow = Pick<Selectable<Database["webhook_outbox"]>, (typeof OUTBOX_COLUMNS)[number]>;

/** A row that is locked for a pass. */
interface LockedRow extends OutboxRow {
  /** Teams of this pass. */
  teams: number;
  /** The number of the row among those of its team; the first is 1. */
  turn: number;
  /** It fits within `MOST_BYTES`; without, `objects` is not there. */
  fits: boolean;
}

interface Endpoint {
  id: string;
  team_id: string;
  environment: Tenant["environment"];
  events: string[];
  active: boolean;
}

interface NewEvent {
  id: string;
  row: OutboxRow;
  /** JSON of the record the event is about. */
  object: string;
}

interface NewDelivery {
  id: string;
  eventId: string;
  type: string;
  endpoint: Endpoint;
}

const tenantKey = ({ team_id, environment }: Pick<Endpoint, "team_id" | "environment">) => `${team_id}/${environment}`;

/**
 * Takes the oldest changes of each team from the outbox and writes an event for each that an endpoint subscribed to, with a
 * PENDING delivery per endpoint, in one transaction. The teams take turns, a row at a time, so that those of one with many
 * changes do not wait before those of others. Where the endpoint has room and no other delivery waits for it, they are in a
 * group at once. An endpoint that the platform has switched off gets BLOCKED ones, which can be replayed. Any number of relays
 * may do this at once.
 * @param after `after` of the call before; without it, the first team is the first one
 */
export function fanOut(em: EntityManager, after = ""): Promise<FannedOut> {
  return transaction(em, async (tx) => {
    const locked = await lockRows(tx, after);
    if (locked.length === 0) return { taken: 0, ...nextOf(after, [], 0), groups: [], waiting: new Set() };
    const endpoints = await readEndpoints(tx, locked);

    const events: NewEvent[] = [];
    const deliveries: NewDelivery[] = [];
    let taken = 0;
    for (const row of locked) {
      if (deliveries.length >= MAX_DELIVERIES || !row.fits) break;
      taken++;
      const subscribed = endpoints.get(tenantKey(row))?.filter(({ events }) => events.includes(row.type)) ?? [];
      if (subscribed.length === 0) continue;
      for (const object of splitObjects(row.objects)) {
        // The event's id, the same in every attempt and replay: receivers deduplicate on it.
        const eventId = newId("event");
        events.push({ id: eventId, row, object });
        for (const endpoint of subscribed) {
          deliveries.push({ id: newId("delivery"), eventId, type: row.type, endpoint });
        }
      }
    }
    const active = deliveries.filter(({ endpoint }) => endpoint.active);
    const byEndpoint = Map.groupBy(active, ({ endpoint }) => endpoint.id);
    const ids = new Map([...byEndpoint].map(([id, members]) => [id, members.map((delivery) => delivery.id)]));
    const groups = ids.size > 0 ? await planWritten(tx, ids) : [];
    const done = locked.slice(0, taken).map(({ seq }) => seq);
    await writeAll(tx, { done, events, deliveries, groups });
    const grouped = new Set(groups.flatMap(({ ids }) => ids));
    const waiting = new Set(active.flatMap(({ id, endpoint }) => (grouped.has(id) ? [] : [endpoint.id])));
    return { taken, ...nextOf(after, locked, taken), groups, waiting };
  });
}

/** Locks rows of the teams after one, in the order in which the teams take turns. */
async function lockRows(em: EntityManager, after: string): Promise<LockedRow[]> {
  const columns = sql.join(OUTBOX_COLUMNS.map((column) => sql.ref(column)));
  // Not prepared: Postgres would keep the plan that it made for an empty outbox, which sorts all rows of a full one.
  const { rows } = await sql<LockedRow>`
    with recursive teams as (
      (select team_id, 1 as n from webhook_outbox where team_id > ${after} order by team_id limit 1)
      union all
      select next.team_id, t.n + 1 from teams t cross join lateral (
        select team_id from webhook_outbox where team_id > t.team_id order by team_id limit 1) next
      where t.n < ${sql.lit(TEAMS)}
    ), numbered as (
      select t.n, row_number() over (partition by t.n order by o.seq)::int as turn, o.*
      from teams t cross join lateral (
        select ${columns} from webhook_outbox where team_id = t.team_id order by seq
        limit (select greatest(${sql.lit(OUTBOX_ROWS)} / count(*), ${sql.lit(TEAM_ROWS)}) from teams)
        for update skip locked) o
    ), measured as (
      select *, row_number() over turns = 1 or sum(octet_length(objects)) over turns <= ${sql.lit(MOST_BYTES)} as fits
      from numbered window turns as (order by turn, n)
    )
    select seq, team_id, environment, type, created_at, case when fits then objects else '' end as objects,
      (select count(*)::int from teams) as teams, turn, fits
    from measured order by turn, n`.execute(kysely(em));
  return rows;
}

/** What a pass that began with the team after one, and took so many of the rows that it locked, leaves to the next one. */
function nextOf(after: string, locked: readonly LockedRow[], taken: number): Pick<FannedOut, "full" | "after"> {
  const { teams = 0 } = locked[0] ?? {};
  const left = locked[taken];
  const mostTurns = Math.max(Math.floor(OUTBOX_ROWS / teams), TEAM_ROWS);
  const full = after !== "" || left !== undefined || teams === TEAMS || locked.some(({ turn }) => turn === mostTurns);
  // It took nothing of the team of that row, and of those after it.
  if (left?.turn === 1) return { full, after: locked[taken - 1]?.team_id ?? "" };
  const last = teams === TEAMS ? locked.findLast(({ turn }) => turn === 1) : undefined;
  return { full, after: last?.team_id ?? "" };
}

/** The endpoints that get deliveries written, by tenant. They cannot be deleted before the deliveries are there. */
async function readEndpoints(
  em: EntityManager,
  rows: readonly Pick<Endpoint, "team_id" | "environment">[],
): Promise<Map<string, Endpoint[]>> {
  const tenants = [...new Map(rows.map((row) => [tenantKey(row), row])).values()];
  const { rows: endpoints } = await executePrepared(
    em,
    "relay_endpoints",
    sql<Endpoint>`
    select id, team_id, environment, events, active from webhook_endpoints
    where (team_id, environment) in (select * from unnest(
        ${tenants.map(({ team_id }) => team_id)}::text[], ${tenants.map(({ environment }) => environment)}::text[]))
      and (active or disabled_reason = 'delivery_failures')
    for key share`,
  );
  return Map.groupBy(endpoints, tenantKey);
}

/** The texts of the records in a row of the outbox. */
function splitObjects(objects: string): string[] {
  const parsed: unknown[] = JSON.parse(objects);
  // Most rows hold one record, whose text is there already.
  return parsed.length === 1 ? [objects.slice(1, -1)] : parsed.map((object) => JSON.stringify(object));
}

interface Written {
  /** Rows of the outbox that are done. */
  done: readonly string[];
  events: readonly NewEvent[];
  deliveries: readonly NewDelivery[];
  groups: readonly NewGroup[];
}

async function writeAll(em: EntityManager, { done, events, deliveries, groups }: Written): Promise<void> {
  const taken = sql`delete from webhook_outbox where seq = any(${done}::bigint[])`;
  if (events.length === 0) {
    await executePrepared(em, "relay_taken", taken);
    return;
  }
  const groupOf = new Map(groups.flatMap(({ id, ids }) => ids.map((delivery) => [delivery, id])));
  await executePrepared(
    em,
    "relay_written",
    sql`
    with events as (
      insert into webhook_events (id, team_id, environment, type, object, created_at, kept_until)
      select *, now() + ${EVENT_KEPT} from unnest(
        ${events.map(({ id }) => id)}::text[], ${events.map(({ row }) => row.team_id)}::text[],
        ${events.map(({ row }) => row.environment)}::text[], ${events.map(({ row }) => row.type)}::text[],
        ${events.map(({ object }) => object)}::text[],
        ${events.map(({ row }) => new Date(row.created_at).toISOString())}::timestamptz[])
    ), groups as (
      insert into webhook_groups (${GROUP_COLUMNS}) ${groupRows(groups)}
    ), deliveries as (
      insert into webhook_deliveries
        (id, team_id, environment, webhook_id, event_id, event_type, group_id, status, ended_ungrouped, error_message)
      select id, team_id, environment, webhook_id, event_id, event_type, group_id,
        case when active then 'PENDING' else 'BLOCKED' end, not active,
        case when active then null else ${ENDPOINT_OFF} end
      from unnest(
        ${deliveries.map(({ id }) => id)}::text[], ${deliveries.map(({ endpoint }) => endpoint.team_id)}::text[],
        ${deliveries.map(({ endpoint }) => endpoint.environment)}::text[],
        ${deliveries.map(({ endpoint }) => endpoint.id)}::text[], ${deliveries.map(({ eventId }) => eventId)}::text[],
        ${deliveries.map(({ type }) => type)}::text[], ${deliveries.map(({ id }) => groupOf.get(id) ?? null)}::text[],
        ${deliveries.map(({ endpoint }) => endpoint.active)}::boolean[]
      ) as d (id, team_id, environment, webhook_id, event_id, event_type, group_id, active)
    ) ${taken}`,
  );
}
