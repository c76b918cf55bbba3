import assert from "node:assert/strict";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import type { Env } from "../../config/env.ts";
import { formatKey, generateKey, parseKey } from "../../domain/access/keys.ts";
import { type ApiAnswer, api, type CallOptions, codeOf as code } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { execute, makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { stack } from "../support/stack.ts";

const noInput = z.strictObject({});
const routes = router({
  ping: route({ method: "GET", path: "/ping", scope: null, summary: "Answers" })
    .input(noInput)
    .output(z.null())
    .query(async () => ok(null)),
  lists: route({ method: "GET", path: "/scoped", scope: "lists:read", summary: "Needs a scope" })
    .input(noInput)
    .output(z.null())
    .query(async () => ok(null)),
  defect: route({ method: "GET", path: "/defect", scope: null, summary: "Fails" })
    .input(noInput)
    .output(z.null())
    .query(async () => {
      throw new Error("a defect");
    }),
  note: route({ method: "POST", path: "/notes", status: 201, scope: null, summary: "Takes a note" })
    .input(z.strictObject({ body: z.strictObject({ text: z.string() }) }))
    .output(z.object({ text: z.string() }))
    .mutation(async ({ input }) => ok({ text: input.body.text })),
});

const header = (answer: ApiAnswer, name: string): number => Number(answer.headers.get(name) ?? Number.NaN);
const count = (answers: readonly ApiAnswer[], wanted: string): number =>
  answers.filter((answer) => code(answer) === wanted).length;

describe("Rate limits", () => {
  let team: TestTeam;
  const apps: TestApp[] = [];
  beforeEach(async () => {
    team = await makeTeam();
    await windowWithRoom();
  });
  afterEach(async () => {
    for (const app of apps.splice(0)) await app.close();
  });
  const serve = async (changes: Partial<Env>) => {
    const app = await serveRoutes(routes, { changes });
    apps.push(app);
    return app;
  };

  describe("of a key", () => {
    it("let exactly 20 of 50 requests at once pass over two processes of the API", async () => {
      const both = [await serve({ RATE_LIMIT_PER_MINUTE: 20 }), await serve({ RATE_LIMIT_PER_MINUTE: 20 })];
      const answers = await Promise.all(
        Array.from({ length: 25 }, () => both.map(({ base }) => api(team.keys.live, base).get("/ping"))).flat(),
      );

      assert.deepEqual([count(answers, "200"), count(answers, "rate_limit_exceeded")], [20, 30]);
      const passed = answers.filter(({ status }) => status === 200);
      const left = passed.map((answer) => header(answer, "ratelimit-remaining")).sort((a, b) => a - b);
      assert.deepEqual(
        left,
        Array.from({ length: 20 }, (_, i) => i),
      );
      for (const answer of answers.filter(({ status }) => status === 429)) {
        assert.equal(answer.body.error.type, "rate_limit_error");
        assert.equal(header(answer, "ratelimit-remaining"), 0);
        const seconds = answer.headers.get("retry-after") ?? "";
        assert.match(seconds, /^[1-9]\d?$/);
        assert.ok(Number(seconds) <= 60, seconds);
        assert.equal(answer.headers.get("ratelimit-reset"), seconds);
      }
    });

    it("show on every answer to a known caller what is left, in both spellings", async () => {
      const { base } = await serve({ RATE_LIMIT_PER_MINUTE: 6 });
      const client = api((await team.mint({ scopes: [] })).key, base);
      const noted: CallOptions = { idempotencyKey: unique("note") };
      const calls = [
        ["insufficient_scope", () => client.get("/scoped")],
        ["unsupported_parameter", () => client.get("/ping?x=1")],
        ["internal_error", () => client.get("/defect")],
        ["201", () => client.post("/notes", { text: "a" }, noted)],
        ["201", () => client.post("/notes", { text: "a" }, noted)],
        ["idempotency_key_reused", () => client.post("/notes", { text: "b" }, noted)],
        ["rate_limit_exceeded", () => client.get("/ping")],
      ] as const;
      let left = 6;
      for (const [wanted, call] of calls) {
        const answer = await call();
        assert.equal(code(answer), wanted);
        left = Math.max(0, left - 1);
        const reset = header(answer, "ratelimit-reset");
        assert.ok(Number.isInteger(reset) && reset >= 1 && reset <= 60, `${reset}`);
        for (const prefix of ["ratelimit", "x-ratelimit"]) {
          const shown = ["limit", "remaining", "reset"].map((name) => header(answer, `${prefix}-${name}`));
          assert.deepEqual(shown, [6, left, reset], `${wanted}, ${prefix}`);
        }
      }
    });

    it("show nothing of a key to a caller that does not hold it, and do not count that", async () => {
      const { base } = await serve({ RATE_LIMIT_PER_MINUTE: 3 });
      const parts = parseKey(team.keys.live);
      assert.ok(parts);
      const guessed = await api(formatKey({ ...parts, secret: generateKey("LIVE").secret }), base).get("/ping");
      assert.deepEqual([code(guessed), guessed.headers.get("ratelimit-limit")], ["api_key_invalid", null]);
      assert.equal(header(await api(team.keys.live, base).get("/ping"), "ratelimit-remaining"), 2);
    });

    it("come right after authentication, before plan and scope", async () => {
      const { base } = await serve({ RATE_LIMIT_PER_MINUTE: 2 });
      const { key, record } = await team.mint({ scopes: [] });
      const client = api(key, base);
      assert.equal(code(await client.get("/scoped")), "insufficient_scope");
      await execute("update teams set plan = 'FREE' where id = ?", team.team.id);
      assert.equal(code(await client.get("/scoped")), "plan_upgrade_required");
      assert.equal(code(await client.get("/scoped?x=1")), "rate_limit_exceeded");
      await execute("update api_keys set revoked_at = now() where id = ?", record.id);
      assert.equal(code(await client.get("/scoped")), "api_key_revoked");
    });

    it("count each key for itself and begin anew with the next window; a refused request leaves no trace", async () => {
      const { base } = await serve({ RATE_LIMIT_PER_MINUTE: 1 });
      const client = api(team.keys.live, base);
      const noted: CallOptions = { idempotencyKey: unique("note") };
      const version = () =>
        execute("select ctid::text, count from request_counts where caller_id = ?", team.liveKey.record.id);
      assert.equal(code(await client.get("/ping")), "200");
      const before = await version();
      for (let i = 0; i < 3; i++)
        assert.equal(code(await client.post("/notes", { text: "a" }, noted)), "rate_limit_exceeded");
      assert.deepEqual(before, await version(), "no new version of the count");
      assert.equal(code(await api(team.keys.test, base).get("/ping")), "200");
      await execute(
        "update request_counts set starts_at = starts_at - interval '1 minute' where caller_id = ?",
        team.liveKey.record.id,
      );
      assert.equal(code(await client.post("/notes", { text: "b" }, noted)), "201", "the Idempotency-Key is free");
    });
  });

  describe("of failed authentications", () => {
    /** An API behind one load balancer, which this test plays. */
    const BEHIND_PROXY = { PROXY_ADDRESSES: ["127.0.0.0/8"], PROXY_HOPS: 1 };
    let address: string;
    beforeEach(() => {
      // Of a documentation prefix: a network of its own for each test.
      const [a = "0", b = "0"] = unique("").slice(1).match(/.{4}/g) ?? [];
      address = `2001:db8:${a}:${b}::1`;
    });
    const from = (forwarded: string): CallOptions => ({ headers: { "x-forwarded-for": forwarded } });

    it("answer exactly 10 of 40 attempts at once with 401, over two processes of the API", async () => {
      const settings = { ...BEHIND_PROXY, FAILED_AUTHENTICATIONS_PER_MINUTE: 10 };
      const both = [await serve(settings), await serve(settings)];
      const attempts = [undefined, "nonsense", formatKey(generateKey("LIVE")), formatKey(generateKey("TEST"))];
      const answers = await Promise.all(
        Array.from({ length: 5 }, () =>
          both.flatMap(({ base }) => attempts.map((key) => api(key, base).get("/ping", from(address)))),
        ).flat(),
      );
      const failed = answers.filter(({ status }) => status === 401);
      assert.equal(failed.length, 10);
      assert.equal(count(answers, "rate_limit_exceeded"), 30);
      for (const answer of answers.filter(({ status }) => status === 429)) {
        const seconds = answer.headers.get("retry-after") ?? "";
        assert.match(seconds, /^[1-9]\d?$/);
        assert.equal(answer.headers.get("ratelimit-limit"), null);
      }

      // The last one has seen none of its failures.
      for (const { base } of [...both, await serve(settings)]) {
        assert.equal(code(await api(team.keys.live, base).get("/ping", from(address))), "rate_limit_exceeded");
        // The same network of 64 bits, and another one.
        assert.equal(code(await api(team.keys.live, base).get("/ping", from(`${address}f`))), "rate_limit_exceeded");
        assert.equal(code(await api(team.keys.live, base).get("/ping", from("2001:db8::1"))), "200");
      }
      const [counted] = await execute("select count from request_counts where caller_id = ?", team.liveKey.record.id);
      assert.equal(counted?.["count"], 3, "a refused address does not use up a key's allowance");
    });

    it("count the revoked, the expired and the key under the other prefix, and block no key that has just worked", async () => {
      const { base } = await serve({ ...BEHIND_PROXY, FAILED_AUTHENTICATIONS_PER_MINUTE: 4 });
      const ask = async (key: string, path = "/ping") => code(await api(key, base).get(path, from(address)));
      const [known, revoked, expired] = [await team.mint({ scopes: [] }), await team.mint(), await team.mint()];
      await execute("update api_keys set revoked_at = now() where id = ?", revoked.record.id);
      await execute("update api_keys set expires_at = now() where id = ?", expired.record.id);
      for (let i = 0; i < 3; i++)
        assert.deepEqual([await ask(known.key), await ask(known.key, "/scoped")], ["200", "insufficient_scope"]);
      const codes = [];
      for (const key of [
        ...[team.keys.test.replace("mk_test_", "mk_live_"), revoked.key, expired.key, "x"],
        ...[team.keys.live, known.key],
      ])
        codes.push(await ask(key));
      assert.deepEqual(codes, [
        "api_key_environment_mismatch",
        "api_key_revoked",
        "api_key_expired",
        "api_key_malformed",
        "rate_limit_exceeded",
        "200",
      ]);
      await execute("update api_keys set revoked_at = now() where id = ?", known.record.id);
      assert.equal(await ask(known.key), "rate_limit_exceeded");
    });

    it("count no bearer token while the issuer's keys cannot be read, and block no key for them", async () => {
      const away = { OAUTH_ISSUER: "https://issuer.example", OAUTH_JWKS_URL: "http://127.0.0.1:9/keys" };
      const { base } = await serve({ ...BEHIND_PROXY, ...away, FAILED_AUTHENTICATIONS_PER_MINUTE: 2 });
      const parts = [{ alg: "RS256", kid: "k" }, {}].map((part) =>
        Buffer.from(JSON.stringify(part)).toString("base64url"),
      );
      const headers = { authorization: `Bearer ${parts.join(".")}.AA`, "x-forwarded-for": address };
      const codes = [];
      for (let i = 0; i < 3; i++) codes.push(code(await api(undefined, base).get("/ping", { headers })));
      assert.deepEqual(codes, ["service_unavailable", "service_unavailable", "service_unavailable"]);
      assert.equal(code(await api(team.keys.live, base).get("/ping", from(address))), "200");
    });
  });

  it("are shown in /metrics at the health port only, which serves nothing else of the API", async () => {
    const { origin, health } = await stack();
    const scraped = await fetch(`${health["api"]}/metrics`);
    assert.equal(scraped.status, 200);
    assert.match(await scraped.text(), /^mailkeel_provider_events_unreadable_total\{pool="api"\} \d+$/m);
    for (const [url, status] of [
      [`${health["api"]}/healthz`, 200],
      [`${health["api"]}/readyz`, 200],
      [`${health["api"]}/api/v2/me`, 404],
      [`${origin}/metrics`, 404],
    ] as const)
      assert.equal((await fetch(url)).status, status, url);
  });
});
