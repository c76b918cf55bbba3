import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm } from "node:fs/promises";
import { promisify } from "node:util";
import { Client, Connection } from "@temporalio/client";
import { sql } from "kysely";
import { withSession } from "../../app/session.ts";
import { kysely } from "../../db/orm.ts";
import { cancelSend, pauseSend } from "../../domain/sends/ledger/lifecycle.ts";
import { PAUSE_REASONS } from "../../domain/sends/pause-reasons.ts";
import type { StackFile } from "../../stack/state.ts";
import { RECONCILER_ID, sequenceWorkflowId } from "../../temporal/ids.ts";
import { ANSWERS, DETAILS } from "../../workflows/send-messages.ts";
import { clearStacks, query, spawnStack, stop, temporaryFolder } from "../stack/support.ts";
import { api } from "../support/api.ts";
import { runApp } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { type SendWorkflows, sendWorkflowsOf, useSendWorkflows } from "../support/send-workflows.ts";
import {
  beginToday,
  caughtMails,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  setTomorrow,
  startSend,
  startTomorrow,
  untilStatus,
} from "../support/sending.ts";
import { makeSequence } from "../support/sequences.ts";
import { backUpSends } from "./set-back.ts";

const mailed = async (sender: Sender) => (await caughtMails(sender)).flatMap(({ to }) => to).sort();

const assertNobodyTwice = async (sender: Sender) => {
  const addresses = await mailed(sender);
  assert.equal(new Set(addresses).size, addresses.length, "an address got the mail twice");
};

/** Lets a restored send be due, as it was when it was mailed. */
const makeDue = ({ em }: Sender, sendId: string) =>
  sql`update sends set send_at = now() where id = ${sendId}`.execute(kysely(em.fork()));

/**
 * Waits until operators see a send as paused because Postgres was restored.
 */
async function untilHeld(
  { client, needsOperator, statusShown, untilDetails, workflowOf }: SendWorkflows,
  sender: Sender,
  sendId: string,
): Promise<void> {
  await eventually(
    async () => {
      await client.schedule.getHandle(RECONCILER_ID).trigger();
      const { status } = await workflowOf(sendId).describe();
      return status.name === "RUNNING" && (await statusShown(sendId)) === "PAUSED" && (await needsOperator(sendId));
    },
    { what: "the call for an operator" },
  );
  await untilDetails(sendId, DETAILS.setBack);
  assert.equal((await untilStatus(sender, ["PAUSED"])).status_reason, PAUSE_REASONS.databaseRestored);
}

/** The error of a resume that would mail recipients again without the number of mails that were sent. */
const refusesWithout = (sent: number) => (error: Error) =>
  String(error.cause).includes(`send:resume --although-mailed ${sent}`);

const { it, longIt } = testsOf();

describe("After a restore of an older backup", () => {
  const temporal = useSendWorkflows();
  const { workflowOf, command } = temporal;
  afterEach(() => setFaults([]));

  it("a send whose run ended SENT, CANCELLED or FAILED comes back PAUSED, and mails by an operator's word alone", async () => {
    const senders = await Promise.all([1, 2, 3].map(() => makeSender({ recipients: 3, credits: 3 })));
    const [sent, cancelled, failed] = senders as [Sender, Sender, Sender];
    await setFaults([{ stage: "rcpt", match: failed.audience, code: 550, message: "5.1.1 no such user" }]);
    const restored = await Promise.all(
      senders.map(async (sender) => {
        const sendId: string = (await startTomorrow(sender)).data.id;
        return { sendId, restore: await backUpSends(sender), sender };
      }),
    );
    const [ofSent, ofCancelled, ofFailed] = restored.map(({ sendId }) => sendId) as [string, string, string];
    await command(ofCancelled, "cancel");
    await Promise.all([beginToday(sent, ofSent), beginToday(failed, ofFailed)]);
    const outcomes = await Promise.all(restored.map(({ sendId }) => workflowOf(sendId).result()));
    assert.deepEqual(
      outcomes.map(({ outcome }) => outcome),
      ["SENT", "CANCELLED", "FAILED"],
    );
    await setFaults([]);

    for (const { sender, sendId, restore } of restored) {
      await restore();
      await makeDue(sender, sendId);
    }
    await Promise.all(restored.map(({ sender, sendId }) => untilHeld(temporal, sender, sendId)));
    assert.equal((await mailed(sent)).length, 3);
    assert.deepEqual([...(await mailed(cancelled)), ...(await mailed(failed))], []);

    await temporal.untilDetails(ofSent, "By this workflow 3 were sent before Postgres was set back. A resume mails 3 ");
    await assert.rejects(command(ofSent, "resume"), refusesWithout(3));
    await Promise.all([ofSent, ofFailed].map((sendId) => command(sendId, "cancel")));
    assert.deepEqual(await ledgerStates(sent), { CANCELLED: 3 });
    assert.deepEqual(await credits(sent), { available: 3, reserved: 0, mismatch: false });
    assert.equal((await mailed(sent)).length, 3);
    await command(ofCancelled, "resume");
    await untilStatus(cancelled, ["SENT"]);
    assert.equal((await mailed(cancelled)).length, 3, "an operator resumed it");
  });

  it("a send under way whose slices Postgres does not know pauses before its next slice", async () => {
    const senders = await Promise.all([1, 2].map(() => makeSender({ recipients: 5, credits: 5 })));
    const [sender, vanishing] = senders as [Sender, Sender];
    // The last recipient is deferred again and again, so that slice follows slice.
    await setFaults(
      senders.map(({ audience }) => ({
        stage: "rcpt",
        match: `person4@${audience}`,
        code: 450,
        message: "4.2.0 later",
      })),
    );
    const beforeConfirm = await backUpSends(vanishing);
    const [sendId, vanishedId] = await Promise.all(
      senders.map(async (each): Promise<string> => (await startTomorrow(each)).data.id),
    );
    assert.ok(sendId && vanishedId);
    const restore = await backUpSends(sender);
    const afterConfirm = await backUpSends(vanishing);
    await Promise.all([beginToday(sender, sendId), beginToday(vanishing, vanishedId)]);
    for (const each of senders) {
      await eventually(async () => (await ledgerStates(each)).DEFERRED === 1 && (await mailed(each)).length === 4);
    }
    await Promise.all([temporal.untilDetails(sendId, "4 of 5"), temporal.untilDetails(vanishedId, "4 of 5")]);

    await restore();
    await makeDue(sender, sendId);
    await beforeConfirm();
    await untilHeld(temporal, sender, sendId);
    await temporal.untilDetails(sendId, "By this workflow 4 were sent before Postgres was set back.");
    await temporal.untilDetails(vanishedId, DETAILS.vanished(4));
    await Promise.all([assertNobodyTwice(sender), assertNobodyTwice(vanishing)]);

    assert.match(String(await command(vanishedId, "cancel")), /CANCELLED/);
    assert.equal((await workflowOf(vanishedId).result()).outcome, "refused");
    await afterConfirm();
    await makeDue(vanishing, vanishedId);
    await untilHeld(temporal, vanishing, vanishedId);
    await assert.rejects(command(vanishedId, "resume"), refusesWithout(4));
    await assertNobodyTwice(vanishing);
    await command(vanishedId, "cancel");
    await setFaults([]);
    await assert.rejects(command(sendId, "resume", 5), refusesWithout(4));
    assert.equal(await command(sendId, "resume", 4), ANSWERS.continuesSetBack);
    await untilStatus(sender, ["SENT"]);
    assert.equal((await mailed(sender)).length, 9, "an operator had all five mailed again");
  });

  it("a send that was cancelled after a restore is held by the next one, and asks for the number of mails again", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    const sendId: string = (await startTomorrow(sender)).data.id;
    const backup = await backUpSends(sender);
    const restore = async () => {
      await workflowOf(sendId).result();
      await backup();
      await makeDue(sender, sendId);
      await untilHeld(temporal, sender, sendId);
      await assert.rejects(command(sendId, "resume"), refusesWithout(3));
    };
    await beginToday(sender, sendId);
    await restore();
    await command(sendId, "cancel");
    await restore();

    await backup();
    assert.equal(await command(sendId, "resume", 3), ANSWERS.continuesSetBack);
    await backup();
    await pauseSend(sender.em.fork(), sendId, PAUSE_REASONS.databaseRestored);
    await untilHeld(temporal, sender, sendId);
    await assert.rejects(command(sendId, "resume"), refusesWithout(3));
    await makeDue(sender, sendId);

    await setFaults([{ stage: "rcpt", match: sender.audience, code: 450, message: "4.2.0 later" }]);
    assert.equal(await command(sendId, "resume", 3), ANSWERS.continuesSetBack);
    await eventually(async () => (await ledgerStates(sender)).DEFERRED === 3, { what: "recipients that wait" });
    await command(sendId, "cancel");
    await restore();
    await command(sendId, "cancel");
    await workflowOf(sendId).result();

    await backup();
    assert.ok((await cancelSend(sender.em.fork(), sendId)).changed, "before the send has a workflow again");
    const isSettled = async () => {
      await temporal.client.schedule.getHandle(RECONCILER_ID).trigger();
      return (await credits(sender)).reserved === 0;
    };
    await eventually(isSettled, { what: "the settlement" });
    await restore();
    await command(sendId, "cancel");
    await assertNobodyTwice(sender);
  });

  describe("in the middle of a slice", () => {
    let own: TestNamespace;

    beforeEach(async () => {
      own = await openNamespace();
      await Promise.all([own.startWorker("sends"), own.startWorker("maintenance")]);
    });
    afterEach(() => own.close());

    const inOwn = sendWorkflowsOf(() => own.client);

    /** Mails of a send's slice, as Temporal knows of them. */
    async function mailsReported(sendId: string): Promise<number> {
      const { raw } = await inOwn.workflowOf(sendId).describe();
      const details = raw.pendingActivities?.[0]?.heartbeatDetails?.payloads?.[0]?.data;
      return details ? JSON.parse(Buffer.from(details).toString()).mailed : 0;
    }

    /** A send with a slice under way, of which Postgres can be set back to a part. */
    async function mailInPart() {
      const sender = own.within(await makeSender({ recipients: 600, credits: 600, account: { maxConnections: 1 } }));
      await setFaults([{ stage: "data", match: sender.audience, delayMs: 30 }]);
      const sendId: string = (await startSend(sender)).data.id;
      await eventually(async () => ((await ledgerStates(sender)).SENT ?? 0) > 5, { what: "mail" });
      const restore = await backUpSends(sender);
      const then = (await ledgerStates(sender)).SENT ?? 0;
      await eventually(async () => (await mailsReported(sendId)) > then + 15, {
        withinMs: 30_000,
        what: "a later heartbeat",
      });
      return { sender, sendId, restore };
    }

    longIt("ends the slice, and pauses the send", async () => {
      await own.startWorker("dispatch");
      const { sender, sendId, restore } = await mailInPart();
      await restore();
      await untilHeld(inOwn, sender, sendId);
      assert.ok((await mailed(sender)).length < 600);
      await assertNobodyTwice(sender);
      await inOwn.command(sendId, "cancel");
    });

    longIt("pauses the send although the process of the slice was killed before it could report", async () => {
      const dispatch = await own.startWorker("dispatch");
      const { sender, sendId, restore } = await mailInPart();
      dispatch.signal("SIGKILL");
      await restore();
      await setFaults([]);
      await own.startWorker("dispatch");
      await untilHeld(inOwn, sender, sendId);
      await assertNobodyTwice(sender);
      await inOwn.command(sendId, "cancel");
    });
  });

  longIt("of `npm start`, by the commands of the page, no send mails without an operator's word", async () => {
    const folder = temporaryFolder();
    const env = { DATA_DIR: `${folder}/.data` };
    const page = await readFile(`${import.meta.dirname}/../../docs/operations/admin.md`, "utf8");
    const commands = (page.match(/^(tar|rm) .*$/gm) ?? []).map((line) => line.replace(/ &&$/, ""));
    const [backUp = "", check = "", remove = "", restore = ""] = commands;
    const [folderLine = ""] = page.match(/^D=.*$/m) ?? [];
    const shell = (...lines: string[]) =>
      promisify(execFile)("/bin/sh", ["-ec", [folderLine, ...lines].join("\n")], { cwd: folder });
    /** One run of the stack. Its sends mail to the catcher of the tests' own, which remembers all runs. */
    async function run<T>(work: (file: StackFile) => Promise<T>, ...args: string[]): Promise<T> {
      const stack = spawnStack({ dataDir: env.DATA_DIR, args });
      const done = await work(await stack.ready());
      assert.equal(await stop(stack, "SIGINT"), 0, stack.output());
      return done;
    }
    const { stdin, stdout, stderr } = process;
    try {
      const sends = await run(({ api: base }) =>
        withSession({ env, stdin, stdout, stderr }, async (database) => {
          const options = { database, base, account: { maxConnections: 1 } };
          const later = await makeSender({ ...options, recipients: 3, credits: 3 });
          await setTomorrow(later);
          const underWay = await makeSender({ ...options, recipients: 600, credits: 600 });
          await setFaults([{ stage: "data", match: underWay.audience, delayMs: 30 }]);
          const sequenceId = await makeSequence(underWay);
          const ids: string[] = [];
          for (const sender of [later, underWay]) ids.push((await startSend(sender)).data.id);
          await eventually(async () => (await mailed(underWay)).length > 5, { what: "some mails" });
          return [later, underWay].map((sender, i) => ({ sender, sendId: ids[i] ?? "", sequenceId }));
        }),
      );
      const [later] = sends;
      const clientOf = ({ api: base }: StackFile, sender: Sender) => ({
        ...sender,
        client: api(sender.keys.live, base),
      });
      await shell(backUp);
      await setFaults([]);
      await run(async (file) => {
        await query(file, `update sends set send_at = now() where id = '${later?.sendId}'`);
        const { code, stderr } = await runApp(["send:retry", later?.sendId ?? ""], { env });
        assert.equal(code, 0, stderr);
        await Promise.all(sends.map(({ sender }) => untilStatus(clientOf(file, sender), ["SENT"], 60_000)));
      });
      const all = await Promise.all(sends.map(({ sender }) => mailed(sender)));
      assert.deepEqual(
        all.map((addresses) => new Set(addresses).size),
        [3, 600],
      );

      const whole = restore.replace(/ --exclude.*/, "");
      for (const lines of [
        [check, remove, restore],
        [check, remove, "rm -rf .data", whole],
      ]) {
        await shell(...lines);
        const held = async (file: StackFile) => {
          const connection = await Connection.connect({ address: file.temporal.address });
          try {
            const workflows = sendWorkflowsOf(() => new Client({ connection }));
            for (const { sender, sendId } of sends) await untilHeld(workflows, clientOf(file, sender), sendId);
            const sequence = workflows.client.workflow.getHandle(sequenceWorkflowId(sends[0]?.sequenceId ?? ""));
            const isListed = async () => (await sequence.describe()).searchAttributes["NeedsOperator"]?.[0] === true;
            await eventually(isListed, { what: "the sequence's call for an operator" });
          } finally {
            await connection.close();
          }
          assert.deepEqual(await query(file, "select status from campaigns where is_drip"), [{ status: "PAUSED" }]);
          const { stdout } = await runApp(["send:hold-all"], { env });
          assert.match(stdout, /^PAUSED with database_restored: 2 sends, .* and 1 sequence,/);
        };
        await run(held, "--hold-sends");
        assert.deepEqual(await Promise.all(sends.map(({ sender }) => mailed(sender))), all);
      }
    } finally {
      await clearStacks();
      await rm(folder, { recursive: true });
    }
  });
});
