import { type RawBuilder, sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { openLane } from "./lanes.ts";

/** How many recipients are in each state; a state that is missing has none. */
export type StateCounts = Partial<Record<RecipientState, number>>;

interface Copy {
  sendId: string;
  /** The accounts that mail the send. */
  accountIds: readonly string[];
  /** Query for the plan's members, see `planMembers`. */
  members: RawBuilder<unknown>;
  /** How many of them are eligible. */
  recipients: number;
}

/**
 * Copies the eligible members of a plan into the ledger, QUEUED, and opens a lane for each account. Runs in the transaction of
 * the confirm.
 * @throws {Error} when the members are not as many as were planned
 */
export async function copyRecipients(
  em: EntityManager,
  { sendId, accountIds, members, recipients }: Copy,
): Promise<void> {
  const copied = await sql`
    insert into send_recipients (send_id, seq, member_id, email, email_spelling, first_name, last_name, list_id, fields)
    select ${sendId}, row_number() over (), id, email, email_spelling, first_name, last_name, list_id, fields
    from (${members}) members
    where permitted and not suppressed`.execute(kysely(em));
  if (Number(copied.numAffectedRows) !== recipients) {
    throw new Error(`planned ${recipients} recipients, copied ${copied.numAffectedRows}`);
  }
  for (const accountId of accountIds) await openLane(em, { sendId, accountId });
}

/**
 * How many recipients of a send are in each state, by its rows: reads all of them, for the settlement of credits.
 * `readCounts` costs less. They add up to the plan's recipients, always.
 */
export async function countStates(em: EntityManager, sendId: string): Promise<StateCounts> {
  const rows = await kysely(em)
    .selectFrom("send_recipients")
    .select(["state", (eb) => eb.fn.countAll<string>().as("count")])
    .where("send_id", "=", sendId)
    .groupBy("state")
    .execute();
  return Object.fromEntries(rows.map(({ state, count }) => [state, Number(count)]));
}
