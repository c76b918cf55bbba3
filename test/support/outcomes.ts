import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { type AnySender, caughtMails, idOf, tableOf } from "./sending.ts";

/** A recipient's state in the ledger, and how often the send's mail reached them. */
export interface Outcome {
  email: string;
  state: RecipientState;
  attempts: number;
  caught: number;
}

/** @throws {Error} when an address that is no recipient got its mail */
export async function outcomesOf(sender: AnySender): Promise<Outcome[]> {
  const { rows } = await sql<Omit<Outcome, "caught"> & { send: string }>`
    select r.send_id as send, r.email, r.state, r.attempts::int as attempts
    from send_recipients r join ${tableOf(sender)} n on n.send_id = r.send_id
    where n.id = ${idOf(sender)} order by r.seq`.execute(kysely(sender.em.fork()));
  const outcomes = new Map(rows.map(({ send, ...row }) => [row.email, { ...row, caught: 0 }]));
  // A team may have several sends to the same people.
  const mine = (await caughtMails(sender)).filter(({ messageId }) => messageId.includes(`.${rows[0]?.send}@`));
  for (const address of mine.flatMap(({ to }) => to)) {
    const outcome = outcomes.get(address);
    if (!outcome) throw new Error(`${address} is no recipient and was mailed`);
    outcome.caught++;
  }
  return [...outcomes.values()];
}
