import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import {
  type Client,
  WorkflowUpdateFailedError,
  type WorkflowUpdateHandle,
  WorkflowUpdateStage,
} from "@temporalio/client";
import { ApplicationFailure } from "@temporalio/common";
import proto from "@temporalio/proto";
import { sql } from "kysely";
import type { SliceInput } from "../../activities/dispatch.ts";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import {
  caughtMails,
  confirm,
  credits,
  describeOverAccounts,
  ledgerStates,
  makeSender as makeSenderWith,
  type OverAccounts,
  type Sender,
  type SenderOptions,
  sendAndWait,
  setFaults,
  setLogin,
  slowAfter,
  startSend,
  startTomorrow,
  tokenOf,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { makeLong, temporalClient } from "../support/temporal.ts";

let temporal: Client;
let close: () => Promise<void>;
/** The accounts that mail the sends of the suite that runs. */
let over: OverAccounts;

const workflowOf = (sendId: string) => temporal.workflow.getHandle(sendWorkflowId(sendId));
type Handle = ReturnType<typeof workflowOf>;

const begin = (handle: Handle, update: string): Promise<WorkflowUpdateHandle<unknown>> =>
  handle.startUpdate(update, { waitForStage: WorkflowUpdateStage.ACCEPTED });

const detailsOf = async (handle: Handle) =>
  (await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata")).currentDetails;

/** The slices that the current run of a send has begun. */
async function slicesOf(handle: Handle): Promise<SliceInput[]> {
  const { events } = await handle.fetchHistory();
  return (events ?? []).flatMap(({ activityTaskScheduledEventAttributes: scheduled }) => {
    const data = scheduled?.input?.payloads?.[0]?.data;
    return data && scheduled.activityType?.name === "dispatchSlice" ? [JSON.parse(Buffer.from(data).toString())] : [];
  });
}

const needsOperator = async (handle: Handle) =>
  (await handle.describe()).searchAttributes["NeedsOperator"]?.[0] === true;

const shown = async (handle: Handle) => (await handle.describe()).searchAttributes["SendStatus"]?.[0];

const statusOf = async ({ em, newsletterId }: Sender): Promise<string> => {
  const row = await kysely(em.fork())
    .selectFrom("sends")
    .select("status")
    .where("resource_id", "=", newsletterId)
    .executeTakeFirstOrThrow();
  return row.status;
};

const someMail = (sender: Sender) =>
  eventually(async () => ((await ledgerStates(sender)).SENT ?? 0) > 0, { what: "some mail" });

const makeSender = (options: SenderOptions = {}) =>
  makeSenderWith({ furtherAccounts: over.furtherAccounts, ...options });

const setPort = ({ em, accountIds }: Sender, port: number) =>
  sql`update email_accounts set port = ${port} where id = any(${accountIds}::text[])`.execute(kysely(em));

const catcherPort = async () => Number(new URL((await stack()).mail.smtp).port);

/** A send under way on one connection of each account; it takes `delayMs` for each of its mails but the first. */
async function underWay(recipients: number, delayMs: number) {
  const sender = await makeSender({ recipients, credits: recipients, account: { maxConnections: 1 } });
  await setFaults([
    { stage: "data", match: sender.audience, times: 1 },
    { stage: "data", match: sender.audience, delayMs: delayMs * over.accounts },
  ]);
  const { data } = await startSend(sender);
  await someMail(sender);
  return { sender, sendId: data.id as string, handle: workflowOf(data.id) };
}

/** A send that has ended, with recipients whose connection was cut after the final dot. */
async function sentWithUnknown(unknown: number) {
  const sender = await makeSender({ recipients: 4, credits: 4 });
  await setFaults([{ stage: "data", match: sender.audience, drop: true, times: unknown }]);
  await sendAndWait(sender);
  await setFaults([]);
  const { send_id: sendId } = await kysely(sender.em)
    .selectFrom("newsletters")
    .select("send_id")
    .where("id", "=", sender.newsletterId)
    .executeTakeFirstOrThrow();
  assert.ok(sendId);
  const handle = workflowOf(sendId);
  await eventually(() => needsOperator(handle), { what: "NeedsOperator" });
  return { sender, sendId, handle };
}

/** A confirmed newsletter whose day is tomorrow. */
async function scheduled() {
  const sender = await makeSender({ recipients: 2 });
  const { data } = await startTomorrow(sender);
  const handle = workflowOf(data.id);
  await eventually(async () => (await shown(handle)) === "SCHEDULED", { what: "SCHEDULED in the UI" });
  return { sender, handle };
}

/** A send that needs an operator: the server of its account does not listen. */
async function withFailingAccount() {
  const sender = await makeSender({ recipients: 2 });
  await setPort(sender, 1);
  const { data } = await startSend(sender);
  const handle = workflowOf(data.id);
  await eventually(
    async () => {
      await handle.executeUpdate("retry");
      return needsOperator(handle);
    },
    { what: "NeedsOperator", everyMs: 500 },
  );
  return { sender, handle };
}

describeOverAccounts("Operators' updates of a send", (accounts) => {
  before(async () => {
    over = accounts;
    ({ client: temporal, close } = await temporalClient());
  });
  after(() => close());
  afterEach(() => setFaults([]));

  describe("cancel", () => {
    it("is answered by the run that took it, even when its history is long enough to continue as a new run", async () => {
      const { sender, handle } = await underWay(60, 1_500);
      await makeLong(handle);
      assert.equal(await handle.executeUpdate("cancel"), "CANCELLED");
      assert.equal(((await handle.result()) as { outcome: string }).outcome, "CANCELLED");
      const { CANCELLED: cancelled = 0, ...others } = await ledgerStates(sender);
      assert.ok(cancelled > 0);
      assert.deepEqual(Object.keys(others), ["SENT"]);
      assert.deepEqual(await credits(sender), { available: cancelled, reserved: 0, mismatch: false });
    });

    it("in a review answers that the unknown outcomes stay as they are", async () => {
      const { handle } = await sentWithUnknown(1);
      assert.match(await detailsOf(handle), /cancel to leave them unknown/);
      assert.match(String(await handle.executeUpdate("cancel")), /unknown outcomes stay as they are/);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 3, unknown: 1 });
    });

    it("drops a resendUnknown that waits: it answers that it was dropped, and mails no recipient", async () => {
      const { sender, handle } = await sentWithUnknown(2);
      const mails = (await caughtMails(sender)).length;
      const resend = await begin(handle, "resendUnknown");
      await eventually(async () => (await detailsOf(handle)).startsWith("Waits "), { what: "the wait" });
      await handle.executeUpdate("cancel");
      assert.match(String(await resend.result()), /^cancelled meanwhile/);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 2 });
      assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 2 });
      assert.equal((await caughtMails(sender)).length, mails);
      assert.equal(await needsOperator(handle), false);
    });

    it("unsets NeedsOperator when the account was failing", async () => {
      const sender = await makeSender({ recipients: 2, credits: 2 });
      await setLogin(sender, "not the password");
      await setFaults([{ stage: "auth", code: 535, message: "5.7.8 no", delayMs: 3_000 }]);
      const { data } = await startSend(sender);
      const handle = workflowOf(data.id);
      await eventually(async () => (await ledgerStates(sender)).SENDING === 2, { what: "a slice under way" });
      assert.equal(await handle.executeUpdate("cancel"), "CANCELLED");
      assert.equal(((await handle.result()) as { outcome: string }).outcome, "CANCELLED");
      assert.deepEqual([await needsOperator(handle), await shown(handle)], [false, "CANCELLED"]);
      assert.deepEqual(await credits(sender), { available: 2, reserved: 0, mismatch: false });
    });
  });

  describe("pause", () => {
    for (const [other, answer, status] of [
      ["resume", "resumed meanwhile", "SENDING"],
      ["cancel", "cancelled meanwhile", "CANCELLED"],
    ] as const) {
      it(`is answered as soon as a ${other} replaces it`, async () => {
        const { sender, handle } = await underWay(40, 5_000 / over.accounts);
        const pause = await begin(handle, "pause");
        await eventually(async () => (await statusOf(sender)) === "PAUSED", { what: "PAUSED in Postgres" });
        await eventually(async () => (await detailsOf(handle)).startsWith("Pausing"), { what: "the pause in the UI" });
        assert.ok((await ledgerStates(sender)).SENDING, "a mail is in flight");
        const overtaking = await begin(handle, other);
        assert.equal(await pause.result(), answer);
        assert.equal(await statusOf(sender), status);
        await (other === "resume" ? handle.executeUpdate("cancel") : overtaking.result());
        const { CANCELLED: cancelled = 0 } = await ledgerStates(sender);
        assert.ok(cancelled > 0, "it had not ended");
      });
    }

    it("is answered PAUSED when no mail is in flight, after an earlier pause and resume", async () => {
      const { sender, handle } = await underWay(60, 700);
      const first = await begin(handle, "pause");
      await handle.executeUpdate("resume");
      assert.equal(await handle.executeUpdate("pause"), "PAUSED");
      assert.equal((await ledgerStates(sender)).SENDING ?? 0, 0);
      assert.match(String(await first.result()), /^(resumed meanwhile|PAUSED)$/);
      await handle.executeUpdate("cancel");
    });
  });

  describe("NeedsOperator is unset", () => {
    it("when the account works again and the send mails every recipient", async () => {
      const { sender, handle } = await withFailingAccount();
      await setPort(sender, await catcherPort());
      // The send may be mailing already.
      await Promise.allSettled([handle.executeUpdate("retry")]);
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 0 });
      assert.equal(await needsOperator(handle), false);
    });

    it("when the account works again only in a run after the one that set NeedsOperator", async () => {
      const { sender, handle } = await withFailingAccount();
      const { runId } = await handle.describe();
      await makeLong(handle);
      await handle.executeUpdate("retry");
      await eventually(async () => (await handle.describe()).runId !== runId, { what: "another run" });
      assert.equal(await needsOperator(handle), true, "the account still fails");
      await setPort(sender, await catcherPort());
      await handle.executeUpdate("retry");
      await untilStatus(sender, ["SENT"]);
      await handle.result();
      assert.equal(await needsOperator(handle), false);
    });
  });

  it("of which the last is a retry: a run that follows it carries it out, and tries every account at once", async () => {
    const { handle } = await withFailingAccount();
    const { runId } = await handle.describe();
    await makeLong(handle);
    await handle.executeUpdate("retry");
    await eventually(async () => (await handle.describe()).runId !== runId, { what: "another run" });
    const slices = await eventually(
      async () => {
        const begun = await slicesOf(handle);
        return begun.length >= over.accounts ? begun.slice(0, over.accounts) : undefined;
      },
      { what: "a slice of each account" },
    );
    assert.equal(new Set(slices?.map(({ accountId }) => accountId)).size, over.accounts);
    assert.ok(
      slices?.every(({ tryNow }) => tryNow),
      JSON.stringify(slices),
    );
    await handle.executeUpdate("cancel");
  });

  it("leave a paused send in a new, short run when its history got long", async () => {
    const { sender, handle } = await underWay(20, 1_500);
    await handle.executeUpdate("pause");
    await setFaults([]);
    const { runId } = await handle.describe();
    await makeLong(handle);
    await handle.executeUpdate("retry");
    await eventually(async () => (await handle.describe()).runId !== runId, { what: "another run" });
    await handle.executeUpdate("resume");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 20 });
    assert.equal((await caughtMails(sender)).length, 20);
  });

  it("answer a resendUnknown that waits when the send continues as a new run, without delaying that run", async () => {
    const sender = await makeSender({ recipients: 30, account: { maxConnections: 1 } });
    await slowAfter(1, sender, [{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const { data } = await startSend(sender);
    const handle = workflowOf(data.id);
    await eventually(async () => (await ledgerStates(sender)).UNKNOWN === 1, { what: "an unknown outcome" });
    await handle.executeUpdate("pause");
    const { runId } = await handle.describe();
    const resend = await begin(handle, "resendUnknown");
    await eventually(async () => (await detailsOf(handle)).startsWith("Waits "), { what: "the wait" });
    await makeLong(handle);
    await setFaults([]);
    await handle.executeUpdate("resume");
    assert.match(String(await resend.result()), /once more/);
    await eventually(async () => (await handle.describe()).runId !== runId, { what: "another run" });
    await untilStatus(sender, ["SENT"]);
    await eventually(async () => needsOperator(handle), { what: "NeedsOperator" });
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
    await setFaults([]);
    await untilStatus(sender, ["SENT"]);
  });

  it("tells the operator that a preview by hand names no API key, and leaves the token as it is", async () => {
    const sender = await makeSender();
    const token = await tokenOf(sender);
    const handle = workflowOf(token.split(".")[0] ?? "");
    await assert.rejects(handle.executeUpdate("preview", { args: [{ apiKeyId: "key_none" }] }), (error) => {
      assert.ok(error instanceof WorkflowUpdateFailedError);
      assert.ok(error.cause instanceof ApplicationFailure);
      assert.deepEqual([error.cause.type, error.cause.details], ["api_key_invalid", [{ param: "apiKeyId" }]]);
      return true;
    });
    assert.equal((await confirm(sender, token)).status, 202);
  });

  it("take effect on a send that was reset to a time before its confirm, without its updates", async () => {
    const { sender, sendId, handle } = await underWay(200, 150);
    const { ResetReapplyExcludeType } = proto.temporal.api.enums.v1;
    const { runId } = await handle.describe();
    const first = (await handle.fetchHistory()).events?.find((event) => event.workflowTaskCompletedEventAttributes);
    assert.ok(first?.eventId);
    const workflowTaskFinishEventId = first.eventId;
    const reset = async () => {
      await temporal.workflowService.resetWorkflowExecution({
        namespace: (await stack()).temporal.namespace,
        workflowExecution: { workflowId: sendWorkflowId(sendId), runId: (await handle.describe()).runId },
        workflowTaskFinishEventId,
        reason: "a test",
        requestId: randomUUID(),
        resetReapplyExcludeTypes: [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE],
      });
    };
    await reset();
    await eventually(async () => (await handle.describe()).runId !== runId, { what: "the reset" });
    assert.equal(await handle.executeUpdate("pause"), "PAUSED");
    await eventually(async () => (await shown(handle)) === "PAUSED", { what: "PAUSED in the UI" });
    assert.equal(await handle.executeUpdate("resume"), "continues");
    await eventually(async () => (await shown(handle)) === "SENDING", { what: "SENDING in the UI" });

    // Once more, and now a cancel is the first command.
    await reset();
    assert.equal(await handle.executeUpdate("cancel"), "CANCELLED");
    assert.equal(((await handle.result()) as { outcome: string }).outcome, "CANCELLED");
    const { SENT: sent = 0, UNKNOWN: unknown = 0, CANCELLED: cancelled = 0 } = await ledgerStates(sender);
    assert.equal(sent + unknown + cancelled, 200);
    assert.ok(cancelled > 0);
    assert.deepEqual(await credits(sender), { available: cancelled, reserved: 0, mismatch: false });
    const addresses = (await caughtMails(sender)).flatMap(({ to }) => to);
    assert.equal(new Set(addresses).size, addresses.length, "no recipient twice");
  });

  it("are refused by a preview that was never confirmed", async () => {
    const sender = await makeSender();
    const handle = workflowOf((await tokenOf(sender)).split(".")[0] ?? "");
    for (const update of ["pause", "resume", "retry", "resendUnknown"]) {
      await assert.rejects(handle.executeUpdate(update), WorkflowUpdateFailedError);
    }
  });

  it("include retry, which answers with its effect, or with the update to use instead", async () => {
    const { handle: mailing } = await underWay(40, 1_500);
    assert.match(String(await mailing.executeUpdate("retry")), /mailing already/);
    await mailing.executeUpdate("pause");
    await eventually(async () => (await shown(mailing)) === "PAUSED", { what: "PAUSED in the UI" });
    assert.match(String(await mailing.executeUpdate("retry")), /paused.*resume/);
    await mailing.executeUpdate("cancel");

    const { sender, handle: ending } = await underWay(40, 1_500);
    const cancel = await begin(ending, "cancel");
    await eventually(async () => (await statusOf(sender)) === "CANCELLED", { what: "CANCELLED in Postgres" });
    assert.match(String(await ending.executeUpdate("retry")), /ends when no mail is in flight/);
    assert.equal(await cancel.result(), "CANCELLED");

    const { handle: waiting } = await scheduled();
    assert.match(String(await waiting.executeUpdate("retry")), /send_at/);
    await waiting.executeUpdate("cancel");

    const { handle: failing } = await withFailingAccount();
    // A retry during a slice begins another one at once: retries without a pause would never meet the wait between two.
    const everySecond = { everyMs: 1_000 };
    await eventually(async () => (await failing.executeUpdate("retry")) === "tries again now", {
      what: "a wait",
      ...everySecond,
    });
    await failing.executeUpdate("cancel");
  });

  describe("after unknown outcomes became known", () => {
    for (const update of ["resendUnknown", "retry"]) {
      it(`${update} ends the review, and the workflow returns the numbers of the ledger`, async () => {
        const { sender, sendId, handle } = await sentWithUnknown(1);
        // As the late outcome of a worker does that was presumed dead but lived.
        await sql`update send_recipients set state = 'SENT', updated_at = now()
          where send_id = ${sendId} and state = 'UNKNOWN'`.execute(kysely(sender.em));
        const answer = update === "retry" ? /counts the unknown/ : /nothing to resend/;
        assert.match(String(await handle.executeUpdate(update)), answer);
        assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 4, unknown: 0 });
        assert.equal(await needsOperator(handle), false);
      });
    }

    it("the details count the outcomes that are still unknown", async () => {
      const { sender, sendId, handle } = await sentWithUnknown(2);
      assert.match(await detailsOf(handle), /^2 mails sent, 2 with/);
      await sql`update send_recipients set state = 'SENT', updated_at = now() where send_id = ${sendId} and seq = (
        select min(seq) from send_recipients where send_id = ${sendId} and state = 'UNKNOWN')`.execute(
        kysely(sender.em),
      );
      await handle.executeUpdate("retry");
      await eventually(async () => (await detailsOf(handle)).startsWith("3 mails sent, 1 with"), {
        what: "the new numbers",
      });
      assert.equal(await needsOperator(handle), true);
      await handle.executeUpdate("cancel");
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 3, unknown: 1 });
    });
  });
});
