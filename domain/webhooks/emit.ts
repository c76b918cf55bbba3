import { setTimeout as delay } from "node:timers/promises";
import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { afterCommit } from "../../db/transaction.ts";
import { Batches } from "../../lib/batches.ts";
import type { EventName } from "./catalogue.ts";
import type { EventObjects } from "./objects.ts";

/** Events that one row of the outbox holds at most. */
const OUTBOX_ROW_EVENTS = 500;

/** Events are kept for endpoints that the platform switched off, and not for those that were stopped by hand. */
const getsEvents = sql`(w.active or w.disabled_reason = 'delivery_failures')`;
const listening = (tenant: Tenant) => sql`${ofTenant(tenant, "w")} and ${getsEvents}`;

const literals = (types: readonly EventName[]) => sql.join(types.map((type) => sql.lit(type)));

export const isWanted = (tenant: Tenant, ...types: EventName[]): RawBuilder<boolean> => sql<boolean>`exists (
  select from webhook_endpoints w where ${listening(tenant)} and w.events && array[${literals(types)}])`;

/** A query for those of the types that an endpoint subscribed to, as `type`. */
export const wantedTypes = (tenant: Tenant, types: readonly EventName[]): RawBuilder<unknown> => sql`
  select distinct e.type from webhook_endpoints w cross join lateral unnest(w.events) as e (type)
  where ${listening(tenant)} and e.type in (${literals(types)})`;

/**
 * The insert into the outbox of a statement that changes many rows. When it wrote a row, its caller notifies the relay.
 * @param happened a query for one row per event: `type` and the record's JSON as `object`
 */
export const intoOutbox = (tenant: Tenant, happened: RawBuilder<unknown>): RawBuilder<unknown> => sql`
  insert into webhook_outbox (team_id, environment, type, objects)
  select ${tenant.teamId}, ${tenant.environment}, type, '[' || string_agg(object::text, ',' order by n) || ']'
  from (select type, object, row_number() over (partition by type) - 1 as n from (${happened}) h) numbered
  group by type, n / ${sql.lit(OUTBOX_ROW_EVENTS)}`;

/** As `intoOutbox`, for events of one type of many tenants. @param rows a CTE with the rows that the events are of */
export const intoOutboxOfAll = (
  type: EventName,
  rows: string,
  record: (row: string) => RawBuilder<unknown>,
): RawBuilder<unknown> => sql`
  insert into webhook_outbox (team_id, environment, type, objects)
  select team_id, environment, ${sql.lit(type)}, '[' || string_agg(object::text, ',' order by n) || ']'
  from (
    select m.team_id, m.environment, ${record("m")} as object,
      row_number() over (partition by m.team_id, m.environment) - 1 as n
    from ${sql.table(rows)} m
    where exists (select from webhook_endpoints w
      where w.team_id = m.team_id and w.environment = m.environment
        and ${getsEvents} and w.events && array[${literals([type])}])
  ) numbered
  group by team_id, environment, n / ${sql.lit(OUTBOX_ROW_EVENTS)}`;

export interface WrittenEvents {
  created: EventName;
  changed: EventName;
}

/**
 * The last CTEs of a statement that writes many rows: when `emitted` has a row, the caller notifies the relay. They follow a CTE
 * `written` with the rows as they are now, and whether each was `created`.
 */
export const emitWritten = (
  tenant: Tenant,
  { created, changed }: WrittenEvents,
  record: (row: string) => RawBuilder<unknown>,
): RawBuilder<unknown> => sql`
    wanted as materialized (${wantedTypes(tenant, [created, changed])}),
    emitted as (${intoOutbox(
      tenant,
      sql`select t.type, ${record("w")} as object from wanted t
        join written w on t.type = case when w.created then ${sql.lit(created)} else ${sql.lit(changed)} end`,
    )} returning 1)`;

/** The same for a statement that makes records, a row of the outbox for each: the CTE `made` before it has its JSON as `object`. */
export const emitCreated = (tenant: Tenant, type: EventName): RawBuilder<unknown> => sql`
    emitted as (
      insert into webhook_outbox (team_id, environment, type, objects)
      select ${tenant.teamId}, ${tenant.environment}, ${sql.lit(type)}, '[' || object::text || ']' from made
      where ${isWanted(tenant, type)} returning 1)`;

/** How a record is made from a row, and which rows. */
export interface Rows<Record> {
  record: RawBuilder<Record>;
  /** The part of the statement after `from`. */
  from: RawBuilder<unknown>;
}

/**
 * Writes a change to the outbox in the transaction that makes it, if an endpoint subscribed to it: see `fanOut`.
 * @param rows of the records after the change, one event each
 * @throws {Error} outside of a transaction
 */
export async function emit<Name extends EventName>(
  em: EntityManager,
  tenant: Tenant,
  type: Name,
  { record, from }: Rows<EventObjects[Name]>,
): Promise<void> {
  const happened = sql`select ${sql.lit(type)} as type, ${record} as object from ${from}`;
  const insert = intoOutbox(tenant, sql`select * from (${happened}) e where ${isWanted(tenant, type)}`);
  const { numAffectedRows } = await insert.execute(kysely(em));
  if (numAffectedRows) notifyRelayAfterCommit(em);
}

/** The channels on which relays hear of changes in the outbox, and of endpoints, by id, that deliveries have come for. */
export const OUTBOX_CHANNEL = "webhook_outbox";
export const DUE_CHANNEL = "webhook_due";

/**
 * The least time between two notifications of one process. Postgres lets one transaction that notifies commit at a time, so they are
 * sent beside the transactions they are for, one for many.
 */
const QUIET_MS = 20;

/** By pool. */
const notifications = new WeakMap<object, Batches<undefined, void>>();

/** Wakes the relays. Call it after the commit. A notification that is lost costs a poll interval. */
export function notifyRelay(em: EntityManager): void {
  const driver = em.getDriver();
  const ofPool = notifications.get(driver) ?? new Batches();
  notifications.set(driver, ofPool);
  const notify = async () => {
    await sql`select pg_notify(${OUTBOX_CHANNEL}, '')`.execute(kysely(em.fork({ clear: true })));
    await delay(QUIET_MS, undefined, { ref: false });
  };
  ofPool.join("", undefined, notify).catch(() => undefined);
}

/** Has these endpoints served after the commit. A notification that is lost costs the wait for a sweep. */
export async function notifyDue(em: EntityManager, webhookIds: readonly string[]): Promise<void> {
  await sql`select pg_notify(${DUE_CHANNEL}, id) from unnest(${[...webhookIds]}::text[]) as w (id)`.execute(kysely(em));
}

/** Wakes the relay once the transaction of `em` is committed. */
export const notifyRelayAfterCommit = (em: EntityManager): void => afterCommit(em, notifyRelay, () => notifyRelay(em));
