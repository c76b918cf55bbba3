import { type Expression, type RawBuilder, type SqlBool, sql } from "kysely";
import type { RefusalRun } from "../../../db/entities/account.ts";
import type { SendStatus } from "../../../db/entities/send.ts";
import type { TrackingMode } from "../../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import type { EventName } from "../../webhooks/catalogue.ts";
import { isWanted } from "../../webhooks/emit.ts";
import { complaintLimit, complaintRate } from "../complaint-rate.ts";
import type { MailingRules, SendResource } from "../resource.ts";
import { foldCounts } from "./counts.ts";
import { markUnknown } from "./unknown.ts";

/**
 * SQL: a send under way may mail over an account in ERROR, because a mail that its server takes makes it ACTIVE again.
 * @param accounts alias of `email_accounts`
 */
export const mayMail = (accounts: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${accounts}.status`)} in ('ACTIVE', 'ERROR'))`;

/** One account's part in a send: a newsletter's send has one lane, a campaign's one for each of its accounts. */
export interface Lane {
  sendId: string;
  accountId: string;
  /** Accounts of other lanes that cannot mail their recipients: it may take those. */
  takesOver?: readonly string[] | undefined;
}

/** What is known of the attempts of a lane. `closedEpoch`: of the last one that ended in order. */
interface KnownAttempts {
  closedEpoch?: number | undefined;
  begun?: AttemptProgress | undefined;
}

/** An attempt under way, and a recipient that it has staged. */
export type AttemptProgress = Record<"epoch" | "seq", number>;

/** An attempt to dispatch a lane, begun by `openDispatch`. */
export interface OpenedDispatch extends Lane, Tenant {
  status: SendStatus;
  epoch: number;
  resource: SendResource;
  rules: MailingRules;
  /** Whose opens and clicks are counted. */
  tracking: TrackingMode;
  /** Other lanes stage recipients of the same send. */
  shared: boolean;
  /** Recipients up to and including this `seq` were staged; some of them may be QUEUED again. */
  afterSeq: number;
  refusals: RefusalRun | null;
  /** The account has had mail accepted in this send. */
  hasAccepted: boolean;
  /** An operator said that recipients whose mailbox is called unknown are gone. */
  areGone: boolean;
  /** Of a sequence. */
  isWave: boolean;
  eventsWanted: boolean;
  hasComplaints: boolean;
  /** Rows that an earlier attempt left SENDING when it died: UNKNOWN now. */
  unknown: number;
}

type LaneRow = Omit<OpenedDispatch, keyof Lane | "resource" | "eventsWanted" | "hasComplaints" | "unknown"> &
  SendResource & { dispatching: boolean; complaintLimit: number };

export const SETTLEMENT_EVENTS = ["email.sent", "email.rejected", "suppression.added"] as const satisfies EventName[];

/** The condition on a ledger row that a lane may take it: no other lane holds it, or one that it takes over. */
export const isFreeFor = ({ accountId, takesOver = [] }: Lane, table: string): Expression<SqlBool> => {
  const account = sql.ref(`${table}.account_id`);
  return sql<SqlBool>`(${account} is null or ${account} = any(${[accountId, ...takesOver]}::text[]))`;
};

/** SQL, as the next one: of a row of `sends s`. */
export const laneAccounts = sql<string[]>`array(
  select account_id from send_lanes where send_id = s.id order by account_id)`;

/**
 * The epoch of each lane's last attempt that ended in order, by account. It never falls, unless Postgres lost commits.
 */
export const closedEpochs = sql<Record<string, number>>`(
  select coalesce(json_object_agg(account_id, epoch - dispatching::int), '{}') from send_lanes where send_id = s.id)`;

/**
 * Begins an attempt of a lane: raises its epoch, so that an older one that still lives stages nothing more, and turns
 * the rows that a dead one left SENDING into UNKNOWN. Locks come in the order of every other statement: the send, its
 * lanes, its recipients.
 * @param inFlightMs how long after a row was staged this process may still mail it or learn its outcome
 * @returns undefined without such a lane, or when Postgres does not know all of the attempts `closedEpoch` and `begun`:
 *   recipients that had their mail may be queued again
 */
export function openDispatch(
  em: EntityManager,
  { sendId, accountId, takesOver, closedEpoch = 0, begun }: Lane & KnownAttempts,
  inFlightMs: number,
): Promise<OpenedDispatch | undefined> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const { rows } = await sql<LaneRow>`
      select s.team_id as "teamId", s.environment, s.status, s.resource_type as type, s.resource_id as id,
        case when s.list_id is null then s.resource_type else 'list_sequence' end as rules, s.tracking,
        ${complaintLimit} as "complaintLimit",
        s.step_version_id is not null as "isWave",
        l.epoch, l.dispatching, l.after_seq as "afterSeq", l.has_accepted as "hasAccepted", l.are_gone as "areGone",
        (select a.refusals from email_accounts a
          where a.id = l.account_id and a.team_id = s.team_id and a.environment = s.environment) as refusals,
        exists (select 1 from send_lanes o where o.send_id = s.id and o.account_id <> l.account_id) as shared
      from sends s join send_lanes l on l.send_id = s.id and l.account_id = ${accountId}
      where s.id = ${sendId}
      for share of s for update of l`.execute(db);
    const [lane] = rows;
    if (!lane || lane.epoch - Number(lane.dispatching) < closedEpoch) return undefined;
    if (begun && (lane.epoch < begun.epoch || (await isStagingLost(tx, sendId, [begun.seq])))) return undefined;
    const { type, id, dispatching, complaintLimit: limit, ...opened } = lane;
    const { eventsWanted, hasComplaints } = await db
      .selectNoFrom([
        isWanted(lane, ...SETTLEMENT_EVENTS).as("eventsWanted"),
        sql<boolean>`${complaintRate(lane)} >= ${limit}::float8`.as("hasComplaints"),
      ])
      .executeTakeFirstOrThrow();
    // The scan walks the whole send, so it is done only when an attempt did not end in order.
    const unknown = dispatching ? await markUnknown(tx, sendId, [accountId]) : 0;
    const epoch = lane.epoch + 1;
    await db
      .updateTable("send_lanes")
      .set({
        epoch,
        dispatching: lane.status === "SENDING",
        in_flight_ms: sql<number>`greatest(in_flight_ms, ${inFlightMs}::int)`,
      })
      .where("send_id", "=", sendId)
      .where("account_id", "=", accountId)
      .execute();
    const found = { epoch, resource: { type, id }, eventsWanted, hasComplaints, unknown };
    return { ...opened, sendId, accountId, takesOver, ...found };
  });
}

/** Whether Postgres shows a recipient that was staged as one that never was: it has lost that commit. */
export async function isStagingLost(em: EntityManager, sendId: string, seqs: readonly number[]): Promise<boolean> {
  const { rows } = await sql<{ lost: boolean }>`select exists (
    select from send_recipients where send_id = ${sendId} and seq = any(${[...seqs]}::int[]) and epoch = 0) as lost`.execute(
    kysely(em),
  );
  return rows[0]?.lost ?? false;
}

/**
 * Ends an attempt whose rows all have their outcomes; by default where it began. Does nothing when another attempt took
 * over, or when Postgres lost a part of this one.
 */
export async function closeDispatch(
  em: EntityManager,
  dispatch: OpenedDispatch,
  { afterSeq, hasAccepted }: Pick<OpenedDispatch, "afterSeq" | "hasAccepted"> = dispatch,
): Promise<void> {
  await kysely(em)
    .updateTable("send_lanes")
    .set({ dispatching: false, after_seq: afterSeq, has_accepted: hasAccepted })
    .where("send_id", "=", dispatch.sendId)
    .where("account_id", "=", dispatch.accountId)
    .where("epoch", "=", dispatch.epoch)
    .where("after_seq", "=", dispatch.afterSeq)
    .execute();
  await foldCounts(em, dispatch.sendId);
}

/**
 * Ends the attempts of a send that are presumed dead, unless it is SENDING: another attempt does it then.
 * @returns how many recipients became UNKNOWN
 */
export function closeLost(em: EntityManager, sendId: string): Promise<number> {
  return transaction(em, async (tx) => {
    // The send's lock comes first: its status must not change while its lanes are closed.
    const { rows: ended } = await sql`
      select 1 from sends where id = ${sendId} and status <> 'SENDING' for share`.execute(kysely(tx));
    return ended.length === 0 ? 0 : closeAttempts(tx, sendId);
  });
}

/** Ends open attempts that are presumed dead, under a lock on the send. @returns how many recipients became UNKNOWN */
export async function closeAttempts(em: EntityManager, sendId: string): Promise<number> {
  const lost = await kysely(em)
    .updateTable("send_lanes")
    .set(({ eb }) => ({ epoch: eb("epoch", "+", 1), dispatching: false }))
    .where("send_id", "=", sendId)
    .where("dispatching", "=", true)
    .returning("account_id")
    .execute();
  if (lost.length === 0) return 0;
  const accountIds = lost.map(({ account_id }) => account_id);
  return markUnknown(em, sendId, accountIds);
}

/** The deferred recipients that the lane may take and that have been due longest, in the order of the ledger. */
export async function readDueRecipients(em: EntityManager, lane: Lane, limit: number): Promise<number[]> {
  const { rows } = await sql<{ seq: number }>`
    select r.seq from send_recipients r
    where r.send_id = ${lane.sendId} and r.retry_at <= now() and r.state = 'DEFERRED' and ${isFreeFor(lane, "r")}
    order by r.retry_at limit ${limit}`.execute(kysely(em));
  return rows.map(({ seq }) => seq).sort((a, b) => a - b);
}

export const ACCOUNT_NOT_ACTIVE = { next: "failure", reason: "account_not_active", temporary: false } as const;

/** What a lane whose queue seems empty does next. */
type Remaining =
  | { next: "stopped" }
  | typeof ACCOUNT_NOT_ACTIVE
  | { next: "continue"; afterSeq: number }
  /** Milliseconds until the next deferred recipients are due; negative when they are due already. */
  | { next: "deferred"; waitMs: number }
  /** `held`: other lanes keep recipients that they deferred, due or not. */
  | { next: "done"; held?: true };

/**
 * Looks for recipients that are left to the lane, when its queue seems empty. The ledger is searched only when the
 * counts know of a QUEUED row: one was put back behind the cursor.
 * @param gatherMs so long after the first one another may be due, and one slice mails both
 */
export async function readRemaining(em: EntityManager, dispatch: OpenedDispatch, gatherMs: number): Promise<Remaining> {
  const { sendId, accountId, epoch } = dispatch;
  const db = kysely(em);
  const { rows: lanes } = await sql<{ live: boolean; active: boolean; queued: number }>`
    select s.status = 'SENDING' and l.epoch = ${epoch} as live, coalesce(${mayMail("a")}, false) as active,
      s.recipients + coalesce((
        select sum(c.count) from send_counts c where c.send_id = s.id and c.state = 'QUEUED'), 0)::int as queued
    from sends s join send_lanes l on l.send_id = s.id and l.account_id = ${accountId}
    left join email_accounts a on a.id = l.account_id and ${ofTenant(dispatch, "a")}
    where s.id = ${sendId} and ${ofTenant(dispatch, "s")}`.execute(db);
  if (!lanes[0]?.live) return { next: "stopped" };
  if (!lanes[0].active) return ACCOUNT_NOT_ACTIVE;
  if (lanes[0].queued > 0) {
    const { rows } = await sql<{ seq: number }>`
      select r.seq from send_recipients r where r.send_id = ${sendId} and r.state = 'QUEUED' and ${isFreeFor(dispatch, "r")}
      order by r.seq limit 1`.execute(db);
    if (rows[0]) return { next: "continue", afterSeq: rows[0].seq - 1 };
  }
  const { rows } = await sql<{ waitMs: number | null; held: boolean }>`
    select (
        select ceil(extract(epoch from max(r.retry_at) - clock_timestamp()) * 1000)::float8 from send_recipients r
        where r.send_id = ${sendId} and ${isFreeFor(dispatch, "r")} and r.retry_at <= (
          select min(f.retry_at) + make_interval(secs => ${gatherMs / 1000}::float8) from send_recipients f
          where f.send_id = ${sendId} and f.retry_at is not null and ${isFreeFor(dispatch, "f")})
      ) as "waitMs",
      exists (
        select 1 from send_recipients r
        where r.send_id = ${sendId} and r.retry_at is not null and not ${isFreeFor(dispatch, "r")}) as held`.execute(
    db,
  );
  const { waitMs, held } = rows[0] ?? { waitMs: null, held: false };
  if (waitMs !== null) return { next: "deferred", waitMs };
  return { next: "done", ...(held && { held }) };
}
