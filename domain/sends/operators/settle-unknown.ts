import { parse } from "csv-parse/sync";
import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { ApiError } from "../../errors.ts";
import { readMailId } from "../../mail/message-id.ts";
import { type SettlementPolicy, settleOutcomes } from "../ledger/moves.ts";
import { NOT_SENT } from "../ledger/unknown.ts";
import { type FoundSend, refuseWithoutLedger } from "./inspection.ts";

/** What a relay's log says about a mail, as operators write it. */
const OUTCOMES = ["sent", "not_sent"] as const;
type KnownOutcome = (typeof OUTCOMES)[number];

/** Outcomes by the recipient's row in the ledger, its `seq`. */
export type KnownOutcomes = ReadonlyMap<number, KnownOutcome>;

const invalid = (message: string) => new ApiError("validation_failed", message);

/**
 * Reads outcomes from CSV, with or without a header row: in the first column a Message-ID or the row's number, in the last
 * one `sent` or `not_sent`. A line whose last column is empty is left out.
 * @throws {ApiError} `validation_failed`, with the line
 */
export function parseOutcomes(csv: string, sendId: string): KnownOutcomes {
  const outcomes = new Map<number, KnownOutcome>();
  const records: string[][] = parse(csv, {
    ...{ bom: true, relaxColumnCount: true, skipEmptyLines: true, trim: true },
    delimiter: [",", ";", "\t"],
    // Of lines that a tool has edited some end otherwise than the others.
    recordDelimiter: ["\r\n", "\n"],
  });
  for (const [at, record] of records.entries()) {
    const [key = ""] = record;
    const text = record.length > 1 ? record.at(-1) : "";
    const mail = /^\d+$/.test(key) ? { sendId, seq: Number(key) } : readMailId(key);
    if (text === "" || (at === 0 && mail === undefined)) continue;
    const outcome = OUTCOMES.find((known) => known === text?.toLowerCase());
    if (mail?.sendId !== sendId) throw invalid(`Record ${at + 1}: "${key}" is no Message-ID or row of ${sendId}.`);
    if (!outcome) throw invalid(`Record ${at + 1}: "${text}" is neither sent nor not_sent.`);
    if ((outcomes.get(mail.seq) ?? outcome) !== outcome) throw invalid(`Row ${mail.seq} is both sent and not_sent.`);
    outcomes.set(mail.seq, outcome);
  }
  if (outcomes.size === 0) throw invalid('No line ends with "sent" or "not_sent": fill in the last column.');
  return outcomes;
}

const ofSeqs = (seqs: readonly number[]) => sql<boolean>`seq = any(${[...seqs]}::int[])`;

const SENT = { outcome: "sent", reason: "accepted" } as const;
const NO_RETRIES: SettlementPolicy = {
  DEFERRAL_LADDER_SECONDS: [0],
  DEFERRAL_WINDOW_SECONDS: 0,
  SOFT_BOUNCES_TO_SUPPRESS: 0,
  SOFT_BOUNCE_WINDOW_DAYS: 0,
};

/** How many recipients were settled. `known`: their outcome was known already, and stays. */
export type UnknownSettled = Record<KnownOutcome | "known", number>;

/**
 * Records the outcomes of mails that are UNKNOWN, by an operator's word. Those that were `sent` become SENT: no command
 * mails them again. Those `not_sent` stay UNKNOWN, and `requeueUnknown` takes them alone.
 * @throws {ApiError} `validation_failed` for a row that the send does not have; `resource_state_invalid` when its recipients
 *   are kept no longer
 */
export function settleUnknown(em: EntityManager, found: FoundSend, outcomes: KnownOutcomes): Promise<UnknownSettled> {
  const { sendId } = found;
  return transaction(em, async (tx) => {
    const db = kysely(tx);
    await db.selectFrom("sends").select("id").where("id", "=", sendId).where(ofTenant(found)).forUpdate().execute();
    await refuseWithoutLedger(tx, found);
    const rows = await db
      .selectFrom("send_recipients")
      .select(["seq", "epoch", "state"])
      .where("send_id", "=", sendId)
      .where(ofSeqs([...outcomes.keys()]))
      .orderBy("seq")
      .forUpdate()
      .execute();
    const present = new Set(rows.map(({ seq }) => seq));
    const missing = [...outcomes.keys()].find((seq) => !present.has(seq));
    if (missing !== undefined) throw invalid(`${sendId} has no row ${missing}.`);
    const unknown = rows.filter(({ state }) => state === "UNKNOWN");
    const sent = unknown.filter(({ seq }) => outcomes.get(seq) === "sent");
    const notSent = unknown.filter(({ seq }) => outcomes.get(seq) === "not_sent");
    const byEpoch = Map.groupBy(sent, ({ epoch }) => epoch);
    for (const [epoch, items] of byEpoch) {
      const attempt = { ...found, accountId: "", epoch, shared: false, eventsWanted: true };
      const mails = items.map((item) => ({ item, outcome: SENT }));
      await settleOutcomes(tx, attempt, mails, NO_RETRIES);
    }
    const seqs = notSent.map(({ seq }) => seq);
    // `updated_at` stays: a resend waits as long as it would have without the operator's word.
    if (seqs.length > 0) {
      await db
        .updateTable("send_recipients")
        .set({ reason: NOT_SENT })
        .where("send_id", "=", sendId)
        .where(ofSeqs(seqs))
        .execute();
    }
    return { sent: sent.length, not_sent: seqs.length, known: rows.length - unknown.length };
  });
}
