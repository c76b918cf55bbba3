import { sql } from "kysely";
import type { SendStatus } from "../../db/entities/send.ts";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { isAccountFailure, recordAccountFailure } from "../accounts.ts";
import { consumeCredits, releaseCredits } from "../credits.ts";
import type { EventName } from "../webhooks/catalogue.ts";
import { emit } from "../webhooks/emit.ts";
import { newsletterRow } from "../webhooks/records.ts";
import { countStates } from "./ledger.ts";
import { openReview } from "./review.ts";

/** Statuses a send never leaves. */
export const TERMINAL: ReadonlySet<SendStatus> = new Set(["SENT", "CANCELLED", "FAILED"]);

export interface SendState {
  status: SendStatus;
  /** Milliseconds until it may start, by the database clock; 0 or less when it may. */
  startsInMs: number;
  recipients: number;
  /** A code of what paused it; null when an operator did. */
  trouble: string | null;
}

/** Where a send stands. @returns undefined when it was never confirmed */
export async function readSend(em: EntityManager, sendId: string): Promise<SendState | undefined> {
  const row = await kysely(em)
    .selectFrom("sends")
    .select(["status", "recipients", "trouble"])
    .select(sql<number>`(extract(epoch from send_at - clock_timestamp()) * 1000)::float8`.as("starts_in_ms"))
    .where("id", "=", sendId)
    .executeTakeFirst();
  return (
    row && {
      status: row.status,
      startsInMs: Math.ceil(row.starts_in_ms),
      recipients: row.recipients,
      trouble: row.trouble,
    }
  );
}

interface Move {
  from: readonly SendStatus[];
  to: SendStatus;
  trouble?: string | null;
}

/**
 * Takes a send, and its newsletter with it, from one of `from` to `to`. Being there already is a success, and no event.
 * A newsletter that was SENT stays so: what is done with its unknown recipients afterwards is the send's matter alone.
 * @returns whether the send stands at `to` now
 */
async function move(em: EntityManager, sendId: string, { from, to, trouble = null }: Move): Promise<boolean> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const before = await db
      .selectFrom("sends")
      .select(["status", "started_at"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirst();
    if (!before || ![...from, to].includes(before.status)) return false;
    const moved = await db
      .updateTable("sends")
      .set({ status: to, trouble })
      .$if(to === "SENDING", (query) => query.set({ started_at: sql<string>`coalesce(started_at, now())` }))
      .$if(TERMINAL.has(to), (query) => query.set({ completed_at: sql<string>`coalesce(completed_at, now())` }))
      .where("id", "=", sendId)
      .returning(["team_id", "environment", "resource_id", "account_id", "started_at", "completed_at"])
      .executeTakeFirstOrThrow();
    const tenant = { teamId: moved.team_id, environment: moved.environment };
    if (trouble !== null && isAccountFailure(trouble))
      await recordAccountFailure(tx, tenant, moved.account_id, trouble);
    const newsletter = await db
      .updateTable("newsletters")
      .set({ status: to, started_at: moved.started_at, completed_at: moved.completed_at })
      .where("id", "=", moved.resource_id)
      .where("send_id", "=", sendId)
      .where("status", "<>", "SENT")
      .executeTakeFirst();
    const event = before.status === to ? undefined : eventOf(to, before.started_at === null);
    if (event && newsletter.numUpdatedRows > 0n) await emit(tx, tenant, event, newsletterRow(moved.resource_id));
    return true;
  });
}

/** What subscribers hear of a newsletter whose send comes to a status. A resume is no event. */
function eventOf(to: SendStatus, firstStart: boolean): (EventName & `newsletter.${string}`) | undefined {
  switch (to) {
    case "SENDING":
      return firstStart ? "newsletter.started" : undefined;
    case "PAUSED":
      return "newsletter.paused";
    case "SENT":
    case "FAILED":
      return "newsletter.completed";
    case "CANCELLED":
      return "newsletter.cancelled";
    case "SCHEDULED":
      return undefined;
  }
}

/** SCHEDULED to SENDING, once its time has come by the database clock. */
export async function beginSend(em: EntityManager, sendId: string): Promise<boolean> {
  return move(em, sendId, { from: ["SCHEDULED"], to: "SENDING" });
}

/** @param trouble a code when it was not an operator's wish, e.g. `login_refused` */
export function pauseSend(em: EntityManager, sendId: string, trouble: string | null = null): Promise<boolean> {
  return move(em, sendId, { from: ["SCHEDULED", "SENDING"], to: "PAUSED", trouble });
}

/** PAUSED to SENDING, or to SCHEDULED when its time has not come. */
export async function resumeSend(em: EntityManager, sendId: string): Promise<boolean> {
  const send = await readSend(em, sendId);
  return move(em, sendId, { from: ["PAUSED"], to: send && send.startsInMs > 0 ? "SCHEDULED" : "SENDING" });
}

/**
 * Stops a send for good; what it has in hand is still finished, see `finishSend`. One that had ended and mails its
 * unknown recipients again is SENT as before.
 */
export function cancelSend(em: EntityManager, sendId: string): Promise<boolean> {
  return transaction(em, async (tx) => {
    const send = await kysely(tx)
      .selectFrom("sends")
      .select(["status", "settled_at"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirst();
    if (send?.status === "SENT") return false;
    const to = send?.settled_at ? "SENT" : "CANCELLED";
    return move(tx, sendId, { from: ["SCHEDULED", "SENDING", "PAUSED"], to });
  });
}

export interface SettledSend {
  environment: Environment;
  status: SendStatus;
  /** Mails accepted by a server. */
  sent: number;
  unknown: number;
  /** Milliseconds for which an operator may decide about the unknown ones; 0 when there is nothing to decide. */
  reviewMs: number;
  /** Recipients that became CANCELLED by this very call. */
  cancelled: number;
}

/**
 * Ends a send: what is still queued or deferred of a cancelled one becomes CANCELLED, credits of mail that was accepted
 * or may have been (SENT, UNKNOWN) are consumed and all others released, once, and the status becomes SENT, or FAILED
 * when nothing went out. One that had ended and then mailed its unknown recipients again ends SENT as before; those it
 * did not come to are unknown again.
 */
export function finishSend(em: EntityManager, sendId: string): Promise<SettledSend> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select(["team_id as teamId", "environment", "status", "credits_reserved", "settled_at"])
      .where("id", "=", sendId)
      .forUpdate()
      .executeTakeFirstOrThrow();
    const settled = send.settled_at !== null;
    let cancelled = 0;
    if (send.status === "CANCELLED" || send.status === "SENT") {
      const ended = await db
        .updateTable("send_recipients")
        .set({
          state: send.status === "SENT" ? "UNKNOWN" : "CANCELLED",
          retry_at: null,
          updated_at: sql<string>`now()`,
        })
        .where("send_id", "=", sendId)
        .where("state", "in", ["QUEUED", "DEFERRED"])
        .executeTakeFirst();
      if (send.status === "CANCELLED") cancelled = Number(ended.numUpdatedRows);
    }
    const { SENT: sent = 0, UNKNOWN: unknown = 0 } = await countStates(tx, sendId);
    const status = TERMINAL.has(send.status) ? send.status : settled || sent + unknown > 0 ? "SENT" : "FAILED";
    if (!settled) {
      const used = sent + unknown;
      await consumeCredits(tx, send, sendId, used, "settle");
      await releaseCredits(tx, send, sendId, send.credits_reserved - used, "settle");
      await db.updateTable("sends").set({ settled_at: sql<string>`now()` }).where("id", "=", sendId).execute();
    }
    if (status !== send.status) await move(tx, sendId, { from: [send.status], to: status });
    const reviewMs = await openReview(tx, sendId, status === "SENT" ? unknown : 0);
    return { environment: send.environment, status, sent, unknown, reviewMs, cancelled };
  });
}
