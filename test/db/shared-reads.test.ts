import assert from "node:assert/strict";
import { type RawBuilder, sql } from "kysely";
import { type MikroORM, openDatabase } from "../../db/orm.ts";
import { compileOnce } from "../../db/prepared.ts";
import { executeShared } from "../../db/shared-reads.ts";
import { eventually } from "../support/eventually.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
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

  it("are sent together when they begin before the process has handled all that it has received", async () => {
    await read("a", 0);
    const pids = [];
    for (let n = 0; n < 8; n++) {
      pids.push(read("a", n).then(([row]) => row?.pid));
      await new Promise<void>((resolve) => process.nextTick(resolve));
    }
    assert.equal(new Set(await Promise.all(pids)).size, 1);
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

  it("that come while others wait in vain for a connection do not fail with those", async () => {
    const pool = await orm.em.getDriver().getConnection().getNativeClient();
    Object.assign(pool.options, { max: 1, connectionTimeoutMillis: 300 });
    const holder = await pool.connect();
    const failing = [read("a", 1), read("a", 2)].map((result) => assert.rejects(result, /timeout/));
    await eventually(() => pool.waitingCount === 2, { what: "both reads to wait for a connection" });

    const later = read("a", 3);
    await failing[0];
    holder.release();
    assert.equal((await later)[0]?.doubled, 6);
    await Promise.allSettled(failing);
  });

  it("do not fail because the one before them was cancelled while it was parsed", async () => {
    const owner = await openStackDatabase("owner", 2);
    const table = unique("parsed").replaceAll("-", "_");
    try {
      await owner.em.execute(`create table ${table} as select 7 as value; grant select on ${table} to public`);
      const locked = owner.em.fork();
      await locked.begin();
      await locked.execute(`lock table ${table}`);
      const pool = await orm.em.getDriver().getConnection().getNativeClient();
      Object.assign(pool.options, { max: 1 });
      const statement = compileOnce(
        orm.em,
        { value: 0 },
        ({ value }) => sql<{ sum: number }>`select value + ${value}::int as sum from ${sql.table(table)}`,
      );
      const results = Promise.allSettled([1, 2, 3].map((value) => executeShared(orm.em, "a", statement, { value })));
      await eventually(
        async () => {
          const [row] = await owner.em.execute(
            `select count(pg_cancel_backend(pid))::int as cancelled from pg_locks where not granted and relation = '${table}'::regclass`,
          );
          return row?.["cancelled"] === 1;
        },
        { what: "the parsing to wait for the lock, and to be cancelled" },
      );
      await locked.commit();
      const [first, ...others] = await results;
      assert.equal(first?.status === "rejected" && first.reason.code, "57014");
      assert.deepEqual(
        others.map((result) => result.status === "fulfilled" && result.value),
        [[{ sum: 9 }], [{ sum: 10 }]],
      );
    } finally {
      await owner.em.execute(`drop table if exists ${table}`);
      await owner.close(true);
    }
  });
});
