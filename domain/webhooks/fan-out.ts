import { type Selectable, sql } from "kysely";
import { type Database, type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF } from "./endpoint-health.ts";
import { EVENT_KEPT } from "./retention.ts";

/** Rows that one batch takes from the outbox, of so many teams, each an equal share. */
const BATCH_ROWS = 500;
const TEAMS = 50;
const LEAST_SHARE = 10;
/** Bytes of `objects` that one batch takes, or one larger row: a row may hold 500 records, of 1 KB and more. */
const MOST_BYTES = 2 * 1024 * 1024;
/** Deliveries after which a batch takes no further row: its transaction holds the rows for a short time. */
const MOST_DELIVERIES = 4_000;

export interface FannedOut {
  taken: number;
  /** Endpoints that got deliveries. */
  webhookIds: Set<string>;
  /** Rows may be left: the next batch begins with the team after this one. */
  next: { after: string } | undefined;
}

type OutboxRow = Pick<Selectable<Database["webhook_outbox"]>, "seq" | "team_id" | "environment" | "type"> & {
  /** Of a row that was broken by hand none: it must not stop all teams. */
  records: number;
  /** Its place among the rows of its team, from 1. */
  turn: number;
};

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
  /** Place of its record in the row, from 1. */
  place: number;
}

interface NewDelivery {
  id: string;
  event: NewEvent;
  endpoint: Endpoint;
}

const tenantKey = ({ team_id, environment }: Pick<Endpoint, "team_id" | "environment">) => `${team_id}/${environment}`;

/**
 * Takes a batch of the oldest changes of teams in turn, and writes an event for each that an endpoint subscribed to, with a delivery
 * per endpoint: BLOCKED if the platform has switched it off. Any number of processes may do this at once.
 * @param after begins with the team after this id; "" with the first team
 */
export function fanOut(em: EntityManager, after: string): Promise<FannedOut> {
  return transaction(em, async (tx) => {
    const { rows, isFull, lastTeam } = await lockRows(tx, after);
    const byTenant = rows.length === 0 ? new Map<string, Endpoint[]>() : await readEndpoints(tx, rows);
    const events: NewEvent[] = [];
    const deliveries: NewDelivery[] = [];
    const taken: string[] = [];
    for (const row of rows) {
      if (deliveries.length >= MOST_DELIVERIES) break;
      taken.push(row.seq);
      const subscribed = byTenant.get(tenantKey(row))?.filter((endpoint) => endpoint.events.includes(row.type)) ?? [];
      for (let place = 1; place <= (subscribed.length === 0 ? 0 : row.records); place++) {
        // The event's id, the same in every attempt and replay: receivers deduplicate on it.
        const event = { id: newId("event"), row, place };
        events.push(event);
        for (const endpoint of subscribed) deliveries.push({ id: newId("delivery"), event, endpoint });
      }
    }
    if (taken.length > 0) await write(tx, taken, events, deliveries);
    const webhookIds = new Set(deliveries.flatMap(({ endpoint }) => (endpoint.active ? [endpoint.id] : [])));
    const isLeft = isFull || taken.length < rows.length;
    // Large rows may have filled the batch before each team had its first turn.
    const last = rows[taken.length - 1];
    const cutOff = isLeft && last?.turn === 1 ? last.team_id : null;
    const from = cutOff ?? lastTeam;
    const next = from !== null ? { after: from } : isLeft || after !== "" ? { after: "" } : undefined;
    return { taken: taken.length, webhookIds, next };
  });
}

interface Locked {
  /** The first row of each team, then the second of each, and so on. */
  rows: OutboxRow[];
  /** A team has as many rows as its share, or all rows together as many bytes as a batch reads. */
  isFull: boolean;
  /** The last team of this batch if it has `TEAMS` of them. */
  lastTeam: string | null;
}

async function lockRows(em: EntityManager, after: string): Promise<Locked> {
  // Not prepared: Postgres would keep the plan that it made for an empty outbox, which sorts all rows of a full one. Not `=`: when
  // one team has nearly all rows, Postgres would read the primary key in order and filter, also for the others.
  const { rows } = await sql<(OutboxRow | { seq: null }) & Omit<Locked, "rows">>`
    with recursive teams as (
      (select team_id, 1 as n from webhook_outbox where team_id > ${after} order by team_id limit 1)
      union all
      select next.team_id, t.n + 1 from teams t cross join lateral (
        select team_id from webhook_outbox where team_id > t.team_id order by team_id limit 1) next
      where t.n < ${sql.lit(TEAMS)}
    ), share as (
      select greatest(${sql.lit(LEAST_SHARE)}, ${sql.lit(BATCH_ROWS)} / greatest(count(*), 1)) as most,
        (select team_id from teams where n = ${sql.lit(TEAMS)}) as last_team from teams
    ), locked as (
      select t.n, o.* from teams t cross join lateral (
        select seq, team_id, environment, type, objects, created_at from webhook_outbox
        where team_id between t.team_id and t.team_id order by team_id, seq limit (select most from share)
        for update skip locked) o
    ), turns as (
      select *, row_number() over (partition by n order by seq) as turn from locked
    ), sized as (
      select *, sum(octet_length(objects)) over (order by turn, n) as bytes, row_number() over (order by turn, n) as place from turns
    )
    select r.seq, r.team_id, r.environment, r.type, r.turn::int as turn,
      share.last_team as "lastTeam", case when r.objects is json array then json_array_length(r.objects::json) else 0 end as records,
      coalesce((select max(turn) from sized) >= share.most or (select max(bytes) from sized) > ${sql.lit(MOST_BYTES)}, false) as "isFull"
    from share left join sized r on r.bytes <= ${sql.lit(MOST_BYTES)} or r.place = 1 order by r.place`.execute(
    kysely(em),
  );
  // There is one row even when none is locked.
  const { isFull = false, lastTeam = null } = rows[0] ?? {};
  return { rows: rows.filter((row): row is typeof row & OutboxRow => row.seq !== null), isFull, lastTeam };
}

async function readEndpoints(em: EntityManager, rows: readonly OutboxRow[]): Promise<Map<string, Endpoint[]>> {
  const tenants = [...new Map(rows.map((row) => [tenantKey(row), row])).values()];
  const { rows: endpoints } = await executePrepared(
    em,
    sql<Endpoint>`
    select id, team_id, environment, events, active from webhook_endpoints
    where (team_id, environment) in (select * from unnest(
        ${tenants.map(({ team_id }) => team_id)}::text[], ${tenants.map(({ environment }) => environment)}::text[]))
      and (active or disabled_reason = 'delivery_failures')`,
  );
  return Map.groupBy(endpoints, tenantKey);
}

async function write(
  em: EntityManager,
  taken: readonly string[],
  events: readonly NewEvent[],
  deliveries: readonly NewDelivery[],
): Promise<void> {
  const subscribed = events.map(({ row }) => row.seq);
  // Neither this statement nor `lockRows` is prepared: a plan that Postgres made for an empty outbox reads all rows of a full one.
  await sql`
    with taken as (
      delete from webhook_outbox where seq = any(${[...taken]}::bigint[]) returning *
    ), events as (
      insert into webhook_events (id, team_id, environment, type, object, created_at, kept_until)
      select e.id, o.team_id, o.environment, o.type, r.object, o.created_at, now() + ${EVENT_KEPT}
      from taken o cross join lateral json_array_elements_text(o.objects::json) with ordinality as r (object, place)
      join unnest(${events.map(({ id }) => id)}::text[], ${subscribed}::bigint[], ${events.map(({ place }) => place)}::int[]
      ) as e (id, seq, place) on e.seq = o.seq and e.place = r.place
      where o.seq = any(${subscribed}::bigint[])
    )
    insert into webhook_deliveries
      (id, team_id, environment, webhook_id, event_id, event_type, status, next_attempt_at, error_message)
    select id, team_id, environment, webhook_id, event_id, event_type, case when active then 'PENDING' else 'BLOCKED' end,
      case when active then now() end, case when active then null else ${ENDPOINT_OFF} end
    from unnest(
      ${deliveries.map(({ id }) => id)}::text[], ${deliveries.map(({ endpoint }) => endpoint.team_id)}::text[],
      ${deliveries.map(({ endpoint }) => endpoint.environment)}::text[],
      ${deliveries.map(({ endpoint }) => endpoint.id)}::text[], ${deliveries.map(({ event }) => event.id)}::text[],
      ${deliveries.map(({ event }) => event.row.type)}::text[],
      ${deliveries.map(({ endpoint }) => endpoint.active)}::boolean[]
    ) as d (id, team_id, environment, webhook_id, event_id, event_type, active)`.execute(kysely(em));
}
