import { type RawBuilder, sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { openLane } from "./lanes.ts";

export type StateCounts = Partial<Record<RecipientState, number>>;

interface Copy {
  sendId: string;
  accountIds: readonly string[];
  members: RawBuilder<unknown>;
  recipients: number;
}

const MOST_SORTED = 50_000;

/**
 * Copies the eligible members of a plan into the ledger and opens a lane for each account, in the transaction of the
 * confirm. `seq` follows the members' ids where they are few enough to be sorted.
 * @throws {Error} when the members are not as many as were planned
 */
export async function copyRecipients(
  em: EntityManager,
  { sendId, accountIds, members, recipients }: Copy,
): Promise<void> {
  // `permitted` alone would make a full join of the members a nested loop, see `selectSubscribers`.
  const order = sql.raw(recipients <= MOST_SORTED ? "order by id" : "");
  const { numAffectedRows: copied } = await sql`
    insert into send_recipients (send_id, seq, member_id, email, email_spelling, first_name, last_name, list_id, fields)
    select ${sendId}::text, (row_number() over (${order}))::int, id, email, email_spelling, first_name, last_name, list_id, fields
    from (${members}) members
    where coalesce(permitted, false) and not suppressed`.execute(kysely(em));
  if (Number(copied) !== recipients) throw new Error(`planned ${recipients} recipients, copied ${copied}`);
  for (const accountId of accountIds) await openLane(em, { sendId, accountId });
}

/** By the rows, all of them, for the settlement of credits. `readCounts` costs less. */
export async function countStates(em: EntityManager, sendId: string): Promise<StateCounts> {
  const rows = await kysely(em)
    .selectFrom("send_recipients")
    .select(["state", (eb) => eb.fn.countAll<string>().as("count")])
    .where("send_id", "=", sendId)
    .groupBy("state")
    .execute();
  return Object.fromEntries(rows.map(({ state, count }) => [state, Number(count)]));
}
