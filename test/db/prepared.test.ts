import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { sql } from "kysely";
import { kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { defineStatement, executePrepared } from "../../db/statements.ts";
import { backdoor } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { findChanging } from "../support/statements/check.ts";
import type { Recorded } from "../support/statements/recorded.ts";

describe("A prepared statement", () => {
  let orm: MikroORM;

  before(async () => {
    const { env } = await stack();
    // One connection, so that what it has prepared can be looked at.
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 1 });
  });
  after(() => orm.close(true));

  it("is parsed once per connection, under its name, and run with the values of each call", async () => {
    const em = orm.em.fork();
    const double = (value: number) => sql<{ doubled: number }>`select ${value}::int * 2 as doubled`;

    const results = [];
    for (const value of [1, 2, 3]) results.push(await executePrepared(em, "double", double(value)));

    assert.deepEqual(
      results.flatMap(({ rows }) => rows),
      [{ doubled: 2 }, { doubled: 4 }, { doubled: 6 }],
    );
    const { rows } = await sql<{ name: string; runs: number }>`
      select name, (generic_plans + custom_plans)::int as runs from pg_prepared_statements`.execute(kysely(em));
    assert.deepEqual(rows, [{ name: "double", runs: 3 }]);
  });

  it("that was defined is compiled once, for the values that it was first given", async () => {
    const em = orm.em.fork();
    let compiled = 0;
    const add = defineStatement((_em, { left, right }: { left: number; right?: number | undefined }) => {
      compiled++;
      return right === undefined
        ? sql<{ sum: number }>`select ${left}::int as sum`
        : sql<{ sum: number }>`select ${left}::int + ${right}::int as sum`;
    });
    const sums = [];
    for (const left of [1, 2]) sums.push(...(await add(em, { left, right: 10 })).rows);
    assert.deepEqual([sums, compiled], [[{ sum: 11 }, { sum: 12 }], 1]);
  });

  it("is refused when its name stands for another text", async () => {
    const em = orm.em.fork();
    await executePrepared(em, "taken", sql`select 1`);

    await assert.rejects(executePrepared(em, "taken", sql`select 2`), /Prepared statements must be unique/);
  });

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
      const prepared = await executePrepared(tx, "transaction_id", mine);
      const plain = await mine.execute(kysely(tx));
      assert.deepEqual(prepared.rows, plain.rows);
    });
  });
});
