import assert from "node:assert/strict";
import { sql } from "kysely";
import type { RefusalRun } from "../../db/entities/account.ts";
import { kysely } from "../../db/orm.ts";
import { type Mailed, type MailOutcome, UNSENDABLE } from "../../domain/mail/outcome.ts";
import { classifyAnswer, parseReply } from "../../domain/mail/smtp-answer.ts";
import { Refusals } from "../../domain/sends/ledger/refusals.ts";
import { readAccountFacts } from "../../domain/sends/operators/account-inspection.ts";
import { startSink } from "../mail/smtp-sink.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { kill } from "../support/processes.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  ledgerStates,
  mailsTo,
  makeSender,
  type Sender,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { addPerson, makeSequence, soon, untilEnrolled } from "../support/sequences.ts";

const FROM = "news@sender.example";
type Item = { seq: number; email: string; wasDeferred: boolean };
const NEW = { refusals: null, hasAccepted: false, areGone: false, isWave: false };

/** Of recipients at so many domains, whose numbers begin at `first`. @param reply "ok" is an accepted mail */
function replies(
  reply: string,
  count: number,
  { first = 0, domains = 3, isFirstOfLogin = false } = {},
): Mailed<Item>[] {
  return Array.from({ length: count }, (_, i) => {
    const seq = first + i;
    const email = `reader${seq}@mailbox${i % domains}.example`;
    const response = reply.replace("%s", email);
    const outcome: MailOutcome =
      reply === "ok"
        ? { outcome: "sent", reason: "accepted" }
        : classifyAnswer({ stage: "rcpt", ...parseReply(response), response }, { from: FROM, to: email });
    if ("refusal" in outcome && outcome.refusal) outcome.refusal.isFirstOfLogin = isFirstOfLogin;
    return { item: { seq, email, wasDeferred: false }, outcome };
  });
}

/** What is written of each: its state, and whether it is suppressed. */
const written = (mails: readonly Mailed<Item>[]) =>
  mails.map(({ item, outcome }) => {
    const { reason } = outcome;
    const isGone = outcome.outcome === "rejected" && outcome.suppress;
    return `${item.seq} ${reason === "undecided" ? reason : outcome.outcome}${isGone ? " and suppressed" : ""}`;
  });

const found = (refusals: Refusals) => refusals.pauseCause;

const UNKNOWN_WORDS = "550 denied";
const NAMED = "550 No such user here";
const CODED = "550 5.1.1 <%s>: User unknown";
const SENDER = "550 Sender address rejected";

describe("The refusals of a slice", () => {
  for (const reply of [UNKNOWN_WORDS, NAMED, CODED, "550 5.7.1 blocked", "552 5.2.2 Quota exceeded for %s"]) {
    it(`are the account's when ten recipients of two domains are told the same: ${reply}`, () => {
      const refusals = new Refusals(NEW);
      const undecided = Array.from({ length: 9 }, (_, seq) => `${seq} undecided`);
      assert.deepEqual(written(refusals.take(replies(reply, 9))), undecided);
      assert.equal(found(refusals), undefined);
      assert.equal(written(refusals.take(replies(reply, 1, { first: 9 })))[0], "9 undecided");
      assert.equal(found(refusals)?.isAccounts, true);
      assert.ok(!found(refusals)?.response?.includes("@"), "the reply without addresses");
      assert.deepEqual(
        written(refusals.take(replies("ok", 1, { first: 10 }))),
        ["10 sent"],
        "what is in flight is late",
      );
      assert.deepEqual(refusals.decide(), []);
    });
  }

  it("are the recipients' once a mail is accepted after them: then an unknown 550 suppresses", () => {
    const refusals = new Refusals(NEW);
    refusals.take(replies(UNKNOWN_WORDS, 5));
    refusals.take(replies("550 5.7.1 blocked", 4, { first: 5 }));
    assert.deepEqual(written(refusals.take(replies("ok", 1, { first: 9 }))), [
      ...[0, 1, 2, 3, 4].map((seq) => `${seq} rejected and suppressed`),
      ...[5, 6, 7, 8].map((seq) => `${seq} rejected`),
      "9 sent",
    ]);
    refusals.take(replies(UNKNOWN_WORDS, 9, { first: 10 }));
    assert.equal(found(refusals), undefined, "the count began anew");
  });

  it("are written once where the accepted mail comes in the same batch", () => {
    const refusals = new Refusals(NEW);
    const mails = [...replies(UNKNOWN_WORDS, 1), ...replies("ok", 1, { first: 1 }), ...replies(NAMED, 1, { first: 2 })];
    assert.deepEqual(written(refusals.take(mails)), ["0 rejected and suppressed", "1 sent", "2 undecided"]);
  });

  it("are no evidence at one domain, until twenty are in a row", () => {
    for (const reply of [NAMED, "550 5.7.1 blocked"]) {
      const refusals = new Refusals(NEW);
      refusals.take(replies(reply, 19, { domains: 1 }));
      assert.equal(found(refusals), undefined);
      refusals.take(replies("550 5.7.1 for another reason", 1, { first: 19, domains: 1 }));
      assert.equal(found(refusals)?.isAccounts, false, "the account may be well");
    }
  });

  it("are not decided by a mail whose recipient the server had taken before", () => {
    const at = (mails: Mailed<Item>[], facts: object) => {
      for (const { outcome } of mails) Object.assign("refusal" in outcome ? (outcome.refusal ?? {}) : outcome, facts);
      return mails;
    };
    const refusals = new Refusals(NEW);
    refusals.take(at(replies(UNKNOWN_WORDS, 3), { at: 100 }));
    assert.deepEqual(written(refusals.take(at(replies("ok", 1, { first: 3 }), { begunAt: 99 }))), ["3 sent"]);
    refusals.take(at(replies(UNKNOWN_WORDS, 3, { first: 4 }), { at: 200 }));
    assert.deepEqual(written(refusals.take(at(replies("ok", 1, { first: 7 }), { begunAt: 150 }))), [
      ...["0 rejected and suppressed", "1 rejected and suppressed", "2 rejected and suppressed", "7 sent"],
    ]);
    assert.equal(refusals.run?.same, 3, "those after it count on");
    const other = at(replies(UNKNOWN_WORDS, 1, { first: 8 }), { at: 300, acceptedBegunAt: 250 });
    assert.deepEqual(written(refusals.take(other)).length, 4, "another send of the account had mail accepted");
    assert.equal(refusals.run?.same, 1);
  });

  it("about the account are asked once more after an accepted mail, and are then final without a suppression", () => {
    const refusals = new Refusals({ ...NEW, hasAccepted: true });
    assert.deepEqual(written(refusals.take([...replies(SENDER, 1), ...replies("ok", 1, { first: 1 })])), [
      "1 sent",
      "0 undecided",
    ]);
    const again = replies(SENDER, 1).map(({ item, outcome }) => ({ item: { ...item, wasDeferred: true }, outcome }));
    assert.deepEqual(written(refusals.take([...again, ...replies("ok", 1, { first: 1 })])), ["0 rejected", "1 sent"]);
  });

  it("suppress at once where a code names the mailbox and others were accepted in the send", () => {
    const refusals = new Refusals({ ...NEW, hasAccepted: true });
    const all = written(refusals.take(replies(CODED, 30)));
    assert.deepEqual(
      all,
      Array.from({ length: 30 }, (_, seq) => `${seq} rejected and suppressed`),
    );
    assert.equal(found(refusals), undefined);
    refusals.take(replies(NAMED, 10));
    assert.ok(found(refusals), "words alone prove less");
  });

  it("suppress at once what names a mailbox after an operator said that these people are gone", () => {
    const refusals = new Refusals({ ...NEW, areGone: true });
    const all = written(refusals.take([...replies(CODED, 10), ...replies(NAMED, 10, { first: 10 })]));
    assert.deepEqual(
      all,
      Array.from({ length: 20 }, (_, seq) => `${seq} rejected and suppressed`),
    );
    refusals.take(replies(UNKNOWN_WORDS, 10));
    assert.ok(found(refusals));
  });

  it("known to be about the account find it at the first of a login that has mailed nothing, else at the third", () => {
    const first = new Refusals(NEW);
    first.take(replies(SENDER, 1, { isFirstOfLogin: true }));
    assert.equal(found(first)?.isAccounts, true);
    const later = new Refusals({ ...NEW, hasAccepted: true });
    later.take([
      ...replies(SENDER, 2, { domains: 1 }),
      ...replies("ok", 1, { first: 2 }),
      ...replies(SENDER, 2, { first: 3 }),
    ]);
    assert.equal(found(later), undefined, "two, and two after an accepted mail");
    later.take(replies("452 4.5.3 You have reached your hourly sending limit", 1, { first: 5 }));
    assert.equal(found(later)?.isAccounts, true);
  });

  it("are decided by their words at the end of the lane: nobody is suppressed whose mailbox was not named", () => {
    const refusals = new Refusals(NEW);
    refusals.take([
      ...replies(UNKNOWN_WORDS, 2),
      ...replies(NAMED, 2, { first: 2 }),
      ...replies(CODED, 2, { first: 4 }),
    ]);
    assert.deepEqual(written(refusals.decide()), [
      ...["0 rejected", "1 rejected", "2 rejected and suppressed", "3 rejected and suppressed"],
      ...["4 rejected and suppressed", "5 rejected and suppressed"],
    ]);
    const accounts = new Refusals(NEW);
    accounts.take(replies(SENDER, 1));
    assert.deepEqual(accounts.decide(), []);
    assert.equal(found(accounts)?.isAccounts, true, "nobody is refused for what is the account's");
    const odd = new Refusals({ ...NEW, hasAccepted: true });
    odd.take(replies(SENDER, 1, { isFirstOfLogin: true }));
    assert.deepEqual([odd.decide(), found(odd)], [[], undefined], "one after accepted mails is asked again");
  });

  it("count a recipient once who is asked again, and begin anew after an operator's command", () => {
    const slice = new Refusals(NEW);
    slice.take(replies(UNKNOWN_WORDS, 6));
    const again = replies(UNKNOWN_WORDS, 6).map(({ item, outcome }) => ({
      item: { ...item, wasDeferred: true },
      outcome,
    }));
    const next = new Refusals({ ...NEW, refusals: slice.run });
    next.take(again);
    assert.deepEqual([next.run?.same, found(next)], [6, undefined]);
    const commanded = new Refusals({ ...NEW, refusals: slice.run }, true);
    commanded.take(replies(UNKNOWN_WORDS, 9));
    assert.equal(found(commanded), undefined);
  });

  it("are nobody's where ten mails in a row cannot be composed: they pause the send, and count for no account", () => {
    const refusals = new Refusals(NEW);
    const unsendable = replies("ok", 10).map(({ item }) => ({ item, outcome: UNSENDABLE }));
    assert.equal(written(refusals.take(unsendable)).length, 10);
    assert.deepEqual([found(refusals)?.reason, found(refusals)?.isAccounts], ["mails_unsendable", false]);
    assert.equal(refusals.run, null);
    const one = new Refusals(NEW);
    one.take(unsendable.slice(0, 1));
    assert.deepEqual(written(one.take(replies("ok", 1, { first: 1 }))), ["0 rejected", "1 sent"]);
    const single = new Refusals({ ...NEW, isWave: true });
    single.take(unsendable.slice(0, 1));
    assert.deepEqual(written(single.decide()), ["0 rejected"]);
  });

  it("of a wave that has mailed nobody are asked again until others are accepted, and count on from the wave before", () => {
    const wave = new Refusals({ ...NEW, isWave: true });
    wave.take([...replies(UNKNOWN_WORDS, 1), ...replies(CODED, 1, { first: 1 })]);
    assert.deepEqual(wave.decide(), []);
    const again = (reply: string, refusals: RefusalRun | null) => {
      const next = new Refusals({ ...NEW, isWave: true, refusals });
      next.take(replies(reply, 1).map(({ item, outcome }) => ({ item: { ...item, wasDeferred: true }, outcome })));
      return written(next.decide());
    };
    assert.deepEqual([again(UNKNOWN_WORDS, wave.run), again(CODED, wave.run)], [[], []], "two were refused meanwhile");
    assert.deepEqual(again(UNKNOWN_WORDS, null), ["0 rejected"], "others were accepted");
    const alone = new Refusals({ ...NEW, isWave: true });
    alone.take(replies(CODED, 1));
    assert.deepEqual(again(CODED, alone.run), ["0 rejected and suppressed"], "no other recipient was refused");
    let run = null;
    for (let seq = 0; seq < 10; seq++) {
      const next: Refusals = new Refusals({ ...NEW, isWave: true, refusals: run });
      next.take(replies(UNKNOWN_WORDS, 2, { first: seq }).slice(seq % 2, (seq % 2) + 1));
      assert.equal(found(next) !== undefined, seq === 9);
      next.decide();
      run = next.run;
    }
  });
});

/** At seven domains below the sender's audience. */
const spread = (audience: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({
    email: `reader${i}@mailbox${i % 7}.${audience}`,
    firstName: null,
    lastName: null,
  }));

async function makeSpread(recipients: number): Promise<Sender> {
  const audience = `${unique("spread")}.example`;
  const sender = await makeSender({ recipients: spread(audience, recipients) });
  return { ...sender, audience };
}

const suppressedOf = async ({ client }: Sender) => (await client.get("/suppressions")).body.data.length;
const accountOf = ({ em, accountId }: Sender) => readAccountFacts(em.fork(), accountId);

describe("A relay that refuses the sender", () => {
  const temporal = useSendWorkflows();
  afterEach(() => setFaults([]));

  for (const [stage, reply, accepted] of [
    ["rcpt", "550 Sending limit of this user is reached", 10],
    ["rcpt", "550 5.1.1 Sender address rejected: User unknown in local recipient table", 0],
    ["rcpt", "550 denied", 10],
    ["data", "554 5.2.0 SubmissionQuotaExceeded", 10],
    ["data", "554 5.3.0 not today", 0],
  ] as const) {
    it(`pauses the send and suppresses nobody: ${reply} after ${accepted} mails`, async () => {
      const sender = await makeSpread(45);
      const match = sender.audience;
      const taken = accepted > 0 ? [{ stage, match, times: accepted }] : [];
      await setFaults([...taken, { stage, match, code: Number(reply.slice(0, 3)), message: reply.slice(4) }]);
      const { data } = await startSend(sender);
      await untilStatus(sender, ["PAUSED"]);
      const states = await ledgerStates(sender);
      assert.deepEqual(states, { ...(accepted > 0 && { SENT: accepted }), QUEUED: 45 - accepted });
      assert.equal(await suppressedOf(sender), 0);
      const { status, lastError, lastReply } = await accountOf(sender);
      assert.deepEqual([status, lastError, lastReply], ["ERROR", "sender_refused", reply]);
      await temporal.untilDetails(data.id, ["policy_refusals", "Nobody was suppressed"]);
      await setFaults([]);
      await temporal.command(data.id, "resume");
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await ledgerStates(sender), { SENT: 45 });
      const caught = await Promise.all([0, 1, 2, 3, 4, 5, 6].map((i) => mailsTo(`@mailbox${i}.${sender.audience}`)));
      assert.equal(caught.flat().length, 45, "nobody was mailed twice");
      assert.equal((await accountOf(sender)).status, "ACTIVE");
    });
  }

  it("is asked again by itself where it refuses the account for now", async () => {
    const sender = await makeSpread(12);
    const match = sender.audience;
    await setFaults([{ stage: "data", match, code: 452, message: "4.5.3 You have reached your hourly sending limit" }]);
    const { data } = await startSend(sender);
    await temporal.untilDetails(data.id, ["sender_refused", "hourly sending limit", "tried again"]);
    assert.equal((await accountOf(sender)).status, "ACTIVE");
    await setFaults([]);
    await temporal.command(data.id, "retry");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 12 });
  });

  it("is told from a stale list by an operator, who resumes it: these people are gone", async () => {
    const sender = await makeSpread(20);
    await setFaults([{ stage: "rcpt", match: sender.audience, code: 550, message: "5.1.1 User unknown" }]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    assert.deepEqual([await ledgerStates(sender), await suppressedOf(sender)], [{ QUEUED: 20 }, 0]);
    await temporal.command(data.id, "resume", "gone");
    await untilStatus(sender, ["FAILED"]);
    assert.deepEqual([await ledgerStates(sender), await suppressedOf(sender)], [{ REJECTED: 20 }, 20]);
  });

  it("loses nobody when the worker dies before it is decided", async () => {
    const sender = await makeSpread(6);
    let refused = 0;
    const sink = await startSink({
      // The last recipient keeps the lane open.
      dot: () => (++refused > 5 ? "hang" : { code: 554, text: "5.3.0 not today" }),
    });
    await sql`update email_accounts set port = ${sink.port}, max_connections = 1 where id = ${sender.accountId}`.execute(
      kysely(sender.em.fork()),
    );
    await startSend(sender);
    await eventually(async () => refused > 5 && (await ledgerStates(sender)).DEFERRED === 5, { what: "5 undecided" });
    const { again } = kill("dispatch");
    await again;
    await eventually(async () => (await ledgerStates(sender)).UNKNOWN === 1, { what: "the one in flight unknown" });
    assert.deepEqual(await ledgerStates(sender), { DEFERRED: 5, UNKNOWN: 1 });
    await sink.close();
  });

  it("pauses the tenth wave of a sequence, suppresses nobody, and nobody leaves", async () => {
    const sender = await makeSpread(0);
    const id = await makeSequence(sender, { steps: [soon("welcome")] });
    await setFaults([{ stage: "rcpt", match: sender.audience, code: 550, message: "denied" }]);
    for (const { email } of spread(sender.audience, 10)) await addPerson(sender, email);
    await eventually(
      async () => {
        const { rows } = await sql`select from sends where resource_id = ${id} and status = 'PAUSED'
          and pause_reason = 'policy_refusals'`.execute(kysely(sender.em.fork()));
        return rows.length > 0;
      },
      { what: "a paused wave" },
    );
    await untilEnrolled(
      sender,
      id,
      (people) => people.length === 10 && people.every(({ state }) => state === "ACTIVE"),
    );
    assert.equal(await suppressedOf(sender), 0);
    assert.equal((await accountOf(sender)).lastReply, "550 denied");
  });
});
