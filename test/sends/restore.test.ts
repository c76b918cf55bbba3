import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { PAUSE_REASONS } from "../../domain/sends/pause-reasons.ts";
import { RECONCILER_ID } from "../../workflows/ids.ts";
import { ANSWERS, DETAILS } from "../../workflows/send-messages.ts";
import { runApp } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { makeDatabase } from "../support/own-database.ts";
import { workerSettings } from "../support/processes.ts";
import { type SendWorkflows, sendWorkflowsOf, useSendWorkflows } from "../support/send-workflows.ts";
import {
  beginToday,
  caughtMails,
  credits,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  startSend,
  startTomorrow,
  untilSent,
  untilStatus,
} from "../support/sending.ts";
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
    await setFaults([]);
    await assert.rejects(command(sendId, "resume", 5), refusesWithout(4));
    assert.equal(await command(sendId, "resume", 4), ANSWERS.continuesSetBack);
    await untilStatus(sender, ["SENT"]);
    assert.equal((await mailed(sender)).length, 9, "an operator had all five mailed again");
  });

  it("a send that was paused since, or mailed on within its slice, stays PAUSED and calls an operator", async () => {
    const sender = await makeSender({ recipients: 600, credits: 600, account: { maxConnections: 1 } });
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 30 }]);
    const sendId: string = (await startSend(sender)).data.id;
    await untilSent(sender, 3);
    const restore = await backUpSends(sender);
    const then = (await ledgerStates(sender)).SENT ?? 0;
    await eventually(async () => ((await ledgerStates(sender)).SENT ?? 0) > then + 5, { what: "more mail" });
    assert.equal(await command(sendId, "pause"), "PAUSED");
    await setFaults([]);
    await restore();
    assert.equal((await untilStatus(sender, ["SENDING"])).status, "SENDING");
    await untilHeld(temporal, sender, sendId);
    await assertNobodyTwice(sender);
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

  longIt("of the whole database, sends that ended and sends under way wait for an operator's word", async () => {
    const own = await makeDatabase();
    const DATABASE_URL = own.url;
    const namespace = await openNamespace({ DATABASE_URL });
    const { app, startWorker } = namespace;
    const workflows = sendWorkflowsOf(() => namespace.client);
    const { command, workflowOf } = workflows;
    try {
      assert.equal(await app.deps.connectDatabase(), undefined);
      const options = { database: app.deps, base: app.base, account: { maxConnections: 1 } };
      const sends = await startWorker("sends");
      const [ended, underWay] = [
        await makeSender({ ...options, recipients: 3, credits: 3 }),
        await makeSender({ ...options, recipients: 600, credits: 600 }),
      ];
      await setFaults([{ stage: "data", match: underWay.audience, delayMs: 30 }]);
      const endedId: string = (await startSend(ended)).data.id;
      const underWayId: string = (await startSend(underWay)).data.id;
      await own.backUp();
      const dispatch = await startWorker("dispatch");
      await eventually(async () => (await mailed(underWay)).length > 5 && (await mailed(ended)).length === 3);
      const { outcome } = await workflowOf(endedId).result();
      assert.equal(outcome, "SENT");
      // The slice under way ends, and the workflow hears of it.
      await dispatch.stop();
      await sends.stop();

      await own.restore();
      const held = await runApp(["send:hold-all"], { env: { ...(await workerSettings()), DATABASE_URL } });
      assert.match(held.stdout, /^PAUSED with database_restored: 2 sends\./, held.stderr);
      await Promise.all((["sends", "dispatch", "maintenance"] as const).map((pool) => startWorker(pool)));
      await Promise.all([untilHeld(workflows, ended, endedId), untilHeld(workflows, underWay, underWayId)]);
      await Promise.all([assertNobodyTwice(ended), assertNobodyTwice(underWay)]);

      await command(underWayId, "cancel");
      await assert.rejects(command(endedId, "resume"), refusesWithout(3));
      await command(endedId, "resume", 3);
      await untilStatus(ended, ["SENT"]);
      assert.equal((await mailed(ended)).length, 6, "an operator had all three mailed again");
      await assertNobodyTwice(underWay);
    } finally {
      await namespace.close();
      await own.drop();
    }
  });
});
