import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { Client, Connection } from "@temporalio/client";
import { sql } from "kysely";
import { EmailAccount } from "../../db/entities/account.ts";
import { forTenant, kysely, openDatabase } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { attachList } from "../../domain/newsletters.ts";
import { DEMO_FROM } from "../../stack/demo-team.ts";
import type { StackFile } from "../../stack/state.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { api } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { unique } from "../support/factories.ts";
import { addSubscribers, caughtMails, confirm, people, setFaults, tokenOf } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { allGone, clearStacks, parentOf, spawnStack } from "./support.ts";

const RECIPIENTS = 200;

/** Works on the database of a stack of the test's own. */
async function inDatabase<T>(file: StackFile, work: (orm: Awaited<ReturnType<typeof openDatabase>>) => Promise<T>) {
  const orm = await openDatabase(file.database, { poolMax: 2 });
  try {
    return await work(orm);
  } finally {
    await orm.close(true);
  }
}

/** A confirmed newsletter of the demo team, whose mail goes to the mail catcher of the stack that runs this test. */
async function confirmed(file: StackFile, sendDays: number[] = []) {
  const client = api(file.keys.live, file.api);
  const audience = `${unique("to")}.example`;
  const fromEmail = `${unique("news")}@${DEMO_FROM.split("@")[1]}`;
  const { hostname, port } = new URL((await stack()).mail.smtp);
  const list = await client.post("/lists", { name: "Readers", optin: "SINGLE" });
  const draft = await client.post("/newsletters", {
    name: "Letter",
    subject: "Hello",
    from_email: fromEmail,
    body: "<p>Hello {{ first_name }}</p>",
  });
  const newsletterId: string = draft.body.data.id;
  await inDatabase(file, async (orm) => {
    const em = orm.em.fork();
    const tenant = { teamId: file.team.id, environment: "LIVE" as const };
    em.create(EmailAccount, {
      id: newId("account"),
      ...tenant,
      email: fromEmail,
      displayName: "Letters",
      provider: "SMTP_OTHER",
      status: "ACTIVE",
      allowedDomains: [],
      host: hostname,
      port: Number(port),
      security: "none",
      maxConnections: 4,
    });
    await em.flush();
    await addSubscribers({ em, team: file.team }, list.body.data.id, people(RECIPIENTS, audience));
    await transaction(forTenant(em, tenant), (tx) => attachList(tx, newsletterId, list.body.data.id));
    if (sendDays.length > 0) {
      await sql`update newsletters set send_days = ${sendDays} where id = ${newsletterId}`.execute(kysely(em));
    }
  });
  await setFaults([{ stage: "data", match: audience, delayMs: 50 }]);
  const sender = { client, newsletterId, audience };
  const answer = await confirm(sender, await tokenOf(sender));
  assert.equal(answer.status, 202, answer.text);
  return { ...sender, sendId: answer.body.data.id as string };
}

describe("A lost Temporal database", function () {
  this.timeout(240_000);
  afterEach(async () => {
    await setFaults([]);
    await clearStacks();
  });

  it("loses no send: the next start restores those scheduled and under way, and mails no recipient twice", async () => {
    const first = spawnStack();
    const before = await first.ready();
    const tomorrow = (new Date().getUTCDay() % 7) + 1;
    const scheduled = await confirmed(before, [tomorrow]);
    const sending = await confirmed(before);
    await eventually(async () => (await caughtMails(sending)).length > 20, { what: "some mail" });
    const running = first.pids();
    first.process.kill("SIGKILL");
    await allGone(running);
    for (const suffix of ["", "-shm", "-wal"]) rmSync(`${first.dataDir}/temporal.db${suffix}`, { force: true });
    await setFaults([]);

    const second = spawnStack({ dataDir: first.dataDir });
    const after = await second.ready();
    const client = api(after.keys.live, after.api);
    const newsletter = async ({ newsletterId }: { newsletterId: string }) =>
      (await client.get(`/newsletters/${newsletterId}`)).body.data;
    const ends = async (which: { newsletterId: string }) =>
      eventually(async () => ((await newsletter(which)).status === "SENT" ? newsletter(which) : undefined), {
        what: "the end of the send",
        withinMs: 90_000,
      });

    const { recipients } = await ends(sending);
    assert.equal(recipients.total, RECIPIENTS);
    assert.equal(recipients.sent + recipients.unknown, RECIPIENTS, JSON.stringify(recipients));
    assert.ok(recipients.unknown <= 3 * 4, JSON.stringify(recipients));
    const addresses = (await caughtMails(sending)).flatMap(({ to }) => to);
    assert.equal(new Set(addresses).size, addresses.length, "no address is mailed twice");
    assert.ok(addresses.length >= recipients.sent);

    assert.equal((await newsletter(scheduled)).status, "SCHEDULED");
    assert.equal((await caughtMails(scheduled)).length, 0);
    await inDatabase(after, async (orm) => {
      await sql`update sends set send_at = now() where resource_id = ${scheduled.newsletterId}`.execute(
        kysely(orm.em.fork()),
      );
      const connection = await Connection.connect({ address: after.temporal.address });
      const temporal = new Client({ connection, namespace: after.temporal.namespace });
      const query = `ResourceId = '${scheduled.newsletterId}' AND ExecutionStatus = 'Running'`;
      await eventually(
        async () => {
          for await (const { workflowId } of temporal.workflow.list({ query })) {
            return temporal.workflow.getHandle(workflowId).executeUpdate("retry");
          }
          return undefined;
        },
        { what: "the workflow of the scheduled send" },
      );
      await connection.close();
    });
    assert.equal((await ends(scheduled)).recipients.sent, RECIPIENTS);
    assert.equal((await caughtMails(scheduled)).length, RECIPIENTS);
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
    await eventually(async () => (await caughtMails({ audience })).length > 20, {
      what: "some mail",
    });
    const connection = await Connection.connect({ address: file.temporal.address });
    const temporal = new Client({ connection, namespace: file.temporal.namespace });
    const handle = temporal.workflow.getHandle(sendWorkflowId(sendId));
    const shown = async () => (await handle.describe()).searchAttributes["SendStatus"]?.[0];
    const states = () =>
      inDatabase(file, async (orm) => {
        const { rows } = await sql<{ state: string; count: number }>`select state, count(*)::int as count
          from send_recipients where send_id = ${sendId} group by state`.execute(kysely(orm.em.fork()));
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
      assert.ok(unknown > 0 && unknown <= 3 * 4, `${unknown} unknown`);

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
      const { rows } = await inDatabase(file, (orm) =>
        sql<{ reserved: number }>`select reserved::int from credit_balances where team_id = ${file.team.id}
          and environment = 'LIVE'`.execute(kysely(orm.em.fork())),
      );
      assert.deepEqual(rows, [{ reserved: 0 }]);
      const addresses = (await caughtMails({ audience })).flatMap(({ to }) => to);
      assert.equal(new Set(addresses).size, addresses.length, "no address is mailed twice");
    } finally {
      process.kill(supervisor, "SIGCONT");
      await connection.close();
    }
  });
});
