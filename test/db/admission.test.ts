import assert from "node:assert/strict";
import { formatKeys } from "../../config/env.ts";
import { kysely } from "../../db/orm.ts";
import { api } from "../support/api.ts";
import { openStackDatabase } from "../support/factories.ts";
import {
  type Keys,
  makeClient,
  makeDatabase,
  newKey,
  type OwnDatabase,
  PROGRAMS,
  type Program,
  runToEnd,
  settingsOf,
  startApi,
} from "../support/own-database.ts";
import { stack } from "../support/stack.ts";

describe("A database admits processes by their keys", function () {
  this.timeout(300_000);
  let database: OwnDatabase;
  let keys: Keys;
  const running: { stop(): Promise<void> }[] = [];

  const start = async (given: Keys) => {
    const process = await startApi(settingsOf(database, given));
    running.push(process);
    return process;
  };
  async function refusal(program: Program, changes: Record<string, string>): Promise<string> {
    const { code, stdout, stderr } = await runToEnd(PROGRAMS[program], { ...settingsOf(database, keys), ...changes });
    assert.equal(code, 1, `${program}: ${stdout}${stderr}`);
    assert.equal(stderr.trim().split("\n").length, 1, stderr);
    return stderr;
  }

  beforeEach(async () => {
    database = await makeDatabase();
    keys = { signing: [newKey("k1")], encryption: [newKey("e1")] };
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((process) => process.stop()));
    await database.drop();
  });

  for (const [setting, programs] of [
    ["SIGNING_SECRET", ["api", "dispatch", "maintenance", "app"]],
    ["ENCRYPTION_KEYS", ["api", "dispatch", "webhooks", "app"]],
  ] as const) {
    it(`refuses a wrong ${setting} to ${programs.join(", ")}, and names it`, async () => {
      await makeClient(database, keys);
      const [id] = setting === "SIGNING_SECRET" ? ["k1"] : ["e1"];
      const wrong = newKey(id);
      for (const program of programs) {
        const said = await refusal(program, { [setting]: formatKeys([wrong]) });
        assert.match(said, new RegExp(`${setting}: the key ${id} is not the one that this database is used with`));
        assert.ok(!said.includes(wrong[1]), "the key is not shown");
      }
    });
  }

  it("ends an API that started while Postgres was away, once Postgres refuses it", async () => {
    await makeClient(database, keys);
    const wrong = { ...keys, signing: [newKey("k1")] };
    const away = new URL(database.url);
    const admin = await openStackDatabase("owner");
    try {
      const name = away.pathname.slice(1);
      await admin.em.fork().execute(`alter database "${name}" with allow_connections false`);
      const started = await start(wrong);
      assert.equal((await fetch(`${started.origin}/healthz`)).status, 200);
      await admin.em.fork().execute(`alter database "${name}" with allow_connections true`);
      const [code] = await started.ended;
      assert.equal(code, 1);
    } finally {
      await admin.close(true);
    }
  });

  it("accepts a new SIGNING_SECRET in two steps, and what the old one signed all the while", async () => {
    const [old, fresh] = [keys.signing[0] ?? newKey("k1"), newKey("k2")];
    const { key, linkFor } = await makeClient(database, keys);
    const first = await start(keys);
    const client = api(key, first.base);
    for (const name of ["A", "B"]) assert.equal((await client.post("/lists", { name })).status, 201);
    const made = await client.post("/lists", { name: "Once" }, { idempotencyKey: "rotation" });
    const { next_cursor } = (await client.get("/lists?limit=1")).body.meta;

    const early = await refusal("api", { SIGNING_SECRET: formatKeys([fresh, old]) });
    assert.match(early, /SIGNING_SECRET: the key k2 is new to this database and stands first/);

    await start({ ...keys, signing: [old, fresh] });
    await start(keys);

    const signing = await start({ ...keys, signing: [fresh, old] });
    assert.match(await refusal("api", {}), /SIGNING_SECRET: the key k2 is missing/);
    const after = api(key, signing.base);
    assert.equal((await after.get("/lists", { query: { limit: 1, cursor: next_cursor } })).status, 200);
    assert.equal((await fetch(linkFor(signing.origin))).status, 200);
    const again = await after.post("/lists", { name: "Once" }, { idempotencyKey: "rotation" });
    assert.deepEqual([again.status, again.body.data.id], [201, made.body.data.id], "a retry does not act twice");

    const newer = (await after.get("/lists?limit=1")).body.meta.next_cursor;
    const both = await start({ ...keys, signing: [old, fresh] });
    assert.equal((await api(key, both.base).get("/lists", { query: { limit: 1, cursor: newer } })).status, 200);
    await makeClient(database, { ...keys, signing: [fresh, old] });
    assert.match(
      await refusal("api", { SIGNING_SECRET: formatKeys([fresh]) }),
      /SIGNING_SECRET: the key k1 is missing/,
    );
  });

  it("keeps of a key only a salted hash that takes long to compute", async () => {
    await makeClient(database, keys);
    const rows = await kysely(database.orm.em.fork()).selectFrom("secret_fingerprints").selectAll().execute();
    assert.deepEqual(rows.map(({ setting, key_id }) => `${setting} ${key_id}`).sort(), [
      "ENCRYPTION_KEYS e1",
      "SIGNING_SECRET k1",
    ]);
    assert.equal(new Set(rows.map(({ salt }) => salt)).size, rows.length);
    for (const { fingerprint } of rows) assert.ok(Number(fingerprint.split(".")[0]) >= 2 ** 14, "the cost of scrypt");
    for (const [, key] of [...keys.signing, ...keys.encryption]) {
      assert.ok(!JSON.stringify(rows).includes(Buffer.from(key, "base64").toString("base64url")));
    }
  });

  it("says that a database without a schema must be prepared", async () => {
    const admin = await openStackDatabase("owner");
    const empty = new URL(database.url);
    empty.pathname = `${empty.pathname}_empty`;
    const name = empty.pathname.slice(1);
    try {
      await admin.em.fork().execute(`create database "${name}"`);
      assert.match(await refusal("api", { DATABASE_URL: empty.href }), /DATABASE_URL: .*prepare:cluster/);
      await admin.em.fork().execute(`drop database "${name}" with (force)`);
    } finally {
      await admin.close(true);
    }
  });

  it("refuses a role that owns a database or is a superuser, and names DATABASE_URL", async () => {
    const { MIGRATION_DATABASE_URL = "" } = (await stack()).env;
    const owners = new URL(MIGRATION_DATABASE_URL);
    owners.pathname = new URL(database.url).pathname;
    for (const program of ["api", "dispatch", "app"] as const) {
      const said = await refusal(program, { DATABASE_URL: owners.href });
      assert.match(said, /DATABASE_URL: the role \w+ is a superuser or owns a database.*MIGRATION_DATABASE_URL/);
      assert.ok(!said.includes(owners.password));
    }
  });
});

describe("The application's role in Postgres", () => {
  it("is the one of every process of the stack, is no superuser and owns nothing", async () => {
    const owner = await openStackDatabase("owner");
    try {
      const em = owner.em.fork();
      const roles = await em.execute<{ usename: string }[]>(
        `select distinct usename from pg_stat_activity
         where datname = current_database() and client_addr is not null and pid <> pg_backend_pid()
           and usename <> current_user`,
      );
      assert.equal(roles.length, 1, JSON.stringify(roles));
      const [{ usename } = { usename: "" }] = roles;
      const [row] = await em.execute(
        `select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication,
           exists (select from pg_database where datdba = pg_roles.oid) as owns_database,
           exists (select from pg_class where relowner = pg_roles.oid and relkind in ('r', 'S', 'i')) as owns_table
         from pg_roles where rolname = ?`,
        [usename],
      );
      assert.deepEqual(row, {
        rolsuper: false,
        rolcreaterole: false,
        rolcreatedb: false,
        rolbypassrls: false,
        rolreplication: false,
        owns_database: false,
        owns_table: false,
      });
    } finally {
      await owner.close(true);
    }
  });

  it("reads and writes rows, and changes no schema, no role and no record of migrations", async () => {
    const application = await openStackDatabase("application");
    try {
      const em = application.em.fork();
      for (const statement of [
        "create table mine (id int)",
        "alter table teams add column mine int",
        "drop table idempotency_records",
        "truncate idempotency_records",
        "create role mine",
        "create database mine",
        "select from mikro_orm_migrations",
        "copy teams to program 'true'",
      ]) {
        await assert.rejects(em.execute(statement), /permission denied|must be owner/, statement);
      }
      await em.execute("select from teams limit 1");
    } finally {
      await application.close(true);
    }
  });
});
