import assert from "node:assert/strict";
import { type Client, WorkflowUpdateStage } from "@temporalio/client";
import { sql } from "kysely";
import { sendCommands } from "../../app/commands/sends.ts";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { inProcess } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import {
  caughtMails,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  sendAndWait,
  setFaults,
  slowAfter,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { temporalClient } from "../support/temporal.ts";

let temporal: Client;
let close: () => Promise<void>;

const workflowOf = (sendId: string) => temporal.workflow.getHandle(sendWorkflowId(sendId));

/** Ages the unknown outcome until no worker that is presumed dead can report another. */
const age = ({ em }: Sender, sendId: string) =>
  sql`update send_recipients set updated_at = now() - interval '1 hour' where send_id = ${sendId} and state = 'UNKNOWN'`.execute(
    kysely(em),
  );

const sendIdOf = async ({ em, newsletterId }: Sender): Promise<string> => {
  const { send_id } = await kysely(em)
    .selectFrom("newsletters")
    .select("send_id")
    .where("id", "=", newsletterId)
    .executeTakeFirstOrThrow();
  assert.ok(send_id);
  return send_id;
};

/** A send that has ended but for `unknown` recipients whose connection was cut after the final dot. */
async function sentWithUnknown(unknown: number) {
  const sender = await makeSender({ recipients: 6, credits: 6 });
  await setFaults([{ stage: "data", match: sender.audience, drop: true, times: unknown }]);
  await sendAndWait(sender);
  await setFaults([]);
  assert.deepEqual(await ledgerStates(sender), { SENT: 6 - unknown, UNKNOWN: unknown });
  const sendId = await sendIdOf(sender);
  return { sender, sendId, handle: workflowOf(sendId) };
}

describe("Unknown outcomes", () => {
  before(async () => {
    ({ client: temporal, close } = await temporalClient());
  });
  after(() => close());
  afterEach(() => setFaults([]));

  it("set NeedsOperator, and are mailed once more by resendUnknown", async () => {
    const { sender, sendId, handle } = await sentWithUnknown(2);
    await eventually(async () => (await handle.describe()).searchAttributes["NeedsOperator"]?.[0] === true, {
      what: "the call for an operator",
    });
    const settled = { available: 0, reserved: 0, mismatch: false };
    assert.deepEqual(await credits(sender), settled);
    const before = new Map((await caughtMails(sender)).map(({ to, messageId }) => [to[0], messageId]));
    await age(sender, sendId);

    assert.equal(await handle.executeUpdate("resendUnknown"), "2 queued again");
    const result = (await handle.result()) as Record<string, unknown>;
    assert.deepEqual(result, { outcome: "SENT", sent: 6, unknown: 0 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 6 });
    assert.equal((await untilStatus(sender, ["SENT"])).status, "SENT");
    assert.deepEqual(await credits(sender), settled, "a mail is paid for once");
    const after = await caughtMails(sender);
    assert.equal(new Set(after.flatMap(({ to }) => to)).size, 6);
    for (const { to, messageId } of after) {
      const first = before.get(to[0] ?? "");
      if (first) assert.equal(messageId, first, "the same mail is recognisable as the same");
    }
    const { searchAttributes } = await handle.describe();
    assert.equal(searchAttributes["NeedsOperator"]?.[0], false);
  });

  it("are not mailed again while a worker that is presumed dead may have them in flight", async () => {
    const { sender, handle } = await sentWithUnknown(1);
    const mails = (await caughtMails(sender)).length;
    await handle.startUpdate("resendUnknown", { waitForStage: WorkflowUpdateStage.ACCEPTED });
    await eventually(
      async () => {
        const { events } = await handle.fetchHistory();
        return events?.some(({ timerStartedEventAttributes: timer }) => {
          const seconds = Number(timer?.startToFireTimeout?.seconds ?? 0);
          // Twice four replies of the 5 s that the test stack allows, less the time that has passed.
          return seconds > 20 && seconds <= 40;
        });
      },
      { what: "the wait" },
    );
    assert.deepEqual(await ledgerStates(sender), { SENT: 5, UNKNOWN: 1 });
    assert.equal((await caughtMails(sender)).length, mails);
    await handle.terminate("the test has ended");
  });

  it("stay unknown after a cancel", async () => {
    const { sender, handle } = await sentWithUnknown(1);
    await handle.executeUpdate("cancel");
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 5, unknown: 1 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 5, UNKNOWN: 1 });
    assert.equal((await untilStatus(sender, ["SENT", "CANCELLED"])).status, "SENT");
  });

  it("are mailed again by the command send:resend-unknown after their review has ended, which refuses other commands", async () => {
    const { sender, sendId, handle } = await sentWithUnknown(1);
    await handle.executeUpdate("cancel");
    await handle.result();
    const command = (name: string) => inProcess(sendCommands, name, sender.newsletterId);
    await assert.rejects(command("send:retry"), /the send is SENT\. Its review has ended.* send:resend-unknown/);
    await age(sender, sendId);
    const { data } = await command("send:resend-unknown");
    assert.equal(data["answer"], "1 queued again");
    await eventually(async () => (await ledgerStates(sender)).SENT === 6, { what: "the mail" });
    assert.deepEqual(await workflowOf(sendId).result(), { outcome: "SENT", sent: 6, unknown: 0 });
    await assert.rejects(
      command("send:resend-unknown"),
      /No workflow of \w+ runs: the send is SENT\. No outcome is unknown\.$/,
    );
  });

  it("are mailed again before the queued recipients when the send is still SENDING", async () => {
    const sender = await makeSender({ recipients: 40, account: { maxConnections: 1 } });
    await slowAfter(1, sender, [{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const { data } = await startSend(sender);
    const handle = workflowOf(data.id);
    await eventually(async () => ((await ledgerStates(sender))["UNKNOWN"] ?? 0) === 1, { what: "an unknown outcome" });
    await handle.executeUpdate("pause");
    await setFaults([]);
    await age(sender, data.id);
    assert.equal(await handle.executeUpdate("resendUnknown"), "1 queued again");
    await handle.executeUpdate("resume");
    assert.equal((await untilStatus(sender, ["SENT"])).status, "SENT");
    assert.deepEqual(await ledgerStates(sender), { SENT: 40 });
    await handle.result();
    await assert.rejects(handle.executeUpdate("resendUnknown"), /workflow execution already completed/);
  });

  for (const update of ["pause", "cancel"]) {
    it(`are listed before a ${update} answers, when the worker died and no other took over its rows in flight`, async () => {
      const sender = await makeSender({ recipients: 30, credits: 30, account: { maxConnections: 1 } });
      await slowAfter(5, sender);
      const { data } = await startSend(sender);
      const handle = workflowOf(data.id);
      await eventually(async () => ((await ledgerStates(sender))["SENT"] ?? 0) > 3, { what: "some mail" });
      await handle.executeUpdate("pause");
      const db = kysely(sender.em);
      await sql`update send_recipients set state = 'SENDING' where send_id = ${data.id} and state = 'QUEUED' and seq in (
        select max(seq) from send_recipients where send_id = ${data.id} and state = 'QUEUED')`.execute(db);
      await sql`update send_lanes set dispatching = true where send_id = ${data.id}`.execute(db);
      await handle.executeUpdate(update);
      const { UNKNOWN: unknown, SENDING: sending = 0, SENT: sent = 0 } = await ledgerStates(sender);
      assert.deepEqual({ unknown, sending }, { unknown: 1, sending: 0 });
      if (update === "pause") await handle.executeUpdate("cancel");
      const { available, ...rest } = await credits(sender);
      assert.equal(available, 30 - sent - 1, "what may have arrived is paid for");
      assert.deepEqual(rest, { reserved: 0, mismatch: false });
    });
  }

  it("are unknown again when their resend is cancelled, and the send stays SENT", async () => {
    const { sender, sendId, handle } = await sentWithUnknown(2);
    await age(sender, sendId);
    await setFaults([{ stage: "data", match: sender.audience, code: 450 }]);
    await handle.executeUpdate("resendUnknown");
    await handle.executeUpdate("cancel");
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 4, unknown: 2 });
    assert.deepEqual(await ledgerStates(sender), { SENT: 4, UNKNOWN: 2 });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
    assert.equal((await untilStatus(sender, ["SENT", "CANCELLED"])).status, "SENT");
  });
});
