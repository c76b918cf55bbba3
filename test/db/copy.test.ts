import assert from "node:assert/strict";
import { sql } from "kysely";
import pg from "pg";
import { type CopyReader, insertByCopy } from "../../db/copy.ts";
import { copyComment } from "../../db/copy-query.ts";
import { type EntityManager, kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { StalledCopies } from "../../db/stalled-copies.ts";
import { IsolationLevel, transaction } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { eventually } from "../support/eventually.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

/** More connections than a pool of the tests has: a lost one would be missed. */
const MORE_THAN_POOL = 3;
/** One for the copy, one for looks at it. */
const POOL = 2;
const ROWS = 20_000;

describe("Rows that are inserted by COPY over two connections", () => {
  let owner: MikroORM;
  let orm: MikroORM;
  let reader: CopyReader;
  let table: string;

  before(async () => {
    owner = await openStackDatabase("owner", 2);
    const { DATABASE_URL: databaseUrl } = (await stack()).env;
    orm = await openDatabase(databaseUrl, { poolMax: POOL });
    reader = { databaseUrl, statementMs: 60_000 };
  });
  after(() => Promise.all([owner.close(true), orm.close(true)]));
  beforeEach(async () => {
    table = unique("copied").replace("-", "_");
    await run(`create table ${table} (n int primary key, name text, note jsonb)`);
    await run(`grant select, insert, delete on ${table} to public`);
  });
  afterEach(() => run(`drop table ${table}`));

  const run = (text: string) => owner.em.fork().execute(text);
  const count = async () =>
    Number((await owner.em.fork().execute(`select count(*)::int as n from ${table}`))[0]?.["n"]);
  const copy = (em: EntityManager, select: Parameters<typeof insertByCopy>[2]) =>
    insertByCopy(em, `${table} (n, name, note)`, select, reader);
  const inTransaction = <T>(work: (tx: EntityManager) => Promise<T>) =>
    transaction(orm.em.fork(), work, { isolationLevel: IsolationLevel.REPEATABLE_READ, attempts: 1 });
  const series = (n: string, name = "'row ' || i") =>
    sql`select ${sql.raw(n)}, ${sql.raw(name)}, null::jsonb from generate_series(1, ${ROWS}::int) i`;

  it("are those of the query, with every value as the query gave it", async () => {
    const text = `it's "quoted" \\ $1 ☃ é`;
    const select = sql`
      select i, case when i % 3 = 0 then null else ${text} || repeat('x', i % 500) end,
        case when i % 2 = 0 then jsonb_build_object('i', i) end
      from generate_series(1, ${ROWS}::int) i where i <> all(${[7, 9].map(String)}::int[])`;
    assert.equal(await inTransaction((tx) => copy(tx, select)), ROWS - 2);
    const { rows } = await sql<{ n: number }>`
      select count(*)::int as n from ((${select}) except all select n, name, note from ${sql.table(table)}) missing`.execute(
      kysely(owner.em.fork()),
    );
    assert.deepEqual(rows, [{ n: 0 }]);
    assert.equal(await count(), ROWS - 2);
  });

  it("are read in the snapshot of the transaction that writes them", async () => {
    const others = unique("read").replace("-", "_");
    await run(`create table ${others} (n int); grant select on ${others} to public; insert into ${others} values (1)`);
    try {
      const copied = await inTransaction(async (tx) => {
        await tx.execute("select 1");
        await run(`insert into ${others} values (2)`);
        return copy(tx, sql`select n, null::text, null::jsonb from ${sql.table(others)}`);
      });
      assert.equal(copied, 1);
    } finally {
      await run(`drop table ${others}`);
    }
  });

  it("are none when the transaction is rolled back", async () => {
    await assert.rejects(
      inTransaction(async (tx) => {
        assert.equal(await copy(tx, series("i")), ROWS);
        throw new Error("changed my mind");
      }),
      /changed my mind/,
    );
    assert.equal(await count(), 0);
  });

  it("are none when the query fails in the middle, and no connection is lost", async () => {
    for (let i = 0; i < MORE_THAN_POOL; i++) {
      await assert.rejects(
        inTransaction((tx) => copy(tx, series("i", "(1 / (i - 15000))::text"))),
        { code: "22012" },
      );
    }
    assert.equal(await count(), 0);
    assert.equal(await inTransaction((tx) => copy(tx, series("i"))), ROWS);
  });

  it("are none when a row cannot be written, and no connection is lost", async () => {
    for (let i = 0; i < MORE_THAN_POOL; i++) {
      await assert.rejects(
        inTransaction((tx) => copy(tx, series("i % 10000"))),
        { code: "23505" },
      );
    }
    assert.equal(await count(), 0);
    assert.equal(await inTransaction((tx) => copy(tx, series("i"))), ROWS);
  });

  it("are none when the query is refused, and the writing one ends", async () => {
    await assert.rejects(
      inTransaction((tx) => copy(tx, sql`select no_such_column`)),
      { code: "42703" },
    );
    await assert.rejects(
      inTransaction((tx) => insertByCopy(tx, `${table} (no_such)`, series("i"), reader)),
      { code: "42703" },
    );
    assert.equal(await inTransaction((tx) => copy(tx, series("i"))), ROWS);
  });

  it("end after the time of the reading statement", async () => {
    const slow = sql`select i, pg_sleep(0.01)::text, null::jsonb from generate_series(1, 1000000) i`;
    const limited = (tx: EntityManager) =>
      insertByCopy(tx, `${table} (n, name, note)`, slow, { ...reader, statementMs: 200 });
    await assert.rejects(inTransaction(limited), { code: "57014" });
    assert.equal(await count(), 0);
  });

  for (const part of ["to stdout", "from stdin"]) {
    it(`are none when the connection of the copy ${part} is ended`, async () => {
      const slow = sql`select i, pg_sleep(0.001)::text, null::jsonb from generate_series(1, 1000000) i`;
      const copied = assert.rejects(
        inTransaction((tx) => copy(tx, slow)),
        isUnreachable,
      );
      const ended = await eventually(
        async () => {
          const [row] = await run(`select pg_terminate_backend(a.pid) from pg_stat_activity a
            join pg_stat_progress_copy c on c.pid = a.pid
            where a.query like '%${part} (format binary)' and a.query like '%${part === "to stdout" ? "pg_sleep" : table}%'`);
          return row;
        },
        { what: `the copy ${part}` },
      );
      assert.ok(ended);
      await copied;
      assert.equal(await count(), 0);
      assert.equal(await inTransaction((tx) => copy(tx, series("i"))), ROWS);
    });
  }

  /** Begins a copy of a client that sends no rows, as a frozen one; it holds a row of the table. @returns its failures */
  async function freezeInCopy(): Promise<Error[]> {
    const client = new pg.Client({ connectionString: (await stack()).env.DATABASE_URL });
    const failures: Error[] = [];
    client.on("error", (error) => failures.push(error));
    await client.connect();
    await client.query("begin");
    await client.query(`insert into ${table} values (1)`);
    // A client that sends no rows, as a frozen one.
    const frozen = new (class extends pg.Query {
      handleCopyInResponse(): void {}
    })(`${copyComment("of a frozen process")} copy ${table} (n, name, note) from stdin`) as unknown as pg.Query;
    frozen.on("error", (error) => failures.push(error));
    client.query(frozen);
    const waits = () =>
      run(
        `select 1 as one from pg_stat_activity where query like '%copy ${table}%' and pid <> pg_backend_pid() and wait_event_type = 'Client'`,
      );
    await eventually(async () => (await waits()).length === 1, { what: "the copy" });
    return failures;
  }

  it("give their locks back when their process freezes, within two looks", async () => {
    const failures = await freezeInCopy();
    const copies = new StalledCopies();
    assert.equal(await copies.end(orm.em.fork()), 0, "it may have begun just now");
    assert.equal(await copies.end(orm.em.fork()), 1);
    await eventually(() => failures.length > 0, { what: "the end of its connection" });
    await orm.em.fork().execute(`insert into ${table} values (1)`);
    assert.equal(await count(), 1);
    assert.equal(await copies.end(orm.em.fork()), 0);
  });

  it("are ended by the maintenance pool when their process freezes", async () => {
    const failures = await freezeInCopy();
    await eventually(() => failures.length > 0, { withinMs: 90_000, what: "the end of its connection" });
  });

  it("are not ended while the connection that reads works on the next row", async () => {
    const copies = new StalledCopies();
    const working = sql`select i, case when i = 10000 then pg_sleep(5)::text else repeat('x', 1000) end, null::jsonb
      from generate_series(1, ${ROWS}::int) i`;
    const copied = inTransaction((tx) => copy(tx, working));
    const waits = async (event: string) =>
      (
        await run(
          `select from pg_stat_progress_copy c join pg_stat_activity a on a.pid = c.pid where a.wait_event = '${event}'`,
        )
      ).length === 1;
    await eventually(async () => (await waits("PgSleep")) && (await waits("ClientRead")), { what: "the row" });
    const ended = [await copies.end(orm.em.fork()), await copies.end(orm.em.fork())];
    assert.equal(await copied, ROWS);
    assert.deepEqual(ended, [0, 0]);
  });
});
