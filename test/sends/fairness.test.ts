import assert from "node:assert/strict";
import { TeamSlots } from "../../activities/dispatch/team-slots.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { sendWorkflowsOf } from "../support/send-workflows.ts";
import { anotherNewsletter, caughtMails, makeSender, setFaults, startSend, untilStatus } from "../support/sending.ts";
import { startSmtpProxy } from "../support/smtp-proxy.ts";

/** Recipients after which a slice ends in these tests. */
const SLICE_ROWS = 5;
/**
 * Slices of the large team that may begin while the small team's waits. One or two were measured: the server takes
 * teams in turns, and a new team's first turn is drawn by lot within the current one.
 */
const MOST_AHEAD = 3;

const { it, longIt } = testsOf();

/** Workers of a suite's own, in a namespace of their own. @param slots of the one that dispatches */
function useNamespace(slots: number): () => TestNamespace {
  let own: TestNamespace | undefined;
  before(async () => {
    own = await openNamespace();
    await Promise.all([own.startWorker("sends"), own.startWorker("dispatch", settingsOf(slots))]);
  });
  after(() => own?.close());
  return () => own ?? assert.fail("the namespace is open when a test begins");
}

const settingsOf = (slots: number) => ({
  ACTIVITY_CONCURRENCY: String(slots),
  DISPATCH_SLICE_ROWS: String(SLICE_ROWS),
  SMTP_TIMEOUT_MS: "60000",
});

describe("Fairness", () => {
  // One slot, so that mails arrive in the order in which slices begin.
  const namespace = useNamespace(1);

  /** Waits until a slice of the send waits for a slot or has one. */
  const untilQueued = (sendId: string) =>
    eventually(
      async () => {
        const { raw } = await namespace().client.workflow.getHandle(sendWorkflowId(sendId)).describe();
        return raw.pendingActivities?.some(({ activityType }) => activityType?.name === "dispatchSlice");
      },
      { what: `a slice of ${sendId}` },
    );

  /**
   * One of a large team's sends has the slot and the others wait for it when a small team's send comes last.
   * @returns number of the large team's mails before the small team's last one, without those of the first slice
   */
  async function mailsAhead({ sends, recipients }: { sends: number; recipients: number }): Promise<number> {
    const own = namespace();
    const gate = await startSmtpProxy({ held: true });
    try {
      const large = own.within(await makeSender({ recipients, account: gate.account }));
      const small = own.within(await makeSender({ recipients: 3 }));
      await startSend(large);
      await eventually(() => gate.open > 0, { what: "a slice in the slot" });
      const others = await Promise.all(Array.from({ length: sends - 1 }, () => anotherNewsletter(large)));
      const waiting = await Promise.all(others.map(startSend));
      await Promise.all(waiting.map(({ data }) => untilQueued(data.id)));
      const { data } = await startSend(small);
      await untilQueued(data.id);

      gate.release();
      for (const sender of [small, large, ...others]) await untilStatus(sender, ["SENT"]);
      const end = (await caughtMails(small)).at(-1)?.id ?? assert.fail("no mail of the small team");
      const mails = await caughtMails(large);
      assert.equal(mails.length, sends * recipients);
      return mails.filter(({ id }) => id < end).length - Math.min(recipients, SLICE_ROWS);
    } finally {
      gate.close();
    }
  }

  for (const [sends, test] of [[10, it] as const, [40, longIt] as const]) {
    test(`starts a small team's send before most of a large team's ${sends} earlier ones`, async () => {
      const ahead = await mailsAhead({ sends, recipients: 1 });
      assert.ok(ahead <= MOST_AHEAD, `${ahead} sends of the large team came first`);
    });
  }

  longIt("starts a small team's send between slices of a large team's send", async () => {
    const ahead = await mailsAhead({ sends: 1, recipients: 200 });
    assert.ok(ahead <= MOST_AHEAD * SLICE_ROWS, `${ahead} mails of the large team came first`);
  });
});

describe("The slots of a worker", () => {
  it("are shared: a team takes no more than its own, and asks again at growing times", async () => {
    const slots = new TeamSlots(2, 4);
    const ends: (() => void)[] = [];
    const begin = (team: string) =>
      slots.run<string | number>(team, () => new Promise((resolve) => ends.push(() => resolve(team))), Number);
    const [first, second] = [begin("large"), begin("large")];
    const waits = [Number(await begin("large")), Number(await begin("large"))];
    assert.ok((waits[0] ?? 0) > 1_000 && (waits[1] ?? 0) > (waits[0] ?? 0), waits.join());
    assert.deepEqual([slots.hasRoom("large"), slots.hasRoom("small")], [false, true]);
    const small = begin("small");
    assert.equal(slots.hasRoom("small"), false, "a place is left to an activity that is no slice");
    for (const end of ends) end();
    assert.deepEqual(await Promise.all([first, second, small]), ["large", "large", "small"]);
    assert.ok(slots.hasRoom("large"));
  });

  it("let a team rest for the time of its costly messages while other teams mail", async () => {
    const slots = new TeamSlots(2, 4);
    slots.countFill("costly", 500);
    assert.equal(slots.restMs("costly"), 0, "it is alone");
    const fill = async () => {
      slots.countFill("costly", 0.1);
      assert.equal(slots.restMs("costly"), 0, "an ordinary message");
      slots.countFill("costly", 500);
      assert.ok(slots.restMs("costly") > 400);
      assert.equal(slots.restMs("plain"), 0);
    };
    const full = () => assert.fail("both teams have a slot");
    await slots.run("plain", () => slots.run("costly", fill, full), full);
  });
});

describe("A worker with several slots", () => {
  /** More than one team may take, fewer than its sends. */
  const SLOTS = 6;
  const namespace = useNamespace(SLOTS);

  longIt("starts a small team's send while the one slice of a large team's send continues, not after it", async () => {
    const own = namespace();
    const large = own.within(await makeSender({ recipients: 3_000, account: { maxConnections: 4 } }));
    await setFaults([{ stage: "data", match: large.audience, delayMs: 5 }]);
    try {
      const { data } = await startSend(large);
      const handle = own.client.workflow.getHandle(sendWorkflowId(data.id));
      const slices = async () => {
        const { events = [] } = await handle.fetchHistory();
        return events?.filter(
          ({ activityTaskScheduledEventAttributes: task }) => task?.activityType?.name === "dispatchSlice",
        ).length;
      };
      // A slice that ended after its first rows would have been followed by another one.
      await eventually(async () => (await caughtMails(large)).length > 10 * SLICE_ROWS, { what: "a long slice" });
      assert.equal(await slices(), 1);
      const small = own.within(await makeSender({ recipients: 3 }));
      await startSend(small);
      await untilStatus(small, ["SENT"]);
      assert.equal(await slices(), 1, "the large team's slice is under way yet");
      await setFaults([]);
      await untilStatus(large, ["SENT"]);
    } finally {
      await setFaults([]);
    }
  });

  longIt("leaves the mails of another team their share of its thread beside a costly template", async () => {
    const plainMails = 400;
    // Takes some milliseconds for each recipient.
    const body = `<html><body>{% assign text = "${"Aé".repeat(1_200)}" %}${"{{ text | slugify: 'latin' | size }} ".repeat(100)}</body></html>`;
    const costly = namespace().within(await makeSender({ recipients: 3_000, body }));
    const plain = namespace().within(await makeSender({ recipients: plainMails }));
    const { data } = await startSend(costly);
    const mailed = async () => (await caughtMails(costly)).length;
    await eventually(async () => (await mailed()) > 20, { what: "mails of the costly template" });
    await startSend(plain);
    await eventually(async () => (await caughtMails(plain)).length > 0, { what: "a plain mail" });
    const before = await mailed();
    await untilStatus(plain, ["SENT"]);
    const meanwhile = (await mailed()) - before;
    assert.ok(meanwhile < plainMails / 2, `${meanwhile} costly mails beside ${plainMails} plain ones`);
    await sendWorkflowsOf(() => namespace().client).command(data.id, "cancel");
  });
});
