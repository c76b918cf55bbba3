import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { DATABASE_RESTORED } from "../../domain/sends/restored.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { DETAILS } from "../../workflows/send-messages.ts";
import { eventually } from "../support/eventually.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import type { TestWorker } from "../support/processes.ts";
import {
  caughtMails,
  ledgerStates,
  makeSender,
  type Sender,
  setFaults,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { backUpSends } from "../support/set-back.ts";
import { untilDetails } from "../support/temporal.ts";

/** So that a try of the activity mails many slices. */
const SHORT_SLICES = { DISPATCH_SLICE_ROWS: "10" };
/** They last longer than Temporal's client keeps heartbeats back, which is 8 of the 10 seconds of their timeout. */
const RECIPIENTS = 900;
const MAIL_MS = 25;
/** Slices that end while the test looks on. */
const SLICES = 5;

const sentOf = async (sender: Sender) => (await ledgerStates(sender)).SENT ?? 0;

/** The epoch of a send's only lane: each slice raises it. */
async function epochOf({ em }: Sender, sendId: string): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select epoch from send_lanes where send_id = ${sendId}`.execute(
    kysely(em.fork()),
  );
  return rows[0]?.epoch ?? 0;
}

/** How often each address got the mail at most. */
async function mostMails(sender: Sender): Promise<number> {
  const mails = Map.groupBy(
    (await caughtMails(sender)).flatMap(({ to }) => to),
    (address) => address,
  );
  return Math.max(...[...mails.values()].map(({ length }) => length));
}

describe("A further try of an activity that has mailed several slices", function () {
  this.timeout(120_000);
  let within: TestNamespace;
  beforeEach(async () => {
    within = await openNamespace();
    await within.startWorker("sends");
  });
  afterEach(async () => {
    await setFaults([]);
    await within.close();
  });

  /** The epoch that the heartbeats of the slice under way tell. */
  async function reportedEpoch(sendId: string): Promise<number> {
    const { raw } = await within.client.workflow.getHandle(sendWorkflowId(sendId)).describe();
    const data = raw.pendingActivities?.[0]?.heartbeatDetails?.payloads?.[0]?.data;
    return data ? JSON.parse(Buffer.from(data).toString()).epoch : 0;
  }

  /** A send of which a worker has ended slices that its workflow does not know of, and a backup from before them. */
  async function withReportedSlices() {
    const worker: TestWorker = await within.startWorker("dispatch", SHORT_SLICES);
    const made = await makeSender({ recipients: RECIPIENTS, account: { maxConnections: 1 } });
    const sender = within.within(made);
    await setFaults([{ stage: "data", match: sender.audience, delayMs: MAIL_MS }]);
    const sendId: string = (await startSend(sender)).data.id;
    await eventually(async () => (await sentOf(sender)) > 3, { what: "some mail" });
    const restore = await backUpSends(sender);
    const then = await epochOf(sender, sendId);
    await eventually(async () => (await reportedEpoch(sendId)) > then + SLICES, { what: "the heartbeat" });
    return { worker, sender, sendId, restore };
  }

  it("mails nobody when Postgres does not know of them, and the send pauses", async () => {
    const { worker, sender, sendId, restore } = await withReportedSlices();
    worker.signal("SIGKILL");
    await setFaults([]);
    await restore();
    await within.startWorker("dispatch", SHORT_SLICES);
    await untilDetails(within.client, sendId, DETAILS.setBack, 60_000);
    assert.equal((await untilStatus(sender, ["PAUSED"])).status_reason, DATABASE_RESTORED);
    assert.equal(await mostMails(sender), 1);
    await within.client.workflow.getHandle(sendWorkflowId(sendId)).executeUpdate("cancel");
  });

  it("continues behind them, also when the try before it lives and continues", async () => {
    const { worker, sender, sendId } = await withReportedSlices();
    worker.signal("SIGSTOP");
    await setFaults([]);
    const before = await epochOf(sender, sendId);
    await within.startWorker("dispatch", SHORT_SLICES);
    await eventually(async () => (await epochOf(sender, sendId)) > before, { what: "the next try" });
    worker.signal("SIGCONT");
    await untilStatus(sender, ["SENT"], 60_000);
    const { SENT = 0, UNKNOWN = 0 } = await ledgerStates(sender);
    assert.equal(SENT + UNKNOWN, RECIPIENTS);
    assert.ok(UNKNOWN <= 3, `${UNKNOWN} unknown`);
    assert.equal(await mostMails(sender), 1);
  });
});
