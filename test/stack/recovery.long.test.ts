import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { caughtMails, setFaults } from "../support/sending.ts";
import { confirmed, MOST_UNKNOWN, mailedOnce, RECIPIENTS, temporalOf } from "./send.ts";
import { clearStacks, inDatabase, parentOf, spawnStack } from "./support.ts";

describe("A stack without a dispatch worker", () => {
  afterEach(async () => {
    await setFaults([]);
    await clearStacks();
  });

  it("still pauses and cancels a send, lists the recipients that were in flight, and settles", async () => {
    const spawned = spawnStack();
    const file = await spawned.ready();
    const { audience, sendId } = await confirmed(file);
    await eventually(async () => (await caughtMails({ audience })).length > 20, {
      what: "some mail",
    });
    const temporal = await temporalOf(file);
    const handle = temporal.client.workflow.getHandle(sendWorkflowId(sendId));
    const shown = async () => (await handle.describe()).searchAttributes["SendStatus"]?.[0];
    const states = () =>
      inDatabase(file, async (em) => {
        const { rows } = await sql<{ state: string; count: number }>`select state, count(*)::int as count
          from send_recipients where send_id = ${sendId} group by state`.execute(kysely(em));
        return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
      });

    const { dispatch = 0 } = file.pids;
    const supervisor = parentOf(dispatch);
    // It would start another.
    process.kill(supervisor, "SIGSTOP");
    try {
      process.kill(dispatch, "SIGKILL");
      assert.equal(await handle.executeUpdate("pause"), "PAUSED");
      await eventually(async () => (await shown()) === "PAUSED", { what: "PAUSED in the UI" });
      const { SENT: sent = 0, UNKNOWN: unknown = 0, QUEUED: queued = 0, ...others } = await states();
      assert.deepEqual(others, {});
      assert.equal(sent + unknown + queued, RECIPIENTS);
      assert.ok(unknown > 0 && unknown <= MOST_UNKNOWN, `${unknown} unknown`);

      // Its next slice waits for a worker: none of its rows is in flight.
      assert.equal(await handle.executeUpdate("resume"), "continues");
      await eventually(
        async () =>
          (await handle.describe()).raw.pendingActivities?.some(
            ({ activityType }) => activityType?.name === "dispatchSlice",
          ),
        { what: "a slice that waits" },
      );
      assert.equal(await handle.executeUpdate("cancel"), "CANCELLED");
      assert.deepEqual(await handle.result(), { outcome: "CANCELLED", sent, unknown });
      assert.deepEqual(await states(), { SENT: sent, UNKNOWN: unknown, CANCELLED: queued });
      assert.equal(await shown(), "CANCELLED");
      const { rows } = await inDatabase(file, (em) =>
        sql<{ reserved: number }>`select reserved::int from credit_balances where team_id = ${file.team.id}
          and environment = 'LIVE'`.execute(kysely(em)),
      );
      assert.deepEqual(rows, [{ reserved: 0 }]);
      await mailedOnce({ audience });
    } finally {
      process.kill(supervisor, "SIGCONT");
      await temporal.close();
    }
  });
});
