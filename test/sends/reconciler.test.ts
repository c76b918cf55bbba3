import assert from "node:assert/strict";
import { Client, Connection } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { RECONCILER_ID, sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import {
  caughtMails,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";

let connection: Connection;
let temporal: Client;
let namespace: string;

const workflowOf = (sendId: string) => temporal.workflow.getHandle(sendWorkflowId(sendId));
const reconcile = () => temporal.schedule.getHandle(RECONCILER_ID).trigger();

/** Starts a send and waits until some of its mails have left. */
async function underWay(): Promise<{ sender: Sender; sendId: string }> {
  const sender = await makeSender({ recipients: 120, credits: 120, account: { maxConnections: 2 } });
  await setFaults([{ stage: "data", match: sender.audience, delayMs: 40 }]);
  const { data } = await startSend(sender);
  await eventually(async () => ((await ledgerStates(sender))["SENT"] ?? 0) > 10, { what: "some mail" });
  return { sender, sendId: data.id };
}

async function assertEverybodyOnce(sender: Sender): Promise<void> {
  const states = await ledgerStates(sender);
  const { SENT: sent = 0, UNKNOWN: unknown = 0, ...others } = states;
  assert.deepEqual(others, {});
  assert.equal(sent + unknown, 120);
  const addresses = (await caughtMails(sender)).flatMap(({ to }) => to);
  assert.equal(new Set(addresses).size, addresses.length, "no address twice");
  assert.ok(addresses.length >= sent && addresses.length <= 120);
  assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
}

describe("The reconciler", () => {
  before(async () => {
    const { temporal: cluster } = await stack();
    namespace = cluster.namespace;
    connection = await Connection.connect({ address: cluster.address });
    temporal = new Client({ connection, namespace });
  });
  after(() => connection.close());
  afterEach(() => setFaults([]));

  it("restores a send that was terminated in the UI as PAUSED with NeedsOperator", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    const { runId } = await handle.describe();
    await handle.terminate("by mistake");
    await eventually(
      async () => {
        await reconcile();
        const { status, searchAttributes, ...now } = await handle.describe();
        const shown =
          searchAttributes["SendStatus"]?.[0] === "PAUSED" && searchAttributes["NeedsOperator"]?.[0] === true;
        return status.name === "RUNNING" && now.runId !== runId && shown;
      },
      { what: "the workflow's return", withinMs: 25_000 },
    );
    assert.equal((await untilStatus(sender, ["PAUSED"])).status, "PAUSED");
    assert.equal((await credits(sender)).reserved, 120, "a paused send keeps its credits");
    const { searchAttributes } = await handle.describe();
    assert.deepEqual(searchAttributes["TeamId"], [sender.team.id]);
    assert.deepEqual(searchAttributes["ResourceId"], [sender.newsletterId]);

    await setFaults([]);
    await handle.executeUpdate("resume");
    await untilStatus(sender, ["SENT"]);
    await assertEverybodyOnce(sender);
  }).timeout(90_000);

  it("restarts a workflow that Temporal lost, and the send completes by itself", async () => {
    const { sender, sendId } = await underWay();
    await connection.workflowService.deleteWorkflowExecution({
      namespace,
      workflowExecution: { workflowId: sendWorkflowId(sendId) },
    });
    await eventually(
      async () =>
        workflowOf(sendId)
          .describe()
          .then(
            () => false,
            () => true,
          ),
      { what: "the loss" },
    );
    await setFaults([]);
    await eventually(
      async () => {
        await reconcile();
        return (await sender.client.get(`/newsletters/${sender.newsletterId}`)).body.data.status === "SENT";
      },
      { what: "the end of the send", withinMs: 40_000 },
    );
    await assertEverybodyOnce(sender);
  }).timeout(90_000);

  it("starts no second run of a running send, and none of a send that has ended", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    const { runId } = await handle.describe();
    const runs = async () => {
      const { recentActions } = (await temporal.schedule.getHandle(RECONCILER_ID).describe()).info;
      return recentActions.length === 0 ? "" : JSON.stringify(recentActions.at(-1)?.takenAt);
    };
    const last = await runs();
    await eventually(
      async () => {
        await reconcile();
        return (await runs()) !== last;
      },
      { what: "a run of the reconciler" },
    );
    await untilStatus(sender, ["SENT"]);
    await handle.result();
    await reconcile();
    const started: string[] = [];
    for await (const run of temporal.workflow.list({ query: `WorkflowId = '${sendWorkflowId(sendId)}'` })) {
      started.push(run.runId);
    }
    assert.deepEqual(started, [runId]);
    await assertEverybodyOnce(sender);
  }).timeout(90_000);

  it("gets a new schedule when its schedule was deleted", async () => {
    const { ensureSchedule } = await import("../../workers/maintenance.ts");
    await temporal.schedule.getHandle(RECONCILER_ID).delete();
    await ensureSchedule(temporal, RECONCILER_ID);
    await ensureSchedule(temporal, RECONCILER_ID);
    const { spec, policies } = await temporal.schedule.getHandle(RECONCILER_ID).describe();
    assert.equal(spec.intervals?.[0]?.every, 60_000);
    assert.equal(policies.overlap, "SKIP");
  });

  it("settles the credits of a send whose end was recorded without them", async () => {
    const { sender, sendId } = await underWay();
    const handle = workflowOf(sendId);
    await handle.executeUpdate("pause");
    await handle.terminate("lost before the credits were settled");
    await sql`update sends set status = 'CANCELLED' where id = ${sendId}`.execute(kysely(sender.em));
    await eventually(
      async () => {
        await reconcile();
        return (await credits(sender)).reserved === 0;
      },
      { what: "the credits", withinMs: 25_000 },
    );
    const { SENT: sent = 0, ...others } = await ledgerStates(sender);
    assert.deepEqual(others, { CANCELLED: 120 - sent });
    assert.deepEqual(await credits(sender), { available: 120 - sent, reserved: 0, mismatch: false });
  }).timeout(90_000);

  it("restores the review of unknown outcomes until an operator decides, and not afterwards", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    await setFaults([{ stage: "data", match: sender.audience, drop: true, times: 1 }]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["SENT"]);
    const handle = workflowOf(data.id);
    const called = async () => {
      const { status, searchAttributes } = await handle.describe();
      return status.name === "RUNNING" && searchAttributes["NeedsOperator"]?.[0] === true;
    };
    await eventually(called, { what: "the call for an operator" });
    const bringBack = () =>
      eventually(
        async () => {
          await reconcile();
          return called();
        },
        { what: "the review's return", withinMs: 25_000 },
      );

    await connection.workflowService.deleteWorkflowExecution({
      namespace,
      workflowExecution: { workflowId: sendWorkflowId(data.id) },
    });
    await eventually(async () => handle.describe().then(Boolean, () => true), { what: "the loss" });
    await bringBack();
    await handle.terminate("by mistake");
    await bringBack();
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, UNKNOWN: 1 });
    assert.equal((await untilStatus(sender, ["SENT", "PAUSED"])).status, "SENT");

    await handle.executeUpdate("cancel");
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 1 });
    const { runId } = await handle.describe();
    // Time of the reconciler's latest run, to wait for one that began after the decision.
    const looked = async () => {
      const { recentActions } = (await temporal.schedule.getHandle(RECONCILER_ID).describe()).info;
      return JSON.stringify(recentActions.at(-1)?.takenAt);
    };
    const before = await looked();
    await eventually(
      async () => {
        await reconcile();
        return (await looked()) !== before;
      },
      { what: "a run of the reconciler" },
    );
    for await (const run of temporal.workflow.list({ query: "WorkflowType = 'reconcileWorkflow'" })) {
      await temporal.workflow.getHandle(run.workflowId, run.runId).result();
    }
    assert.equal((await handle.describe()).runId, runId);
    const { rows } = await sql<{ open: boolean }>`select review_until is not null as open from sends
      where id = ${data.id}`.execute(kysely(sender.em.fork()));
    assert.deepEqual(rows, [{ open: false }]);
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  }).timeout(90_000);
});
