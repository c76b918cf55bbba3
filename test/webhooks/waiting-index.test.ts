import assert from "node:assert/strict";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { settleAttempts, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import { formGroups } from "../../domain/webhooks/grouping.ts";
import { openAttempt } from "../../domain/webhooks/open-attempt.ts";
import { MOST_TAKEN, takeMore } from "../../domain/webhooks/take-more.ts";
import { endpointsWaiting, oldestWaiting } from "../../domain/webhooks/waiting.ts";
import { testsOf } from "../support/long.ts";
import { makeDatabase } from "../support/own-database.ts";
import { type PlanNode, withParts } from "../support/plans.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

const { it, longIt } = testsOf();

const ENDPOINTS = 20;
const DELIVERIES = 1_000;
const MANY = 100_000;
/** After five executions Postgres keeps the plan of a prepared statement. */
const FIRST_PASSES = 8;

/** A team with endpoints that have succeeded, in a database of its own. */
interface OwnDeliveries {
  /** One connection throughout: each keeps the plans of its prepared statements. */
  tx: EntityManager;
  webhookIds: string[];
  /** Makes new deliveries for each endpoint that is named. @returns their ids */
  insert(count: number, webhookIds?: string[]): Promise<string[]>;
  /** Rows of deliveries that were read so far. */
  readRows(): Promise<number>;
}

async function withOwnDeliveries(endpoints: number, work: (own: OwnDeliveries) => Promise<void>): Promise<void> {
  const { vault } = await makeTeam();
  const database = await makeDatabase();
  try {
    await database.orm.em.fork().transactional(async (tx) => {
      await sql`insert into teams (id, name, plan) values ('team', 'Team', 'BUSINESS')`.execute(kysely(tx));
      const team = { team: { id: "team" }, em: tx, vault };
      const webhookIds: string[] = [];
      for (let n = 0; n < endpoints; n++) webhookIds.push((await makeEndpoint(team, { url: PUBLIC_URL })).id);
      await sql`update webhook_health set last_success_at = now()`.execute(kysely(tx));
      await work({
        tx,
        webhookIds,
        insert: async (count, whose = webhookIds) => {
          const first = newId("delivery");
          const { rows } = await sql<{ id: string }>`
            insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type)
            select ${first} || '/' || w || '/' || n, 'team', 'LIVE', w, 'event', 'newsletter.started'
            from unnest(${whose}::text[]) w, generate_series(1, ${count}::int) n
            returning id`.execute(kysely(tx));
          return rows.map(({ id }) => id);
        },
        readRows: async () => {
          const { rows } = await sql<{ read: number }>`
            select (seq_tup_read + idx_tup_fetch)::int as read from pg_stat_xact_user_tables
            where relname = 'webhook_deliveries'`.execute(kysely(tx));
          return rows[0]?.read ?? 0;
        },
      });
    });
  } finally {
    await database.drop();
  }
}

describe("Deliveries that wait for a group", () => {
  let em: EntityManager;
  before(async () => {
    ({ em } = await makeTeam());
  });

  /** Runs `look` beside many deliveries of many endpoints, which are not committed, so that no relay takes them. */
  async function besideMany(look: (em: EntityManager) => Promise<void>): Promise<void> {
    const rolledBack = new Error("rolled back");
    const ids = Array.from({ length: ENDPOINTS }, () => newId("webhook"));
    await em
      .fork()
      .transactional(async (tx) => {
        for (const blocked of [false, true]) {
          // Every third was returned by a workflow.
          await sql`insert into webhook_deliveries
              (id, team_id, environment, webhook_id, event_id, event_type, status, ended_ungrouped, attempts_used)
            select w || '/' || n || ${blocked}, 'team', 'LIVE', w, 'event', 'newsletter.started',
              ${blocked ? "BLOCKED" : "PENDING"}, ${blocked}, case when n % 3 = 0 then 1 else 0 end
            from unnest(${ids}::text[]) w, generate_series(1, ${DELIVERIES}) n`.execute(kysely(tx));
        }
        await look(tx);
        throw rolledBack;
      })
      .catch((error: unknown) => assert.equal(error, rolledBack));
  }

  it("are found in one step along their index per endpoint, past those that are BLOCKED", async () => {
    await besideMany(async (tx) => {
      const { rows } = await sql<{ "QUERY PLAN": { Plan: PlanNode }[] }>`
        explain (analyze, format json) with recursive waiting as (${endpointsWaiting}) select webhook_id from waiting
        where webhook_id is not null`.execute(kysely(tx));
      const nodes = (rows[0]?.["QUERY PLAN"] ?? []).flatMap(({ Plan }) => withParts(Plan));
      const looks = nodes.filter((node) => node["Relation Name"] === "webhook_deliveries");
      assert.ok(looks.length >= 2, JSON.stringify(rows));
      for (const look of looks) {
        assert.match(look["Index Name"] ?? "", /^webhook_deliveries_(waiting|returned)$/);
        assert.ok((look["Actual Rows"] ?? 0) <= 1, "one row a step");
      }
      assert.ok(Math.max(...looks.map((look) => look["Actual Loops"] ?? 0)) >= ENDPOINTS, "one step an endpoint");
    });
  });

  it("are read oldest first, along the indexes, no more of them than are wanted", async () => {
    const wanted = 50;
    await besideMany(async (tx) => {
      const { rows } = await sql<{ "QUERY PLAN": { Plan: PlanNode }[] }>`
        explain (analyze, format json) with recursive waiting as (${endpointsWaiting})
        select d.id from waiting w cross join lateral ${oldestWaiting(sql`w.webhook_id`, sql.lit(wanted))} d`.execute(
        kysely(tx),
      );
      const nodes = (rows[0]?.["QUERY PLAN"] ?? []).flatMap(({ Plan }) => withParts(Plan));
      const looks = nodes.filter((node) => /^webhook_deliveries_(waiting|returned)$/.test(node["Index Name"] ?? ""));
      assert.deepEqual(new Set(looks.map((look) => look["Index Name"])).size, 2, JSON.stringify(rows));
      for (const look of looks) assert.ok((look["Actual Rows"] ?? Number.NaN) <= wanted);
      assert.ok(!nodes.some((node) => node["Node Type"] === "Sort"), "nothing is sorted");
    });
  });

  // A plan that reads or sorts all that wait takes longer than this at each pass of the relay.
  longIt(`are put into groups as soon when ${MANY.toLocaleString("en")} wait, new ones and returned ones`, async () => {
    const rolledBack = new Error("rolled back");
    const team = await makeTeam();
    const { id } = await makeEndpoint(team, { url: PUBLIC_URL });
    await team.em
      .fork()
      .transactional(async (tx) => {
        const first = newId("delivery");
        await sql`update webhook_health set consecutive_failures = 1, backlog_until = ${`${first}/2`} where webhook_id = ${id}`.execute(
          kysely(tx),
        );
        // A tenth came before the endpoint worked again, a tenth was returned.
        await sql`insert into webhook_deliveries
            (id, team_id, environment, webhook_id, event_id, event_type, status, attempts_used)
          select ${first} || '/' || (n % 10) || '/' || n, ${team.team.id}, 'LIVE', ${id}, 'event', 'newsletter.started',
            'PENDING', case when n % 10 = 9 then 1 else 0 end
          from generate_series(1, ${MANY}) n`.execute(kysely(tx));
        const began = performance.now();
        const groups = await formGroups(tx);
        const tookMs = performance.now() - began;
        const mine = groups.filter(({ webhookId }) => webhookId === id);
        assert.deepEqual(
          mine.map(({ size }) => size),
          Array.from({ length: 9 }, () => 100),
        );
        assert.ok(tookMs < 2_000, `${tookMs} ms`);
        throw rolledBack;
      })
      .catch((error: unknown) => assert.equal(error, rolledBack));
  });

  longIt("are put into groups as soon when the table was nearly empty at the first passes", async () => {
    await withOwnDeliveries(ENDPOINTS, async ({ tx, insert }) => {
      for (let pass = 0; pass < FIRST_PASSES; pass++) {
        await insert(1);
        await formGroups(tx);
        await sql`delete from webhook_groups`.execute(kysely(tx));
      }
      await insert(DELIVERIES);
      const began = performance.now();
      const groups = await formGroups(tx);
      const tookMs = performance.now() - began;
      assert.ok(groups.length > ENDPOINTS && groups.every(({ size }) => size === 100), `${groups.length} groups`);
      assert.ok(tookMs < 2_000, `${tookMs} ms`);
    });
  });

  it("are taken into a running group along the index when the table was nearly empty at first", async () => {
    await withOwnDeliveries(2, async ({ tx, webhookIds, insert, readRows }) => {
      const [mine = "", other = ""] = webhookIds;
      await insert(1, [mine]);
      const [group] = await formGroups(tx);
      const groupId = group?.id ?? assert.fail("no group");
      const opened = await openAttempt(tx, { groupId, attempt: 1, keepForMs: 0 });
      assert.ok(opened.state === "open" && opened.endpointVersion !== null);
      const { epoch, endpointVersion } = opened;
      const take = () => takeMore(tx, { groupId, epoch, endpointVersion, limit: MOST_TAKEN });
      for (let pass = 0; pass < FIRST_PASSES; pass++) await take();
      await insert(20 * DELIVERIES, [other]);
      await insert(20, [mine]);
      const before = await readRows();
      const { failed } = await take();
      // Their event does not exist, so each ends.
      assert.equal(failed, 20);
      const read = (await readRows()) - before;
      assert.ok(read < 200, `${read} rows were read for 20 deliveries`);
    });
  });

  it("have their outcomes written along their ids when the table was nearly empty at the first writings", async () => {
    await withOwnDeliveries(1, async ({ tx, webhookIds, insert, readRows }) => {
      const [webhookId = ""] = webhookIds;
      const succeeded = (id: string) => ({
        ...{ id, status: "SUCCEEDED" as const, responseStatus: 204, responseBody: null, errorMessage: null },
        durationMs: 1,
      });
      const settle = async (ids: string[]) => {
        const [first, ...others] = ids.map(succeeded);
        assert.ok(first);
        await settleAttempts(tx, webhookId, [first], 0, { isProbe: false, askedWaitMs: 0 });
        assert.deepEqual([...(await writeSuccesses(tx, [{ webhookId, outcomes: others }]))], [webhookId]);
      };
      for (let pass = 0; pass < FIRST_PASSES; pass++) await settle(await insert(2));
      // So many that a plan for the table as it is reads them along the index.
      const ids = await insert(20 * DELIVERIES);
      const before = await readRows();
      await settle(ids.slice(0, 20));
      const read = (await readRows()) - before;
      assert.ok(read < 100, `${read} rows were read for 20 outcomes`);
    });
  });

  it("end 5,000 at a pass when their endpoints are off, whatever the number of these", async () => {
    const rolledBack = new Error("rolled back");
    const team = await makeTeam();
    const set = { active: false, disabled_reason: "delivery_failures" };
    const off = await Promise.all([1, 2].map(() => makeEndpoint(team, { url: PUBLIC_URL, set })));
    await team.em
      .fork()
      .transactional(async (tx) => {
        const ids = off.map(({ id }) => id);
        await sql`insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type)
          select w || '/' || n, ${team.team.id}, 'LIVE', w, 'event', 'newsletter.started'
          from unnest(${ids}::text[]) w, generate_series(1, 3000) n`.execute(kysely(tx));
        const ended: number[] = [];
        for (let pass = 0; pass < 2; pass++) {
          await formGroups(tx);
          const { rows } = await sql<{ ended: number }>`select count(*)::int as ended from webhook_deliveries
            where webhook_id = any(${ids}::text[]) and status = 'BLOCKED'`.execute(kysely(tx));
          ended.push(rows[0]?.ended ?? 0);
        }
        assert.deepEqual(ended, [5_000, 6_000]);
        throw rolledBack;
      })
      .catch((error: unknown) => assert.equal(error, rolledBack));
  });

  it("have their success written without any index, and a failure with the index of the log", async () => {
    const rolledBack = new Error("rolled back");
    const { id } = await makeEndpoint(await makeTeam(), { url: PUBLIC_URL });
    await em
      .fork()
      .transactional(async (tx) => {
        const ids = Array.from({ length: 5 }, () => newId("delivery"));
        await sql`insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type, group_id)
          select d, 'team', 'LIVE', ${id}, 'event', 'newsletter.started', 'group' from unnest(${ids}::text[]) d`.execute(
          kysely(tx),
        );
        const hot = async () => {
          const { rows } = await sql<{ hot: number }>`
            select pg_stat_get_xact_tuples_hot_updated('webhook_deliveries'::regclass)::int as hot`.execute(kysely(tx));
          return rows[0]?.hot ?? 0;
        };
        const answer = { responseStatus: 200, responseBody: "ok", errorMessage: null, durationMs: 1 };
        const settle = (ids: string[], status: "SUCCEEDED" | "FAILED") => {
          const outcomes = ids.map((id) => ({ id, status, ...answer }));
          return settleAttempts(tx, id, outcomes, 0, { isProbe: false, askedWaitMs: 0 });
        };
        await settle(ids.slice(0, 3), "SUCCEEDED");
        assert.equal(await hot(), 3);
        await settle(ids.slice(3), "FAILED");
        assert.equal(await hot(), 3);
        const { rows } = await sql<{ failed: number }>`
          select count(*)::int as failed from webhook_deliveries
          where webhook_id = ${id} and failure = 'FAILED'`.execute(kysely(tx));
        assert.equal(rows[0]?.failed, 2);
        throw rolledBack;
      })
      .catch((error: unknown) => assert.equal(error, rolledBack));
  });

  // Postgres writes all indexes of a row when a column that one of them names is changed, in its condition as well.
  it("stand in no index that names a column which a success changes", async () => {
    const { rows } = await sql<{ definition: string }>`
      select indexdef as definition from pg_indexes where tablename = 'webhook_deliveries'`.execute(kysely(em));
    assert.ok(rows.length >= 4);
    for (const { definition } of rows) {
      assert.doesNotMatch(definition, /status|response|error|duration|next_attempt|updated/);
    }
  });
});
