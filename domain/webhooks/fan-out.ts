import { type Selectable, sql } from "kysely";
import { type Database, type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF } from "./endpoint-health.ts";
import { GROUP_COLUMNS, type Group, groupRows, type NewGroup, planWritten } from "./grouping.ts";
import { EVENT_KEPT } from "./retention.ts";

/** How much one batch takes from the outbox, so that its transaction holds the rows for a short time. */
const OUTBOX_ROWS = 500;
const MAX_DELIVERIES = 4_000;
/** Bytes of `objects` that one batch reads, or one larger row. A row may hold 500 records, of 1 KB and more. */
const MOST_BYTES = 4 * 1024 * 1024;
/** Teams that one batch takes rows of. */
const TEAMS = 50;

export interface FannedOut {
  /** Rows taken from the outbox. */
  taken: number;
  /** By team, the `seq` of its first row that is no JSON array: this row and later ones of the team stay. */
  malformed: Map<string, string>;
  /** Teams some of whose rows stay, because another transaction changes or deletes one of their endpoints. */
  changing: Set<string>;
  /** Rows may be left that another call can take: of these teams, of later ones, or of those before `after`. */
  callAgain: boolean;
  /** The next call begins with the team after this one. */
  nextAfter: string;
  /** Groups of the deliveries, as far as their endpoints had room at once. The caller starts a workflow for each. */
  groups: Group[];
  /** Endpoints of the other deliveries. */
  waiting: Set<string>;
}

/** A statement that is prepared names its columns: the result of `*` changes with a migration, which no connection survives. */
const OUTBOX_COLUMNS = ["seq", "team_id", "environment", "type", "objects", "created_at"] as const;
type OutboxRow = Pick<Selectable<Database["webhook_outbox"]>, (typeof OUTBOX_COLUMNS)[number]>;

/** A row that is locked for a batch. */
interface LockedRow extends OutboxRow {
  /** This row and those before it in `Locked.rows` are within `MOST_BYTES`, or it is the first one. Otherwise `objects` is empty. */
  fits: boolean;
}

interface Locked {
  /** The first row of each team, then the second of each, and so on. */
  rows: LockedRow[];
  /** The teams of this batch have at least `OUTBOX_ROWS` rows, locked ones included. */
  hasManyRows: boolean;
  /** The last team of this batch if it has `TEAMS` of them, otherwise null. */
  lastTeam: string | null;
}

/** A team's part of a batch. */
interface TeamShare {
  teamId: string;
  /** Its locked rows that had no turn yet, the oldest first. */
  remaining: LockedRow[];
  /** The cost of the rows that it has taken: 1 for each row and 1 for each delivery. */
  cost: number;
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
 * Takes a batch: the oldest changes of each team in the outbox. It deletes them and writes an event for each that an endpoint subscribed to, with a
 * PENDING delivery per endpoint, in one transaction. The teams take turns: the next row is of the team whose rows have cost the batch
 * least, so that a team with many changes or many endpoints does not delay the others. Where the endpoint has room and no
 * other delivery waits for it, they are in a group at once. An endpoint that the platform has switched off gets BLOCKED ones,
 * which can be replayed. Any number of relays may do this at once.
 * @param after begins with the team after this id, `nextAfter` of the call before; "" with the first team
 * @param leftOut teams whose rows it does not take
 */
export function fanOut(em: EntityManager, after = "", leftOut: readonly string[] = []): Promise<FannedOut> {
  return transaction(em, async (tx) => {
    const locked = await lockRows(tx, after, leftOut);
    const { rows } = locked;
    if (rows.length === 0) {
      const nextAfter = locked.lastTeam ?? "";
      const callAgain = after !== "" || nextAfter !== "";
      return {
        taken: 0,
        malformed: new Map(),
        changing: new Set(),
        callAgain,
        nextAfter,
        groups: [],
        waiting: new Set(),
      };
    }
    const endpoints = await readEndpoints(tx, rows);

    const events: NewEvent[] = [];
    const deliveries: NewDelivery[] = [];
    const done: string[] = [];
    const malformed = new Map<string, string>();
    const changing = new Set<string>();
    const shares = sharesOf(rows);
    while (deliveries.length < MAX_DELIVERIES) {
      const next = takeNext(shares);
      if (!next) break;
      const { row, share } = next;
      if (malformed.has(row.team_id)) continue;
      if (endpoints.changing.has(tenantKey(row))) {
        changing.add(row.team_id);
        continue;
      }
      const subscribed =
        endpoints.byTenant.get(tenantKey(row))?.filter(({ events }) => events.includes(row.type)) ?? [];
      const objects = subscribed.length === 0 ? [] : splitObjects(row.objects);
      if (objects === undefined) {
        malformed.set(row.team_id, row.seq);
        continue;
      }
      done.push(row.seq);
      for (const object of objects) {
        // The event's id, the same in every attempt and replay: receivers deduplicate on it.
        const eventId = newId("event");
        events.push({ id: eventId, row, object });
        for (const endpoint of subscribed) {
          deliveries.push({ id: newId("delivery"), eventId, type: row.type, endpoint });
        }
      }
      share.cost += subscribed.length * objects.length;
    }
    const active = deliveries.filter(({ endpoint }) => endpoint.active);
    const byEndpoint = Map.groupBy(active, ({ endpoint }) => endpoint.id);
    const ids = new Map([...byEndpoint].map(([id, members]) => [id, members.map((delivery) => delivery.id)]));
    const groups = ids.size > 0 ? await planWritten(tx, ids) : [];
    await writeAll(tx, { done, events, deliveries, groups });
    const grouped = new Set(groups.flatMap(({ ids }) => ids));
    const waiting = new Set(active.flatMap(({ id, endpoint }) => (grouped.has(id) ? [] : [endpoint.id])));
    return { taken: done.length, malformed, changing, ...nextOf(after, locked, shares), groups, waiting };
  });
}

/** Locks rows of up to `TEAMS` teams whose ids follow `after`, in the order in which the teams take turns. */
async function lockRows(em: EntityManager, after: string, leftOut: readonly string[]): Promise<Locked> {
  const columns = sql.join(OUTBOX_COLUMNS.map((column) => sql.ref(column)));
  // Not `=`: when one team has nearly all rows, Postgres would read the primary key in order and filter, also for the others.
  const ofTeam = sql`team_id between t.team_id and t.team_id order by team_id, seq`;
  const isIncluded = sql`(team_id <> all(${leftOut}::text[]))`;
  // Not prepared: Postgres would keep the plan that it made for an empty outbox, which sorts all rows of a full one.
  const { rows } = await sql<Omit<Locked, "rows"> & (LockedRow | { seq: null })>`
    with recursive teams as (
      (select team_id, ${isIncluded}::int as n from webhook_outbox where team_id > ${after} order by team_id limit 1)
      union all
      select next.team_id, t.n + next.included from teams t cross join lateral (
        select team_id, ${isIncluded}::int as included from webhook_outbox where team_id > t.team_id order by team_id limit 1) next
      where t.n < ${sql.lit(TEAMS)}
    ), candidates as (
      select t.n, t.team_id, row_number() over (partition by t.n order by o.seq) as turn
      from (select * from teams where ${isIncluded}) t cross join lateral (select seq from webhook_outbox where ${ofTeam} limit ${sql.lit(OUTBOX_ROWS)}) o
    ), row_counts as (
      select n, team_id, count(*) as row_count
      from (select n, team_id from candidates order by turn, n limit ${sql.lit(OUTBOX_ROWS)}) chosen group by n, team_id
    ), locked as (
      select t.n, row_number() over (partition by t.n order by o.seq)::int as turn, o.*
      from row_counts t cross join lateral (
        select ${columns} from webhook_outbox where ${ofTeam} limit t.row_count for update skip locked) o
    ), sized as (
      select *, row_number() over in_turns = 1 or sum(octet_length(objects)) over in_turns <= ${sql.lit(MOST_BYTES)} as fits
      from locked window in_turns as (order by turn, n)
    )
    select m.seq, m.team_id, m.environment, m.type, m.created_at, case when m.fits then m.objects else '' end as objects,
      m.fits, (select count(*) >= ${sql.lit(OUTBOX_ROWS)} from candidates) as "hasManyRows",
      (select team_id from teams where n = ${sql.lit(TEAMS)}) as "lastTeam"
    from (select) one_row left join sized m on true order by m.turn, m.n`.execute(kysely(em));
  // There is one row even when none is locked.
  const { hasManyRows = false, lastTeam = null } = rows[0] ?? {};
  return { rows: rows.filter((row): row is typeof row & LockedRow => row.seq !== null), hasManyRows, lastTeam };
}

/** A share for each team, in the order of their first rows. */
const sharesOf = (rows: readonly LockedRow[]): TeamShare[] =>
  [...Map.groupBy(rows, ({ team_id }) => team_id)].map(([teamId, remaining]) => ({ teamId, remaining, cost: 0 }));

/**
 * Takes the next row of the cheapest share that has one which fits into the batch. Of equally cheap shares it takes the first, so that
 * those without a turn are always the last ones: `nextOf` needs that. The caller adds the cost of the row's deliveries.
 */
function takeNext(shares: readonly TeamShare[]): { row: LockedRow; share: TeamShare } | undefined {
  let share: TeamShare | undefined;
  for (const other of shares) {
    if (other.remaining[0]?.fits && (!share || other.cost < share.cost)) share = other;
  }
  const row = share?.remaining.shift();
  if (!share || !row) return undefined;
  share.cost++;
  return { row, share };
}

/** Where the next batch begins, and whether to take it at once. @param shares of this one, in the order of their first turns */
function nextOf(
  after: string,
  { hasManyRows, lastTeam }: Locked,
  shares: readonly TeamShare[],
): Pick<FannedOut, "callAgain" | "nextAfter"> {
  const isLeft = shares.some(({ remaining }) => remaining.length > 0);
  const callAgain = after !== "" || hasManyRows || isLeft || lastTeam !== null;
  // A share without cost has taken no row, nor have those after it. The first share always takes one: its first row fits.
  const firstWithoutTurn = shares.findIndex(({ cost }) => cost === 0);
  if (firstWithoutTurn > 0) return { callAgain, nextAfter: shares[firstWithoutTurn - 1]?.teamId ?? "" };
  return { callAgain, nextAfter: lastTeam ?? "" };
}

interface Endpoints {
  byTenant: Map<string, Endpoint[]>;
  /** Tenants with an endpoint that another transaction changes or deletes. */
  changing: Set<string>;
}

/**
 * The endpoints that get deliveries written. They cannot be deleted before the deliveries are there. To delete one with its
 * log may take seconds: the relay of all teams does not wait for it.
 */
async function readEndpoints(
  em: EntityManager,
  rows: readonly Pick<Endpoint, "team_id" | "environment">[],
): Promise<Endpoints> {
  const tenants = [...new Map(rows.map((row) => [tenantKey(row), row])).values()];
  const areListening = sql`(team_id, environment) in (select * from unnest(
        ${tenants.map(({ team_id }) => team_id)}::text[], ${tenants.map(({ environment }) => environment)}::text[]))
      and (active or disabled_reason = 'delivery_failures')`;
  const { rows: endpoints } = await executePrepared(
    em,
    "relay_endpoints",
    sql<Endpoint & { isLocked: boolean }>`
    with locked as materialized (
      select id, team_id, environment, events, active from webhook_endpoints where ${areListening} for key share skip locked
    )
    select *, true as "isLocked" from locked
    union all
    select id, team_id, environment, events, active, false from webhook_endpoints
    where ${areListening} and id not in (select id from locked)`,
  );
  const changing = new Set(endpoints.filter(({ isLocked }) => !isLocked).map(tenantKey));
  return { byTenant: Map.groupBy(endpoints, tenantKey), changing };
}

/** The texts of the records in a row of the outbox. @returns undefined when it is no JSON array */
function splitObjects(objects: string): string[] | undefined {
  const parsed = parse(objects);
  if (!Array.isArray(parsed)) return undefined;
  // Most rows hold one record, whose text is there already.
  return parsed.length === 1 ? [objects.trim().slice(1, -1)] : parsed.map((object) => JSON.stringify(object));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface Written {
  /** Rows of the outbox that are done. */
  done: readonly string[];
  events: readonly NewEvent[];
  deliveries: readonly NewDelivery[];
  groups: readonly NewGroup[];
}

async function writeAll(em: EntityManager, { done, events, deliveries, groups }: Written): Promise<void> {
  // Neither this statement nor the one below is prepared: a plan that Postgres made for an empty outbox reads all rows of a full one.
  const taken = sql`delete from webhook_outbox where seq = any(${done}::bigint[])`;
  if (events.length === 0) {
    await taken.execute(kysely(em));
    return;
  }
  const groupOf = new Map(groups.flatMap(({ id, ids }) => ids.map((delivery) => [delivery, id])));
  await sql`
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
    ) ${taken}`.execute(kysely(em));
}
