import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { openDispatch, readDue, readRemaining } from "../../domain/sends/lanes.ts";
import { settleOutcomes } from "../../domain/sends/settlement.ts";
import { stageBatch, unstageUnanswered } from "../../domain/sends/staging.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import { makeSender, startUntaken } from "../support/sending.ts";

const POLICY = { ladderSeconds: [60], windowSeconds: 3_600, softBounces: SOFT_BOUNCE_POLICY };

/** A send of so many recipients that is SENDING and that no worker takes, its lane, and a way to its rows. */
async function sending(recipients: number) {
  const sender = await makeSender({ recipients });
  const { accountId, em } = sender;
  const sendId = await startUntaken(sender);
  const lane = (await openDispatch(em.fork(), { sendId, accountId }, 40_000)) ?? assert.fail("there is no such lane");
  /** Makes the recipients whose `seq` is a multiple of `every` DEFERRED, each due a second after the one before. */
  const defer = (every: number, firstInSeconds: number) =>
    sql`update send_recipients set state = 'DEFERRED', attempts = 1, first_deferred_at = now() - interval '1 minute',
        retry_at = now() + make_interval(secs => ${firstInSeconds}::int + seq / ${every}::int - 1)
      where send_id = ${sendId} and seq % ${every} = 0`.execute(kysely(em));
  const set = (state: RecipientState) =>
    sql`update send_recipients set state = ${state} where send_id = ${sendId}`.execute(kysely(em));
  const statesOf = async (seqs: readonly number[]) => {
    const rows = await kysely(em.fork())
      .selectFrom("send_recipients")
      .select(["state", "attempts", "retry_at"])
      .where("send_id", "=", sendId)
      .where("seq", "in", seqs)
      .orderBy("seq")
      .execute();
    return rows.map(({ state, attempts, retry_at }) => [state, attempts, retry_at !== null]);
  };
  return { em, sendId, lane, defer, set, statesOf };
}

/** Rows of the ledger that the transaction of `em` has read so far. */
async function ledgerRowsRead(em: EntityManager): Promise<number> {
  const { rows } = await sql<{ read: number }>`select (seq_tup_read + idx_tup_fetch)::int as read
    from pg_stat_xact_user_tables where relname = 'send_recipients'`.execute(kysely(em));
  return rows[0]?.read ?? Number.NaN;
}

describe("Deferred recipients", () => {
  for (const analyzed of [false, true]) {
    it(`are mailed without a walk over the others (statistics: ${analyzed})`, async () => {
      const recipients = 2_000;
      const { em, lane, defer, set } = await sending(recipients);
      await set("SENT");
      // Of these 40, 20 are due.
      await defer(50, -19);
      if (analyzed) await sql`analyze send_recipients`.execute(kysely(em));
      const tx = em.fork();
      await tx.begin();
      try {
        const before = await ledgerRowsRead(tx);
        const due = await readDue(tx, lane, 5_000);
        assert.equal(due.length, 20);
        const { recipients: staged } = await stageBatch(tx, lane, { due });
        assert.equal(staged.length, 20);
        const mails = staged.map((item) => ({ item, outcome: { outcome: "sent", reason: "accepted" } as const }));
        assert.deepEqual(await settleOutcomes(tx, lane, mails, POLICY), { SENT: 20 });
        assert.equal((await stageBatch(tx, lane, { afterSeq: recipients, limit: 20 })).lastSeq, undefined);
        assert.equal((await readRemaining(tx, lane, 5_000)).left, "deferred");
        const read = (await ledgerRowsRead(tx)) - before;
        assert.ok(read < 500, `${read} rows read for 20 of ${recipients}`);
      } finally {
        await tx.rollback();
      }
    });
  }

  it("wait for others that are due soon after the first, and no longer", async () => {
    const { em, lane, defer, set } = await sending(60);
    await set("SENT");
    // Due after 100, 101, 102 … seconds.
    await defer(10, 100);
    const waitFor = async (gatherMs: number) => {
      const remaining = await readRemaining(em.fork(), lane, gatherMs);
      return remaining.left === "deferred" ? Math.ceil(remaining.waitMs / 1_000) : Number.NaN;
    };
    const waits = [await waitFor(0), await waitFor(3_000), await waitFor(60_000)];
    assert.deepEqual(
      waits.map((wait) => wait - (waits[0] ?? 0)),
      [0, 3, 5],
    );
  });

  it("are due again when the answer of the statement that staged them was lost, and those in flight stay so", async () => {
    const { em, lane, defer, statesOf } = await sending(6);
    await defer(2, -10);
    const inFlight = await stageBatch(em.fork(), lane, { due: [4] });
    assert.equal(inFlight.recipients.length, 1);
    await stageBatch(em.fork(), lane, { due: [2, 6] });
    await unstageUnanswered(em.fork(), lane, { due: [2, 6] });
    await stageBatch(em.fork(), lane, { afterSeq: 0, limit: 3 });
    await unstageUnanswered(em.fork(), lane, { afterSeq: 0, limit: 3 });
    assert.deepEqual(await statesOf([1, 2, 3, 4, 5, 6]), [
      ["QUEUED", 0, false],
      ["DEFERRED", 1, true],
      ["QUEUED", 0, false],
      ["SENDING", 2, false],
      ["QUEUED", 0, false],
      ["DEFERRED", 1, true],
    ]);
  });
});
