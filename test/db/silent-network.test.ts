import assert from "node:assert/strict";
import { sql } from "kysely";
import { Progress } from "../../config/progress.ts";
import { type EntityManager, kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { answerLimitMs, STATEMENT_SECONDS } from "../../db/pool.ts";
import { limitStatements } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { watchActivities } from "../../workers/interceptors.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import { ImpatientProgress } from "../support/progress.ts";
import { stack } from "../support/stack.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";

const { it, longIt } = testsOf();

/** How long the tests' processes wait for an answer; others wait for a minute and more. */
const ANSWER_MS = 1_000;

describe("While the network to Postgres is silent", () => {
  let proxy: TcpProxy;
  let url: string;

  beforeEach(async () => {
    const database = new URL((await stack()).env.DATABASE_URL);
    proxy = await startTcpProxy({ host: database.hostname, port: Number(database.port) });
    database.host = `${proxy.host}:${proxy.port}`;
    url = database.href;
  });
  afterEach(() => proxy.close());

  const select = (orm: MikroORM) => orm.em.fork().execute("select 1 as one");

  it("a statement fails, and the next one gets another connection", async () => {
    const orm = await openDatabase(url, { poolMax: 1, answerMs: ANSWER_MS });
    try {
      await select(orm);
      proxy.silence();
      for (const statement of [select(orm), orm.em.fork().transactional((tx) => tx.execute("select 2"))]) {
        await assert.rejects(statement, isUnreachable);
      }
      proxy.heal();
      await eventually(async () => (await select(orm)).length === 1, { what: "another connection" });
    } finally {
      await orm.close(true);
    }
  });

  longIt("a statement is waited for as long as its transaction lets it take", async () => {
    const orm = await openDatabase(url, { poolMax: 1, answerMs: ANSWER_MS });
    const sleep = (em: EntityManager) => sql`select pg_sleep(${(2 * ANSWER_MS) / 1_000}::int)`.execute(kysely(em));
    try {
      await transaction(orm.em, async (tx) => {
        await limitStatements(tx, 5 * ANSWER_MS);
        await sleep(tx);
      });
      await assert.rejects(sleep(orm.em.fork()), isUnreachable, "the next statement is waited for as long as usual");
    } finally {
      await orm.close(true);
    }
  });
});

describe("A connection to Postgres", () => {
  it("has Postgres ask within seconds whether the other side is still there", async () => {
    const { env } = await stack();
    const orm = await openDatabase(env.DATABASE_URL, { poolMax: 1 });
    try {
      const [server] = await orm.em.fork().execute<Record<string, string>[]>(
        `select current_setting('tcp_keepalives_idle') as idle, current_setting('tcp_user_timeout') as unanswered,
          current_setting('client_connection_check_interval') as busy`,
      );
      assert.deepEqual(server, { idle: "10", unanswered: "30000", busy: "10s" });
    } finally {
      await orm.close(true);
    }
  });

  it("asks Postgres to end statements after their time, idle transactions after 30 s, and those of a webhooks worker after 5 s", async () => {
    const { env } = await stack();
    for (const [work, limit] of [
      ["webhooks", "5s"],
      ["dispatch", "30s"],
    ] as const) {
      const orm = await openDatabase(env.DATABASE_URL, { poolMax: 1, work });
      try {
        const [setting] = await orm.em.fork().execute(
          `select current_setting('idle_in_transaction_session_timeout') as limit,
              extract(epoch from current_setting('statement_timeout')::interval)::int as seconds`,
        );
        assert.deepEqual(setting, { limit, seconds: STATEMENT_SECONDS[work] }, work);
      } finally {
        await orm.close(true);
      }
    }
  });

  it("waits for an answer a little longer than Postgres may take, and for a migration's without an end", () => {
    for (const [work, seconds] of Object.entries(STATEMENT_SECONDS)) {
      const limit = answerLimitMs(work as keyof typeof STATEMENT_SECONDS);
      if (seconds === 0) assert.equal(limit, undefined);
      else assert.ok(limit !== undefined && limit > seconds * 1_000 && limit <= seconds * 1_000 + 60_000, work);
    }
  });
});

describe("The progress of a process", () => {
  it("names what has not moved in its time, once, until it moves or ends", async () => {
    const progress = new Progress();
    const [relay, ...slices] = [progress.watch("relay", 50), progress.watch("slice", 50), progress.watch("slice", 50)];
    assert.deepEqual(progress.stalled(), []);
    await eventually(() => progress.stalled().length === 2, { what: "what is stalled" });
    assert.deepEqual(progress.stalled(), ["relay", "slice"]);
    progress.watch("other", 60_000);
    for (const slice of slices) slice.end();
    assert.deepEqual(progress.stalled(), ["relay"]);
    relay?.moved();
    assert.deepEqual(progress.stalled(), []);
  });

  it("names an activity that runs on although its time has passed", async () => {
    const progress = new ImpatientProgress();
    const info = { activityType: "dispatchSlice", startToCloseTimeoutMs: 600_000, scheduleToCloseTimeoutMs: 0 };
    const { inbound } = watchActivities(progress)({ info } as Parameters<ReturnType<typeof watchActivities>>[0]);
    const { promise: unanswered, resolve } = Promise.withResolvers<string>();
    const running = inbound.execute?.({ args: [], headers: {} }, () => unanswered);
    await eventually(() => progress.stalled().length === 1, { what: "the slot" });
    assert.deepEqual(progress.stalled(), ["activity dispatchSlice"]);
    resolve("answered");
    assert.equal(await running, "answered");
    assert.deepEqual(progress.stalled(), []);
  });
});
