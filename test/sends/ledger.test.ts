import assert from "node:assert/strict";
import { type RawBuilder, sql } from "kysely";
import { settleLate } from "../../activities/slice-ledger.ts";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { type MailOutcome, UNDECIDED } from "../../domain/mail/outcome.ts";
import { classifyAnswer, parseReply } from "../../domain/mail/smtp-answer.ts";
import { recordReports } from "../../domain/reports/record.ts";
import {
  closeDispatch,
  closeLost,
  type OpenedDispatch,
  openDispatch,
  readDueRecipients,
  readRemaining,
} from "../../domain/sends/ledger/lanes.ts";
import { closeReview, finishSend, pauseSend, resumeSend } from "../../domain/sends/ledger/lifecycle.ts";
import {
  type MailedRecipient,
  settleOutcomes,
  stageBatch,
  unstageUnanswered,
} from "../../domain/sends/ledger/moves.ts";
import { requeueUndecided } from "../../domain/sends/ledger/refusals.ts";
import { requeueUnknown } from "../../domain/sends/ledger/unknown.ts";
import { findSend } from "../../domain/sends/operators/inspection.ts";
import { parseOutcomes, settleUnknown } from "../../domain/sends/operators/settle-unknown.ts";
import { PAUSE_REASONS } from "../../domain/sends/pause-reasons.ts";
import { live, mailed, reasonOf, recordedKinds } from "../reports/mails.ts";
import { recountFigures } from "../support/recount.ts";
import { credits, ledgerStates, makeSender, startUntaken, untilBlocked } from "../support/sending.ts";
import { emittedEvents, listen } from "../webhooks/outbox.ts";

const POLICY = {
  DEFERRAL_LADDER_SECONDS: [60],
  DEFERRAL_WINDOW_SECONDS: 3_600,
  ...{ SOFT_BOUNCES_TO_SUPPRESS: 2, SOFT_BOUNCE_WINDOW_DAYS: 30 },
};
const SENT: MailOutcome = { outcome: "sent", reason: "accepted" };
const DEFERRED: MailOutcome = { outcome: "deferred", reason: "temporary_refusal", retry: false };
const NO_QUOTA = { granted: 1, windows: [], retryInMs: 0, endsAt: Number.POSITIVE_INFINITY };
const UNBEGUN: MailOutcome = { outcome: "not_attempted", reason: "pool_stopped" };
const refused = (reason: "mailbox_full" | "mailbox_disabled" | "policy_refused", response: string): MailOutcome => ({
  ...{ outcome: "rejected", reason, suppress: false, isSoftBounce: reason !== "policy_refused" },
  ...{ code: Number(response.slice(0, 3)), enhanced: response.split(" ")[1], response },
});
const FULL = refused("mailbox_full", "552 5.2.2 Mailbox full");
/** Deferred recipients that are due so soon after the first one are waited for. */
const GATHER_MS = 5_000;

type Item = MailedRecipient["item"];

/** A send that is SENDING and that no worker takes, with what attempts and commands do to its ledger. */
async function untaken(recipients: number, accounts = 1) {
  const furtherAccounts = Array(accounts - 1).fill({});
  const sender = await makeSender({ recipients, credits: recipients, furtherAccounts });
  const sendId = await startUntaken(sender);
  const [first = "", second = ""] = sender.accountIds;
  const em = () => sender.em.fork();
  const set = (change: ReturnType<typeof sql>, where = sql`true`) =>
    sql`update send_recipients set ${change} where send_id = ${sendId} and ${where}`.execute(kysely(em()));
  const rows = () =>
    kysely(em())
      .selectFrom("send_recipients")
      .select(["seq", "state", "attempts", "account_id", "retry_at"])
      .where("send_id", "=", sendId)
      .orderBy("seq")
      .execute();
  return {
    ...{ sender, sendId, first, second, em, set, rows },
    open: async (accountId = first, inFlightMs = 40_000): Promise<OpenedDispatch> =>
      (await openDispatch(em(), { sendId, accountId }, inFlightMs)) ?? assert.fail("there is no such lane"),
    /** @returns its recipients by `seq`: the product hands them on in any order */
    stage: async (lane: OpenedDispatch, limit: number) => {
      const batch = await stageBatch(em(), lane, { afterSeq: 0, limit });
      return { ...batch, recipients: batch.recipients.toSorted((a, b) => a.seq - b.seq) };
    },
    stageDue: async (lane: OpenedDispatch) =>
      stageBatch(em(), lane, { due: await readDueRecipients(em(), lane, 1_000) }),
    settle: (lane: OpenedDispatch, items: readonly Item[], outcome: MailOutcome, tx = em()) =>
      settleOutcomes(
        tx,
        lane,
        items.map((item) => ({ item, outcome })),
        POLICY,
      ),
    setStates: (states: RecipientState[]) =>
      sql`update send_recipients r set state = s.state from unnest(${states}::text[]) with ordinality s (state, seq)
        where r.send_id = ${sendId} and r.seq = s.seq`.execute(kysely(em())),
    /** Makes the recipients whose `seq` is a multiple of `every` DEFERRED, each due a second after the one before. */
    defer: (every: number, firstInSeconds: number) =>
      set(
        sql`state = 'DEFERRED', attempts = 1, first_deferred_at = now() - interval '1 minute',
          retry_at = now() + make_interval(secs => ${firstInSeconds}::int + seq / ${every}::int - 1)`,
        sql`seq % ${every} = 0`,
      ),
    statesOf: async () => (await rows()).map(({ state }) => state),
    finish: () => finishSend(em(), sendId),
  };
}

const seqsOf = (rows: readonly { seq: number }[]) => rows.map(({ seq }) => seq).sort((a, b) => a - b);

describe("A settlement", () => {
  async function inFlight() {
    const send = await untaken(3);
    const lane = await send.open();
    const { recipients } = await send.stage(lane, 3);
    const settle = (outcome = SENT) => send.settle(lane, recipients, outcome);
    /** Changes the rows in a transaction of its own, and lets the settlement wait for its lock before it commits. */
    const settleDuring = async (change: ReturnType<typeof sql>) => {
      const { settling } = await send.em().transactional(async (tx) => {
        await sql`update send_recipients set ${change} where send_id = ${send.sendId}`.execute(kysely(tx));
        const settling = settle();
        await untilBlocked(send.sender, "%with outcome as (%");
        // In a box: the transaction must not wait for it.
        return { settling };
      });
      return settling;
    };
    return { ...send, lane, settle, settleDuring };
  }

  it("records its outcomes although its attempt is presumed dead meanwhile, once", async () => {
    const { settle, settleDuring, statesOf } = await inFlight();
    const lost = sql`state = 'UNKNOWN', reason = 'worker_lost', updated_at = now()`;
    assert.deepEqual(await settleDuring(lost), { SENT: 3 });
    assert.deepEqual(await statesOf(), ["SENT", "SENT", "SENT"]);
    assert.deepEqual(await settle(), {});
  });

  it("does not touch rows that another attempt has taken meanwhile", async () => {
    const { settleDuring, statesOf, lane } = await inFlight();
    assert.deepEqual(await settleDuring(sql`state = 'QUEUED', epoch = ${lane.epoch + 1}`), {});
    assert.deepEqual(await statesOf(), ["QUEUED", "QUEUED", "QUEUED"]);
  });

  it("counts a refused recipient once, and not for another attempt", async () => {
    const { sender, sendId, settle, set, lane } = await inFlight();
    await set(sql`state = 'REJECTED', epoch = ${lane.epoch + 1}`);
    assert.deepEqual(await settle(FULL), {});
    assert.deepEqual(await recordedKinds(sender, sendId), []);
    await set(sql`state = 'SENDING', epoch = ${lane.epoch}`);
    assert.deepEqual([await settle(FULL), await settle(FULL)], [{ REJECTED: 3 }, {}]);
    const counted = [1, 2, 3].map((seq) => `${seq} refusal:soft`);
    assert.deepEqual(await recordedKinds(sender, sendId), counted);
  });

  it("that bounces notes so on the suppression of an unsubscribe, and reports the new suppressions alone", async () => {
    const { sender, settle, em } = await inFlight();
    await listen(sender, { events: ["suppression.added"] });
    const suppressions = () =>
      kysely(em())
        .selectFrom("suppressions")
        .select(["email", "reason", "has_other_reason"])
        .where("team_id", "=", sender.team.id)
        .orderBy("email")
        .execute();
    const email = `person1@${sender.audience}`;
    await transaction(em(), (tx) => suppress(tx, live(sender), [email], "UNSUBSCRIBED"));
    assert.deepEqual(await settle({ outcome: "rejected", reason: "mailbox_unknown", suppress: true }), { REJECTED: 3 });
    assert.deepEqual(
      (await suppressions()).map(({ reason, has_other_reason }) => [reason, has_other_reason]),
      [
        ["bounce:hard", false],
        ["UNSUBSCRIBED", true],
        ["bounce:hard", false],
      ],
    );
    const events = (await emittedEvents(sender)).map(({ object }) => [object.email === email, object.reason]);
    assert.deepEqual(events, [
      [true, "UNSUBSCRIBED"],
      [false, "bounce:hard"],
      [false, "bounce:hard"],
    ]);
  });
});

describe("An undecided recipient", () => {
  const HELD: MailOutcome = { outcome: "deferred", reason: UNDECIDED, retry: false };
  const GONE: MailOutcome = { outcome: "rejected", reason: "mailbox_unknown", suppress: true };
  async function undecided() {
    const send = await untaken(3);
    const lane = await send.open();
    const { recipients } = await send.stage(lane, 3);
    const [one, late, other] = recipients;
    assert.ok(one && late && other);
    await send.set(sql`first_deferred_at = now() - interval '2 hours'`, sql`seq = ${late.seq}`);
    await send.settle(lane, [other], SENT);
    // The time of one ends with this try.
    assert.deepEqual(await send.settle(lane, [one, late], HELD), { DEFERRED: 1, EXPIRED: 1 });
    return { ...send, lane, one, late };
  }

  it("takes its decision later, also when its time has ended meanwhile, and once", async () => {
    const { sender, lane, one, late, settle, statesOf } = await undecided();
    assert.deepEqual(await settle(lane, [one], HELD), {}, "nothing is decided");
    assert.deepEqual(await settle(lane, [one, late], GONE), { REJECTED: 2 });
    assert.deepEqual(await statesOf(), ["REJECTED", "REJECTED", "SENT"]);
    assert.equal(await reasonOf(sender, one.email), "bounce:hard");
    assert.deepEqual(await settle(lane, [one, late], GONE), {});
  });

  it("is queued again when the account was at fault, and by no attempt that another one has replaced", async () => {
    const { em, lane, open, statesOf, one } = await undecided();
    const next = await open();
    assert.equal(await requeueUndecided(em(), lane), "stale");
    assert.deepEqual(await statesOf(), ["DEFERRED", "EXPIRED", "SENT"]);
    assert.equal(await requeueUndecided(em(), next), one.seq);
    assert.deepEqual(await statesOf(), ["QUEUED", "QUEUED", "SENT"]);
    assert.equal(await requeueUndecided(em(), next), undefined);
  });

  it("suppresses nobody where another attempt has it", async () => {
    const { sender, lane, one, open, stageDue, set, settle } = await undecided();
    const next = await open();
    await set(sql`retry_at = now()`, sql`seq = ${one.seq}`);
    await stageDue(next);
    assert.deepEqual(await settle(lane, [one], GONE), {});
    assert.equal(await reasonOf(sender, one.email), undefined);
  });

  it("is one whose late reply refuses the account: it was UNKNOWN, and is asked again", async () => {
    const send = await untaken(1);
    const lane = await send.open();
    const { recipients } = await send.stage(lane, 1);
    const [item] = recipients.map((recipient) => ({ ...recipient, quota: NO_QUOTA }));
    assert.ok(item);
    await send.set(sql`state = 'UNKNOWN'`);
    const response = "550 5.4.5 Daily user sending limit exceeded";
    const outcome = classifyAnswer({ stage: "dot", ...parseReply(response), response });
    const { orm, log } = { orm: { em: send.em() }, log: { warn: assert.fail } };
    const deps = { orm, log, env: POLICY, stopping: new AbortController().signal, countMails: () => {} };
    await settleLate(deps as unknown as Parameters<typeof settleLate>[0], lane, { item, outcome });
    assert.deepEqual(await send.statesOf(), ["DEFERRED"]);
  });
});

describe("The refusal of a recipient", () => {
  it("counts like a soft bounce by mail once it is final, unless it is about the sender", async () => {
    const { sender, sendId, em, set, open, stage, stageDue, settle } = await untaken(4);
    const lane = await open();
    const { recipients } = await stage(lane, 4);
    const bounced = await mailed(
      sender,
      recipients.map(({ email }) => email),
    );
    const bounces = [1, 2, 3, 4].map((seq) => ({ sendId: bounced.sendId, seq, kind: "bounce:soft" as const }));
    await recordReports(em(), bounces, POLICY);
    const [full, blocked, disabled, overQuota] = recipients;
    assert.ok(full && blocked && disabled && overQuota);
    const later: MailOutcome = {
      ...{ outcome: "deferred", reason: "mailbox_full", retry: false, isSoftBounce: true },
      ...{ code: 452, enhanced: "4.2.2", response: "452 4.2.2 Over quota" },
    };
    await settle(lane, [full], FULL);
    await settle(lane, [blocked], refused("policy_refused", "550 5.7.1 Not welcome"));
    await settle(lane, [disabled], refused("mailbox_disabled", "550 5.2.1 Mailbox disabled"));
    assert.deepEqual(await settle(lane, [overQuota], later), { DEFERRED: 1 });
    assert.equal(await reasonOf(sender, overQuota.email), undefined, "it may get the mail yet");
    await set(sql`first_deferred_at = now() - interval '1 hour', retry_at = now()`, sql`state = 'DEFERRED'`);
    assert.deepEqual(await settle(lane, (await stageDue(lane)).recipients, later), { EXPIRED: 1 });

    const reasons = await Promise.all(recipients.map(({ email }) => reasonOf(sender, email)));
    assert.deepEqual(reasons, ["bounce:soft", undefined, "bounce:soft", "bounce:soft"]);
    const counted = [full, disabled, overQuota].map(({ seq }) => `${seq} refusal:soft`);
    assert.deepEqual(await recordedKinds(sender, sendId), counted.sort());
    const query = { resource_id: sender.newsletterId };
    const { totals } = (await sender.client.get("/analytics/overview", { query })).body.data;
    assert.deepEqual([totals.rejected, totals.bounced_soft], [3, 0], "a refusal is no bounce");
    const differing = await recountFigures(em(), live(sender), { repair: false });
    assert.ok(
      !differing.some(({ resourceId }) => resourceId === sender.newsletterId),
      "the figures are those of the facts",
    );
  });
});

describe("Two lanes of a send", () => {
  async function twoLanes(recipients: number) {
    const send = await untaken(recipients, 2);
    return { ...send, one: await send.open(send.first), two: await send.open(send.second) };
  }

  it("that stage at once take different recipients, and neither waits for the other", async () => {
    const { em, first, second, one, two, stage, rows } = await twoLanes(6);
    const [staged, staging] = await em().transactional(async (tx) => {
      const { recipients } = await stageBatch(tx, one, { afterSeq: 0, limit: 4 });
      // Not committed yet: the other lane must not take them, nor wait for them.
      return [recipients, await stage(two, 4)];
    });
    assert.deepEqual(seqsOf(staged), [1, 2, 3, 4]);
    assert.deepEqual(seqsOf(staging.recipients), [5, 6]);
    const holders = (await rows()).map(({ account_id }) => account_id);
    assert.deepEqual(holders, [first, first, first, first, second, second]);
  });

  it("settle only their own recipients, also when their epochs are equal", async () => {
    const { one, two, stage, settle, statesOf } = await twoLanes(4);
    assert.equal(one.epoch, two.epoch);
    const { recipients } = await stage(one, 2);
    assert.deepEqual(await settle(two, recipients, SENT), {});
    assert.deepEqual(await settle(one, recipients, SENT), { SENT: 2 });
    assert.deepEqual(await statesOf(), ["SENT", "SENT", "QUEUED", "QUEUED"]);
  });

  it("take recipients that the other lane gave back unbegun, and leave to it those that it deferred", async () => {
    const { em, one, two, set, stage, stageDue, settle, rows } = await twoLanes(4);
    const { recipients } = await stage(one, 4);
    await settle(one, recipients.slice(0, 2), DEFERRED);
    await settle(one, recipients.slice(2), UNBEGUN);
    await set(sql`retry_at = now()`, sql`state = 'DEFERRED'`);
    assert.deepEqual(await readDueRecipients(em(), two, 10), []);
    assert.equal((await readRemaining(em(), two, GATHER_MS)).next, "continue");
    assert.deepEqual(seqsOf((await stage(two, 4)).recipients), seqsOf(recipients.slice(2)));
    assert.deepEqual(await readRemaining(em(), two, GATHER_MS), { next: "done", held: true });
    assert.equal((await readRemaining(em(), one, GATHER_MS)).next, "deferred");

    assert.deepEqual(await readDueRecipients(em(), one, 1), [1]);
    const due = (await stageDue(one)).recipients;
    assert.deepEqual(seqsOf(due), [1, 2]);
    // One that was deferred before goes back to its due time, and is free for every lane.
    await settle(one, due, UNBEGUN);
    const freed = (await rows()).slice(0, 2).map((row) => `${row.state} ${row.account_id}`);
    assert.deepEqual(freed, ["DEFERRED null", "DEFERRED null"]);
    assert.deepEqual(seqsOf((await stageDue(two)).recipients), [1, 2]);
  });

  it("begin and end their attempts independently, and keep their cursor", async () => {
    const { em, first, one, two, open, stage, settle, statesOf } = await twoLanes(4);
    await stage(one, 2);
    const { recipients } = await stage(two, 2);
    // The first lane's attempt died.
    const again = await open(first);
    assert.deepEqual([again.epoch, again.unknown], [one.epoch + 1, 2]);
    assert.deepEqual((await stage(one, 2)).recipients, [], "an older epoch stages nothing");
    await closeDispatch(em(), one, { afterSeq: 99, hasAccepted: true });
    await closeDispatch(em(), again, { afterSeq: 2, hasAccepted: true });
    const { afterSeq, hasAccepted } = await open(first);
    assert.deepEqual([afterSeq, hasAccepted], [2, true], "an older epoch does not move it");
    assert.deepEqual(await settle(two, recipients, SENT), { SENT: 2 });
    assert.deepEqual(await statesOf(), ["UNKNOWN", "UNKNOWN", "SENT", "SENT"]);
  });

  it("are both closed when a paused send's attempts are presumed dead, and may both mail its unknown recipients", async () => {
    const { em, sendId, first, second, two, set, open, stage, settle, rows } = await twoLanes(4);
    const one = await open(first, 60_000);
    const lost = [...(await stage(one, 2)).recipients, ...(await stage(two, 2)).recipients];
    const setStatus = (status: string) =>
      sql`update sends set status = ${status} where id = ${sendId}`.execute(kysely(em()));
    assert.equal(await closeLost(em(), sendId), 0, "another attempt follows while it is SENDING");
    await setStatus("PAUSED");
    assert.deepEqual([await closeLost(em(), sendId), await closeLost(em(), sendId)], [4, 0], "once");
    await sql`update send_lanes set after_seq = 4 where send_id = ${sendId}`.execute(kysely(em()));

    await set(sql`updated_at = now() - interval '45 seconds'`);
    const { waitMs } = await requeueUnknown(em(), sendId);
    assert.ok(waitMs > 0 && waitMs <= 15_000, `${waitMs} ms of the first lane's 60,000`);
    await set(sql`updated_at = now() - interval '60 seconds'`);
    assert.deepEqual(await requeueUnknown(em(), sendId), { requeued: 4, waitMs: 0 });
    assert.ok((await rows()).every((row) => row.state === "QUEUED" && row.account_id === null));
    assert.deepEqual(await settle(one, lost, SENT), {}, "no older attempt touches them");
    await setStatus("SENDING");
    const reopened = await open(second);
    assert.equal(reopened.afterSeq, 0);
    assert.equal((await stage(reopened, 4)).recipients.length, 4);
  });
});

describe("Unknown outcomes", () => {
  const settledBy = async (send: Awaited<ReturnType<typeof untaken>>, csv: string) =>
    settleUnknown(send.em(), await findSend(send.em(), send.sendId), parseOutcomes(csv, send.sendId));

  it("are settled by an operator: what was sent is never mailed again, and what was not sent alone is", async () => {
    const send = await untaken(5);
    const { sendId, em, set, setStates, rows, statesOf } = send;
    await setStates(["UNKNOWN", "UNKNOWN", "UNKNOWN", "UNKNOWN", "SENT"]);
    await set(sql`epoch = seq, updated_at = now() - interval '1 hour'`);
    const csv = `\u{feff}row;email;message_id;outcome\r\n1;a@b.example;<1.${sendId}@b.example>;sent\n2;;;\rnot_sent\n3;;;\r\n`;
    assert.deepEqual(await settledBy(send, csv), { sent: 1, not_sent: 1, known: 0 });
    assert.deepEqual(await settledBy(send, `<1.${sendId}@b.example>,not_sent\n5,not_sent`), {
      sent: 0,
      not_sent: 0,
      known: 2,
    });
    assert.deepEqual(await statesOf(), ["SENT", "UNKNOWN", "UNKNOWN", "UNKNOWN", "SENT"]);
    assert.equal((await requeueUnknown(em(), sendId)).requeued, 1);
    assert.deepEqual(await statesOf(), ["SENT", "QUEUED", "UNKNOWN", "UNKNOWN", "SENT"]);
    assert.equal((await requeueUnknown(em(), sendId)).requeued, 2, "what is left can still be resent");
    assert.ok((await rows()).every(({ state }) => state === "SENT" || state === "QUEUED"));
  });

  it("stay as they are when a line of the file is wrong", async () => {
    const send = await untaken(2);
    await send.setStates(["UNKNOWN", "UNKNOWN"]);
    const wrong: [string, RegExp][] = [
      ["1,sent\n3,sent", /has no row 3/],
      ["1,sent\n2,arrived", /Record 2: "arrived" is neither sent nor not_sent/],
      ["1,sent\n2.send_00000000000000000000000000@b.example,sent", /Record 2: .* is no Message-ID or row of send_/],
      ["1,sent\n1,not_sent", /Row 1 is both/],
      ["row,email,message_id,outcome\n1,a@b.example,x,", /fill in the last column/],
    ];
    for (const [csv, why] of wrong) await assert.rejects(settledBy(send, csv), why);
    assert.deepEqual(await send.statesOf(), ["UNKNOWN", "UNKNOWN"]);
  });
});

describe("Deferred recipients", () => {
  it("wait for others that are due soon after the first, and no longer", async () => {
    const { em, open, defer, set } = await untaken(60);
    const lane = await open();
    await set(sql`state = 'SENT'`);
    // Due after 100, 101, 102 … seconds.
    await defer(10, 100);
    const waitFor = async (gatherMs: number) => {
      const remaining = await readRemaining(em(), lane, gatherMs);
      return remaining.next === "deferred" ? Math.ceil(remaining.waitMs / 1_000) : Number.NaN;
    };
    const [none = 0, ...waits] = [await waitFor(0), await waitFor(3_000), await waitFor(60_000)];
    assert.deepEqual(
      waits.map((wait) => wait - none),
      [3, 5],
    );
  });

  it("are due again when the answer of the statement that staged them was lost, and those in flight stay so", async () => {
    const { em, open, defer, rows } = await untaken(6);
    const lane = await open();
    await defer(2, -10);
    assert.equal((await stageBatch(em(), lane, { due: [4] })).recipients.length, 1);
    for (const batch of [{ due: [2, 6] }, { afterSeq: 0, limit: 3 }]) {
      await stageBatch(em(), lane, batch);
      await unstageUnanswered(em(), lane, batch);
    }
    assert.deepEqual(
      (await rows()).map(({ state, attempts, retry_at }) => [state, attempts, retry_at !== null]),
      [
        ["QUEUED", 0, false],
        ["DEFERRED", 1, true],
        ["QUEUED", 0, false],
        ["SENDING", 2, false],
        ["QUEUED", 0, false],
        ["DEFERRED", 1, true],
      ],
    );
  });

  it("do not expire for the time in which they were due and waited for their lane or in the queue", async () => {
    const { open, set, stage, stageDue, settle } = await untaken(2);
    const lane = await open();
    const waitTenHours = () =>
      set(sql`first_deferred_at = first_deferred_at - interval '10 hours', retry_at = retry_at - interval '10 hours'`);
    const settleDue = async (outcome: MailOutcome) => settle(lane, (await stageDue(lane)).recipients, outcome);
    assert.deepEqual(await settle(lane, (await stage(lane, 2)).recipients, DEFERRED), { DEFERRED: 2 });

    // Due for ten hours, as while the daily limit of the account is used up.
    await waitTenHours();
    assert.deepEqual(await settleDue(UNBEGUN), { QUEUED: 2 });
    // And for ten more, after it was staged and not mailed.
    await waitTenHours();
    assert.deepEqual(await settleDue(DEFERRED), { DEFERRED: 2 });

    // An hour of waiting for the server is the whole window.
    await set(sql`first_deferred_at = first_deferred_at - interval '1 hour', retry_at = now()`);
    assert.deepEqual(await settleDue(DEFERRED), { EXPIRED: 2 });
  });
});

describe("The end of a send", () => {
  for (const open of ["QUEUED", "DEFERRED"] as const) {
    it(`waits for a recipient that a late attempt put back: ${open}`, async () => {
      const { sender, setStates, finish } = await untaken(3);
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
    /** Two recipients are SENT. The third is UNKNOWN, and `settleLate` brings its outcome: deferred. */
    async function withLateOutcome() {
      const send = await untaken(3);
      const dead = await send.open();
      const [last, ...others] = (await send.stage(dead, 3)).recipients.toReversed();
      assert.ok(last);
      assert.deepEqual(await send.settle(dead, others, SENT), { SENT: 2 });
      await closeDispatch(send.em(), await send.open(), { afterSeq: 3, hasAccepted: true });
      assert.deepEqual(await send.statesOf(), ["SENT", "SENT", "UNKNOWN"]);
      return { ...send, settleLate: (tx = send.em()) => send.settle(dead, [last], DEFERRED, tx) };
    }

    it("keeps the outcome out when the end comes first", async () => {
      const { em, sendId, settleLate, statesOf, sender } = await withLateOutcome();
      const { status, settling } = await em().transactional(async (tx) => {
        const ended = await finishSend(tx, sendId);
        const settling = settleLate();
        await untilBlocked(sender, "%with outcome as%");
        return { status: ended.status, settling };
      });
      assert.equal(status, "SENT");
      assert.deepEqual(await settling, {});
      assert.deepEqual(await statesOf(), ["SENT", "SENT", "UNKNOWN"]);
    });

    it("waits for the recipient when the outcome comes first", async () => {
      const { em, finish, settleLate, statesOf, sender } = await withLateOutcome();
      const { ending } = await em().transactional(async (tx) => {
        assert.deepEqual(await settleLate(tx), { DEFERRED: 1 });
        const ending = finish();
        await untilBlocked(sender, "%for update%");
        return { ending };
      });
      assert.equal((await ending).status, "SENDING");
      assert.deepEqual(await statesOf(), ["SENT", "SENT", "DEFERRED"]);
    });
  });

  it("is FAILED, with an event, and keeps no credit, when no mail went out", async () => {
    const { sender, setStates, finish } = await untaken(2);
    await listen(sender, { events: ["newsletter.completed"] });
    await setStates(["REJECTED", "EXPIRED"]);
    assert.equal((await finish()).status, "FAILED");
    assert.deepEqual(
      (await emittedEvents(sender)).map(({ object }) => object.status),
      ["FAILED"],
    );
    assert.deepEqual(await credits(sender), { available: 2, reserved: 0, mismatch: false });
  });

  it("leaves a send as it is that complaints paused with a recipient left", async () => {
    const { sender, em, setStates, finish, sendId } = await untaken(3);
    await setStates(["SENT", "SENT", "QUEUED"]);
    await pauseSend(em(), sendId, "complaint_rate_exceeded");
    assert.equal((await finish()).status, "PAUSED");
    assert.deepEqual(await credits(sender), { available: 0, reserved: 3, mismatch: false });
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, QUEUED: 1 });
  });

  it("stays held for a restore of Postgres through every pause before and after it, until an operator resumes it", async () => {
    const { em, sendId } = await untaken(1);
    const { complaints, client, databaseRestored, workflowEnded } = PAUSE_REASONS;
    const reasonAfter = async (reason: string | null) => (await pauseSend(em(), sendId, reason)).state?.pauseReason;
    assert.equal(await reasonAfter(complaints), complaints);
    for (const reason of [databaseRestored, null, client, complaints, workflowEnded, "login_refused"]) {
      assert.equal(await reasonAfter(reason), databaseRestored);
    }
    await resumeSend(em(), sendId);
    assert.equal(await reasonAfter(null), null);
  });

  it("knows since when it is paused, also where a process of 1.0 has paused it, and forgets it when it continues", async () => {
    const { em, sendId } = await untaken(1);
    const pausedForMs = async () => (await pauseSend(em(), sendId, PAUSE_REASONS.client)).state?.pausedForMs ?? -1;
    const setPausedAt = (at: RawBuilder<unknown>) =>
      sql`update sends set paused_at = ${at} where id = ${sendId}`.execute(kysely(em()));
    assert.ok((await pausedForMs()) >= 0);
    await setPausedAt(sql`now() - interval '1 day'`);
    assert.ok((await pausedForMs()) >= 86_400_000, "a second pause begins no other");
    await setPausedAt(sql`null`);
    const sinceLastChange = await pausedForMs();
    assert.ok(sinceLastChange >= 0 && sinceLastChange < 3_600_000);
    assert.equal((await resumeSend(em(), sendId)).state?.pausedForMs, null);
  });

  it("lists the rows of a dead attempt as unknown when no other attempt of its lane follows", async () => {
    const { sender, em, open, stage, setStates, finish, first, second } = await untaken(3, 2);
    const [working, dead] = [await open(first), await open(second)];
    assert.equal((await stage(dead, 1)).recipients.length, 1);
    await closeDispatch(em(), working, { afterSeq: 3, hasAccepted: true });
    await setStates(["SENDING", "SENT", "SENT"]);

    const { status, sent, unknown, lost } = await finish();
    assert.deepEqual({ status, sent, unknown, lost }, { status: "SENT", sent: 2, unknown: 1, lost: 1 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
    assert.equal((await open(second)).epoch, dead.epoch + 2, "a new epoch");
  });

  it("lists rows as unknown whose outcomes Postgres lost while their attempt mailed on", async () => {
    const { sender, em, open, stage, setStates, finish } = await untaken(3);
    const lane = await open();
    assert.equal((await stage(lane, 1)).recipients.length, 1);
    // After a failover the attempt ends in order: it had settled the first row, and Postgres does not know it.
    await setStates(["SENDING", "SENT", "SENT"]);
    await closeDispatch(em(), lane, { afterSeq: 3, hasAccepted: true });

    const { status, sent, unknown, lost, reviewMs } = await finish();
    assert.deepEqual({ status, sent, unknown, lost }, { status: "SENT", sent: 2, unknown: 1, lost: 1 });
    assert.ok(reviewMs > 0, "an operator may have them mailed again");
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });

  it("opens a review of unknown outcomes once: one that an operator closed stays closed", async () => {
    const { em, sendId, setStates, finish } = await untaken(3);
    await setStates(["SENT", "SENT", "UNKNOWN"]);
    assert.ok((await finish()).reviewMs > 0);
    assert.ok((await finish()).reviewMs > 0, "it is still open");
    await closeReview(em(), sendId);
    assert.deepEqual(await finish(), { status: "SENT", sent: 2, unknown: 1, cancelled: 0, lost: 0, reviewMs: 0 });
  });
});
