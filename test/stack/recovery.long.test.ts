import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { setFaults } from "../support/sending.ts";
import { confirmed, MOST_UNKNOWN, mailedOnce, RECIPIENTS, temporalOf, untilUnderWay } from "./send.ts";
import { allGone, clearStacks, inDatabase, leaveData, parentOf, spawnStack } from "./support.ts";

const ROOT = `${import.meta.dirname}/../..`;

const drafts = (folder: string) => readdirSync(folder).filter((name) => name.endsWith(".tmp"));

/** Runs a process that is killed in `writeJson`: it waits for its draft without giving the write its turn. */
function dieInWrite(file: string): void {
  const script = `
    import { readdirSync } from "node:fs";
    import { dirname } from "node:path";
    import { writeJson } from "./stack/state.ts";
    const [file] = process.argv.slice(1);
    void writeJson(file, {});
    while (!readdirSync(dirname(file)).some((name) => name.endsWith(".tmp")));
    process.kill(process.pid, "SIGKILL");`;
  const { signal } = spawnSync(process.execPath, ["--input-type=module", "-e", script, file], { cwd: ROOT });
  assert.equal(signal, "SIGKILL");
}

describe("A stack that was killed, and whose Temporal database is lost,", function () {
  this.timeout(300_000);
  after(async () => {
    await setFaults([]);
    await clearStacks();
  });

  it("starts again at once, restores the sends scheduled and under way, and mails no recipient twice", async () => {
    const first = spawnStack();
    const before = await first.ready();
    const findsItsData = await leaveData(before);
    const tomorrow = (new Date().getUTCDay() % 7) + 1;
    const scheduled = await confirmed(before, [tomorrow]);
    const sending = await confirmed(before);
    await untilUnderWay(sending);
    const running = first.pids();
    // The supervisor is the parent of the guards; start.mjs, above it, is not what holds things together.
    const [supervisor = 0] = running.filter((pid) => pid !== first.process.pid);
    process.kill(supervisor, "SIGKILL");
    dieInWrite(`${first.dataDir}/stack.json`);
    assert.equal(drafts(first.dataDir).length, 1);
    await allGone(running);
    for (const suffix of ["", "-shm", "-wal"]) rmSync(`${first.dataDir}/temporal.db${suffix}`, { force: true });
    await setFaults([]);

    const after = await spawnStack({ dataDir: first.dataDir }).ready();
    assert.deepEqual(drafts(first.dataDir), []);
    await findsItsData(after);
    const client = api(after.keys.live, after.api);
    const newsletter = async ({ newsletterId }: { newsletterId: string }) =>
      (await client.get(`/newsletters/${newsletterId}`)).body.data;
    const ends = async (which: { newsletterId: string }) =>
      eventually(async () => ((await newsletter(which)).status === "SENT" ? newsletter(which) : undefined), {
        what: "the end of the send",
        withinMs: 120_000,
      });

    const { recipients } = await ends(sending);
    assert.equal(recipients.total, RECIPIENTS);
    assert.equal(recipients.sent + recipients.unknown, RECIPIENTS, JSON.stringify(recipients));
    assert.ok(recipients.unknown <= MOST_UNKNOWN, JSON.stringify(recipients));
    assert.ok((await mailedOnce(sending)).length >= recipients.sent);

    assert.equal((await newsletter(scheduled)).status, "SCHEDULED");
    assert.deepEqual(await mailedOnce(scheduled), []);
    await inDatabase(after, (em) =>
      sql`update sends set send_at = now() where id = ${scheduled.sendId}`.execute(kysely(em)),
    );
    const temporal = await temporalOf(after);
    const workflow = temporal.client.workflow.getHandle(sendWorkflowId(scheduled.sendId));
    await eventually(() => workflow.executeUpdate("retry"), { what: "the workflow of the scheduled send" });
    await temporal.close();
    assert.equal((await ends(scheduled)).recipients.sent, RECIPIENTS);
    assert.equal((await mailedOnce(scheduled)).length, RECIPIENTS);
  });
});

describe("A stack without a dispatch worker", () => {
  afterEach(async () => {
    await setFaults([]);
    await clearStacks();
  });

  it("still pauses and cancels a send, lists the recipients that were in flight, and settles", async () => {
    const spawned = spawnStack();
    const file = await spawned.ready();
    const { audience, sendId } = await confirmed(file);
    await untilUnderWay({ audience });
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
