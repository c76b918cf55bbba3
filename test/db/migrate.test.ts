import assert from "node:assert/strict";
import { migrate, openDatabase } from "../../db/orm.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

const AT_ONCE = 8;

describe("Migrations", () => {
  it(`run once when ${AT_ONCE} callers start at once and there is no database yet`, async () => {
    const { env } = await stack();
    const server = await openStackDatabase("owner");
    const name = unique("migrated").replace("-", "_");
    const url = new URL(env.MIGRATION_DATABASE_URL ?? "");
    url.pathname = `/${name}`;
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, () => migrate(url.href, env.DATABASE_URL)));

      const migrated = await openDatabase(url.href, 1);
      try {
        const executed = await migrated.em.fork().execute<{ name: string }[]>("select name from mikro_orm_migrations");
        const names = executed.map((row) => row.name);
        assert.ok(names.length > 0);
        assert.deepEqual(names, [...new Set(names)], "each migration ran once");
        assert.deepEqual(await migrated.migrator.getPending(), []);
      } finally {
        await migrated.close(true);
      }
    } finally {
      await server.em.fork().execute(`drop database if exists "${name}" with (force)`);
      await server.close(true);
    }
  });
});
