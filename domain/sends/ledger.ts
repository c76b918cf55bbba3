import { type RawBuilder, sql } from "kysely";
import type { RecipientState, SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { prepared } from "../../db/pool.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../ids.ts";
import type { EventName } from "../webhooks/catalogue.ts";
import { intoOutbox, isWanted, wantedTypes } from "../webhooks/emit.ts";
import { notifyRelay } from "../webhooks/notify-relay.ts";
import { emailRecord, suppressionRecord } from "../webhooks/records.ts";

/** A recipient whose row is SENDING: committed to be mailed by the attempt that staged it. */
export interface StagedRecipient {
  seq: number;
  email: string;
  firstName: string | null;
  lastName: string | null;
  listId: string;
  /** `performance.now()` before the row was staged. */
  stagedAt: number;
}

export interface OpenedDispatch extends Tenant {
  status: SendStatus;
  epoch: number;
  newsletterId: string;
  accountId: string;
  /** Somebody listened to what its mails come to. */
  listened: boolean;
  /** Rows that an attempt before left SENDING when it died: now UNKNOWN. */
  unknown: number;
}

/**
 * Begins a dispatching attempt: raises the epoch, so that an attempt that is still alive somewhere stages nothing more,
 * and turns what a dead one left SENDING into UNKNOWN. Nobody mails those again but an operator. Should the old attempt
 * live after all, its late outcome still replaces the UNKNOWN.
 * @returns undefined when there is no such send, or it is not SENDING
 */
export function openDispatch(em: EntityManager, sendId: string): Promise<OpenedDispatch | undefined> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select(["team_id", "environment", "status", "epoch", "dispatching", "resource_id", "account_id"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirst();
    if (!send) return undefined;
    const tenant = { teamId: send.team_id, environment: send.environment };
    const { listened } = await db
      .selectNoFrom(isWanted(tenant, ...SETTLEMENT_EVENTS).as("listened"))
      .executeTakeFirstOrThrow();
    // The scan walks the whole send, so it is done only when an attempt did not end in order.
    const unknown = send.dispatching ? await giveUpLost(tx, sendId) : 0;
    const live = send.status === "SENDING";
    const epoch = send.epoch + 1;
    await db.updateTable("sends").set({ epoch, dispatching: live }).where("id", "=", sendId).execute();
    return {
      ...tenant,
      status: send.status,
      epoch,
      newsletterId: send.resource_id,
      accountId: send.account_id,
      listened,
      unknown,
    };
  });
}

/** Turns what an attempt that did not end in order left SENDING into UNKNOWN. @returns how many */
async function giveUpLost(em: EntityManager, sendId: string): Promise<number> {
  const lost = await kysely(em)
    .updateTable("send_recipients")
    .set({ state: "UNKNOWN", reason: "worker_lost", updated_at: sql<string>`now()` })
    .where("send_id", "=", sendId)
    .where("state", "=", "SENDING")
    .executeTakeFirst();
  return Number(lost.numUpdatedRows);
}

/**
 * Ends an attempt that was given up for dead when no other follows it, as `openDispatch` would: for a send that is paused
 * or over. Does nothing when the last attempt ended in order, or when the send is SENDING: another attempt does it then,
 * and may be at it already.
 * @returns how many recipients became UNKNOWN
 */
export function closeLost(em: EntityManager, sendId: string): Promise<number> {
  return transaction(em, async (tx) => {
    const lost = await kysely(tx)
      .updateTable("sends")
      .set(({ eb }) => ({ epoch: eb("epoch", "+", 1), dispatching: false }))
      .where("id", "=", sendId)
      .where("dispatching", "=", true)
      .where("status", "<>", "SENDING")
      .executeTakeFirst();
    return lost.numUpdatedRows > 0n ? giveUpLost(tx, sendId) : 0;
  });
}

/** Ends an attempt in order: every row it staged has its outcome. Does nothing when another attempt took over. */
export async function closeDispatch(em: EntityManager, sendId: string, epoch: number): Promise<void> {
  await kysely(em)
    .updateTable("sends")
    .set({ dispatching: false })
    .where("id", "=", sendId)
    .where("epoch", "=", epoch)
    .execute();
}

/** Puts deferred recipients whose wait is over back in the queue. @returns the first of them, if any */
export async function requeueDue(em: EntityManager, sendId: string): Promise<number | undefined> {
  const due = await kysely(em)
    .updateTable("send_recipients")
    .set({ state: "QUEUED", retry_at: null, updated_at: sql<string>`now()` })
    .where("send_id", "=", sendId)
    .where("state", "=", "DEFERRED")
    .where("retry_at", "<=", sql<string>`clock_timestamp()`)
    .returning("seq")
    .execute();
  return due.length === 0 ? undefined : due.reduce((first, { seq }) => Math.min(first, seq), Number.MAX_SAFE_INTEGER);
}

interface StageRequest {
  sendId: string;
  epoch: number;
  /** Rows up to and including this one were dealt with. */
  afterSeq: number;
  limit: number;
}

export interface StagedBatch {
  recipients: StagedRecipient[];
  /** How many became SUPPRESSED instead. */
  suppressed: number;
  /** Where the next batch begins; undefined when no queued row came after `afterSeq`, or the send may not go on. */
  lastSeq: number | undefined;
}

/**
 * Takes the next recipients from QUEUED to SENDING in one statement, which requires the send to be SENDING under this
 * very epoch and its account to be ACTIVE. Whoever was suppressed, opted out of every targeted list, was deleted or
 * changed address since the confirm becomes SUPPRESSED instead.
 *
 * The shared lock on the send's row orders this against `openDispatch`: a statement of an older epoch either commits
 * before the epoch is raised, and its rows are then found, or sees the new epoch and stages nothing.
 *
 * Rows are found by index and then joined by their place (ctid): right after a confirm the planner has no statistics of
 * the send, takes it for one row and would walk all of it once per recipient.
 *
 * The limit is a literal: with a parameter there the planner would guess a tenth of the send, find its generic plan
 * dear, and plan the statement anew each time, which costs as much as running it.
 */
export async function stageBatch(
  em: EntityManager,
  { sendId, epoch, afterSeq, limit }: StageRequest,
): Promise<StagedBatch> {
  const stagedAt = performance.now();
  const { rows } = await sql<{
    seq: number;
    state: RecipientState;
    email: string;
    first_name: string | null;
    last_name: string | null;
    list_id: string;
  }>`${prepared(`stage_batch_${limit}`)}
    with live as (
      select s.id, s.team_id, s.environment, s.resource_id
      from sends s
      where s.id = ${sendId} and s.status = 'SENDING' and s.epoch = ${epoch}
        and exists (select 1 from email_accounts a where a.id = s.account_id and a.status = 'ACTIVE')
      for share of s
    ), picked as (
      select r.ctid as row, r.email, r.subscriber_id, live.team_id, live.environment, live.resource_id
      from live join send_recipients r on r.send_id = live.id
      where r.send_id = ${sendId} and r.seq > ${afterSeq} and r.state = 'QUEUED'
      order by r.seq limit ${sql.lit(limit)}
    ), judged as materialized (
      select p.row, case
          when u.id is null then 'subscriber_deleted'
          when u.email <> p.email then 'address_changed'
          when x.id is not null then 'suppressed'
          when not exists (
            select 1 from newsletter_lists l
            join subscriptions m on m.list_id = l.list_id and m.subscriber_id = p.subscriber_id
            where l.newsletter_id = p.resource_id and m.status = 'CONFIRMED'
          ) then 'opted_out'
        end as barred
      from picked p
      left join subscribers u on u.id = p.subscriber_id
      left join suppressions x on x.team_id = p.team_id and x.environment = p.environment and x.email = p.email
    )
    update send_recipients r
    set state = case when j.barred is null then 'SENDING' else 'SUPPRESSED' end,
      epoch = ${epoch}, reason = j.barred, updated_at = now(),
      attempts = r.attempts + case when j.barred is null then 1 else 0 end
    from judged j where r.ctid = j.row
    returning r.seq, r.state, r.email, r.first_name, r.last_name, r.list_id`.execute(kysely(em));
  const recipients: StagedRecipient[] = [];
  let lastSeq: number | undefined;
  for (const row of rows) {
    if (lastSeq === undefined || row.seq > lastSeq) lastSeq = row.seq;
    if (row.state !== "SENDING") continue;
    recipients.push({
      seq: row.seq,
      email: row.email,
      firstName: row.first_name,
      lastName: row.last_name,
      listId: row.list_id,
      stagedAt,
    });
  }
  return { recipients, suppressed: rows.length - recipients.length, lastSeq };
}

/**
 * Takes back what a staging statement may have committed although its answer was lost: rows of this very epoch beyond
 * those the attempt was told of. It never handed them to anybody.
 */
export async function unstageUnheard(
  em: EntityManager,
  { sendId, epoch, afterSeq }: Pick<StageRequest, "sendId" | "epoch" | "afterSeq">,
): Promise<void> {
  await kysely(em)
    .updateTable("send_recipients")
    .set(({ eb }) => ({ state: "QUEUED", attempts: eb("attempts", "-", 1), updated_at: sql<string>`now()` }))
    .where("send_id", "=", sendId)
    .where("seq", ">", afterSeq)
    .where("state", "=", "SENDING")
    .where("epoch", "=", epoch)
    .execute();
}

/** How many recipients are in each state; one that is missing has none. */
export type StateCounts = Partial<Record<RecipientState, number>>;

/** What became of one staged recipient. QUEUED: it was not begun, or the trouble was the account's. */
export interface RecipientOutcome {
  seq: number;
  email: string;
  state: "SENT" | "REJECTED" | "DEFERRED" | "UNKNOWN" | "QUEUED";
  /** A code; never the server's text. */
  reason: string | null;
  /** A hard bounce: the address goes on the team's do-not-mail list. */
  suppress: boolean;
}

export interface DeferralPolicy {
  /** Waits before the next try, in seconds; the last one repeats. */
  ladderSeconds: readonly number[];
  /** How long a recipient is tried in all, in seconds. */
  windowSeconds: number;
}

/** What a settlement may tell of. */
const SETTLEMENT_EVENTS = ["email.sent", "email.rejected", "suppression.added"] as const satisfies EventName[];

export type SettlingSend = Tenant & Pick<OpenedDispatch, "epoch" | "newsletterId" | "listened"> & { sendId: string };

/**
 * Settles many outcomes at once: the ledger, the day's delivered count for the complaint gate, a suppression per hard
 * bounce, and the events of all that for a team that listens to them, in one statement: its round trip and its commit
 * are what settling costs. A row found UNKNOWN because this attempt was given up for dead takes its true outcome, unless
 * that would put it back in the queue of a send that has ended.
 *
 * Most teams listen to nothing of the kind, and events would cost them a fifth of the statement all the same. So they
 * have one of their own that tells nothing; should somebody listen after all, it settles nothing.
 * @returns how many rows came to stand at each state
 */
export async function settleBatch(
  em: EntityManager,
  send: SettlingSend,
  outcomes: readonly RecipientOutcome[],
  policy: DeferralPolicy,
): Promise<StateCounts> {
  const countsOf = (rows: Settled[]): StateCounts =>
    Object.fromEntries(rows.flatMap(({ state, count }) => (state === null ? [] : [[state, count]])));
  if (!send.listened) {
    const { rows } = await settlement(send, outcomes, policy, false).execute(kysely(em));
    if (rows.length > 0) return countsOf(rows);
  }
  const { rows } = await settlement(send, outcomes, policy, true).execute(kysely(em));
  if (rows[0]?.told) notifyRelay(em);
  return countsOf(rows);
}

interface Settled {
  state: RecipientState | null;
  count: number;
  /** Something was noted for the relay. */
  told?: boolean;
}

function settlement(
  send: SettlingSend,
  outcomes: readonly RecipientOutcome[],
  { ladderSeconds, windowSeconds }: DeferralPolicy,
  tells: boolean,
): RawBuilder<Settled> {
  const seqs = outcomes.map(({ seq }) => seq);
  const bounced = outcomes.filter(({ suppress }) => suppress).map(({ email }) => ({ id: newId("suppression"), email }));
  const bounces = bounced.length > 0;
  const mayRun = tells ? sql`true` : sql`not ${isWanted(send, ...SETTLEMENT_EVENTS)}`;
  // A batch without a bounce has a statement without them: an insert costs its share even when it inserts nothing.
  return sql<Settled>`${prepared(`settle${bounces ? "_bounces" : ""}${tells ? "_and_tell" : ""}`)}
      with outcome as (
        select * from unnest(
          ${seqs}::int[],
          ${outcomes.map(({ state }) => state)}::text[],
          ${outcomes.map(({ reason }) => reason)}::text[]
        ) as o (seq, state, reason)
      ), timed as materialized (
        select r.ctid as row, o.reason, o.state as told, r.first_deferred_at,
          case when o.state = 'DEFERRED' then now() + make_interval(secs =>
            (${[...ladderSeconds]}::int[])[least(greatest(r.attempts::int, 1), ${ladderSeconds.length}::int)]) end as retry_at,
          coalesce(r.first_deferred_at, now()) + make_interval(secs => ${windowSeconds}::int) as gives_up_at
        from send_recipients r join outcome o on o.seq = r.seq
        where r.send_id = ${send.sendId} and r.seq = any(${seqs}::int[]) and ${mayRun}
      ), settled as (
        update send_recipients r
        set state = case when t.retry_at > t.gives_up_at then 'EXPIRED' else t.told end,
          reason = t.reason,
          attempts = r.attempts - case when t.told = 'QUEUED' then 1 else 0 end,
          first_deferred_at = case when t.told = 'DEFERRED' then coalesce(t.first_deferred_at, now())
            else r.first_deferred_at end,
          retry_at = case when t.retry_at <= t.gives_up_at then t.retry_at end,
          updated_at = now()
        from timed t
        where r.ctid = t.row and r.epoch = ${send.epoch}
          and (r.state = 'SENDING' or (r.state = 'UNKNOWN' and (t.told in ('SENT', 'REJECTED')
            or (t.told <> 'UNKNOWN' and exists (
              select 1 from sends where id = ${send.sendId} and status in ('SENDING', 'PAUSED'))))))
        returning ${tells ? sql`r.*` : sql`r.state`}
      ), counted as (
        insert into delivery_days as d (team_id, environment, day, delivered)
        select ${send.teamId}, ${send.environment}, (now() at time zone 'UTC')::date, count(*)
        from settled where state = 'SENT' having count(*) > 0
        on conflict (team_id, environment, day) do update set delivered = d.delivered + excluded.delivered
      )${
        bounces
          ? sql`, barred as (
        insert into suppressions (id, team_id, environment, email, reason)
        select id, ${send.teamId}, ${send.environment}, email, 'bounce:hard'
        from unnest(${bounced.map(({ id }) => id)}::text[], ${bounced.map(({ email }) => email)}::text[]) as b (id, email)
        where ${mayRun}
        on conflict (team_id, environment, email) do nothing
        returning *
      )`
          : sql``
      }${tells ? tellAndCount(send, bounces) : sql` select state, count(*)::int as count from settled group by state`}`;
}

/** The rest of a settlement that tells: what its events are, and what it came to, in one row at least. */
function tellAndCount(send: SettlingSend, bounces: boolean): RawBuilder<unknown> {
  const mails = sql`
        select w.type, ${emailRecord("s", send, sql`s.state`)} as object
        from wanted w join settled s
          on w.type = case s.state when 'SENT' then 'email.sent' when 'REJECTED' then 'email.rejected' end`;
  const suppressions = sql`
        select w.type, ${suppressionRecord("b")} from wanted w cross join barred b where w.type = 'suppression.added'`;
  return sql`,
      wanted as materialized (${wantedTypes(send, SETTLEMENT_EVENTS)}),
      told as (${intoOutbox(send, bounces ? sql`${mails} union all ${suppressions}` : mails)} returning 1)
      select s.state, s.count, t.told from (select exists (select from told) as told) t
      left join (select state, count(*)::int as count from settled group by state) s on true`;
}

/** How often a settlement that fell short is made again; each time some other statement must have come between. */
const SETTLE_SHORT_TRIES = 3;

/**
 * Settles many outcomes at once, all of them that are still this attempt's to settle. `settleBatch` finds its rows by
 * their place, so one that another statement moves while it waits for that one's lock (the attempt was given up for dead
 * just now) is passed over, and its known outcome would be lost. That is rare, and seen by the count: then it looks for
 * them once more. A row that is settled already, or belongs to another attempt, is not touched by it.
 */
export async function settleOutcomes(...args: Parameters<typeof settleBatch>): Promise<StateCounts> {
  const [, , outcomes] = args;
  const counts: StateCounts = {};
  for (let tries = 1, missing = outcomes.length; ; tries++) {
    for (const [state, count] of Object.entries(await settleBatch(...args)) as [RecipientState, number][]) {
      counts[state] = (counts[state] ?? 0) + count;
      missing -= count;
    }
    if (missing <= 0 || tries === SETTLE_SHORT_TRIES) return counts;
  }
}

export interface UnknownRequeued {
  /** Rows that are queued again. */
  requeued: number;
  /** The first of them. */
  firstSeq: number | null;
  /** Milliseconds until every unknown row may be taken; nothing was taken while it is more than 0. */
  waitMs: number;
}

/**
 * Queues the recipients whose outcome is unknown once more, at an operator's wish: they may get the mail twice. All or
 * none: it waits until the last of them has been unknown for `settledForMs`, as long as a worker that was given up for
 * dead may still mail or settle what it has in hand. They are taken under a new epoch, so that no older attempt can
 * touch them. A send that had ended is SENDING again; its newsletter stays SENT, the end of its states, and its credits
 * stay settled: those of unknown mails are consumed already.
 */
export function requeueUnknown(em: EntityManager, sendId: string, settledForMs: number): Promise<UnknownRequeued> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select(["status", "epoch"])
      .where("id", "=", sendId)
      .where("status", "in", ["SENDING", "PAUSED", "SENT"])
      .forUpdate()
      .executeTakeFirst();
    const nothing: UnknownRequeued = { requeued: 0, firstSeq: null, waitMs: 0 };
    if (!send) return nothing;
    const { rows } = await sql<{ waitMs: number | null }>`
      select ceil(extract(epoch from max(updated_at) - clock_timestamp()) * 1000 + ${settledForMs}::int)::float8 as "waitMs"
      from send_recipients where send_id = ${sendId} and state = 'UNKNOWN'`.execute(db);
    const waitMs = rows[0]?.waitMs;
    if (waitMs === null || waitMs === undefined) return nothing;
    if (waitMs > 0) return { ...nothing, waitMs };
    const epoch = send.epoch + 1;
    const taken = await sql<{ requeued: number; firstSeq: number }>`
      with taken as (
        update send_recipients
        set state = 'QUEUED', epoch = ${epoch}, reason = null, first_deferred_at = null, updated_at = now()
        where send_id = ${sendId} and state = 'UNKNOWN' returning seq
      ) select count(*)::int as requeued, min(seq) as "firstSeq" from taken`.execute(db);
    await db
      .updateTable("sends")
      .set({ epoch })
      .$if(send.status === "SENT", (query) => query.set({ status: "SENDING", completed_at: null, review_until: null }))
      .where("id", "=", sendId)
      .execute();
    return { ...nothing, ...taken.rows[0] };
  });
}

/** What is left to do for a send. */
export interface Remaining {
  /** The first row that waits to be sent. */
  firstQueuedSeq: number | null;
  /** Milliseconds until the next deferred recipient is due, negative when it is already; null when none is deferred. */
  retryInMs: number | null;
}

/** Looks over the whole send for what is left; done once the queue seems empty. */
export async function remaining(em: EntityManager, sendId: string): Promise<Remaining> {
  const { rows } = await sql<Remaining>`
    select (select seq from send_recipients where send_id = ${sendId} and state = 'QUEUED' order by seq limit 1)
        as "firstQueuedSeq",
      (select ceil(extract(epoch from min(retry_at) - clock_timestamp()) * 1000)::float8
        from send_recipients where send_id = ${sendId} and retry_at is not null) as "retryInMs"`.execute(kysely(em));
  return rows[0] ?? { firstQueuedSeq: null, retryInMs: null };
}

/** How many recipients of a send are in each state. They add up to the plan's recipients, always. */
export async function countStates(em: EntityManager, sendId: string): Promise<StateCounts> {
  const rows = await kysely(em)
    .selectFrom("send_recipients")
    .select(["state", (eb) => eb.fn.countAll<string>().as("count")])
    .where("send_id", "=", sendId)
    .groupBy("state")
    .execute();
  return Object.fromEntries(rows.map(({ state, count }) => [state, Number(count)]));
}
