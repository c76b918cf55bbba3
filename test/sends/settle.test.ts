import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { type MailedRecipient, settleOutcomes } from "../../domain/sends/settlement.ts";
import { eventually } from "../support/eventually.ts";
import { ledgerStates, makeSender, type Sender, startSend } from "../support/sending.ts";

const POLICY = { ladderSeconds: [60], windowSeconds: 3_600 };
const EPOCH = 7;

/** A send with three mails in flight of an attempt that no worker makes. */
async function inFlight(): Promise<{
  sender: Sender;
  sendId: string;
  settle: () => ReturnType<typeof settleOutcomes>;
}> {
  const sender = await makeSender({ recipients: 3 });
  const db = kysely(sender.em);
  // Tomorrow, so that no worker takes it.
  await sql`update newsletters set send_days = array[(extract(isodow from now() at time zone 'UTC')::int % 7 + 1)]
    where id = ${sender.newsletterId}`.execute(db);
  const { data } = await startSend(sender);
  const sendId: string = data.id;
  await sql`update send_recipients set state = 'SENDING', epoch = ${EPOCH}, account_id = ${sender.accountId}
    where send_id = ${sendId}`.execute(db);
  const outcomes = [1, 2, 3].map(
    (seq): MailedRecipient => ({
      item: { seq },
      outcome: { outcome: "sent", reason: "accepted" },
    }),
  );
  const send = {
    teamId: sender.team.id,
    environment: "LIVE" as const,
    sendId,
    accountId: sender.accountId,
    resource: { type: "newsletter" as const, id: sender.newsletterId },
    epoch: EPOCH,
    shared: false,
    eventsWanted: false,
  };
  return { sender, sendId, settle: () => settleOutcomes(sender.em.fork(), send, outcomes, POLICY) };
}

/** Changes an attempt's rows in a transaction of its own, and lets the settlement wait for its lock before it commits. */
async function changeDuring<T>({ em }: Sender, set: ReturnType<typeof sql>, settle: () => Promise<T>): Promise<T> {
  const [result] = await em.fork().transactional(async (tx) => {
    await set.execute(kysely(tx));
    const settling = settle();
    await eventually(
      async () => {
        const { rows } = await sql`select 1 from pg_stat_activity where datname = current_database()
          and wait_event_type = 'Lock' and query like '%with outcome as (%'`.execute(kysely(em.fork()));
        return rows.length > 0;
      },
      { what: "the settlement at the lock" },
    );
    // In a box: the transaction must not wait for it.
    return [settling];
  });
  return result as T;
}

describe("A settlement", () => {
  it("records its outcomes although its attempt is presumed dead meanwhile", async () => {
    const { sender, sendId, settle } = await inFlight();
    const lost = sql`update send_recipients set state = 'UNKNOWN', reason = 'worker_lost', updated_at = now()
      where send_id = ${sendId} and state = 'SENDING'`;
    assert.deepEqual(await changeDuring(sender, lost, settle), { SENT: 3 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 3 });
    assert.deepEqual(await settle(), {}, "once");
  });

  it("does not touch rows that another attempt has taken meanwhile", async () => {
    const { sender, sendId, settle } = await inFlight();
    const taken = sql`update send_recipients set state = 'QUEUED', epoch = ${EPOCH + 1} where send_id = ${sendId}`;
    assert.deepEqual(await changeDuring(sender, taken, settle), {});
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 3 });
  });
});
