import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { finishSend } from "../../domain/sends/lifecycle.ts";
import { closeReview } from "../../domain/sends/review.ts";
import { credits, ledgerStates, makeSender, startSend } from "../support/sending.ts";

/** A send of three recipients that is SENDING and that no worker takes. */
async function sending() {
  const sender = await makeSender({ recipients: 3, credits: 3 });
  const db = kysely(sender.em);
  // Its workflow waits for tomorrow.
  await sql`update newsletters set send_days = array[(extract(isodow from now() at time zone 'UTC')::int % 7 + 1)]
    where id = ${sender.newsletterId}`.execute(db);
  const { data } = await startSend(sender);
  const sendId: string = data.id;
  await sql`update sends set status = 'SENDING' where id = ${sendId}`.execute(db);
  const setStates = (states: string[]) =>
    sql`update send_recipients r set state = s.state from unnest(${states}::text[]) with ordinality s (state, seq)
      where r.send_id = ${sendId} and r.seq = s.seq`.execute(db);
  return { sender, setStates, finish: () => finishSend(sender.em.fork(), sendId), sendId };
}

describe("The end of a send", () => {
  for (const open of ["QUEUED", "DEFERRED"]) {
    it(`waits for a recipient that a late attempt put back: ${open}`, async () => {
      const { sender, setStates, finish } = await sending();
      await setStates(["SENT", "SENT", open]);
      assert.equal((await finish()).status, "SENDING");
      assert.deepEqual(await credits(sender), { available: 0, reserved: 3, mismatch: false });
      assert.deepEqual(await ledgerStates(sender), { SENT: 2, [open]: 1 });

      await setStates(["SENT", "SENT", "REJECTED"]);
      const { status, sent } = await finish();
      assert.deepEqual({ status, sent }, { status: "SENT", sent: 2 });
      assert.deepEqual(await credits(sender), { available: 1, reserved: 0, mismatch: false });
    });
  }

  it("opens a review of unknown outcomes once: one that an operator closed stays closed", async () => {
    const { sender, setStates, finish, sendId } = await sending();
    await setStates(["SENT", "SENT", "UNKNOWN"]);
    assert.ok((await finish()).reviewMs > 0);
    assert.ok((await finish()).reviewMs > 0, "it is still open");
    await closeReview(sender.em.fork(), sendId);
    assert.deepEqual(await finish(), { status: "SENT", sent: 2, unknown: 1, cancelled: 0, reviewMs: 0 });
  });
});
