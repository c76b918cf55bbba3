import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { IsolationLevel, transaction } from "../../db/transaction.ts";
import { stack } from "../support/stack.ts";

describe("A transaction", () => {
  let orm: MikroORM;
  let em: EntityManager;

  before(async () => {
    const { env } = await stack();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 1 });
    em = orm.em.fork();
  });
  after(() => orm.close(true));

  async function idOf(tx: EntityManager): Promise<string> {
    const { rows } = await sql<{ id: string }>`select txid_current()::text as id`.execute(kysely(tx));
    return rows[0]?.id ?? "";
  }

  it("holds all its statements, and is rolled back after one that fails", async () => {
    const failing = transaction(em, (tx) => sql`select 1 / ${0}::int`.execute(kysely(tx)));
    await assert.rejects(failing, /division by zero/);
    const [first, second] = await transaction(em, async (tx) => [await idOf(tx), await idOf(tx)]);
    assert.equal(first, second);
    assert.notEqual(await idOf(em), first);
  });

  it("takes its level of isolation", async () => {
    const level = await transaction(
      em,
      async (tx) => {
        const { rows } = await sql<{ level: string }>`
          select current_setting('transaction_isolation') as level`.execute(kysely(tx));
        return rows[0]?.level;
      },
      { isolationLevel: IsolationLevel.REPEATABLE_READ },
    );
    assert.equal(level, "repeatable read");
  });
});
