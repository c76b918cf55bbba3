import { openDatabase } from "../../db/orm.ts";
import { stack } from "../support/stack.ts";

describe("A pool of connections", () => {
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
