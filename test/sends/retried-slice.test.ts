import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { outcomesOf } from "../support/outcomes.ts";
import { makeSender, type Sender, setFaults, startSend, untilStatus } from "../support/sending.ts";

/** So that a slice passes many checkpoints. */
const ROWS = { DISPATCH_SLICE_ROWS: "10" };
const RECIPIENTS = 300;

/** The epoch of a send's only lane: each try of a slice raises it. */
async function epochOf({ em }: Sender, sendId: string): Promise<number> {
  const { rows } = await sql<{ epoch: number }>`select epoch from send_lanes where send_id = ${sendId}`.execute(
    kysely(em.fork()),
  );
  return rows[0]?.epoch ?? 0;
}

describe("A further try of a slice", () => {
  let within: TestNamespace;
  beforeEach(async () => {
    within = await openNamespace();
    await within.startWorker("sends");
  });
  afterEach(async () => {
    await setFaults([]);
    await within.close();
  });

  it("continues behind the mails of the try before it, which lives and ends when it finds that out", async () => {
    const suspended = await within.startWorker("dispatch", ROWS);
    const sender = within.within(await makeSender({ recipients: RECIPIENTS, account: { maxConnections: 1 } }));
    await setFaults([{ stage: "data", match: sender.audience, delayMs: 25 }]);
    const sendId: string = (await startSend(sender)).data.id;
    const sent = async () => (await outcomesOf(sender)).filter(({ state }) => state === "SENT").length;
    await eventually(async () => (await sent()) > 50, { what: "mails of several checkpoints" });
    suspended.signal("SIGSTOP");
    await setFaults([]);
    const before = await epochOf(sender, sendId);
    await within.startWorker("dispatch", ROWS);
    await eventually(async () => (await epochOf(sender, sendId)) > before, { what: "the next try" });
    suspended.signal("SIGCONT");
    await untilStatus(sender, ["SENT"]);
    const outcomes = await outcomesOf(sender);
    assert.equal(outcomes.length, RECIPIENTS);
    const unclear = outcomes.filter(({ state, caught }) => state !== "SENT" || caught !== 1);
    assert.ok(
      unclear.every(({ state, caught }) => state === "UNKNOWN" && caught <= 1),
      JSON.stringify(unclear.map(({ state, caught }) => [state, caught])),
    );
    assert.ok(unclear.length <= 3, `${unclear.length} unknown`);
  });
});
