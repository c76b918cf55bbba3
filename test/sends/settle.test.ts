import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import { type MailedRecipient, settleOutcomes } from "../../domain/sends/settlement.ts";
import { recordedKinds } from "../reports/mails.ts";
import { eventually } from "../support/eventually.ts";
import { ledgerStates, makeSender, type Sender, startSend } from "../support/sending.ts";

const POLICY = {
  ladderSeconds: [60],
  windowSeconds: 3_600,
  softBounces: { SOFT_BOUNCES_TO_SUPPRESS: 2, SOFT_BOUNCE_WINDOW_DAYS: 30 },
};
const EPOCH = 7;

/** A send with three mails in flight of an attempt that no worker makes. */
async function inFlight(outcome: MailOutcome = { outcome: "sent", reason: "accepted" }): Promise<{
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
  const outcomes = [1, 2, 3].map((seq): MailedRecipient => ({ item: { seq }, outcome }));
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

  it("counts a refused recipient once, and not for another attempt", async () => {
    const { sender, sendId, settle } = await inFlight({
      outcome: "rejected",
      reason: "mailbox_full",
      ...{ suppress: false, policy: false, code: 552, enhanced: "5.2.2", response: "552 5.2.2 Mailbox full" },
    });
    const setRows = (set: ReturnType<typeof sql>) =>
      sql`update send_recipients set ${set} where send_id = ${sendId}`.execute(kysely(sender.em.fork()));
    await setRows(sql`state = 'REJECTED', epoch = ${EPOCH + 1}`);
    assert.deepEqual(await settle(), {});
    assert.deepEqual(await recordedKinds(sender, sendId), []);
    await setRows(sql`state = 'SENDING', epoch = ${EPOCH}`);
    assert.deepEqual([await settle(), await settle()], [{ REJECTED: 3 }, {}]);
    assert.deepEqual(
      await recordedKinds(sender, sendId),
      [1, 2, 3].map((seq) => `${seq} refusal:soft`),
    );
  });

  it("does not touch rows that another attempt has taken meanwhile", async () => {
    const { sender, sendId, settle } = await inFlight();
    const taken = sql`update send_recipients set state = 'QUEUED', epoch = ${EPOCH + 1} where send_id = ${sendId}`;
    assert.deepEqual(await changeDuring(sender, taken, settle), {});
    assert.deepEqual(await ledgerStates(sender), { QUEUED: 3 });
  });
});
