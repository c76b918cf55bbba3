import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { sql } from "kysely";
import { pino } from "pino";
import { serveHealth } from "../../config/health.ts";
import { Progress } from "../../config/progress.ts";
import { type EntityManager, kysely, type MikroORM, openDatabase } from "../../db/orm.ts";
import { answerLimitMs, type ConnectionPool, STATEMENT_SECONDS } from "../../db/pool.ts";
import { limitStatements } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { watchActivities } from "../../workers/interceptors.ts";
import { OutboxRelay } from "../../workers/outbox-relay.ts";
import { eventually } from "../support/eventually.ts";
import { openStackVault } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { makeDatabase } from "../support/own-database.ts";
import { ImpatientProgress } from "../support/progress.ts";
import { stack } from "../support/stack.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { temporalClient } from "../support/temporal.ts";

const { it, longIt } = testsOf();

/** How long the tests' processes wait for an answer; others wait for a minute and more. */
const ANSWER_MS = 1_000;

/** Kernel's timer of a socket that waits to send a keep-alive: `tr` in proc(5), net/tcp. */
const KEEP_ALIVE_TIMER = "02";
const TICKS_PER_SECOND = 100;

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

  longIt("a relay is not ready, and is again when the network is back", async () => {
    const { env } = await stack();
    const own = await makeDatabase();
    const database = new URL(own.url);
    database.host = `${proxy.host}:${proxy.port}`;
    const { href } = database;
    const { client, close } = await temporalClient();
    const orm = await openDatabase(href, { poolMax: 2, answerMs: ANSWER_MS });
    // A sweep comes every 2 s.
    const progress = new ImpatientProgress(4_000);
    const stop = new AbortController();
    const deps = {
      env: { ...env, DATABASE_URL: href },
      ...{ orm, vault: await openStackVault(), log: pino({ level: "silent" }), workerId: "test", progress },
      ...{ countMails() {}, countAttempts() {}, countRelayFailure() {}, countFailedPruning() {} },
      stopping: stop.signal,
    };
    const relay = new OutboxRelay(deps, { wake() {}, notHere: () => [] });
    const { port, server } = await serveHealth(
      { HEALTH_HOST: "127.0.0.1", HEALTH_PORT: 0 },
      {
        ready: () => progress.stalled().length === 0,
        stalled: () => progress.stalled(),
        metrics: async () => "",
      },
    );
    const readyz = async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`);
      return [answer.status, await answer.json()];
    };
    try {
      relay.connected(client);
      const db = kysely(own.orm.em.fork());
      await sql`insert into webhook_outbox (team_id, environment, type, objects) values ('t', 'LIVE', 'x', '[]')`.execute(
        db,
      );
      const isTaken = async () => (await sql`select from webhook_outbox`.execute(db)).rows.length === 0;
      await eventually(isTaken, { what: "a relay that takes changes" });
      await eventually(async () => (await readyz())[0] === 200, { what: "a relay that is ready" });
      proxy.silence();
      await eventually(() => progress.stalled().length === 2, { what: "a stalled relay" });
      assert.deepEqual(await readyz(), [503, { status: "not ready", stalled: ["relay", "relay sweep"] }]);
      proxy.heal();
      await eventually(async () => (await readyz())[0] === 200, { what: "the relay's return" });
    } finally {
      stop.abort();
      // Connections that stay silent end with it.
      proxy.close();
      await relay.close();
      server.close();
      await orm.close(true);
      await close();
      await own.drop();
    }
  });
});

describe("A connection to Postgres", () => {
  it("asks on both sides within seconds whether the other one is still there", async function () {
    if (process.platform !== "linux") this.skip();
    const { env } = await stack();
    let port: number | undefined;
    const onPool = (pool: ConnectionPool) =>
      pool.on("connect", ({ connection }: { connection: { stream: Socket } }) => {
        port = connection.stream.localPort;
      });
    const orm = await openDatabase(env.DATABASE_URL, { poolMax: 1, onPool });
    try {
      const [server] = await orm.em.fork().execute<Record<string, string>[]>(
        `select current_setting('tcp_keepalives_idle') as idle, current_setting('tcp_user_timeout') as unanswered,
          current_setting('client_connection_check_interval') as busy`,
      );
      assert.deepEqual(server, { idle: "10", unanswered: "30000", busy: "10s" });
      const endOf = (some: string | number | undefined) =>
        `:${Number(some).toString(16).padStart(4, "0").toUpperCase()}`;
      const [local, remote] = [endOf(port), endOf(new URL(env.DATABASE_URL).port)];
      const timerOf = () => {
        const sockets = readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1);
        const fields = sockets.map((line) => line.trim().split(/\s+/));
        return fields.find(([, from, to]) => from?.endsWith(local) && to?.endsWith(remote))?.[5] ?? "";
      };
      // Another socket may have had its port until now.
      const found = await eventually(() => new RegExp(`^${KEEP_ALIVE_TIMER}:(.*)`).exec(timerOf()));
      const ticks = found?.[1] ?? "";
      assert.ok(Number.parseInt(ticks, 16) <= 10 * TICKS_PER_SECOND, `in ${ticks} ticks`);
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
