import assert from "node:assert/strict";
import { Agent, get, type IncomingMessage } from "node:http";
import { connect, createServer } from "node:net";
import { pino } from "pino";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { scrub, scrubError } from "../../config/scrub.ts";
import { Team } from "../../db/entities/team.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, type ApiClient, api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { cpuMs } from "../support/cpu.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, execute, makeTeam, unique, uniqueEmail } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { PROGRAMS, runToEnd, startApi } from "../support/own-database.ts";
import { threadsOf } from "../support/processes.ts";
import { stack } from "../support/stack.ts";

const none = z.strictObject({});
const routes = router({
  read: route({ method: "GET", path: "/read/{email}", scope: null, summary: "Reads slowly" })
    .input(z.strictObject({ params: z.strictObject({ email: z.string() }) }))
    .output(z.null())
    .query(async ({ ctx, input }) => {
      if (input.params.email.startsWith("fail")) throw new Error(`no ${input.params.email}`);
      await ctx.em.execute("select pg_sleep(5)");
      return ok(null);
    }),
  write: route({ method: "POST", path: "/write", scope: null, summary: "Writes slowly" })
    .input(none)
    .output(z.null())
    .mutation(async ({ ctx }) => {
      ctx.em.create(Team, { id: newId("team"), name: "w", plan: "FREE" });
      await ctx.em.flush();
      await ctx.em.execute("select pg_sleep(5)");
      return ok(null);
    }),
  timeout: route({ method: "GET", path: "/timeout", scope: null, summary: "Shows the time for a statement" })
    .input(none)
    .output(z.object({ timeout: z.string() }))
    .query(async ({ ctx }) => {
      const [row] = await ctx.em.execute<{ timeout: string }[]>(
        "select current_setting('statement_timeout') as timeout",
      );
      return ok({ timeout: row?.timeout ?? "" });
    }),
  conflict: route({ method: "POST", path: "/conflict", scope: null, summary: "Loses against another" })
    .input(z.strictObject({ body: z.strictObject({ times: z.int(), state: z.string() }) }))
    .output(z.object({ tries: z.int() }))
    .mutation(async ({ ctx, input: { body } }) => {
      tries++;
      ctx.em.create(Team, { id: newId("team"), name: conflictName, plan: "FREE" });
      await ctx.em.flush();
      if (tries <= body.times) await ctx.em.execute(`do $$ begin raise sqlstate '${body.state}'; end $$`);
      return ok({ tries });
    }),
});
let tries = 0;
let conflictName = "";

function assertUnavailable({ status, body, headers }: ApiAnswer): void {
  assert.equal(status, 503);
  assert.equal(body.error.code, "service_unavailable");
  assert.ok(Number(headers.get("retry-after")) > 0);
}

const SLEEPS = "datname = current_database() and state = 'active' and query = 'select pg_sleep(5)'";
/** Whether a request of `/read` waits in Postgres. */
const isSleeping = async (): Promise<boolean> =>
  (await execute(`select from pg_stat_activity where ${SLEEPS}`)).length > 0;
const cancelSleep = () => execute(`select pg_cancel_backend(pid) from pg_stat_activity where ${SLEEPS}`);

describe("health", () => {
  it("answers /healthz without credentials or dependencies", async () => {
    const { origin } = await stack();
    const response = await fetch(`${origin}/healthz`);
    assert.equal(response.status, 200);
    assert.match(response.headers.get("x-request-id") ?? "", /^req_/);
  });

  it("names what is not reachable in /readyz", async () => {
    const database = new URL((await stack()).env.DATABASE_URL);
    // No process listens on port 1.
    const nowhere = "127.0.0.1:1";
    database.host = nowhere;
    const app = await serveRoutes(routes, { changes: { TEMPORAL_ADDRESS: nowhere, DATABASE_URL: database.href } });
    try {
      const response = await fetch(`${app.origin}/readyz`);
      assert.equal(response.status, 503);
      assert.ok(Number(response.headers.get("retry-after")) > 0);
      const states = { status: "unavailable", postgres: "unreachable", temporal: "unreachable" };
      assert.deepEqual(await response.json(), states);
      assert.equal((await fetch(`${app.origin}/healthz`)).status, 200);
      const start = app.deps.temporal.call(500, (client) =>
        client.workflow.start("x", { taskQueue: "x", workflowId: "x" }),
      );
      await assert.rejects(start, { code: "service_unavailable" });
      assertUnavailable(await api((await makeTeam()).keys.live, app.base).post("/write"));
    } finally {
      await app.close();
    }
  });

  it("names in /readyz what cannot be used: Postgres without writes or login, and Temporal without its namespace", async () => {
    const { keys } = await makeTeam();
    const [readOnly, refused] = [new URL((await stack()).env.DATABASE_URL), new URL((await stack()).env.DATABASE_URL)];
    readOnly.searchParams.set("options", "-c default_transaction_read_only=on");
    refused.password = "wrong";
    for (const { href } of [readOnly, refused]) {
      const app = await serveRoutes(routes, { changes: { DATABASE_URL: href, TEMPORAL_NAMESPACE: "none" } });
      try {
        const response = await fetch(`${app.origin}/readyz`);
        const states = { status: "unavailable", postgres: "unreachable", temporal: "unreachable" };
        assert.deepEqual(await response.json(), states);
        if (href === refused.href) assertUnavailable(await api(keys.live, app.base).post("/write"));
      } finally {
        await app.close();
      }
    }
  });

  it("answers /readyz while requests use every connection of their pool", async function () {
    if (!process.env["MAILKEEL_STACK"]) this.skip();
    const { keys } = await makeTeam();
    const app = await serveRoutes(routes, { changes: { DATABASE_POOL_MAX: 1 } });
    try {
      const slow = api(keys.live, app.base).get("/read/x");
      await eventually(isSleeping, { what: "the slow request" });
      const response = await fetch(`${app.origin}/readyz`);
      assert.deepEqual(await response.json(), { status: "ready", postgres: "ok", temporal: "ok" });
      assert.ok(await isSleeping(), "the request still holds its connection");
      await cancelSleep();
      assert.equal((await slow).status, 503);
    } finally {
      await app.close();
    }
  });
});

describe("while Postgres is not reachable", () => {
  const terminate = async (query: string) => {
    await eventually(async () => {
      const ended = await execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and query like ?",
        `%${query}%`,
      );
      return ended.length > 0;
    });
  };

  /** A pool may hand out a dying connection once more before it notices that it ended. */
  const recovers = (client: ApiClient) =>
    eventually(async () => (await client.post("/conflict", { times: 0, state: "40001" })).status === 200);

  it("answers 503 to requests whose connection is cut, gives their keys back, and loses no connection of its pool", async () => {
    const { keys, team } = await makeTeam();
    const app = await serveRoutes(routes, { changes: { DATABASE_POOL_MAX: 2 } });
    const client = api(keys.live, app.base);
    const isFree = async () => {
      const found = await app.deps.orm.em
        .fork()
        .execute<{ free: boolean }[]>(
          "select locked_at = to_timestamp(0) as free from idempotency_records where team_id = ?",
          [team.id],
        );
      return found.length === 1 && found[0]?.free;
    };
    try {
      const read = client.get("/read/x");
      await terminate("pg_sleep");
      assertUnavailable(await read);
      await recovers(client);
      for (let i = 0; i < 3; i++) {
        const write = client.post("/write", undefined, { idempotencyKey: "cut" });
        await terminate("pg_sleep");
        assertUnavailable(await write);
        assert.ok(await isFree());
        await recovers(client);
      }
    } finally {
      await app.close();
    }
  });
});

describe("a statement", () => {
  it("that takes longer is ended, and its connection serves the next request", async () => {
    const { keys } = await makeTeam();
    const app = await serveRoutes(routes, { changes: { DATABASE_POOL_MAX: 1 } });
    const client = api(keys.live, app.base);
    try {
      assert.deepEqual((await client.get("/timeout")).body.data, { timeout: "5s" });
      await app.deps.orm.em.getConnection().execute("set statement_timeout = '300ms'");
      assertUnavailable(await client.get("/read/x"));
      assert.deepEqual((await client.get("/timeout")).body.data, { timeout: "300ms" });
    } finally {
      await app.close();
    }
  });
});

describe("a transaction that conflicts with another", () => {
  let app: TestApp;
  before(async () => {
    app = await serveRoutes(routes);
  });
  after(() => app.close());

  it("is run again, and only the last run is kept", async () => {
    const { keys } = await makeTeam();
    for (const state of ["40001", "40P01"]) {
      tries = 0;
      conflictName = unique("conflict");
      const answer = await api(keys.live, app.base).post("/conflict", { times: 2, state }, { idempotencyKey: state });
      assert.deepEqual([answer.status, answer.body.data], [200, { tries: 3 }]);
      assert.equal(await app.deps.orm.em.fork().count(Team, { name: conflictName }), 1);
    }
  });

  it("ends with 503 after some tries", async () => {
    tries = 0;
    const { keys } = await makeTeam();
    const answer = await api(keys.live, app.base).post("/conflict", { times: 100, state: "40001" });
    assert.equal(answer.status, 503);
    assert.ok(tries > 1 && tries < 50);
  });
});

describe("logs", () => {
  it("hold the request id, team, route and status, never an address, key or token", async () => {
    const written: string[] = [];
    const log = pino(
      { level: "trace", serializers: { err: scrubError } },
      { write: (line: string) => void written.push(line) },
    );
    const app = await serveRoutes(routes, { with: { log } });
    try {
      const { keys, team } = await makeTeam();
      const answer = await api(keys.live, app.base).get("/read/fail%40example.com", {
        headers: { referer: "https://x.example/?email=other@example.com" },
      });
      assert.equal(answer.status, 500);
      await eventually(() => written.some((line) => line.includes("durationMs")));
      const lines = written.join("");
      for (const secret of ["fail@example.com", "fail%40", "other@", keys.live, keys.live.slice(21, 64)]) {
        assert.ok(!lines.includes(secret), `the log holds ${secret}: ${lines}`);
      }
      const entries = lines
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      const request = entries.find((entry) => "durationMs" in entry);
      assert.equal(request.requestId, answer.body.meta.request_id);
      assert.deepEqual(
        [request.teamId, request.method, request.route, request.status],
        [team.id, "GET", "/read/{email}", 500],
      );
      assert.ok(entries.some(({ err, requestId }) => err?.stack && requestId === request.requestId));
      assert.ok(!lines.includes('"url"') && !lines.includes('"headers"'));
    } finally {
      await app.close();
    }
  });

  it("hold no address, key or token that an error carries", () => {
    const key = "mk_live_0123456789AB_0123456789012345678901234567890123456789012abcdef";
    const texts = [
      ["mail to someone.else+tag@example.co.uk failed", "someone.else"],
      ["GET /suppressions/a%40b.example", "a%40b"],
      [`key ${key}`, key.slice(21)],
      ["key mk_test_malformed-key", "malformed-key"],
      ["secret whsec_abcdef", "abcdef"],
      ["authorization: Bearer abc.def", "abc.def"],
      ["eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "c2lnbmF0dXJl"],
      ["insert into x values ('Ada Lovelace', 'it''s')", "Lovelace"],
    ] as const;
    for (const [text, secret] of texts) assert.ok(!scrub(text).includes(secret), scrub(text));
    assert.ok(scrub(`key ${key}`).includes("mk_live_0123456789AB"));
    assert.equal(scrub("list_01m7yswt0zfq98dhqwrhw54g5e is not there"), "list_01m7yswt0zfq98dhqwrhw54g5e is not there");
    const { cause, code } = scrubError(
      Object.assign(new Error("outer a@b.example", { cause: new Error("inner c@d.example") }), { code: "23505" }),
    );
    assert.deepEqual([cause?.message, code], ["inner [address]", "23505"]);
  });

  it("are masked in a time that grows with the text's length, not with its square", () => {
    for (const part of ["a", "a-", "%4", "aaaaaaaa..", "it''s "]) {
      const ms = cpuMs(() => scrub(part.repeat(500_000 / part.length)));
      // Some milliseconds; minutes if a word were read once per character.
      assert.ok(ms < 2_000, `${part} took ${ms} ms`);
    }
  });
});

describe("the API process", () => {
  it("refuses to start on wrong settings and on a port in use, naming each on stderr", async () => {
    const server = createServer();
    const port = String(await listenLocally(server));
    for (const [settings, named] of [
      [{ PORT: "no", SIGNING_SECRET: "", LOG_LEVEL: "loud" }, /^(?=.*PORT)(?=.*SIGNING_SECRET)(?=.*LOG_LEVEL)/s],
      [{ PORT: port, LOG_LEVEL: "error" }, new RegExp(`${port}.*PORT`)],
    ] as const) {
      const { stderr, code } = await runToEnd(PROGRAMS.api, settings);
      assert.equal(code, 1);
      assert.match(stderr, named);
      assert.ok(!stderr.includes("    at "), stderr);
    }
    server.close();
  });

  const refusesConnections = (base: string) =>
    new Promise<boolean>((resolve) => {
      const socket = connect(Number(new URL(base).port), "127.0.0.1");
      socket.once("connect", () => resolve(false)).once("error", () => resolve(true));
      socket.once("connect", () => socket.destroy());
    });

  it("starts the thread that reads contents, survives clients that disconnect, and finishes what is in flight on SIGTERM", async () => {
    const { keys } = await makeTeam();
    const { pid = 0, base, ended, stop } = await startApi({});
    const { orm } = await backdoor();
    const [em, observer] = [orm.em.fork(), orm.em.fork()];
    const isWaiting = async () => {
      const waiting = await observer.execute(
        "select 1 from pg_locks where not granted and relation = 'suppressions'::regclass and database = (select oid from pg_database where datname = current_database())",
      );
      return waiting.length > 0;
    };
    try {
      await eventually(() => threadsOf(pid).includes("examination"), { what: "the thread" });
      for (let i = 0; i < 20; i++) {
        const controller = new AbortController();
        const request = fetch(`${base}/me`, { headers: { "x-api-key": keys.live }, signal: controller.signal });
        setTimeout(() => controller.abort(), i % 4);
        await request.catch(() => {});
      }
      assert.equal((await api(keys.live, base).get("/me")).status, 200);

      await em.begin();
      await em.execute("lock table suppressions in access exclusive mode");
      // It waits for its lock for longer than the process takes new requests.
      const inFlight = api(keys.live, base).post("/suppressions", { emails: [uniqueEmail()] });
      try {
        await eventually(isWaiting, { what: "the request's waiting for the lock" });
        process.kill(pid, "SIGTERM");
        await eventually(() => refusesConnections(base), { what: "the closed port" });
      } finally {
        await em.rollback();
      }
      const answer = await inFlight;
      assert.deepEqual([answer.status, answer.headers.get("connection")], [200, "close"]);
      assert.deepEqual(await ended, [0, null]);
    } finally {
      await stop();
    }
  });

  it("answers on SIGTERM the requests that are on their way, and has each connection closed by its answer", async () => {
    const { pid = 0, origin, ended, stop } = await startApi({});
    const agents: Agent[] = [];
    const connection = async () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      agents.push(agent);
      for (let n = 1; ; n++) {
        const { statusCode, headers } = await new Promise<IncomingMessage>((resolve, reject) => {
          const asked = get(`${origin}/healthz`, { agent }, (answer) =>
            answer.resume().once("end", () => resolve(answer)),
          );
          asked.once("error", reject);
        });
        assert.equal(statusCode, 200);
        if (n === 20) process.kill(pid, "SIGTERM");
        if (headers.connection === "close") return n;
      }
    };
    try {
      const counts = await Promise.all(Array.from({ length: 10 }, connection));
      assert.ok(
        counts.some((count) => count > 20),
        `${counts}`,
      );
      assert.deepEqual(await ended, [0, null]);
    } finally {
      for (const agent of agents) agent.destroy();
      await stop();
    }
  });
});
