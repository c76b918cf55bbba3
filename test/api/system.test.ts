import assert from "node:assert/strict";
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { pino } from "pino";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { openReadiness } from "../../api/system/readiness.ts";
import { formatKeys } from "../../config/env.ts";
import { scrub, scrubError } from "../../config/scrub.ts";
import { Team } from "../../db/entities/team.ts";
import { openDatabase } from "../../db/orm.ts";
import { STATEMENT_SECONDS, type WorkKind } from "../../db/pool.ts";
import { ERRORS } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { userAgent } from "../../domain/webhooks/headers.ts";
import { type ApiClient, api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { cpuMs } from "../support/cpu.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, unique } from "../support/factories.ts";
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

/** The address of a port at which no process listens. */
async function closedPort(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return `127.0.0.1:${port}`;
}

const SLEEPS = "datname = current_database() and state = 'active' and query = 'select pg_sleep(5)'";
/** Whether a request of `/read` waits in Postgres. */
const isSleeping = async (): Promise<boolean> =>
  (await (await backdoor()).orm.em.fork().execute(`select from pg_stat_activity where ${SLEEPS}`)).length > 0;
const cancelSleep = async () =>
  (await backdoor()).orm.em.fork().execute(`select pg_cancel_backend(pid) from pg_stat_activity where ${SLEEPS}`);

describe("health", () => {
  it("answers /healthz without credentials or dependencies", async () => {
    const { origin } = await stack();
    const response = await fetch(`${origin}/healthz`);
    assert.equal(response.status, 200);
    assert.match(response.headers.get("x-request-id") ?? "", /^req_/);
  });

  it("names Temporal in /readyz while it is not reachable, and still serves reads", async () => {
    const app = await serveRoutes(router({}), { changes: { TEMPORAL_ADDRESS: await closedPort() } });
    try {
      const response = await fetch(`${app.origin}/readyz`);
      assert.equal(response.status, 503);
      assert.ok(Number(response.headers.get("retry-after")) > 0);
      assert.deepEqual(await response.json(), { status: "unavailable", postgres: "ok", temporal: "unreachable" });
      const started = Date.now();
      await assert.rejects(
        app.deps.temporal.call(2_000, (client) => client.workflow.start("x", { taskQueue: "x", workflowId: "x" })),
        {
          code: "service_unavailable",
        },
      );
      assert.ok(Date.now() - started < 4_000);
    } finally {
      await app.close();
    }
  });

  it("names Postgres in /readyz while it is not reachable", async () => {
    const database = new URL((await stack()).env.DATABASE_URL);
    database.host = await closedPort();
    const app = await serveRoutes(router({}), { changes: { DATABASE_URL: database.href } });
    try {
      const response = await fetch(`${app.origin}/readyz`);
      assert.equal(response.status, 503);
      assert.equal(((await response.json()) as { postgres: string }).postgres, "unreachable");
      assert.equal((await fetch(`${app.origin}/healthz`)).status, 200);
    } finally {
      await app.close();
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

  it("asks its dependencies once a second, however often /readyz is asked", async () => {
    let checks = 0;
    const temporal = {
      check: async () => {
        checks++;
      },
    };
    const { env } = await stack();
    const readiness = openReadiness(env, temporal, pino({ level: "silent" }));
    const app = await serveRoutes(router({}), { with: { readiness } });
    try {
      const started = performance.now();
      for (let i = 0; i < 20; i++) {
        await Promise.all(Array.from({ length: 10 }, () => fetch(`${app.origin}/readyz`).then((r) => r.text())));
      }
      assert.ok(checks <= 1 + (performance.now() - started) / 1_000, `${checks} checks`);
      const before = checks;
      await eventually(async () => {
        await fetch(`${app.origin}/readyz`).then((r) => r.text());
        return checks > before;
      });
    } finally {
      await app.close();
    }
  });

  it("is ready on the whole stack", async function () {
    if (!process.env["MAILKEEL_STACK"]) this.skip();
    const { origin } = await stack();
    const response = await fetch(`${origin}/readyz`);
    assert.deepEqual(
      [response.status, await response.json()],
      [200, { status: "ready", postgres: "ok", temporal: "ok" }],
    );
  });
});

describe("the page behind doc_url", () => {
  it("holds every code, with its meaning, at the anchor that an error names", async () => {
    const { body } = await api("mk_live_nothing").get("/me");
    const { origin, hash, pathname } = new URL(body.error.doc_url);
    assert.equal(origin, (await stack()).origin);
    const response = await fetch(body.error.doc_url);
    assert.equal(response.status, 200);
    assert.match(response.headers.get("content-type") ?? "", /^text\/html/);
    const page = await response.text();
    assert.deepEqual([pathname, hash], ["/docs/errors", `#${body.error.code}`]);
    const text = page.replaceAll(/<[^>]*>/g, "").replaceAll(/&#39;|&quot;/g, "'");
    for (const [code, { meaning }] of Object.entries(ERRORS)) {
      assert.ok(page.includes(`id="${code}"`), code);
      assert.ok(text.includes(meaning.replaceAll("`", "").replaceAll('"', "'")), meaning);
    }
  });
});

describe("the page behind the User-Agent of webhooks", () => {
  it("is served, and says what the requests are", async () => {
    const { origin } = await stack();
    const [, url = ""] = /\(\+(.*)\)$/.exec(userAgent(origin)) ?? [];
    assert.equal(new URL(url).origin, origin);
    const response = await fetch(url);
    assert.equal(response.status, 200);
    assert.match(response.headers.get("content-type") ?? "", /^text\/html/);
    assert.ok((await response.text()).includes(userAgent(origin).split(" ")[0] ?? ""));
  });
});

describe("while Postgres is not reachable", () => {
  const assertUnavailable = ({ status, body, headers }: Awaited<ReturnType<ReturnType<typeof api>["get"]>>) => {
    assert.equal(status, 503);
    assert.equal(body.error.code, "service_unavailable");
    assert.ok(Number(headers.get("retry-after")) > 0);
  };
  const terminate = async (query: string) => {
    const em = (await backdoor()).orm.em.fork();
    await eventually(async () => {
      const ended = await em.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and query like ?",
        [`%${query}%`],
      );
      return ended.length > 0;
    });
  };

  /** A pool may hand out a dying connection once more before it notices that it ended. */
  const recovers = (client: ApiClient) =>
    eventually(async () => (await client.post("/conflict", { times: 0, state: "40001" })).status === 200);

  it("answers 503 at once when the port is closed", async () => {
    const { keys } = await makeTeam();
    const database = new URL((await stack()).env.DATABASE_URL);
    database.host = await closedPort();
    const app = await serveRoutes(routes, { changes: { DATABASE_URL: database.href } });
    try {
      assertUnavailable(await api(keys.live, app.base).post("/write"));
    } finally {
      await app.close();
    }
  });

  it("answers 503 within seconds when connections hang", async () => {
    const sockets: Socket[] = [];
    const mute: Server = createServer((socket) => sockets.push(socket)).listen(0, "127.0.0.1");
    await once(mute, "listening");
    const { keys } = await makeTeam();
    const database = new URL((await stack()).env.DATABASE_URL);
    database.host = `127.0.0.1:${(mute.address() as AddressInfo).port}`;
    const app = await serveRoutes(routes, { changes: { DATABASE_URL: database.href } });
    try {
      const started = Date.now();
      assertUnavailable(await api(keys.live, app.base).post("/write"));
      assert.ok(Date.now() - started < 10_000);
    } finally {
      for (const socket of sockets) socket.destroy();
      mute.close();
      await app.close();
    }
  });

  it("loses no connection of its pool when transactions are cut", async () => {
    const { keys } = await makeTeam();
    const app = await serveRoutes(routes, { changes: { DATABASE_POOL_MAX: 2 } });
    const client = api(keys.live, app.base);
    try {
      for (let i = 0; i < 3; i++) {
        const write = client.post("/write");
        await terminate("pg_sleep");
        assertUnavailable(await write);
        await recovers(client);
      }
    } finally {
      await app.close();
    }
  });

  it("answers 503 to requests whose connection is cut, gives their keys back, and recovers", async () => {
    const { keys, team } = await makeTeam();
    const app = await serveRoutes(routes);
    const client = api(keys.live, app.base);
    try {
      const read = client.get("/read/x");
      await terminate("pg_sleep");
      assertUnavailable(await read);
      await recovers(client);
      const write = client.post("/write", undefined, { idempotencyKey: "cut" });
      await terminate("pg_sleep");
      assertUnavailable(await write);
      const [record] = await app.deps.orm.em
        .fork()
        .execute<{ free: boolean }[]>(
          "select locked_at = to_timestamp(0) as free from idempotency_records where team_id = ?",
          [team.id],
        );
      assert.equal(record?.free, true);
      await recovers(client);
    } finally {
      await app.close();
    }
  });
});

describe("a statement", () => {
  it("of a request may take as long as a request", async () => {
    const { keys } = await makeTeam();
    const app = await serveRoutes(routes);
    try {
      assert.deepEqual((await api(keys.live, app.base).get("/timeout")).body.data, { timeout: "30s" });
    } finally {
      await app.close();
    }
  });

  for (const [work, seconds] of Object.entries(STATEMENT_SECONDS)) {
    it(`may take ${seconds} s: ${work}`, async () => {
      const { env } = await stack();
      const orm = await openDatabase(env.DATABASE_URL, { poolMax: 1, work: work as WorkKind });
      try {
        const [row] = await orm.em
          .fork()
          .execute<{ seconds: string }[]>(
            "select extract(epoch from current_setting('statement_timeout')::interval)::int as seconds",
          );
        assert.equal(Number(row?.seconds), seconds);
      } finally {
        await orm.close(true);
      }
    });
  }

  it("that takes longer is ended, and its connection serves the next request", async () => {
    const { keys } = await makeTeam();
    const app = await serveRoutes(routes, { changes: { DATABASE_POOL_MAX: 1 } });
    const client = api(keys.live, app.base);
    try {
      await app.deps.orm.em.getConnection().execute("set statement_timeout = '300ms'");
      const answer = await client.get("/read/x");
      assert.equal(answer.status, 503, answer.text);
      assert.equal(answer.body.error.code, "service_unavailable");
      assert.ok(Number(answer.headers.get("retry-after")) > 0);
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

  for (const state of ["40001", "40P01"]) {
    it(`is run again after ${state}, and only the last run is kept`, async () => {
      tries = 0;
      conflictName = unique("conflict");
      const { keys } = await makeTeam();
      const answer = await api(keys.live, app.base).post("/conflict", { times: 2, state }, { idempotencyKey: "k" });
      assert.deepEqual([answer.status, answer.body.data], [200, { tries: 3 }]);
      assert.equal(await app.deps.orm.em.fork().count(Team, { name: conflictName }), 1);
    });
  }

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
  const MAIN = `${import.meta.dirname}/../../api/main.ts`;
  const settings = async (changes: Record<string, string> = {}) => {
    const { env } = await stack();
    return {
      PATH: process.env["PATH"],
      DATABASE_URL: env.DATABASE_URL,
      TEMPORAL_ADDRESS: env.TEMPORAL_ADDRESS,
      SIGNING_SECRET: formatKeys(env.SIGNING_SECRET),
      ENCRYPTION_KEYS: formatKeys(env.ENCRYPTION_KEYS),
      SYSTEM_SMTP_URL: env.SYSTEM_SMTP_URL,
      PUBLIC_URL: env.PUBLIC_URL,
      LOG_LEVEL: "error",
      PORT: "0",
      ...changes,
    };
  };
  const run = async (env: NodeJS.ProcessEnv) => {
    const child = spawn(process.execPath, [MAIN], { env, stdio: ["ignore", "ignore", "pipe"] });
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
    return { stderr, code };
  };
  const forked: ChildProcess[] = [];
  const start = async () => {
    const child = fork(MAIN, { env: await settings() });
    forked.push(child);
    const [message] = (await once(child, "message")) as [{ type: string; port: number }];
    assert.equal(message.type, "ready");
    return { child, base: `http://127.0.0.1:${message.port}/api/v2` };
  };
  afterEach(() => {
    for (const child of forked.splice(0)) child.kill("SIGKILL");
  });

  it("refuses to start on wrong settings, naming each on stderr", async () => {
    const { stderr, code } = await run(await settings({ PORT: "no", SIGNING_SECRET: "", LOG_LEVEL: "loud" }));
    assert.equal(code, 1);
    for (const name of ["PORT", "SIGNING_SECRET", "LOG_LEVEL"]) assert.ok(stderr.includes(name));
    assert.ok(!stderr.includes("    at "), stderr);
  });

  it("names PORT when that is in use", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const { stderr, code } = await run(await settings({ PORT: String(port) }));
    server.close();
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`${port}.*PORT`));
    assert.ok(!stderr.includes("    at "), stderr);
  });

  const refusesConnections = (base: string) =>
    new Promise<boolean>((resolve) => {
      const socket = connect(Number(new URL(base).port), "127.0.0.1");
      socket.once("connect", () => resolve(false)).once("error", () => resolve(true));
      socket.once("connect", () => socket.destroy());
    });

  it("finishes the request in flight on SIGTERM, takes no more, and exits with 0", async () => {
    const { keys } = await makeTeam();
    const { child, base } = await start();
    const { orm } = await backdoor();
    const em = orm.em.fork();
    const exited = once(child, "exit");
    await em.begin();
    await em.execute("lock table api_keys in access exclusive mode");
    const inFlight = api(keys.live, base).get("/me");
    try {
      await eventually(
        async () => {
          const waiting = await orm.em
            .fork()
            .execute(
              "select 1 from pg_locks where not granted and relation = 'api_keys'::regclass and database = (select oid from pg_database where datname = current_database())",
            );
          return waiting.length > 0;
        },
        { what: "the request's waiting for the lock" },
      );
      child.kill("SIGTERM");
      await eventually(() => refusesConnections(base), { what: "the closed port" });
    } finally {
      await em.rollback();
    }
    assert.equal((await inFlight).status, 200);
    assert.deepEqual(await exited, [0, null]);
  });

  it("starts the thread that reads contents before there is one", async () => {
    const { child } = await start();
    await eventually(() => threadsOf(child.pid ?? 0).includes("examination"), { what: "the thread" });
  });

  it("stops when its parent process exits", async () => {
    const { child } = await start();
    const exited = once(child, "exit");
    child.disconnect();
    assert.deepEqual(await exited, [0, null]);
  });

  it("survives clients that disconnect during a request", async () => {
    const { keys } = await makeTeam();
    const { base, child } = await start();
    for (let i = 0; i < 20; i++) {
      const controller = new AbortController();
      const request = fetch(`${base}/me`, { headers: { "x-api-key": keys.live }, signal: controller.signal });
      setTimeout(() => controller.abort(), i % 4);
      await request.catch(() => {});
    }
    assert.equal((await api(keys.live, base).get("/me")).status, 200);
    assert.equal(child.exitCode, null);
  });
});
