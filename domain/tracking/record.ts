import { sql } from "kysely";
import type { AutomaticCause, EngagementKind } from "../../db/entities/engagement.ts";
import type { EntityManager } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { intoOutboxOfAll, notifyRelayAfterCommit } from "../webhooks/emit.ts";
import { trackedRecord } from "../webhooks/records.ts";

export interface Hit extends MailRef {
  kind: EngagementKind;
  /** Milliseconds since 1970. */
  at: number;
  /** As far as the request shows it; null for other hits. */
  cause: AutomaticCause | null;
  /** The author's address; null for an open. */
  url: string | null;
}

/** The cause is null for hits that count. */
export interface RecordedHits {
  kind: EngagementKind;
  cause: AutomaticCause | null;
  count: number;
}

/** Gateways follow links when they receive a mail; a person needs longer to read it. */
const TOO_SOON = sql.lit("1 second");

/** Records hits of mails in the ledger, and emits an event for each that counts. */
export function recordHits(em: EntityManager, hits: readonly Hit[]): Promise<RecordedHits[]> {
  return transaction(em, async (tx) => {
    // Triggers of `engagements` lock these rows first for changed counts, then for new ones: two calls could deadlock. Locked
    // before that, in one order, and read by the next statement in their latest state.
    await executePrepared(
      tx,
      sql`
        select from (
          select distinct send_id, seq from unnest(
            ${hits.map(({ sendId }) => sendId)}::text[], ${hits.map(({ seq }) => seq)}::int[]
          ) as h (send_id, seq) order by send_id, seq
        ) m cross join lateral (
          select from send_recipients r where r.send_id = m.send_id and r.seq = m.seq and r.state <> 'SENT'
          for no key update) r`,
    );
    const { rows } = await executePrepared(
      tx,
      sql<RecordedHits & { emitted: boolean }>`
        with hits as (
          select * from unnest(
            ${hits.map(() => newId("tracking"))}::text[], ${hits.map(({ sendId }) => sendId)}::text[],
            ${hits.map(({ seq }) => seq)}::int[], ${hits.map(({ kind }) => kind)}::text[],
            ${hits.map(({ at }) => new Date(at).toISOString())}::timestamptz(3)[],
            ${hits.map(({ cause }) => cause)}::text[], ${hits.map(({ url }) => url)}::text[]
          ) as h (id, send_id, seq, kind, at, cause, url)
        ), found as materialized (
          select h.id, h.send_id, h.seq, h.kind, h.at, h.url, r.email, r.email_spelling,
            s.team_id, s.environment, s.resource_type, s.resource_id,
            coalesce(h.cause, case when h.kind = 'clicked'
              and (r.state not in ('SENT', 'UNKNOWN') or h.at < r.updated_at + interval ${TOO_SOON}) then 'too_soon' end) as cause
          from hits h
          -- The limits keep the planner from reading a whole send where it has no statistics.
          join lateral (select email, email_spelling, state, updated_at from send_recipients
            where send_id = h.send_id and seq = h.seq limit 1) r on true
          join lateral (select team_id, environment, resource_type, resource_id from sends
            where id = h.send_id limit 1) s on true
        ), counting as (
          select * from found where cause is null
        ), counted as (
          insert into engagements as e
            (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
          select send_id, seq, kind, team_id, environment, resource_id, email, count(*), min(at), max(at)
          from counting group by send_id, seq, kind, team_id, environment, resource_id, email
          -- In one order, so that concurrent statements do not deadlock.
          order by send_id, seq, kind
          on conflict (send_id, seq, kind) do update set count = e.count + excluded.count,
            first_at = least(e.first_at, excluded.first_at), last_at = greatest(e.last_at, excluded.last_at)
        ), automatic as (
          insert into automatic_hits as a (send_id, seq, kind, cause, count, first_at, last_at)
          select send_id, seq, kind, cause, count(*), min(at), max(at)
          from found where cause is not null group by send_id, seq, kind, cause order by send_id, seq, kind, cause
          on conflict (send_id, seq, kind, cause) do update set count = a.count + excluded.count,
            first_at = least(a.first_at, excluded.first_at), last_at = greatest(a.last_at, excluded.last_at)
        ), emitted as (
          ${intoOutboxOfAll("event.tracked", "counting", trackedRecord)} returning 1
        )
        select kind, cause, count(*)::int as count, exists (select from emitted) as emitted
        from found group by kind, cause`,
    );
    if (rows.some(({ emitted }) => emitted)) notifyRelayAfterCommit(tx);
    return rows.map(({ kind, cause, count }) => ({ kind, cause, count }));
  });
}
