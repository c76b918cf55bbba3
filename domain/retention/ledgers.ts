import { type RawBuilder, sql } from "kysely";
import type { LedgerState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { daysAgo } from "./expired.ts";
import type { PrunedBatch, Pruning, RetentionSettings } from "./pruning.ts";

/*
 * The ledger of a send that has ended loses its names and custom fields first, and much later its rows, with their bounces,
 * complaints, opens and clicks. The rows are walked by their `seq`: `sends.pruned_seq` is the last row of the batch before, so
 * that no batch reads what earlier ones have left behind. The figures of analytics and the counts of the send stay.
 */

/** A range of a ledger's rows: behind `after`, up to `upTo`. */
interface Range {
  sendId: string;
  after: number;
  upTo: number;
}

const inRange = ({ sendId, after, upTo }: Range) =>
  sql`send_id = ${sendId} and seq > ${after}::int and seq <= ${upTo}::int`;

/** A way of shortening ledgers, from one state to the next. */
interface Shortening {
  /** The states of the ledgers that it begins with. */
  from: readonly LedgerState[];
  /** The state while some rows are done. */
  during: LedgerState;
  /** The state afterwards. */
  to: LedgerState;
  /** Days after the end of the send: at least so many, and fewer than `before`, when the next way takes the ledger. */
  days(settings: RetentionSettings): { since: number; before?: number };
  /** The statement that changes a range. */
  shorten(range: Range): RawBuilder<unknown>;
}

interface DueSend {
  id: string;
  ledger_state: LedgerState;
  pruned_seq: number;
}

/** Locks a send whose ledger is due, the one first that ended first. One that another process shortens is left to it. */
async function takeDue(
  em: EntityManager,
  states: readonly LedgerState[],
  { since, before }: ReturnType<Shortening["days"]>,
): Promise<DueSend | undefined> {
  // Literals, so that the partial index of these states is found. Unknown outcomes may be mailed again until the review ends.
  const { rows } = await sql<DueSend>`
    select id, ledger_state, pruned_seq from sends
    where ledger_state in (${sql.join(states.map((state) => sql.lit(state)))}) and completed_at < ${daysAgo(since)}
      ${before === undefined ? sql`` : sql`and completed_at >= ${daysAgo(before)}`}
      and ledger_state <> 'DELETED' and status in ('SENT', 'CANCELLED', 'FAILED') and settled_at is not null
      and (review_until is null or review_until < now())
    order by completed_at limit 1 for no key update skip locked`.execute(kysely(em));
  return rows[0];
}

const moveTo = (em: EntityManager, id: string, state: LedgerState, prunedSeq: number) =>
  kysely(em).updateTable("sends").set({ ledger_state: state, pruned_seq: prunedSeq }).where("id", "=", id).execute();

const shortening = (name: string, { from, during, to, days, shorten }: Shortening): Pruning => ({
  name,
  async prune(em, rows, settings): Promise<PrunedBatch> {
    const send = await takeDue(em, from, days(settings));
    if (!send) return { rows: 0, more: false };
    const after = send.ledger_state === during ? send.pruned_seq : 0;
    const { rows: found } = await sql<{ last: number | null; count: number }>`
      select max(seq) as last, count(*)::int as count from (
        select seq from send_recipients where send_id = ${send.id} and seq > ${after}::int order by seq limit ${rows}
      ) r`.execute(kysely(em));
    const [{ last, count } = { last: null, count: 0 }] = found;
    if (last !== null) await shorten({ sendId: send.id, after, upTo: last }).execute(kysely(em));
    if (count < rows) await moveTo(em, send.id, to, 0);
    else await moveTo(em, send.id, during, last ?? 0);
    return { rows: count, more: true };
  },
});

/** The tables of a mail's responses, by the mail's row in the ledger. */
const RESPONSES = ["mail_reports", "engagements", "automatic_hits"] as const;

const deleteResponses = (condition: RawBuilder<unknown>) =>
  RESPONSES.map((table) => sql`${sql.id(`from_${table}`)} as (delete from ${sql.table(table)} where ${condition})`);

/**
 * A transaction that saw a row of the ledger may record a response after the row's deletion. By then it has ended: no
 * session has a longer time for a transaction's statements, see `STATEMENT_SECONDS` of db/pool.ts.
 */
const SWEPT_AFTER = sql`interval '1 hour'`;

/** Deletes the responses that came while their ledger was deleted, and the lanes, of the send that has waited longest. */
const sweep: Pruning = {
  name: "swept ledgers",
  async prune(em) {
    const { rows } = await sql`
      with due as (
        select id from sends where ledger_state = 'SWEEPING' and completed_at is not null and updated_at < now() - ${SWEPT_AFTER}
        order by completed_at limit 1 for no key update skip locked
      ), ${sql.join(deleteResponses(sql`send_id = (select id from due)`))},
      lanes as (delete from send_lanes where send_id = (select id from due))
      update sends s set ledger_state = 'DELETED' from due where s.id = due.id returning 1`.execute(kysely(em));
    return { rows: 0, more: rows.length > 0 };
  },
};

/** Prunings of the ledgers of sends that have ended. */
export const LEDGERS: readonly Pruning[] = [
  shortening("names in ledgers", {
    from: ["COMPLETE"],
    during: "COMPLETE",
    to: "NAMELESS",
    days: ({ LEDGER_NAMES_DAYS, LEDGER_DAYS }) => ({ since: LEDGER_NAMES_DAYS, before: LEDGER_DAYS }),
    shorten: (range) => sql`
      update send_recipients set first_name = null, last_name = null, fields = null
      where ${inRange(range)} and (first_name is not null or last_name is not null or fields is not null)`,
  }),
  shortening("ledgers", {
    from: ["COMPLETE", "NAMELESS", "DELETING"],
    during: "DELETING",
    to: "SWEEPING",
    days: ({ LEDGER_DAYS }) => ({ since: LEDGER_DAYS }),
    shorten: (range) => sql`
      with ${sql.join(deleteResponses(inRange(range)))}
      delete from send_recipients where ${inRange(range)}`,
  }),
  sweep,
];
