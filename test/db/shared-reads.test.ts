import assert from "node:assert/strict";
import { type RawBuilder, sql } from "kysely";
import { type MikroORM, openDatabase } from "../../db/orm.ts";
import { compileOnce } from "../../db/prepared.ts";
import { executeShared } from "../../db/shared-reads.ts";
import { stack } from "../support/stack.ts";

describe("Shared reads", () => {
  let orm: MikroORM;

  beforeEach(async () => {
    const { env } = await stack();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 5 });
  });
  afterEach(() => orm.close(true));

  const run = <Row>(lineId: string, value: number, build: (value: number) => RawBuilder<Row>) =>
    executeShared(
      orm.em,
      lineId,
      compileOnce(orm.em, { value }, ({ value }) => build(value)),
      { value },
    );

  const read = (lineId: string, value: number) =>
    run(
      lineId,
      value,
      (value) => sql<{ doubled: number; pid: number }>`select ${value}::int * 2 as doubled, pg_backend_pid() as pid`,
    );

  it("take two connections however many there are at once, and each gets its own rows", async () => {
    const values = Array.from({ length: 50 }, (_, i) => i);
    const rows = (await Promise.all(values.map((value) => read("a", value)))).flat();
    assert.deepEqual(
      rows.map(({ doubled }) => doubled),
      values.map((value) => value * 2),
    );
    assert.ok(new Set(rows.map(({ pid }) => pid)).size <= 2);
  });

  it("let those beside one that fails succeed", async () => {
    const reads = Array.from({ length: 20 }, (_, i) =>
      run("a", i % 5, (value) => sql<{ share: number }>`select 10 / ${value}::int as share`),
    );
    const results = await Promise.allSettled(reads);
    for (const [i, { status }] of results.entries()) assert.equal(status, i % 5 === 0 ? "rejected" : "fulfilled");
  });

  it("of one line do not wait for those of another", async () => {
    const locked = orm.em.fork();
    await locked.begin();
    await locked.execute("select pg_advisory_xact_lock(4711)");
    const lock = (key: number) => sql<unknown>`select pg_advisory_xact_lock(${key}::bigint)`;
    const waiting = Array.from({ length: 6 }, () => run("a", 4711, lock));

    assert.equal((await read("b", 4))[0]?.doubled, 8);
    await locked.commit();
    await Promise.all(waiting);
  });

  it("fail with their connection, and the next ones find another", async () => {
    const end = (yes: number) => sql<unknown>`select pg_terminate_backend(pg_backend_pid()) where ${yes}::int = 1`;
    await assert.rejects(run("a", 1, end));
    assert.equal((await read("a", 5))[0]?.doubled, 10);
  });
});
