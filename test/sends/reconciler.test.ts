import assert from "node:assert/strict";
import { sql } from "kysely";
import type { Reconciliation } from "../../activities/reconcile.ts";
import { kysely } from "../../db/orm.ts";
import { readPassAges } from "../../domain/sends/operators/unfinished.ts";
import { RECONCILER_ID, sendWorkflowId } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import {
  caughtMails,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  slowAfter,
  startSend,
  startTomorrow,
  untilSent,
  untilStatus,
} from "../support/sending.ts";
import { holdSchedules } from "../support/temporal.ts";

const RECIPIENTS = 60;

/** Starts a send and waits until some of its mails have left. */
async function underWay(): Promise<{ sender: Sender; sendId: string }> {
  const sender = await makeSender({ recipients: RECIPIENTS, credits: RECIPIENTS, account: { maxConnections: 2 } });
  await slowAfter(20, sender);
  const { data } = await startSend(sender);
  await untilSent(sender, 10);
  return { sender, sendId: data.id };
}

async function assertEverybodyOnce(sender: Sender): Promise<void> {
  const states = await ledgerStates(sender);
  const { SENT: sent = 0, UNKNOWN: unknown = 0, ...others } = states;
  assert.deepEqual(others, {});
  assert.equal(sent + unknown, RECIPIENTS);
  const addresses = (await caughtMails(sender)).flatMap(({ to }) => to);
  assert.equal(new Set(addresses).size, addresses.length, "no address twice");
  assert.ok(addresses.length >= sent && addresses.length <= RECIPIENTS);
  assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
}

describe("The reconciler", () => {
  const temporal = useSendWorkflows();
  const { workflowOf, needsOperator, statusShown } = temporal;

  afterEach(() => setFaults([]));

  async function reconcile(): Promise<{ sends: Reconciliation }> {
    const { schedule, workflow } = temporal.client;
    const latest = async () =>
      (await schedule.getHandle(RECONCILER_ID).describe()).info.recentActions.at(-1)?.action.workflow;
    const before = (await latest())?.firstExecutionRunId;
    await schedule.getHandle(RECONCILER_ID).trigger();
    const run = await eventually(async () => {
      const found = await latest();
      return found?.firstExecutionRunId === before ? undefined : found;
    });
    return workflow.getHandle(run?.workflowId ?? "", run?.firstExecutionRunId).result();
  }

  /** Lets the reconciler run until a condition holds: lists of workflows follow a moment later. */
  const reconcileUntil = (what: string, condition: () => Promise<boolean>) =>
    eventually(async () => (await reconcile()) && condition(), { what });

  const isRunning = (sendId: string): Promise<boolean> =>
    workflowOf(sendId)
      .describe()
      .then(
        ({ status }) => status.name === "RUNNING",
        () => false,
      );

  /** Lets Temporal lose the workflow of a send. */
  async function lose(sendId: string): Promise<void> {
    const { connection, options } = temporal.client;
    const workflowExecution = { workflowId: sendWorkflowId(sendId) };
    await connection.workflowService.deleteWorkflowExecution({ namespace: options.namespace, workflowExecution });
    await eventually(async () => !(await isRunning(sendId)), { what: "the loss" });
  }

  it("wakes a send whose start was moved while Temporal did not answer", async () => {
    const sender = await makeSender({ recipients: 1 });
    const { data } = await startTomorrow(sender);
    await sql`update sends set send_at = now() where id = ${data.id}`.execute(kysely(sender.em));
    await reconcileUntil("the mail", async () => (await ledgerStates(sender))["SENT"] === 1);
  });

  it("restores a send that was terminated in the UI as PAUSED with NeedsOperator", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    const { runId } = await handle.describe();
    await handle.terminate("by mistake");
    await reconcileUntil("the workflow's return", async () => {
      if (!(await isRunning(sendId)) || (await handle.describe()).runId === runId) return false;
      return (await statusShown(sendId)) === "PAUSED" && (await needsOperator(sendId));
    });
    assert.equal((await untilStatus(sender, ["PAUSED"])).status, "PAUSED");
    assert.equal((await credits(sender)).reserved, RECIPIENTS, "a paused send keeps its credits");
    const { searchAttributes } = await handle.describe();
    assert.deepEqual(searchAttributes["TeamId"], [sender.team.id]);
    assert.deepEqual(searchAttributes["ResourceId"], [sender.newsletterId]);

    await setFaults([]);
    await handle.executeUpdate("resume");
    await untilStatus(sender, ["SENT"]);
    await assertEverybodyOnce(sender);
  });

  it("restarts a workflow that Temporal lost, and the send completes by itself", async () => {
    const { sender, sendId } = await underWay();
    await lose(sendId);
    await setFaults([]);
    await reconcileUntil(
      "the end of the send",
      async () => (await sender.client.get(`/newsletters/${sender.newsletterId}`)).body.data.status === "SENT",
    );
    await assertEverybodyOnce(sender);
  });

  it("starts no second run of a running send, and none of a send that has ended", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    const { runId } = await handle.describe();
    await reconcile();
    await setFaults([]);
    await untilStatus(sender, ["SENT"]);
    await handle.result();
    await reconcile();
    const started: string[] = [];
    for await (const run of temporal.client.workflow.list({ query: `WorkflowId = '${sendWorkflowId(sendId)}'` })) {
      started.push(run.runId);
    }
    assert.deepEqual(started, [runId]);
    await assertEverybodyOnce(sender);
  });

  it("compares every send although one fails, and its age grows until that is repaired", async () => {
    const sender = await makeSender();
    const { data } = await startTomorrow(sender);
    await lose(data.id);
    const db = kysely(sender.em.fork());
    // Temporal takes no id that is so long. It comes first.
    const sendId = `send_00${"0".repeat(1_100)}`;
    await sql`insert into sends select (jsonb_populate_record(s, jsonb_build_object('id', ${sendId}::text))).*
        from sends s where id = ${data.id}`.execute(db);
    await sql`update reconciler_passes set completed_at = now() - interval '1 hour'`.execute(db);

    const first = await reconcile();
    assert.equal(await isRunning(data.id), true);
    assert.equal(first.sends.failed, 1);
    const age = async () => Number((await readPassAges(sender.em.fork()))["sends"]);
    assert.ok((await age()) >= 3_600, "no pass was complete");
    assert.equal((await reconcile()).sends.started, 0);

    await sql`delete from sends where id = ${sendId}`.execute(db);
    assert.equal((await reconcile()).sends.failed, 0);
    assert.ok((await age()) < 600, "the pass is complete");
  });

  it("gets a new schedule when its schedule was deleted", async () => {
    const { ensureSchedule } = await import("../../workers/maintenance.ts");
    try {
      await temporal.client.schedule.getHandle(RECONCILER_ID).delete();
      await ensureSchedule(temporal.client, RECONCILER_ID);
      await ensureSchedule(temporal.client, RECONCILER_ID);
      const { spec, policies } = await temporal.client.schedule.getHandle(RECONCILER_ID).describe();
      assert.equal(spec.intervals?.[0]?.every, 60_000);
      assert.equal(policies.overlap, "SKIP");
    } finally {
      await holdSchedules();
    }
  });

  it("settles the credits of a send whose end was recorded without them", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    await handle.executeUpdate("pause");
    await handle.terminate("lost before the credits were settled");
    await sql`update sends set status = 'CANCELLED' where id = ${sendId}`.execute(kysely(sender.em));
    await reconcileUntil("the credits", async () => (await credits(sender)).reserved === 0);
    const { SENT: sent = 0, ...others } = await ledgerStates(sender);
    assert.deepEqual(others, { CANCELLED: RECIPIENTS - sent });
    assert.deepEqual(await credits(sender), { available: RECIPIENTS - sent, reserved: 0, mismatch: false });
  });

  it("restores the review of unknown outcomes until an operator decides, and not afterwards", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    await setFaults([{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    const handle = workflowOf(data.id);
    const called = async () => (await isRunning(data.id)) && (await needsOperator(data.id));
    await eventually(called, { what: "the call for an operator" });
    await lose(data.id);
    await reconcileUntil("the review's return", called);
    await handle.terminate("by mistake");
    await reconcileUntil("the review's return", called);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    assert.equal((await untilStatus(sender, ["SENT", "PAUSED"])).status, "SENT");

    await handle.executeUpdate("cancel");
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 1 });
    const { runId } = await handle.describe();
    await reconcile();
    assert.equal((await handle.describe()).runId, runId);
    const { rows } = await sql<{ open: boolean }>`select review_until is not null as open from sends
      where id = ${data.id}`.execute(kysely(sender.em.fork()));
    assert.deepEqual(rows, [{ open: false }]);
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });
});
