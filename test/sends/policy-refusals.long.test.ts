import assert from "node:assert/strict";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { ledgerStates, makeSender, setFaults, startSend, untilStatus } from "../support/sending.ts";

describe("Policy refusals in a row", () => {
  let own: TestNamespace;

  before(async () => {
    own = await openNamespace();
    await Promise.all([own.startWorker("sends"), own.startWorker("dispatch", { DISPATCH_SLICE_ROWS: "7" })]);
  });
  after(() => own?.close());
  afterEach(() => setFaults([]));

  it("are counted over the slices of a lane, and anew after a resume", async () => {
    const sender = own.within(await makeSender({ recipients: 60, account: { maxConnections: 1 } }));
    await setFaults([{ stage: "data", match: sender.audience, code: 554, message: "5.7.1 Blocked" }]);
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 20, QUEUED: 40 });

    // As if an operator had paused it when most of them had come.
    const lane = kysely(sender.em.fork()).updateTable("send_lanes").where("send_id", "=", data.id);
    await lane.set({ policy_refusals: 15 }).execute();
    const handle = own.client.workflow.getHandle(sendWorkflowId(data.id));
    assert.equal(await handle.executeUpdate("resume"), "continues");
    await untilStatus(sender, ["PAUSED"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 40, QUEUED: 20 });

    await setFaults([]);
    await handle.executeUpdate("resume");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { REJECTED: 40, SENT: 20 });
  });
});
