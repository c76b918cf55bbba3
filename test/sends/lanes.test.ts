import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import {
  closeDispatch,
  closeLost,
  type OpenedDispatch,
  openDispatch,
  readDue,
  readRemaining,
} from "../../domain/sends/lanes.ts";
import { settleOutcomes } from "../../domain/sends/settlement.ts";
import { type StagedRecipient, stageBatch } from "../../domain/sends/staging.ts";
import { requeueUnknown } from "../../domain/sends/unknown.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import { makeSender, type Sender, startUntaken } from "../support/sending.ts";

const POLICY = {
  ladderSeconds: [60],
  windowSeconds: 3_600,
  softBounces: SOFT_BOUNCE_POLICY,
};
const SENT: MailOutcome = { outcome: "sent", reason: "accepted" };
const DEFERRED: MailOutcome = { outcome: "deferred", reason: "temporary_refusal", retry: false };
const UNBEGUN: MailOutcome = { outcome: "not_attempted", reason: "pool_stopped" };

interface Row {
  seq: number;
  state: RecipientState;
  account_id: string | null;
}

/** A send that is SENDING over two accounts and that no worker takes. */
async function twoLanes(recipients: number) {
  const sender = await makeSender({ recipients, furtherAccounts: [{}] });
  const sendId = await startUntaken(sender);
  const [first = "", second = ""] = sender.accountIds;
  const open = async (accountId: string, inFlightMs = 40_000): Promise<OpenedDispatch> =>
    (await openDispatch(sender.em.fork(), { sendId, accountId }, inFlightMs)) ?? assert.fail("there is no such lane");
  return { sender, sendId, first, second, open };
}

/** Deferred recipients that are due so soon after the first one are waited for. */
const GATHER_MS = 5_000;

const stage = ({ em }: Sender, lane: OpenedDispatch, limit: number, afterSeq = 0) =>
  stageBatch(em.fork(), lane, { afterSeq, limit });

/** Stages the deferred recipients that are due to the lane. */
const stageDue = async ({ em }: Sender, lane: OpenedDispatch) =>
  stageBatch(em.fork(), lane, { due: await readDue(em.fork(), lane, 1_000) });

const settle = ({ em }: Sender, lane: OpenedDispatch, items: readonly StagedRecipient[], outcome: MailOutcome) => {
  const mails = items.map((item) => ({ item, outcome }));
  return settleOutcomes(em.fork(), lane, mails, POLICY);
};

const seqsOf = (rows: readonly { seq: number }[]) => rows.map(({ seq }) => seq).sort((a, b) => a - b);

const rowsOf = async ({ em }: Sender, sendId: string): Promise<Row[]> => {
  const { rows } = await sql<Row>`select seq, state, account_id from send_recipients
    where send_id = ${sendId} order by seq`.execute(kysely(em.fork()));
  return rows;
};

describe("Two lanes of a send", () => {
  it("that stage at once take different recipients, and neither waits for the other", async () => {
    const { sender, sendId, first, second, open } = await twoLanes(6);
    const [one, two] = [await open(first), await open(second)];
    const [staged, staging] = await sender.em.fork().transactional(async (tx) => {
      const { recipients } = await stageBatch(tx, one, { afterSeq: 0, limit: 4 });
      // Not committed yet: the other lane must not take them, nor wait for them.
      return [recipients, await stage(sender, two, 4)];
    });
    assert.deepEqual(seqsOf(staged), [1, 2, 3, 4]);
    assert.deepEqual(seqsOf(staging.recipients), [5, 6]);
    const holders = (await rowsOf(sender, sendId)).map(({ account_id }) => account_id);
    assert.deepEqual(holders, [first, first, first, first, second, second]);
  });

  it("settle only their own recipients, also when their epochs are equal", async () => {
    const { sender, sendId, first, second, open } = await twoLanes(4);
    const [one, two] = [await open(first), await open(second)];
    assert.equal(one.epoch, two.epoch);
    const { recipients } = await stage(sender, one, 2);
    assert.deepEqual(await settle(sender, two, recipients, SENT), {});
    assert.deepEqual(await settle(sender, one, recipients, SENT), { SENT: 2 });
    assert.deepEqual(
      (await rowsOf(sender, sendId)).map(({ state }) => state),
      ["SENT", "SENT", "QUEUED", "QUEUED"],
    );
  });

  it("take recipients that the other lane gave back unbegun, and leave to it those that it deferred", async () => {
    const { sender, sendId, first, second, open } = await twoLanes(4);
    const [one, two] = [await open(first), await open(second)];
    const { recipients } = await stage(sender, one, 4);
    await settle(sender, one, recipients.slice(0, 2), DEFERRED);
    await settle(sender, one, recipients.slice(2), UNBEGUN);
    await sql`update send_recipients set retry_at = now() where send_id = ${sendId} and state = 'DEFERRED'`.execute(
      kysely(sender.em),
    );
    assert.deepEqual(await readDue(sender.em.fork(), two, 10), []);
    assert.equal((await readRemaining(sender.em.fork(), two, GATHER_MS)).left, "queued");
    const taken = await stage(sender, two, 4);
    assert.deepEqual(seqsOf(taken.recipients), seqsOf(recipients.slice(2)));
    assert.deepEqual(await readRemaining(sender.em.fork(), two, GATHER_MS), { left: "nothing", held: true });
    assert.equal((await readRemaining(sender.em.fork(), one, GATHER_MS)).left, "deferred");

    assert.deepEqual(await readDue(sender.em.fork(), one, 1), [1]);
    const due = (await stageDue(sender, one)).recipients;
    assert.deepEqual(seqsOf(due), [1, 2]);
    // One that was deferred before goes back to its due time, and is free for every lane.
    await settle(sender, one, due, UNBEGUN);
    assert.deepEqual(
      (await rowsOf(sender, sendId)).slice(0, 2).map((row) => [row.state, row.account_id]),
      [
        ["DEFERRED", null],
        ["DEFERRED", null],
      ],
    );
    assert.deepEqual(seqsOf((await stageDue(sender, two)).recipients), [1, 2]);
  });

  it("let no recipient expire for the time in which it was due and waited for its lane or in the queue", async () => {
    const { sender, sendId, first, open } = await twoLanes(2);
    const lane = await open(first);
    const age = (columns: readonly string[], hours: number) =>
      sql`update send_recipients set ${sql.join(
        columns.map((column) => sql`${sql.ref(column)} = ${sql.ref(column)} - make_interval(hours => ${hours}::int)`),
      )} where send_id = ${sendId}`.execute(kysely(sender.em.fork()));
    const tryDue = async () => settle(sender, lane, (await stageDue(sender, lane)).recipients, DEFERRED);
    const { recipients } = await stage(sender, lane, 2);
    assert.deepEqual(await settle(sender, lane, recipients, DEFERRED), { DEFERRED: 2 });

    // Due for ten hours, as while the daily limit of the account is used up.
    await age(["first_deferred_at", "retry_at"], 10);
    assert.deepEqual(await settle(sender, lane, (await stageDue(sender, lane)).recipients, UNBEGUN), { QUEUED: 2 });
    // And for ten more, after it was staged and not mailed.
    await age(["first_deferred_at", "retry_at"], 10);
    assert.deepEqual(await tryDue(), { DEFERRED: 2 });

    // An hour of waiting for the server is the whole window.
    await age(["first_deferred_at"], 1);
    await sql`update send_recipients set retry_at = now() where send_id = ${sendId}`.execute(kysely(sender.em.fork()));
    assert.deepEqual(await tryDue(), { EXPIRED: 2 });
  });

  it("begin and end their attempts independently", async () => {
    const { sender, sendId, first, second, open } = await twoLanes(4);
    const [one, two] = [await open(first), await open(second)];
    await stage(sender, one, 2);
    const { recipients } = await stage(sender, two, 2);
    // The first lane's attempt died.
    const again = await open(first);
    assert.deepEqual([again.epoch, again.unknown], [one.epoch + 1, 2]);
    assert.deepEqual((await stage(sender, one, 2)).recipients, [], "an older epoch stages nothing");
    await closeDispatch(sender.em.fork(), one, { afterSeq: 99 });
    await closeDispatch(sender.em.fork(), again, { afterSeq: 2 });
    assert.equal((await open(first)).afterSeq, 2, "an older epoch does not move the cursor");
    assert.deepEqual(await settle(sender, two, recipients, SENT), { SENT: 2 });
    assert.deepEqual(
      (await rowsOf(sender, sendId)).map(({ state }) => state),
      ["UNKNOWN", "UNKNOWN", "SENT", "SENT"],
    );
  });

  it("are both closed when a paused send's attempts are presumed dead, and may both mail its unknown recipients", async () => {
    const { sender, sendId, first, second, open } = await twoLanes(4);
    const [one, two] = [await open(first, 60_000), await open(second)];
    const lost = [...(await stage(sender, one, 2)).recipients, ...(await stage(sender, two, 2)).recipients];
    assert.equal(await closeLost(sender.em.fork(), sendId), 0, "another attempt follows while it is SENDING");
    await sql`update sends set status = 'PAUSED' where id = ${sendId}`.execute(kysely(sender.em));
    assert.equal(await closeLost(sender.em.fork(), sendId), 4);
    assert.equal(await closeLost(sender.em.fork(), sendId), 0, "once");
    await sql`update send_lanes set after_seq = 4 where send_id = ${sendId}`.execute(kysely(sender.em));

    const age = (seconds: number) =>
      sql`update send_recipients set updated_at = now() - make_interval(secs => ${seconds}::int)
        where send_id = ${sendId}`.execute(kysely(sender.em));
    await age(45);
    const { waitMs } = await requeueUnknown(sender.em.fork(), sendId);
    assert.ok(waitMs > 0 && waitMs <= 15_000, `${waitMs} ms of the first lane's 60,000`);
    await age(60);
    assert.deepEqual(await requeueUnknown(sender.em.fork(), sendId), { requeued: 4, waitMs: 0 });
    assert.ok((await rowsOf(sender, sendId)).every((row) => row.state === "QUEUED" && row.account_id === null));
    assert.deepEqual(await settle(sender, one, lost, SENT), {}, "no older attempt touches them");
    await sql`update sends set status = 'SENDING' where id = ${sendId}`.execute(kysely(sender.em));
    const reopened = await open(second);
    assert.equal(reopened.afterSeq, 0);
    assert.equal((await stage(sender, reopened, 4)).recipients.length, 4);
  });
});
