import assert from "node:assert/strict";
import { WorkflowUpdateFailedError } from "@temporalio/client";
import { ApplicationFailure } from "@temporalio/common";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { readSend } from "../../domain/sends/ledger/lifecycle.ts";
import { inProcess, runApp } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  caughtMails,
  confirm,
  credits,
  type FaultRule,
  ledgerStates,
  makeSender,
  type Sender,
  sendAndWait,
  setFaults,
  slowAfter,
  startSend,
  tokenOf,
  untilSent,
  untilStatus,
} from "../support/sending.ts";
import { makeLong } from "../support/temporal.ts";
import { together } from "../support/together.ts";

/** Makes the catcher misbehave at the end of a sender's mails; none makes it behave again. */
const fault = ({ audience }: Sender, rules: Omit<FaultRule, "stage" | "match">[]) =>
  setFaults(
    rules.map((rule) => ({ stage: "data", match: audience, ...rule })),
    audience,
  );

const statusOf = async ({ em }: Sender, sendId: string) => (await readSend(em.fork(), sendId))?.status;

/** Ages the unknown outcome until no worker that is presumed dead can report another. */
const age = ({ em }: Sender, sendId: string) =>
  sql`update send_recipients set updated_at = now() - interval '1 hour' where send_id = ${sendId} and state = 'UNKNOWN'`.execute(
    kysely(em),
  );

describe("Operators' updates of a send", () => {
  const it = together();
  const { longIt } = testsOf();
  const temporal = useSendWorkflows();
  const { workflowOf, command, begin, detailsOf, needsOperator } = temporal;
  after(() => setFaults([]));

  /** A send under way on one connection of each account; it takes `delayMs` for each of its mails but the first. */
  async function underWay(recipients: number, delayMs: number) {
    const sender = await makeSender({ recipients, credits: recipients, account: { maxConnections: 1 } });
    await fault(sender, [{ times: 1 }, { delayMs }]);
    const { data } = await startSend(sender);
    await untilSent(sender, 0);
    return { sender, sendId: data.id as string, handle: workflowOf(data.id) };
  }

  /** A send that has ended, with recipients whose connection was cut after the final dot. */
  async function sentWithUnknown(unknown: number) {
    const sender = await makeSender({ recipients: 6, credits: 6 });
    await fault(sender, [{ drop: true, times: unknown }]);
    const sendId: string = (await sendAndWait(sender)).send_id;
    await fault(sender, []);
    assert.deepEqual(await ledgerStates(sender), { SENT: 6 - unknown, UNKNOWN: unknown });
    await eventually(() => needsOperator(sendId), { what: "NeedsOperator" });
    return { sender, sendId, handle: workflowOf(sendId) };
  }

  describe("cancel", () => {
    it("drops a resendUnknown that waits: it answers that it was dropped, and mails no recipient", async () => {
      const { sender, sendId, handle } = await sentWithUnknown(2);
      const mails = (await caughtMails(sender)).length;
      const resend = await begin(sendId, "resendUnknown");
      await temporal.untilDetails(sendId, "Waits ");
      await handle.executeUpdate("cancel");
      assert.match(String(await resend.result()), /^cancelled meanwhile/);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 4, unknown: 2 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 4, UNKNOWN: 2 });
      assert.equal((await caughtMails(sender)).length, mails);
      assert.equal(await needsOperator(sendId), false);
    });
  });

  describe("pause", () => {
    for (const [other, answer, status] of [
      ["resume", "resumed meanwhile", "SENDING"],
      ["cancel", "cancelled meanwhile", "CANCELLED"],
    ] as const) {
      it(`is answered as soon as a ${other} replaces it`, async () => {
        // Long enough for a busy machine to look at the mail in flight.
        const { sender, sendId, handle } = await underWay(40, 8_000);
        const pause = await begin(sendId, "pause");
        await temporal.untilDetails(sendId, "Pausing");
        assert.ok((await ledgerStates(sender)).SENDING, "a mail is in flight");
        const overtaking = await begin(sendId, other);
        assert.equal(await pause.result(), answer);
        assert.equal(await statusOf(sender, sendId), status);
        await (other === "resume" ? handle.executeUpdate("cancel") : overtaking.result());
        const { CANCELLED: cancelled = 0 } = await ledgerStates(sender);
        assert.ok(cancelled > 0, "it had not ended");
      });
    }
  });

  longIt("answer a resendUnknown that waits when the send continues as a new run", async () => {
    const sender = await makeSender({ recipients: 30, account: { maxConnections: 1 } });
    await slowAfter(1, sender, [{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const { data } = await startSend(sender);
    const handle = workflowOf(data.id);
    await eventually(async () => (await ledgerStates(sender)).UNKNOWN === 1, { what: "an unknown outcome" });
    await handle.executeUpdate("pause");
    const { runId } = await handle.describe();
    const resend = await begin(data.id, "resendUnknown");
    await temporal.untilDetails(data.id, "Waits ");
    await makeLong(handle);
    await fault(sender, []);
    await handle.executeUpdate("resume");
    assert.match(String(await resend.result()), /once more/);
    await eventually(async () => (await handle.describe()).runId !== runId, { what: "another run" });
    await untilStatus(sender, ["SENT"]);
    await eventually(() => needsOperator(data.id), { what: "NeedsOperator" });
    await handle.executeUpdate("cancel");
    assert.deepEqual(await ledgerStates(sender), { SENT: 29, UNKNOWN: 1 });
  });

  it("that belong to the API, preview and confirm, are refused and do not stop the send", async () => {
    const { sender, handle } = await underWay(40, 1_500);
    for (const update of ["preview", "confirm"]) {
      await assert.rejects(handle.executeUpdate(update), WorkflowUpdateFailedError);
      for (const input of [null, {}, { apiKeyId: 1 }]) {
        const args: [unknown] = [input];
        await assert.rejects(handle.executeUpdate(update, { args }), WorkflowUpdateFailedError);
      }
    }
    assert.equal(await handle.executeUpdate("pause"), "PAUSED");
    const { events } = await handle.fetchHistory();
    assert.ok(!events?.some(({ workflowTaskFailedEventAttributes: failed }) => failed), "no workflow task failed");
    await handle.executeUpdate("resume");
    await fault(sender, []);
    await untilStatus(sender, ["SENT"]);
  });

  it("are refused by a preview: it was never confirmed, and one by hand names no API key; the token stays", async () => {
    const sender = await makeSender();
    const token = await tokenOf(sender);
    const handle = workflowOf(token.split(".")[0] ?? "");
    for (const update of ["pause", "resume", "retry", "resendUnknown"]) {
      await assert.rejects(handle.executeUpdate(update), WorkflowUpdateFailedError, "it was never confirmed");
    }
    await assert.rejects(handle.executeUpdate("preview", { args: [{ apiKeyId: "key_none" }] }), (error) => {
      assert.ok(error instanceof WorkflowUpdateFailedError);
      assert.ok(error.cause instanceof ApplicationFailure);
      assert.deepEqual([error.cause.type, error.cause.details], ["api_key_invalid", [{ param: "apiKeyId" }]]);
      return true;
    });
    assert.equal((await confirm(sender, token)).status, 202);
  });

  it("count the unknown outcomes that became known, and end the review when none is left", async () => {
    const { sender, sendId, handle } = await sentWithUnknown(2);
    assert.match(await detailsOf(sendId), /^4 mails sent, 2 with/);
    /** As the late outcome of a worker does that was presumed dead but lived. */
    const learn = () =>
      sql`update send_recipients set state = 'SENT', updated_at = now() where send_id = ${sendId} and seq = (
        select min(seq) from send_recipients where send_id = ${sendId} and state = 'UNKNOWN')`.execute(
        kysely(sender.em),
      );
    const { stdout: csv } = await runApp(["send:unknown", sendId, "--csv"]);
    const settled = await runApp(["send:settle", sendId, "--file", "-"], {
      input: csv.replace(/(?<=,)(?=\r\n\d)/, "sent"),
    });
    assert.match(settled.stdout, /^1 sent, 0 not sent\. 1 are unknown now/, settled.stderr);
    await temporal.untilDetails(sendId, "5 mails sent, 1 with");
    assert.equal(await needsOperator(sendId), true);
    await learn();
    assert.match(String(await command(sendId, "resendUnknown")), /nothing to resend/);
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 6, unknown: 0 });
    assert.equal(await needsOperator(sendId), false);
  });

  describe("Unknown outcomes", () => {
    it("are mailed once more by resendUnknown", async () => {
      const { sender, sendId } = await sentWithUnknown(2);
      const settled = { available: 0, reserved: 0, mismatch: false };
      assert.deepEqual(await credits(sender), settled);
      const before = new Map((await caughtMails(sender)).map(({ to, messageId }) => [to[0], messageId]));
      await age(sender, sendId);

      assert.equal(await command(sendId, "resendUnknown"), "2 queued again");
      assert.deepEqual(await workflowOf(sendId).result(), { outcome: "SENT", sent: 6, unknown: 0 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 6 });
      assert.equal((await untilStatus(sender, ["SENT"])).status, "SENT");
      assert.deepEqual(await credits(sender), settled, "a mail is paid for once");
      const after = await caughtMails(sender);
      assert.equal(new Set(after.flatMap(({ to }) => to)).size, 6);
      for (const { to, messageId } of after) {
        const first = before.get(to[0] ?? "");
        if (first) assert.equal(messageId, first, "the same mail is recognisable as the same");
      }
      assert.equal(await needsOperator(sendId), false);
    });

    it("are mailed again by the command send:resend-unknown after their review has ended, which refuses other commands", async () => {
      const { sender, sendId } = await sentWithUnknown(1);
      assert.match(String(await command(sendId, "cancel")), /unknown outcomes stay as they are/);
      assert.deepEqual(await workflowOf(sendId).result(), { outcome: "SENT", sent: 5, unknown: 1 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 5, UNKNOWN: 1 });
      assert.equal((await untilStatus(sender, ["SENT", "CANCELLED"])).status, "SENT");
      const run = (name: string) => inProcess(name, sender.newsletterId);
      await assert.rejects(run("send:retry"), /the send is SENT\. Its review has ended.* send:resend-unknown/);
      await age(sender, sendId);
      const { data } = await run("send:resend-unknown");
      assert.equal(data["answer"], "1 queued again");
      await eventually(async () => (await ledgerStates(sender)).SENT === 6, { what: "the mail" });
      assert.deepEqual(await workflowOf(sendId).result(), { outcome: "SENT", sent: 6, unknown: 0 });
      await assert.rejects(
        run("send:resend-unknown"),
        /No workflow of \w+ runs: the send is SENT\. No outcome is unknown\.$/,
      );
    });

    for (const update of ["pause", "cancel"]) {
      it(`are listed before a ${update} answers, when the worker died and no other took over its rows in flight`, async () => {
        const sender = await makeSender({ recipients: 30, credits: 30, account: { maxConnections: 1 } });
        await slowAfter(5, sender);
        const { data } = await startSend(sender);
        await untilSent(sender, 3);
        await command(data.id, "pause");
        const db = kysely(sender.em);
        await sql`update send_recipients set state = 'SENDING' where send_id = ${data.id} and state = 'QUEUED' and seq in (
        select max(seq) from send_recipients where send_id = ${data.id} and state = 'QUEUED')`.execute(db);
        await sql`update send_lanes set dispatching = true where send_id = ${data.id}`.execute(db);
        await command(data.id, update);
        const { UNKNOWN: unknown, SENDING: sending = 0, SENT: sent = 0 } = await ledgerStates(sender);
        assert.deepEqual({ unknown, sending }, { unknown: 1, sending: 0 });
        if (update === "pause") await command(data.id, "cancel");
        const { available, ...rest } = await credits(sender);
        assert.equal(available, 30 - sent - 1, "what may have arrived is paid for");
        assert.deepEqual(rest, { reserved: 0, mismatch: false });
      });
    }

    it("are unknown again when their resend is cancelled, and the send stays SENT", async () => {
      const { sender, sendId } = await sentWithUnknown(2);
      await age(sender, sendId);
      await fault(sender, [{ code: 450 }]);
      await command(sendId, "resendUnknown");
      await command(sendId, "cancel");
      assert.deepEqual(await workflowOf(sendId).result(), { outcome: "SENT", sent: 4, unknown: 2 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 4, UNKNOWN: 2 });
      assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
      assert.equal((await untilStatus(sender, ["SENT", "CANCELLED"])).status, "SENT");
    });
  });
});
