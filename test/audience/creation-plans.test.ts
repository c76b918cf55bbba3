import assert from "node:assert/strict";
import { sql } from "kysely";
import pg from "pg";
import { appRouter } from "../../api/router.ts";
import { kysely } from "../../db/orm.ts";
import { api } from "../support/api.ts";
import { serveRoutes } from "../support/app.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { mostRowsRead } from "../support/plans.ts";
import { openRecordingOrm, type RecordingOrm, type Statement } from "../support/recording.ts";

/** Rows that a team has of each table besides. */
const MANY = 5_000;
/** Creates whose statement is looked at; each reads a few rows of its team. */
const AT_ONCE = 10;
const MAX_ROWS = 100;

describe("The statements of creates that were planned for empty tables", () => {
  let own: OwnDatabase;
  let recording: RecordingOrm;
  let explaining: pg.Client;
  before(async () => {
    own = await makeDatabase();
    recording = await openRecordingOrm(own.url);
    explaining = new pg.Client({ connectionString: own.url });
    await explaining.connect();
    await explaining.query("set plan_cache_mode = force_generic_plan");
  });
  after(async () => {
    await explaining?.end();
    await recording?.orm.close(true);
    await own?.drop();
  });

  const literal = (value: unknown): string => {
    if (value === null) return "null";
    return Array.isArray(value) ? `array[${value.map(literal).join(", ")}]::text[]` : pg.escapeLiteral(String(value));
  };
  const prepare = async (name: string, { text, values }: Statement): Promise<string> => {
    await explaining.query(`prepare ${name} as ${text}`);
    const run = `execute ${name}(${values.map(literal).join(", ")})`;
    // Now it is planned, for the tables as they are.
    await explaining.query(`explain ${run}`);
    return run;
  };
  async function fill({ team, em }: TestTeam): Promise<void> {
    const db = kysely(em.fork());
    await sql`insert into erased_addresses (team_id, environment, address_hash)
      select ${team.id}, 'LIVE', 'h' || n from generate_series(1, ${MANY}::int) n`.execute(db);
    await sql`insert into suppressions (id, team_id, environment, email, reason, created_at)
      select 'sup_' || n, ${team.id}, 'LIVE', 'x' || n || '@example.com', 'MANUAL', now() from generate_series(1, ${MANY}::int) n`.execute(
      db,
    );
    await sql`insert into idempotency_records
        (team_id, environment, key_hash, fingerprint, attempt, locked_at, expires_at, request_id)
      select ${team.id}, 'LIVE', 'k' || n, 'f', 1, now(), now() + interval '1 day', 'r' from generate_series(1, ${MANY}::int) n`.execute(
      db,
    );
  }

  it("read no more rows of a team that has many since", async () => {
    const app = await serveRoutes(appRouter, { changes: { DATABASE_URL: own.url }, with: { orm: recording.orm } });
    try {
      const team = await makeTeam({ database: { orm: recording.orm, vault: app.deps.vault } });
      const runs: string[] = [];
      for (const path of ["/subscribers", "/contacts"]) {
        for (const keyed of [false, true]) {
          const post = () =>
            api(team.keys.live, app.base).post(
              path,
              { email: uniqueEmail() },
              { idempotencyKey: keyed ? unique("key") : undefined },
            );
          await post();
          recording.statements.length = 0;
          await Promise.all(Array.from({ length: AT_ONCE }, post));
          const statement = recording.statements.find(({ text }) => text.includes("written as ("));
          runs.push(await prepare(`created_${runs.length}`, statement ?? assert.fail("no create was recorded")));
        }
      }
      await fill(team);
      for (const run of runs) {
        await explaining.query("begin");
        const { rows } = await explaining.query(`explain (analyze, format json) ${run}`);
        await explaining.query("rollback");
        const most = mostRowsRead(rows[0]["QUERY PLAN"][0].Plan);
        assert.ok(most <= MAX_ROWS, `${most} rows of a table`);
      }
    } finally {
      await app.close();
    }
  });
});
