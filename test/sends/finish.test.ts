import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { closeDispatch, openDispatch } from "../../domain/sends/lanes.ts";
import { finishSend, pauseSend } from "../../domain/sends/lifecycle.ts";
import { closeReview } from "../../domain/sends/review.ts";
import { settleOutcomes } from "../../domain/sends/settlement.ts";
import { stageBatch } from "../../domain/sends/staging.ts";
import { eventually } from "../support/eventually.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import {
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  type SenderOptions,
  startUntaken,
} from "../support/sending.ts";

/** A send of three recipients that is SENDING and that no worker takes. */
async function sending(options: SenderOptions = {}) {
  const sender = await makeSender({ recipients: 3, credits: 3, ...options });
  const db = kysely(sender.em);
  const sendId = await startUntaken(sender);
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

  describe("and the late outcome of an attempt that is presumed dead", () => {
    /** Two recipients are SENT. The third is UNKNOWN, and `settle` brings its outcome: deferred. */
    async function withLateOutcome() {
      const { sender, finish, sendId } = await sending();
      const em = () => sender.em.fork();
      const open = async () => {
        const lane = await openDispatch(em(), { sendId, accountId: sender.accountId }, 40_000);
        return lane ?? assert.fail("there is no such lane");
      };
      const policy = { ladderSeconds: [60], windowSeconds: 3_600, softBounces: SOFT_BOUNCE_POLICY };
      const dead = await open();
      const [last, ...others] = (await stageBatch(em(), dead, { afterSeq: 0, limit: 3 })).recipients.toReversed();
      assert.ok(last);
      const sent = others.map((item) => ({ item, outcome: { outcome: "sent", reason: "accepted" } as const }));
      assert.deepEqual(await settleOutcomes(em(), dead, sent, policy), { SENT: 2 });
      await closeDispatch(em(), await open(), { afterSeq: 3 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
      const outcome = { outcome: "deferred", reason: "temporary_refusal", retry: false } as const;
      const settle = (tx = em()) => settleOutcomes(tx, dead, [{ item: last, outcome }], policy);
      return { sender, sendId, finish, settle };
    }

    /** Waits until a statement like this waits for a lock of another. */
    const untilBlocked = ({ em }: Sender, statement: string) =>
      eventually(
        async () => {
          const { rows } = await sql`select from pg_stat_activity
            where pg_blocking_pids(pid) <> '{}' and query like ${statement}`.execute(kysely(em.fork()));
          return rows.length > 0;
        },
        { what: statement },
      );

    it("keeps the outcome out when the end comes first", async () => {
      const { sender, sendId, settle } = await withLateOutcome();
      const { status, settling } = await sender.em.fork().transactional(async (tx) => {
        const ended = await finishSend(tx, sendId);
        const settling = settle();
        await untilBlocked(sender, "%with outcome as%");
        return { status: ended.status, settling };
      });
      assert.equal(status, "SENT");
      assert.deepEqual(await settling, {});
      assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    });

    it("waits for the recipient when the outcome comes first", async () => {
      const { sender, finish, settle } = await withLateOutcome();
      const { ending } = await sender.em.fork().transactional(async (tx) => {
        assert.deepEqual(await settle(tx), { DEFERRED: 1 });
        const ending = finish();
        await untilBlocked(sender, "%for update%");
        return { ending };
      });
      assert.equal((await ending).status, "SENDING");
      assert.deepEqual(await ledgerStates(sender), { SENT: 2, DEFERRED: 1 });
    });
  });

  it("leaves a send as it is that complaints paused with a recipient left", async () => {
    const { sender, setStates, finish, sendId } = await sending();
    await setStates(["SENT", "SENT", "QUEUED"]);
    await pauseSend(sender.em.fork(), sendId, "complaint_rate_exceeded");
    assert.equal((await finish()).status, "PAUSED");
    assert.deepEqual(await credits(sender), { available: 0, reserved: 3, mismatch: false });
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, QUEUED: 1 });
  });

  it("lists the rows of a dead attempt as unknown when no other attempt of its lane follows", async () => {
    const { sender, setStates, finish, sendId } = await sending({ furtherAccounts: [{}] });
    const [first = "", second = ""] = sender.accountIds;
    const em = () => sender.em.fork();
    const lanes = [await openDispatch(em(), { sendId, accountId: first }, 40_000)];
    lanes.push(await openDispatch(em(), { sendId, accountId: second }, 40_000));
    const [working, dead] = lanes.map((lane) => lane ?? assert.fail("there is no such lane"));
    assert.ok(working && dead);
    assert.equal((await stageBatch(em(), dead, { afterSeq: 0, limit: 1 })).recipients.length, 1);
    await closeDispatch(em(), working, { afterSeq: 3 });
    await setStates(["SENDING", "SENT", "SENT"]);

    const { status, sent, unknown, lost } = await finish();
    assert.deepEqual({ status, sent, unknown, lost }, { status: "SENT", sent: 2, unknown: 1, lost: 1 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
    assert.equal(
      (await openDispatch(em(), { sendId, accountId: second }, 40_000))?.epoch,
      dead.epoch + 2,
      "a new epoch",
    );
  });

  it("lists rows as unknown whose outcomes Postgres lost while their attempt mailed on", async () => {
    const { sender, setStates, finish, sendId } = await sending();
    const em = () => sender.em.fork();
    const lane = await openDispatch(em(), { sendId, accountId: sender.accountId }, 40_000);
    assert.ok(lane);
    assert.equal((await stageBatch(em(), lane, { afterSeq: 0, limit: 1 })).recipients.length, 1);
    // After a failover the attempt ends in order: it had settled the first row, and Postgres does not know it.
    await setStates(["SENDING", "SENT", "SENT"]);
    await closeDispatch(em(), lane, { afterSeq: 3 });

    const { status, sent, unknown, lost, reviewMs } = await finish();
    assert.deepEqual({ status, sent, unknown, lost }, { status: "SENT", sent: 2, unknown: 1, lost: 1 });
    assert.ok(reviewMs > 0, "an operator may have them mailed again");
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });

  it("opens a review of unknown outcomes once: one that an operator closed stays closed", async () => {
    const { sender, setStates, finish, sendId } = await sending();
    await setStates(["SENT", "SENT", "UNKNOWN"]);
    assert.ok((await finish()).reviewMs > 0);
    assert.ok((await finish()).reviewMs > 0, "it is still open");
    await closeReview(sender.em.fork(), sendId);
    assert.deepEqual(await finish(), { status: "SENT", sent: 2, unknown: 1, cancelled: 0, lost: 0, reviewMs: 0 });
  });
});
