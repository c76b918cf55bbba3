import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { formatKeys } from "../../config/env.ts";
import { kysely } from "../../db/orm.ts";
import { AdmissionError, openAdmitted } from "../../domain/secrets/admission.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { runApp } from "../support/command.ts";
import { execute, openStackDatabase } from "../support/factories.ts";
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

describe("A database admits processes by their keys", () => {
  let database: OwnDatabase;
  let keys: Keys;
  const running: TestApp[] = [];

  const variables = ({ signing, encryption }: Keys, url = database.url) => ({
    ...{ DATABASE_URL: url, SIGNING_SECRET: signing, ENCRYPTION_KEYS: encryption },
  });
  async function start(given: Keys): Promise<TestApp> {
    const app = await serveRoutes(appRouter, { changes: variables(given) });
    running.push(app);
    return app;
  }
  async function refusal(given: Keys, url?: string): Promise<string> {
    const settings = variables(given, url);
    const { orm, connect } = await openAdmitted(settings, openVault(settings), { poolMax: 1 });
    try {
      return `admitted: ${await connect()}`;
    } catch (error) {
      assert.ok(error instanceof AdmissionError);
      return error.message;
    } finally {
      await orm.close(true);
    }
  }

  beforeEach(async () => {
    database = await makeDatabase();
    keys = { signing: [newKey("k1")], encryption: [newKey("e1")] };
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((app) => app.close()));
    await database.drop();
  });

  it("refuses a wrong key to every program, and names its setting", async () => {
    await makeClient(database, keys);
    const wrong = { SIGNING_SECRET: newKey("k1"), ENCRYPTION_KEYS: newKey("e1") };
    const check = (setting: keyof typeof wrong, { code, stderr }: { code: number; stderr: string }) => {
      const [id, key] = wrong[setting];
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`${setting}: the key ${id} is not the one that this database is used with`));
      assert.equal(stderr.trim().split("\n").length, 1, stderr);
      assert.ok(!stderr.includes(key), "the key is not shown");
    };
    const settings = (setting: keyof typeof wrong) => ({
      ...settingsOf(database, keys),
      [setting]: formatKeys([wrong[setting]]),
    });
    for (const setting of ["SIGNING_SECRET", "ENCRYPTION_KEYS"] as const) {
      check(setting, await runApp(["secrets:status"], { env: settings(setting) }));
    }
    const processes: [Program, keyof typeof wrong][] = [
      ["api", "SIGNING_SECRET"],
      ["dispatch", "SIGNING_SECRET"],
      ["webhooks", "ENCRYPTION_KEYS"],
    ];
    for (const [program, setting] of processes) check(setting, await runToEnd(PROGRAMS[program], settings(setting)));
  });

  it("ends an API that started while Postgres was away, once Postgres refuses it", async () => {
    await makeClient(database, keys);
    const name = new URL(database.url).pathname.slice(1);
    await execute(`alter database "${name}" with allow_connections false`);
    const started = await startApi(settingsOf(database, { ...keys, signing: [newKey("k1")] }));
    try {
      assert.equal((await fetch(`${started.origin}/healthz`)).status, 200);
      await execute(`alter database "${name}" with allow_connections true`);
      assert.deepEqual(await started.ended, [1, null]);
    } finally {
      await started.stop();
    }
  });

  it("accepts a new SIGNING_SECRET in two steps, and what the old one signed all the while", async () => {
    const [old, fresh] = [keys.signing[0] ?? newKey("k1"), newKey("k2")];
    const withSigning = (...signing: Keys["signing"]) => ({ ...keys, signing });
    const { key, linkFor } = await makeClient(database, keys);
    const client = api(key, (await start(keys)).base);
    for (const name of ["A", "B"]) assert.equal((await client.post("/lists", { name })).status, 201);
    const made = await client.post("/lists", { name: "Once" }, { idempotencyKey: "rotation" });
    const pageOf = async (app: TestApp, cursor?: string) => {
      const answer = await api(key, app.base).get("/lists", { query: { limit: 1, ...(cursor && { cursor }) } });
      assert.equal(answer.status, 200, answer.text);
      return answer.body.meta.next_cursor as string;
    };
    const { next_cursor } = (await client.get("/lists?limit=1")).body.meta;

    const early = await refusal(withSigning(fresh, old));
    assert.match(early, /SIGNING_SECRET: the key k2 is new to this database and stands first/);
    const [both, before] = [await start(withSigning(old, fresh)), await start(keys)];
    for (const app of [both, before]) await pageOf(app);

    const signing = await start(withSigning(fresh, old));
    await pageOf(signing, next_cursor);
    assert.match(await refusal(keys), /SIGNING_SECRET: the key k2 is missing/);
    assert.equal((await fetch(linkFor(signing.origin))).status, 200);
    const again = await api(key, signing.base).post("/lists", { name: "Once" }, { idempotencyKey: "rotation" });
    assert.deepEqual([again.status, again.body.data.id], [201, made.body.data.id], "a retry does not act twice");
    await pageOf(both, await pageOf(signing));
    assert.match(await refusal(withSigning(fresh)), /SIGNING_SECRET: the key k1 is missing/);
  });

  it("keeps of a key only a hash", async () => {
    await makeClient(database, keys);
    const rows = await kysely(database.orm.em.fork()).selectFrom("secret_fingerprints").selectAll().execute();
    assert.deepEqual(rows.map(({ setting, key_id }) => `${setting} ${key_id}`).sort(), [
      "ENCRYPTION_KEYS e1",
      "SIGNING_SECRET k1",
    ]);
    for (const [, key] of [...keys.signing, ...keys.encryption]) {
      assert.ok(!JSON.stringify(rows).includes(Buffer.from(key, "base64").toString("base64url")));
    }
  });

  it("says that a database without a schema must be prepared", async () => {
    const empty = new URL(database.url);
    empty.pathname = `${empty.pathname}_empty`;
    const name = empty.pathname.slice(1);
    await execute(`create database "${name}"`);
    try {
      assert.match(await refusal(keys, empty.href), /DATABASE_URL: .*prepare:cluster/);
    } finally {
      await execute(`drop database "${name}" with (force)`);
    }
  });

  it("refuses a role that owns a database or is a superuser, and names DATABASE_URL", async () => {
    const owners = new URL((await stack()).env.MIGRATION_DATABASE_URL ?? "");
    owners.pathname = new URL(database.url).pathname;
    const said = await refusal(keys, owners.href);
    assert.match(said, /DATABASE_URL: the role \w+ is a superuser or owns a database.*MIGRATION_DATABASE_URL/);
    assert.ok(!said.includes(owners.password));
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
