import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { ENDPOINT_OFF } from "./endpoint-health.ts";
import { EVENT_KEPT } from "./retention.ts";

/** Rows that one batch takes from the outbox, of so many teams, each an equal share. */
const BATCH_ROWS = 500;
const TEAMS = 50;
/** Bytes of records that one batch has delivered, counted for each endpoint, or one larger row: a row may hold 500 records. */
const MOST_BYTES = 2 * 1024 * 1024;

interface FannedOut {
  taken: number;
  /** Endpoints that got deliveries. */
  webhookIds: Set<string>;
  /** The next batch begins with the team after this one; "" when no row was taken. */
  lastTeam: string;
}

interface OutboxRow {
  seq: string;
  teamId: string;
  /** Endpoints that subscribed, and are on or were switched off by the platform. */
  endpoints: { id: string; active: boolean }[];
  /** Events to be made: of a row without endpoints none, nor of one that was broken by hand, which must not stop all teams. */
  records: number;
}

/**
 * Takes a batch of the oldest changes of teams in turn, and writes an event for each that an endpoint subscribed to, with a delivery
 * per endpoint: BLOCKED if the platform has switched it off. Any number of processes may do this at once.
 * @param after begins with the team after this id; "" with the first team
 */
export function fanOut(em: EntityManager, after: string): Promise<FannedOut> {
  return transaction(em, async (tx) => {
    const rows = await lockRows(tx, after);
    // The event's id, the same in every attempt and replay: receivers deduplicate on it.
    const made = rows
      .filter(({ records }) => records > 0)
      .map((row) => ({ ...row, ids: Array.from({ length: row.records }, () => newId("event")) }));
    const events = made.map(({ seq, ids }) => ({ seq, ids }));
    const deliveries = made.flatMap(({ ids, endpoints }) =>
      ids.flatMap((eventId) =>
        endpoints.map(({ id: webhookId, active }) => ({ id: newId("delivery"), eventId, webhookId, active })),
      ),
    );
    const seqs = rows.map(({ seq }) => seq);
    if (rows.length > 0) await write(tx, seqs, JSON.stringify(events), JSON.stringify(deliveries));
    const webhookIds = new Set(deliveries.flatMap(({ active, webhookId }) => (active ? [webhookId] : [])));
    return { taken: rows.length, webhookIds, lastTeam: rows.at(-1)?.teamId ?? "" };
  });
}

/** @returns the first row of each team, then the second of each, and so on: no team is passed before it had its turn */
async function lockRows(em: EntityManager, after: string): Promise<OutboxRow[]> {
  // Not prepared: Postgres would keep the plan that it made for an empty outbox, which sorts all rows of a full one. Not `=`: when
  // one team has nearly all rows, Postgres would read the primary key in order and filter, also for the others.
  const { rows } = await sql<OutboxRow>`
    with recursive teams as (
      (select team_id, 1 as n from webhook_outbox where team_id > ${after} order by team_id limit 1)
      union all
      select next.team_id, t.n + 1 from teams t cross join lateral (
        select team_id from webhook_outbox where team_id > t.team_id order by team_id limit 1) next
      where t.n < ${sql.lit(TEAMS)}
    ), locked as (
      select o.*, t.n, row_number() over (partition by t.n order by o.seq) as turn from teams t cross join lateral (
        select seq, team_id, environment, type, objects from webhook_outbox
        where team_id between t.team_id and t.team_id order by team_id, seq
        limit (select ${sql.lit(BATCH_ROWS)} / count(*) from teams) for update skip locked) o
    ), subscribed as (
      select l.*, s.*, sum(octet_length(l.objects)::bigint * s.many) over turns as bytes, row_number() over turns as place
      from locked l cross join lateral (
        select coalesce(json_agg(json_build_object('id', e.id, 'active', e.active)), '[]') as endpoints, count(*) as many
        from webhook_endpoints e where e.team_id = l.team_id and e.environment = l.environment and l.type = any(e.events)
          and (e.active or e.disabled_reason = 'delivery_failures')) s
      window turns as (order by l.turn, l.n)
    )
    select seq, team_id as "teamId", endpoints,
      case when many > 0 and objects is json array then json_array_length(objects::json) else 0 end as records
    from subscribed where bytes <= ${sql.lit(MOST_BYTES)} or place = 1 order by place`.execute(kysely(em));
  return rows;
}

/** @param events JSON: of each row the ids of the events of its records, in their order @param deliveries JSON */
async function write(em: EntityManager, seqs: string[], events: string, deliveries: string): Promise<void> {
  // Not prepared either.
  await sql`
    with taken as (
      delete from webhook_outbox where seq = any(${seqs}::bigint[])
      returning seq, team_id, environment, type, objects, created_at
    ), events as (
      insert into webhook_events (id, team_id, environment, type, object, created_at, kept_until)
      select r.id, o.team_id, o.environment, o.type, r.object, o.created_at, now() + ${EVENT_KEPT}
      from taken o join json_to_recordset(${events}::json) as e (seq bigint, ids text[]) on e.seq = o.seq
      -- Side by side: a join of records to events by their place would parse a row of 500 for each of them.
      cross join lateral rows from (json_array_elements_text(o.objects::json), unnest(e.ids)) as r (object, id)
      returning id, team_id, environment, type
    )
    insert into webhook_deliveries
      (id, team_id, environment, webhook_id, event_id, event_type, status, next_attempt_at, error_message)
    select d.id, e.team_id, e.environment, d."webhookId", e.id, e.type, case when d.active then 'PENDING' else 'BLOCKED' end,
      case when d.active then now() end, case when d.active then null else ${ENDPOINT_OFF} end
    from json_to_recordset(${deliveries}::json) as d (id text, "eventId" text, "webhookId" text, active boolean)
    join events e on e.id = d."eventId"`.execute(kysely(em));
}
