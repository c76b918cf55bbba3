import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { sql } from "kysely";
import { kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { executePrepared } from "../../db/statements.ts";
import { backdoor } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { findChanging } from "../support/statements/check.ts";
import type { Recorded } from "../support/statements/recorded.ts";

describe("A prepared statement", () => {
  let orm: MikroORM;

  before(async () => {
    const { env } = await stack();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 1 });
  });
  after(() => orm.close(true));

  it("is found by the check when a migration would change its result", async () => {
    const folder = mkdtempSync(`${tmpdir()}/mailkeel-statements-`);
    const record = (text: string, prepared = true): Recorded => ({
      ...{ program: "api", text, prepared },
      ...{ from: [], persists: false },
    });
    const stable = ["select id, name from lists where id = $1", "select id from (select * from lists) l"];
    const changing = [
      "select * from lists",
      "update lists set name = $1 returning *",
      "select l.*, 1 as one from lists l",
    ];
    const lines = [...[...stable, ...changing].map((text) => record(text)), record("select * from teams", false)];
    writeFileSync(`${folder}/1.jsonl`, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    try {
      const owner = (await backdoor()).orm.em.fork();
      assert.deepEqual(await findChanging(folder, owner), changing);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it("runs in the transaction of its entity manager", async () => {
    const mine = sql<{ id: string }>`select txid_current()::text as id`;
    await orm.em.fork().transactional(async (tx) => {
      const prepared = await executePrepared(tx, mine);
      const plain = await mine.execute(kysely(tx));
      assert.deepEqual(prepared.rows, plain.rows);
    });
  });
});
