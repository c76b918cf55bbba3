import { sql } from "kysely";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";

/**
 * Turns the rows that dead attempts of these accounts, or of all, left SENDING into UNKNOWN. Call it under a new epoch
 * of their lanes.
 */
export async function markUnknown(em: EntityManager, sendId: string, accountIds?: readonly string[]): Promise<number> {
  const lost = await kysely(em)
    .updateTable("send_recipients")
    .set({ state: "UNKNOWN", reason: "worker_lost", updated_at: sql<string>`now()` })
    .where("send_id", "=", sendId)
    .where("state", "=", "SENDING")
    .$if(accountIds !== undefined, (query) =>
      query.where((eb) => eb.or([eb("account_id", "is", null), eb("account_id", "in", accountIds ?? [])])),
    )
    .executeTakeFirst();
  return Number(lost.numUpdatedRows);
}

/** How long after a row was staged a process may still mail it or learn its outcome, by all attempts of a send. */
export async function readInFlightMs(em: EntityManager, sendId: string): Promise<number> {
  const { ms } = await kysely(em)
    .selectFrom("send_lanes")
    .select((eb) => eb.fn.max("in_flight_ms").as("ms"))
    .where("send_id", "=", sendId)
    .executeTakeFirstOrThrow();
  return ms;
}

/** The reason of an UNKNOWN row whose mail did not leave, by an operator's word. */
export const NOT_SENT = "not_sent";

export interface UnknownRequeued {
  requeued: number;
  /** Until every unknown row may be taken; nothing was taken while it is more than 0. */
  waitMs: number;
}

/**
 * Queues the recipients whose outcome is unknown once more, at an operator's command: those settled as `not_sent`, or
 * where there is none all, who may get the mail twice. It waits until no worker that is presumed dead can mail or settle
 * them, then takes them under new epochs. A send that had ended is SENDING again; its newsletter stays SENT and its credits
 * stay settled.
 */
export function requeueUnknown(em: EntityManager, sendId: string): Promise<UnknownRequeued> {
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    const send = await db
      .selectFrom("sends")
      .select("status")
      .where("id", "=", sendId)
      .where("status", "in", ["SENDING", "PAUSED", "SENT"])
      // Without their names and fields recipients would get another mail than the one that was previewed.
      .where("ledger_state", "=", "COMPLETE")
      .forUpdate()
      .executeTakeFirst();
    const nothing: UnknownRequeued = { requeued: 0, waitMs: 0 };
    if (!send) return nothing;
    const isUnknown = sql`send_id = ${sendId} and state = 'UNKNOWN' and not responded`;
    const isTaken = sql`${isUnknown} and (reason = ${NOT_SENT} or not exists (
      select from send_recipients where ${isUnknown} and reason = ${NOT_SENT}))`;
    const { rows: waits } = await sql<{ waitMs: number | null }>`
      select ceil(extract(epoch from max(updated_at) - clock_timestamp()) * 1000
        + ${await readInFlightMs(tx, sendId)}::int)::float8 as "waitMs"
      from send_recipients where ${isTaken}`.execute(db);
    const waitMs = waits[0]?.waitMs;
    if (waitMs === null || waitMs === undefined) return nothing;
    if (waitMs > 0) return { ...nothing, waitMs };
    // Lanes before recipients, as everywhere: this waits for an attempt that is staging.
    await sql`update send_lanes set epoch = epoch + 1 where send_id = ${sendId}`.execute(db);
    const { rows } = await sql<{ requeued: number }>`
      with taken as (
        update send_recipients
        set state = 'QUEUED', account_id = null, first_deferred_at = null, updated_at = now(),
          -- It is UNKNOWN again if the resend is cancelled.
          reason = case when reason = ${NOT_SENT} then reason end
        where ${isTaken} returning seq
      ), set_back as (
        update send_lanes l set after_seq = least(l.after_seq, (select min(seq) from taken) - 1)
        where l.send_id = ${sendId}
      )
      select count(*)::int as requeued from taken`.execute(db);
    if (send.status === "SENT") {
      await db
        .updateTable("sends")
        .set({ status: "SENDING", completed_at: null, review_until: null })
        .where("id", "=", sendId)
        .execute();
    }
    return { ...nothing, ...rows[0] };
  });
}
