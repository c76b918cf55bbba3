import assert from "node:assert/strict";
import { MigrationBlockedError, migrate, openDatabase } from "../../db/orm.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { makeDatabase } from "../support/own-database.ts";
import { stack } from "../support/stack.ts";

const { it, longIt } = testsOf();

const AT_ONCE = 4;

describe("Migrations", () => {
  it(`run once for ${AT_ONCE} callers at once without a database, whose owner is no superuser, and make a role for rows alone`, async () => {
    const { env } = await stack();
    const server = await openStackDatabase("owner");
    const [name, role] = [unique("owned"), unique("app")].map((text) => text.replace("-", "_"));
    const [owners, url] = [new URL(env.MIGRATION_DATABASE_URL ?? ""), new URL(env.DATABASE_URL)];
    for (const each of [owners, url]) each.pathname = `/${name}`;
    Object.assign(owners, { username: `${role}_owner`, password: "an owner" });
    Object.assign(url, { username: role, password: "pass/wörd" });
    try {
      await server.em.fork().execute(`create role "${role}_owner" login createrole createdb password 'an owner'`);
      await Promise.all(Array.from({ length: AT_ONCE }, () => migrate(owners.href, url.href)));
      await migrate(owners.href, url.href);

      const migrated = await openDatabase(owners.href, { poolMax: 1 });
      try {
        const executed = await migrated.em.fork().execute<{ name: string }[]>("select name from mikro_orm_migrations");
        const names = executed.map((row) => row.name);
        assert.ok(names.length > 0);
        assert.deepEqual(names, [...new Set(names)], "each migration ran once");
        assert.deepEqual(await migrated.migrator.getPending(), []);
      } finally {
        await migrated.close(true);
      }

      const application = await openDatabase(url.href, { poolMax: 1 });
      try {
        const em = application.em.fork();
        await em.execute("insert into teams (id, name, plan) values ('team_x', 'X', 'FREE')");
        await em.execute(
          "insert into webhook_outbox (team_id, environment, type, objects) values ('t', 'LIVE', 'x', '')",
        );
        await em.execute("create temporary table staged (id int)");
        await assert.rejects(em.execute("alter table teams add column mine int"), /must be owner/);
      } finally {
        await application.close(true);
      }
    } finally {
      const em = server.em.fork();
      await em.execute(`drop database if exists "${name}" with (force)`);
      for (const each of [role, `${role}_owner`]) await em.execute(`drop role if exists "${each}"`);
      await server.close(true);
    }
  });

  longIt("give up with a sentence behind a transaction that holds a table for long, and change nothing", async () => {
    const { env } = await stack();
    const database = await makeDatabase();
    const owners = new URL(env.MIGRATION_DATABASE_URL ?? "");
    owners.pathname = new URL(database.url).pathname;
    const holder = database.orm.em.fork();
    try {
      await holder.begin();
      await holder.execute("lock table mikro_orm_migrations in access exclusive mode");
      await assert.rejects(migrate(owners.href, database.url), (error) => {
        assert.ok(error instanceof MigrationBlockedError);
        assert.match(error.message, /waited 5 s for a lock .* migrate again/s);
        return true;
      });
      await holder.rollback();
      await migrate(owners.href, database.url);
    } finally {
      if (holder.isInTransaction()) await holder.rollback();
      await database.drop();
    }
  });

  it("refuse one role for the owner and the application", async () => {
    const { MIGRATION_DATABASE_URL = "" } = (await stack()).env;
    await assert.rejects(migrate(MIGRATION_DATABASE_URL, MIGRATION_DATABASE_URL), /must be two roles/);
  });
});
