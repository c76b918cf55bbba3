import { sql } from "kysely";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import type { EntityManager } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { holdsPlaceholder } from "../erasure/erased-addresses.ts";
import { ID_PREFIX } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { intoOutboxOfAll, notifyRelayAfterCommit } from "../webhooks/emit.ts";
import { trackedRecord } from "../webhooks/records.ts";
import { type Label, labelHits, MOST_HITS, QUIET_SECONDS, type WaitingHit } from "./label.ts";

/*
 * A hit counts, acts on segments and sequences, and becomes an event once it is known who made it: after the time in which
 * another hit, or a provider's report, may decide about it. Nothing is corrected afterwards.
 */

/** From the storing of a mail's last hit on. */
const QUIET = sql.lit(`${QUIET_SECONDS} seconds`);
/** A mail that is never quiet is settled after this time. */
const LONGEST_WAIT = sql.lit("1 minute");

interface TakenHit extends WaitingHit, MailRef {
  id: string;
  /** In milliseconds since 1970, as `at`; null where no server has the mail. */
  acceptedAt: number | null;
  isOpened: boolean;
}

/** A hit that counts in engagements, or with its rule. */
interface SettledHit extends MailRef, Label {
  id: string;
  kind: EngagementKind;
  at: number;
  url: string | null;
  /** A click proves an open that no pixel has shown. */
  isInferred: boolean;
}

/**
 * Settles hits whose mails are quiet, all of a mail together. Of several calls at once, one works.
 * @param limit hits from which the mails are chosen
 * @returns hits that were settled, at least `limit` while there may be more
 */
export function settleHits(em: EntityManager, limit: number): Promise<number> {
  return transaction(em, async (tx) => {
    const taken = await takeQuietHits(tx, limit);
    const mails = Map.groupBy(taken, ({ sendId, seq }) => `${sendId} ${seq}`);
    const settled = [...mails.values()].flatMap(settleMail);
    if (settled.length > 0) await writeHits(tx, settled);
    return taken.length;
  });
}

const milliseconds = (column: string) => sql`(extract(epoch from ${sql.ref(column)}) * 1000)::float8`;

/** In the order of their times. */
async function takeQuietHits(tx: EntityManager, limit: number): Promise<TakenHit[]> {
  const { rows: locks } = await executePrepared(
    tx,
    sql<{ isHeld: boolean }>`select pg_try_advisory_xact_lock(hashtextextended('settle hits', 0)) as "isHeld"`,
  );
  if (!locks[0]?.isHeld) return [];
  const { rows } = await executePrepared(
    tx,
    sql<TakenHit>`
      with due as materialized (
        select distinct send_id, seq from (
          select send_id, seq from pending_hits where created_at < now() - interval ${QUIET}
          -- Mails that are never quiet hold up no others for longer than they wait themselves.
          order by created_at limit ${limit}) h
      ), quiet as materialized (
        select d.send_id, d.seq from due d cross join lateral (
          select min(created_at) as first_at, max(created_at) as last_at, count(*) as count from pending_hits h
          where h.send_id = d.send_id and h.seq = d.seq) h
        where h.last_at < now() - interval ${QUIET} or h.first_at < now() - interval ${LONGEST_WAIT}
          or h.count > ${sql.lit(MOST_HITS)}
      ), taken as (
        delete from pending_hits h using quiet q where h.send_id = q.send_id and h.seq = q.seq
        returning h.id, h.send_id, h.seq, h.kind, h.at, h.url, h.rule, h.early, h.source
      )
      select t.id, t.send_id as "sendId", t.seq, t.kind, ${milliseconds("t.at")} as at, t.url, t.rule, t.early,
        t.source, case when r.state in ('SENT', 'UNKNOWN') then ${milliseconds("r.updated_at")} end as "acceptedAt",
        t.kind = 'clicked' and exists (
          select from engagements e where e.send_id = t.send_id and e.seq = t.seq and e.kind = 'opened') as "isOpened"
      from taken t left join lateral (
        select state, updated_at from send_recipients where send_id = t.send_id and seq = t.seq limit 1) r on true
      order by t.at`,
  );
  return rows;
}

function settleMail(taken: readonly TakenHit[]): SettledHit[] {
  const acceptedAt = taken[0]?.acceptedAt ?? undefined;
  const isOpened = taken.some((hit) => hit.isOpened);
  const labels = labelHits({ acceptedAt, isOpened }, taken);
  const settled = taken.flatMap(({ id, sendId, seq, kind, at, url }, i) => {
    const label = labels[i];
    return label ? [{ id, sendId, seq, kind, at, url, ...label, isInferred: false }] : [];
  });
  const counting = settled.filter(({ by }) => by !== "machine");
  const click = counting.find(({ kind }) => kind === "clicked");
  if (!click || isOpened || counting.some(({ kind }) => kind === "opened")) return settled;
  return [...settled, { ...click, kind: "opened", url: null, isInferred: true }];
}

/** In the form of an id; null without a URL. Of a hit `h` and its send `s`. */
const LINK_ID = sql`${sql.lit(`${ID_PREFIX.trackedLink}_0`)} ||
  left(encode(sha256(convert_to(s.resource_id || ' ' || h.url, 'UTF8')), 'hex'), 25)`;

async function writeHits(tx: EntityManager, hits: readonly SettledHit[]): Promise<void> {
  // Triggers lock these rows first for changed counts, then for new ones, and last for marked hits: another transaction that
  // holds rows in one order could deadlock. Locked before that, and read by the next statement in their latest state.
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
    sql<{ emitted: boolean }>`
      with hits as (
        select * from unnest(
          ${hits.map(({ id }) => id)}::text[], ${hits.map(({ sendId }) => sendId)}::text[],
          ${hits.map(({ seq }) => seq)}::int[], ${hits.map(({ kind }) => kind)}::text[],
          ${hits.map(({ at }) => new Date(at).toISOString())}::timestamptz(3)[], ${hits.map(({ url }) => url)}::text[],
          ${hits.map(({ by }) => by)}::text[], ${hits.map(({ rule }) => rule)}::text[],
          ${hits.map(({ isInferred }) => isInferred)}::boolean[]
        ) as h (id, send_id, seq, kind, at, url, by, rule, is_inferred)
      ), found as materialized (
        select h.id, h.send_id, h.seq, h.kind, h.at, h.url, h.by, h.rule, h.is_inferred, r.email, r.email_spelling,
          s.team_id, s.environment, s.resource_type, s.resource_id, ${LINK_ID} as link_id
        from hits h
        -- The limits keep the planner from reading a whole send where it has no statistics.
        join lateral (select email, email_spelling from send_recipients
          where send_id = h.send_id and seq = h.seq limit 1) r on true
        join lateral (select team_id, environment, resource_type, resource_id from sends
          where id = h.send_id limit 1) s on true
        -- Also of a person who took their consent back after the mail left.
        where (select k.status from tracking_consents k
          where k.team_id = s.team_id and k.environment = s.environment and k.email = r.email) is distinct from 'DENIED'
          -- What an erased person said was erased too: it may have been a denial.
          and not ${holdsPlaceholder("r.email")}
      ), counted as (
        insert into engagements as e
          (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        select send_id, seq, kind, team_id, environment, resource_id, email, count(*), min(at), max(at)
        from found where by = 'human' or (by = 'unknown' and kind = 'opened')
        group by send_id, seq, kind, team_id, environment, resource_id, email
        -- In one order, so that concurrent statements do not deadlock.
        order by send_id, seq, kind
        on conflict (send_id, seq, kind) do update set count = e.count + excluded.count,
          first_at = least(e.first_at, excluded.first_at), last_at = greatest(e.last_at, excluded.last_at)
      ), marked as (
        insert into marked_hits as m (send_id, seq, kind, rule, by, count, first_at, last_at)
        select send_id, seq, kind, rule, by, count(*), min(at), max(at)
        from found where rule is not null group by send_id, seq, kind, rule, by order by send_id, seq, kind, rule
        on conflict (send_id, seq, kind, rule) do update set count = m.count + excluded.count,
          first_at = least(m.first_at, excluded.first_at), last_at = greatest(m.last_at, excluded.last_at)
      ), clicked as (
        insert into link_clicks as c (send_id, seq, link_id, count)
        select send_id, seq, link_id, count(*) from found where link_id is not null and by = 'human'
        group by send_id, seq, link_id order by send_id, seq, link_id
        on conflict (send_id, seq, link_id) do update set count = c.count + excluded.count
        -- Zero in a row that is new.
        returning link_id, xmax = 0 as is_first
      ), linked as (
        insert into tracked_links as l (id, team_id, environment, resource_id, url, clicks, clickers, clicks_unknown,
          clicks_machine, first_at, last_at)
        select f.link_id, f.team_id, f.environment, f.resource_id, f.url, count(*) filter (where f.by = 'human'),
          coalesce(max(c.clickers), 0), count(*) filter (where f.by = 'unknown'), count(*) filter (where f.by = 'machine'),
          min(f.at) filter (where f.by = 'human'), max(f.at) filter (where f.by = 'human')
        from found f left join (
          select link_id, count(*) as clickers from clicked where is_first group by link_id) c on c.link_id = f.link_id
        where f.link_id is not null group by f.link_id, f.team_id, f.environment, f.resource_id, f.url order by f.link_id
        on conflict (id) do update set clicks = l.clicks + excluded.clicks, clickers = l.clickers + excluded.clickers,
          clicks_unknown = l.clicks_unknown + excluded.clicks_unknown,
          clicks_machine = l.clicks_machine + excluded.clicks_machine,
          first_at = least(l.first_at, excluded.first_at), last_at = greatest(l.last_at, excluded.last_at)
      ), shown as (
        select id, send_id, seq, kind, at, url, by, email, email_spelling, team_id, environment, resource_type,
          resource_id
        from found where by <> 'machine' and not is_inferred
      ), emitted as (
        ${intoOutboxOfAll("event.tracked", "shown", trackedRecord)} returning 1
      )
      select exists (select from emitted) as emitted`,
  );
  if (rows.some(({ emitted }) => emitted)) notifyRelayAfterCommit(tx);
}
