import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { caughtMails, setFaults } from "../support/sending.ts";
import { confirmed, MOST_UNKNOWN, mailedOnce, RECIPIENTS, temporalOf } from "./send.ts";
import { allGone, clearStacks, inDatabase, leaveData, spawnStack } from "./support.ts";

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
    await eventually(async () => (await caughtMails(sending)).length > 20, { what: "some mail" });
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
