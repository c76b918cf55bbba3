import { type RawBuilder, sql } from "kysely";
import type { LedgerState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { PrunedBatch, Pruning, RetentionSettings, SendsOfRun } from "./pruning.ts";

/*
 * The ledger of a send that has ended loses its names and custom fields first, and much later its rows with their
 * responses. `sends.pruned_seq` is the last row of the batch before, so that no batch reads what earlier ones left
 * behind.
 */

const daysAgo = (days: number): RawBuilder<unknown> => sql`now() - make_interval(days => ${days}::int)`;

/** Rows after `after`, up to `upTo`. */
interface LedgerRange {
  sendId: string;
  after: number;
  upTo: number;
}

const inRange = ({ sendId, after, upTo }: LedgerRange) =>
  sql`send_id = ${sendId} and seq > ${after}::int and seq <= ${upTo}::int`;

interface Shortening {
  from: readonly LedgerState[];
  during: LedgerState;
  to: LedgerState;
  /** From day `since` after the end of the send on, and before day `before`. */
  days(settings: RetentionSettings): { since: number; before?: number };
  shorten(range: LedgerRange): RawBuilder<unknown>;
}

interface DueSend {
  id: string;
  ledger_state: LedgerState;
  pruned_seq: number;
}

/** Locks the send that has waited longest. Skips sends that another process shortens. */
async function takeFirst(
  em: EntityManager,
  { failed, taking }: SendsOfRun,
  condition: RawBuilder<unknown>,
): Promise<DueSend | undefined> {
  const { rows } = await sql<DueSend>`
    select id, ledger_state, pruned_seq from sends where ${condition} and id <> all(${failed}::text[])
    order by completed_at limit 1 for no key update skip locked`.execute(kysely(em));
  if (rows[0]) taking(rows[0].id);
  return rows[0];
}

function takeDue(
  em: EntityManager,
  sends: SendsOfRun,
  states: readonly LedgerState[],
  { since, before }: ReturnType<Shortening["days"]>,
): Promise<DueSend | undefined> {
  // Literals, so that Postgres uses the partial index of these states. A send under review stays complete.
  return takeFirst(
    em,
    sends,
    sql`ledger_state in (${sql.join(states.map((state) => sql.lit(state)))}) and completed_at < ${daysAgo(since)}
      ${before === undefined ? sql`` : sql`and completed_at >= ${daysAgo(before)}`}
      and ledger_state <> 'DELETED' and status in ('SENT', 'CANCELLED', 'FAILED') and settled_at is not null
      and (review_until is null or review_until < now())`,
  );
}

const moveTo = (em: EntityManager, id: string, state: LedgerState, prunedSeq: number) =>
  kysely(em).updateTable("sends").set({ ledger_state: state, pruned_seq: prunedSeq }).where("id", "=", id).execute();

const shortening = (name: string, { from, during, to, days, shorten }: Shortening): Pruning => ({
  name,
  async prune(em, rows, settings, sends): Promise<PrunedBatch> {
    const send = await takeDue(em, sends, from, days(settings));
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

const RESPONSES = ["mail_reports", "engagements", "marked_hits", "link_clicks"] as const;

const deleteResponses = (condition: RawBuilder<unknown>) =>
  RESPONSES.map((table) => sql`${sql.id(`from_${table}`)} as (delete from ${sql.table(table)} where ${condition})`);

/** By then a transaction has ended that saw a row of the ledger and may record a response to it. */
const SWEPT_AFTER = sql`interval '1 hour'`;

const sweep: Pruning = {
  name: "swept ledgers",
  async prune(em, _rows, _settings, sends) {
    const swept = sql`ledger_state = 'SWEEPING' and completed_at is not null and updated_at < now() - ${SWEPT_AFTER}`;
    const send = await takeFirst(em, sends, swept);
    if (!send) return { rows: 0, more: false };
    await sql`
      with ${sql.join(deleteResponses(sql`send_id = ${send.id}`))}
      delete from send_lanes where send_id = ${send.id}`.execute(kysely(em));
    await moveTo(em, send.id, "DELETED", 0);
    return { rows: 0, more: true };
  },
};

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
