import assert from "node:assert/strict";
import { type Kysely, sql } from "kysely";
import { type Database, kysely } from "../../db/orm.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { startWorker, threadsOf } from "../support/processes.ts";

const { it, longIt } = testsOf();

/** Waits until a worker of the stack and one of this test wait for a lock. */
const untilBothWait = (db: Kysely<Database>) =>
  eventually(
    async () => {
      const { rows } = await sql`select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%webhook_outbox%'`.execute(db);
      return rows.length >= 2;
    },
    { what: "two workers that wait for the lock" },
  );

describe("A worker that is asked to stop", () => {
  it("ends with exit code 0 when its work ends in time, with the thread that reads contents", async () => {
    const worker = await startWorker("dispatch");
    await eventually(() => threadsOf(worker.pid).includes("examination"), { what: "the thread" });
    assert.equal(await worker.stop(), 0);
  });

  longIt("ends with exit code 1 when a statement outlasts the time to stop", async () => {
    const worker = await startWorker("webhooks", { SHUTDOWN_GRACE_MS: "0" });
    const { orm } = await backdoor();
    await kysely(orm.em.fork())
      .transaction()
      .execute(async (tx) => {
        // Held for longer than the time to stop, and for less than a statement may take.
        await sql`lock table webhook_outbox in access exclusive mode`.execute(tx);
        await untilBothWait(kysely(orm.em.fork()));
        assert.equal(await worker.stop(), 1);
      });
  });
});
