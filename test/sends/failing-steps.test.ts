import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { untilLogged } from "../support/logs.ts";
import { testsOf } from "../support/long.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import { confirm, credits, ledgerStates, makeSender, type Sender, tokenOf, untilStatus } from "../support/sending.ts";

const { it, longIt } = testsOf();

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

describe("A step of a send that keeps failing", () => {
  const { command, begin, detailsOf, needsOperator, workflowOf } = useSendWorkflows();

  /** Waits until the UI says that a step keeps failing, and that an operator is needed. */
  const failed = (sendId: string, step: string) =>
    eventually(
      async () =>
        (await needsOperator(sendId)) &&
        (await detailsOf(sendId)).startsWith(`The step "${step}" failed three times (database_P0001)`),
      { what: `the failing step "${step}" in the UI` },
    );

  /** A previewed newsletter of which the send's id is known before it is confirmed. */
  async function previewed() {
    const sender = await makeSender({ recipients: 2, credits: 2 });
    const token = await tokenOf(sender);
    const sendId = token.split(".")[0] ?? "";
    return { sender, token, sendId, handle: workflowOf(sendId) };
  }

  const STEPS: [step: string, activityName: string, table: string, when: (sendId: string) => string][] = [
    ["begin", "beginSend", "sends", (id) => `new.id = '${id}' and new.status = 'SENDING'`],
    ["settle", "finishSend", "credit_entries", (id) => `new.send_id = '${id}' and new.kind = 'CONSUME'`],
  ];
  for (const [step, activityName, table, when] of STEPS) {
    const test = step === "settle" ? it : longIt;
    test(`is shown with its code, calls an operator, and is tried again by retry: ${step}`, async () => {
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
      assert.equal(await command(sendId, "retry"), "tries again now");
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 0 });
      assert.equal(await needsOperator(sendId), false);
      assert.deepEqual(await ledgerStates(sender), { SENT: 2 });
      assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
    });
  }

  longIt("blocks no other command: a send is cancelled whose pause fails", async () => {
    const { sender, token, sendId, handle } = await previewed();
    const mendStart = await breakChange(sender, "sends", `new.id = '${sendId}' and new.status = 'SENDING'`);
    const mend = await breakChange(sender, "sends", `new.id = '${sendId}' and new.status = 'PAUSED'`);
    try {
      assert.equal((await confirm(sender, token)).status, 202);
      await failed(sendId, "begin");
      const pause = await begin(sendId, "pause");
      await failed(sendId, "pause");
      assert.equal(await command(sendId, "cancel"), "CANCELLED");
      assert.equal(await pause.result(), "nothing to pause: the send has ended");
    } finally {
      await mend();
      await mendStart();
    }
    assert.deepEqual(await handle.result(), { outcome: "CANCELLED", sent: 0, unknown: 0 });
    assert.deepEqual(await ledgerStates(sender), { CANCELLED: 2 });
    assert.equal(await needsOperator(sendId), false);
  });
});
