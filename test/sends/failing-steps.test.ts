import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { untilLogged } from "../support/logs.ts";
import { useSendWorkflows } from "../support/send-workflows.ts";
import { confirm, credits, ledgerStates, makeSender, type Sender, tokenOf, untilStatus } from "../support/sending.ts";

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
  const { command, detailsOf, needsOperator, workflowOf } = useSendWorkflows();

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

  it("is shown with its code, calls an operator, and is tried again by retry", async () => {
    const { sender, token, sendId, handle } = await previewed();
    const mend = await breakChange(sender, "credit_entries", `new.send_id = '${sendId}' and new.kind = 'CONSUME'`);
    try {
      assert.equal((await confirm(sender, token)).status, 202);
      await failed(sendId, "settle");
    } finally {
      await mend();
    }
    const [{ activity, code } = {}] = await untilLogged(
      "sends",
      ({ msg, workflowId }) => msg === "activity failed" && workflowId === handle.workflowId,
    );
    assert.deepEqual([activity, code], ["finishSend", "database_P0001"]);
    assert.equal(await command(sendId, "retry"), "tries again now");
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await handle.result(), { outcome: "SENT", sent: 2, unknown: 0 });
    assert.equal(await needsOperator(sendId), false);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2 });
    assert.deepEqual(await credits(sender), { available: 0, reserved: 0, mismatch: false });
  });
});
