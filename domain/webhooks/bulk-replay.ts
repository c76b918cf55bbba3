import { type RawBuilder, sql } from "kysely";
import type { DeliveryStatus } from "../../db/entities/webhook.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import { notifyDue } from "./emit.ts";
import { holdEndpoint, refuseInactive } from "./replay-delivery.ts";
import { keepEvents } from "./retention.ts";

export const REPLAYABLE = ["FAILED", "BLOCKED"] as const satisfies DeliveryStatus[];

export const DEFAULT_PER_SECOND = 100;

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

/** Counts the deliveries of a filter, also those that stay because their endpoint is off. @param tenant undefined for all */
export async function countReplayable(
  em: EntityManager,
  filter: ReplayFilter,
  tenant?: Tenant,
): Promise<ReplayCount[]> {
  const { rows } = await sql<ReplayCount>`
    select d.webhook_id as "webhookId", d.team_id as "teamId", d.environment, d.status, e.active,
      count(*)::int as deliveries
    from ${matching(filter)} and ${tenant ? ofTenant(tenant, "e") : sql`true`} group by 1, 2, 3, 4, 5 order by 1, 4`.execute(
    kysely(em),
  );
  return rows;
}

/** Requests a bulk replay; one of no delivery has ended with that. A relay starts its workflow after the commit. @returns its id */
export async function requestReplay(
  em: EntityManager,
  { teamId, webhookId, eventTypes = [], statuses, since, until }: ReplayFilter,
  { perSecond, total }: { perSecond: number; total: number },
): Promise<string> {
  const id = newId("replay");
  await kysely(em)
    .insertInto("webhook_replays")
    .values({
      ...{
        id,
        team_id: teamId,
        webhook_id: webhookId,
        event_types: [...eventTypes],
        statuses: [...statuses],
        since,
        until,
      },
      ...{ per_second: perSecond, total, completed_at: total === 0 ? sql<string>`now()` : null },
    })
    .execute();
  return id;
}

/**
 * Requests a bulk replay of one endpoint's deliveries.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when the endpoint is not active
 */
export async function requestEndpointReplay(
  em: EntityManager,
  tenant: Tenant,
  webhookId: string,
  chosen: Omit<ReplayFilter, "teamId" | "webhookId">,
) {
  refuseInactive(await holdEndpoint(em, tenant, webhookId));
  const filter = { teamId: tenant.teamId, webhookId, ...chosen };
  const total = (await countReplayable(em, filter, tenant)).reduce((sum, { deliveries }) => sum + deliveries, 0);
  return { id: await requestReplay(em, filter, { perSecond: DEFAULT_PER_SECOND, total }), total };
}

export const replayRow = (em: EntityManager, webhookId: string, replayId: string) =>
  kysely(em).selectFrom("webhook_replays").selectAll().where("id", "=", replayId).where("webhook_id", "=", webhookId);

export interface ReplayProgress {
  total: number;
  replayed: number;
  done: boolean;
}

export async function readReplay(em: EntityManager, replayId: string): Promise<ReplayProgress | undefined> {
  const row = await kysely(em)
    .selectFrom("webhook_replays")
    .select(["total", "replayed", "completed_at"])
    .where("id", "=", replayId)
    .executeTakeFirst();
  return row && { total: row.total, replayed: row.replayed, done: row.completed_at !== null };
}

/**
 * A sweep looks at no more of them; another one looks at others. Sixteen at a time, each with 15 s for Temporal's answer, are done
 * well within the minute after which the sweep counts as stalled.
 */
const LOOKED_AT = 32;

export async function unfinishedReplays(em: EntityManager): Promise<string[]> {
  const rows = await kysely(em)
    .selectFrom("webhook_replays")
    .select("id")
    .where("completed_at", "is", null)
    .orderBy(sql`random()`)
    .limit(LOOKED_AT)
    .execute();
  return rows.map(({ id }) => id);
}

/** Ends a bulk replay where it is. */
export async function endReplay(em: EntityManager, replayId: string): Promise<void> {
  await kysely(em)
    .updateTable("webhook_replays")
    .set({ completed_at: sql<string>`coalesce(completed_at, now())` })
    .where("id", "=", replayId)
    .execute();
}

/** Replays the next second's worth, in one transaction with the progress: a crash repeats no delivery and leaves none out. */
export function replayPage(em: EntityManager, replayId: string): Promise<ReplayProgress> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const replay = await db
      .selectFrom("webhook_replays")
      .selectAll()
      .where("id", "=", replayId)
      .forUpdate()
      .executeTakeFirstOrThrow();
    const { total, replayed } = replay;
    if (replay.completed_at !== null) return { total, replayed, done: true };
    const filter: ReplayFilter = {
      teamId: replay.team_id,
      webhookId: replay.webhook_id,
      eventTypes: replay.event_types,
      statuses: REPLAYABLE.filter((status) => replay.statuses.includes(status)),
      since: new Date(replay.since),
      until: new Date(replay.until),
    };
    const createdAfter = replay.after_created_at === null ? null : new Date(replay.after_created_at).toISOString();
    const { rows } = await sql<PageRow>`
      select d.id, d.team_id, d.environment, d.webhook_id, d.event_id, d.event_type, d.created_at
      from ${matching(filter)} and e.active
        and (d.webhook_id, d.created_at, d.id) >
          (${replay.after_webhook_id}, coalesce(${createdAfter}::timestamptz, '-infinity'), ${replay.after_id})
      order by d.webhook_id, d.created_at, d.id
      limit ${replay.per_second} for key share of e for update of d`.execute(db);
    const last = rows.at(-1);
    if (!last) {
      await endReplay(tx, replayId);
      return { total, replayed, done: true };
    }
    await sql`
      with replaced as (
        update webhook_deliveries d set superseded_by_id = n.id
        from unnest(${rows.map(({ id }) => id)}::text[], ${rows.map(() => newId("delivery"))}::text[]) as n (old, id)
        where d.id = n.old returning d.*
      )
      insert into webhook_deliveries
        (id, team_id, environment, webhook_id, event_id, event_type, is_replay, replay_of_id, next_attempt_at)
      select superseded_by_id, team_id, environment, webhook_id, event_id, event_type, true, id, now() from replaced`.execute(
      db,
    );
    const eventIds = rows.map(({ event_id }) => event_id);
    await keepEvents(tx, undefined, eventIds);
    const after = { after_webhook_id: last.webhook_id, after_created_at: last.created_at, after_id: last.id };
    await db
      .updateTable("webhook_replays")
      .set({ replayed: replayed + rows.length, ...after })
      .where("id", "=", replayId)
      .execute();
    await notifyDue(tx, [...new Set(rows.map(({ webhook_id }) => webhook_id))]);
    return { total, replayed: replayed + rows.length, done: false };
  });
}

interface PageRow {
  id: string;
  webhook_id: string;
  event_id: string;
  created_at: Date;
}
