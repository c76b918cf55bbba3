import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { setFaults } from "../support/sending.ts";
import { confirmed, MOST_UNKNOWN, mailedOnce, RECIPIENTS, temporalOf, untilUnderWay } from "./send.ts";
import { allGone, clearStacks, inDatabase, leaveData, spawnStack } from "./support.ts";

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
    await allGone(running);
    for (const suffix of ["", "-shm", "-wal"]) rmSync(`${first.dataDir}/temporal.db${suffix}`, { force: true });
    await setFaults([]);

    const after = await spawnStack({ dataDir: first.dataDir }).ready();
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
