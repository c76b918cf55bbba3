import assert from "node:assert/strict";
import { openDatabase } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { stack } from "../support/stack.ts";

describe("A pool of connections", () => {
  it("closes one whose server has become read only, and takes no such new one", async () => {
    const { env } = await stack();
    const orm = await openDatabase(env.DATABASE_URL, { poolMax: 1 });
    const em = () => orm.em.fork();
    const write = () => em().execute("delete from request_counts where false");
    const inTransaction = () => transaction(orm.em, (tx) => tx.execute("delete from request_counts where false"));
    try {
      for (const act of [write, inTransaction]) {
        await em().execute("set default_transaction_read_only = on");
        await assert.rejects(act(), isUnreachable);
        await act();
      }
      await em()
        .execute("select pg_terminate_backend(pg_backend_pid())")
        .catch(() => {});
      process.env["PGOPTIONS"] = "-c default_transaction_read_only=on";
      await assert.rejects(em().execute("select 1"), isUnreachable);
      delete process.env["PGOPTIONS"];
      await em().execute("select 1");
    } finally {
      delete process.env["PGOPTIONS"];
      await orm.close(true);
    }
  });

  it("is closed while a caller waits for its first connection", async () => {
    const { env } = await stack();
    const connecting = Promise.withResolvers<void>();
    const ready = Promise.withResolvers<void>();
    const orm = await openDatabase(env.DATABASE_URL, {
      onConnect: () => {
        connecting.resolve();
        return ready.promise;
      },
    });
    // It may be answered or refused.
    const answered = orm.em
      .fork()
      .execute("select 1")
      .catch(() => undefined);
    await connecting.promise;
    const closed = orm.close(true);
    ready.resolve();
    await Promise.all([closed, answered]);
  });
});
