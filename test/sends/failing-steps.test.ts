import assert from "node:assert/strict";
import { type Client, WorkflowUpdateStage } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { sendWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { untilLogged } from "../support/logs.ts";
import { confirm, credits, ledgerStates, makeSender, type Sender, tokenOf, untilStatus } from "../support/sending.ts";
import { temporalClient } from "../support/temporal.ts";

let temporal: Client;
let close: () => Promise<void>;

interface Shown {
  details: string;
  needsOperator: boolean;
}

async function shown(sendId: string): Promise<Shown> {
  const handle = temporal.workflow.getHandle(sendWorkflowId(sendId));
  const { currentDetails } = await handle.query<{ currentDetails: string }>("__temporal_workflow_metadata");
  const { searchAttributes } = await handle.describe();
  return { details: currentDetails, needsOperator: searchAttributes["NeedsOperator"]?.[0] === true };
}

/** Waits until the UI says that a step keeps failing, and that an operator is needed. */
const failed = (sendId: string, step: string) =>
  eventually(
    async () => {
      const { details, needsOperator } = await shown(sendId);
      return needsOperator && details.startsWith(`The step "${step}" failed three times (database_P0001)`);
    },
    { what: `the failing step "${step}" in the UI` },
  );

/** Lets Postgres refuse a change of one send. @returns what mends it */
async function breakChange({ em }: Sender, table: string, when: string): Promise<() => Promise<void>> {
  const db = kysely(em);
  const name = `broken_${Math.random().toString(36).slice(2)}`;
  await sql`create function ${sql.ref(name)}() returns trigger language plpgsql as
    ${sql.raw("'begin raise exception ''broken by a test''; end'")}`.execute(db);
  await sql`create trigger ${sql.ref(name)} before insert or update on ${sql.table(table)}
    for each row when (${sql.raw(when)}) execute function ${sql.ref(name)}()`.execute(db);
  return async () => {
    await sql`drop function ${sql.ref(name)}() cascade`.execute(db);
  };
}

/** A previewed newsletter of which the send's id is known before it is confirmed. */
async function previewed(recipients = 2) {
  const sender = await makeSender({ recipients, credits: recipients });
  const token = await tokenOf(sender);
  const sendId = token.split(".")[0] ?? "";
  return { sender, token, sendId, handle: temporal.workflow.getHandle(sendWorkflowId(sendId)) };
}

describe("A step of a send that keeps failing", () => {
  before(async () => {
    ({ client: temporal, close } = await temporalClient());
  });
  after(() => close());

  const STEPS: [step: string, activityName: string, table: string, when: (sendId: string) => string][] = [
    ["begin", "beginSend", "sends", (id) => `new.id = '${id}' and new.status = 'SENDING'`],
    ["settle", "finishSend", "credit_entries", (id) => `new.send_id = '${id}' and new.kind = 'CONSUME'`],
  ];
  for (const [step, activityName, table, when] of STEPS) {
    it(`is shown with its code, calls an operator, and is tried again by retry: ${step}`, async () => {
      const { sender, token, sendId, handle } = await previewed();
      const mend = await breakChange(sender, table, when(sendId));
      try {
        assert.equal((await confirm(sender, token)).status, 202);
        await failed(sendId, step);
      } finally {
        await mend();
      }
      const [{ activity, code } = {}] = await untilLogged(
        "sends",
        ({ msg, workflowId }) => msg === "activity failed" && workflowId === handle.workflowId,
      );
      assert.deepEqual([activity, code], [activityName, "database_P0001"]);
      assert.equal(await handle.executeUpdate("retry"), "tries again now");
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 0 });
      assert.equal((await shown(sendId)).needsOperator, false);
      assert.deepEqual(await ledgerStates(sender), { SENT: 2 });
      assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
    });
  }

  it("blocks no other command: a send is cancelled whose pause fails", async () => {
    const { sender, token, sendId, handle } = await previewed();
    const mendStart = await breakChange(sender, "sends", `new.id = '${sendId}' and new.status = 'SENDING'`);
    const mend = await breakChange(sender, "sends", `new.id = '${sendId}' and new.status = 'PAUSED'`);
    try {
      assert.equal((await confirm(sender, token)).status, 202);
      await failed(sendId, "begin");
      const pause = await handle.startUpdate("pause", { waitForStage: WorkflowUpdateStage.ACCEPTED });
      await failed(sendId, "pause");
      assert.equal(await handle.executeUpdate("cancel"), "CANCELLED");
      assert.equal(await pause.result(), "nothing to pause: the send has ended");
    } finally {
      await mend();
      await mendStart();
    }
    assert.deepEqual(await handle.result(), { outcome: "CANCELLED", sent: 0, unknown: 0 });
    assert.deepEqual(await ledgerStates(sender), { CANCELLED: 2 });
    assert.equal((await shown(sendId)).needsOperator, false);
  });
});
