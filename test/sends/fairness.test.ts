import assert from "node:assert/strict";
import { TeamSlots } from "../../activities/dispatch.ts";
import { sendWorkflowId } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { anotherNewsletter, caughtMails, makeSender, startSend, untilStatus } from "../support/sending.ts";
import { startSmtpProxy } from "../support/smtp-proxy.ts";

/** One or two were measured: the server takes teams in turns, and draws a new team's first turn by lot. */
const MOST_AHEAD = 3;

describe("Fairness", () => {
  let own: TestNamespace;
  before(async () => {
    own = await openNamespace();
    // One slot, so that mails arrive in the order in which slices begin.
    const settings = { ACTIVITY_CONCURRENCY: "1", SMTP_TIMEOUT_MS: "60000" };
    await Promise.all([own.startWorker("sends"), own.startWorker("dispatch", settings)]);
  });
  after(() => own?.close());

  /** Waits until a slice of the send waits for a slot or has one. */
  const untilQueued = (sendId: string) =>
    eventually(
      async () => {
        const { raw } = await own.client.workflow.getHandle(sendWorkflowId(sendId)).describe();
        return raw.pendingActivities?.some(({ activityType }) => activityType?.name === "dispatchSlice");
      },
      { what: `a slice of ${sendId}` },
    );

  /** @returns number of the large team's mails before the small team's last one, without that of the first slice */
  async function mailsAhead(sends: number): Promise<number> {
    const gate = await startSmtpProxy({ held: true });
    try {
      const large = own.within(await makeSender({ recipients: 1, account: gate.account }));
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
      assert.equal(mails.length, sends);
      return mails.filter(({ id }) => id < end).length - 1;
    } finally {
      gate.close();
    }
  }

  it("starts a small team's send before most of a large team's earlier ones", async () => {
    const ahead = await mailsAhead(10);
    assert.ok(ahead <= MOST_AHEAD, `${ahead} sends of the large team came first`);
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
