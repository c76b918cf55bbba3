import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { exportSPKI, importJWK, type JWTPayload, UnsecuredJWT } from "jose";
import { pino } from "pino";
import { z } from "zod";
import { tokenRulesOf } from "../../api/deps.ts";
import { ok, router } from "../../api/rest/route.ts";
import { appRouter } from "../../api/router.ts";
import { scrubError } from "../../config/scrub.ts";
import { MAX_TOKEN_LENGTH, openTokenVerifier, revokeToken } from "../../domain/access/oauth.ts";
import { KEY_SET_TIMES, type KeySetTimes } from "../../domain/access/oauth-keys.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { type ApiAnswer, api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { app as command } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { countStatements } from "../support/recording.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { prune } from "../support/retention.ts";
import { stack } from "../support/stack.ts";
import { webhookBody } from "../support/webhooks.ts";
import {
  claimsFor,
  inSeconds,
  type KeySetAnswer,
  makeIssuerKey,
  openIssuer,
  signToken,
  type TestClaims,
  type TestIssuer,
} from "./oauth-issuer.ts";

const code = (answer: ApiAnswer): string => answer.body.error?.code ?? `${answer.status}`;

/** The parameters of a challenge. */
function challengeOf({ headers }: ApiAnswer): Record<string, string> {
  const header = headers.get("www-authenticate") ?? "";
  const parameters = [...header.matchAll(/(?:^Bearer |, )(\w+)="([^"]*)"/g)];
  assert.equal(header, `Bearer ${parameters.map(([, name, value]) => `${name}="${value}"`).join(", ")}`);
  return Object.fromEntries(parameters.map(([, name = "", value = ""]) => [name, value]));
}

async function change(sql: string, ...params: unknown[]): Promise<void> {
  await (await backdoor()).orm.em.fork().execute(sql, params);
}

/** An API that takes the tokens of an issuer, with times of the test for its key set. */
async function serveWith(issuer: TestIssuer, times: Partial<KeySetTimes> = {}): Promise<TestApp> {
  const { env } = await stack();
  const rules = tokenRulesOf({ ...env, ...issuer.settings });
  const verifyToken = openTokenVerifier(rules, { ...KEY_SET_TIMES, ...times });
  return serveRoutes(appRouter, { changes: issuer.settings, with: { verifyToken } });
}

describe("OAuth tokens", () => {
  let issuer: TestIssuer;
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    issuer = await openIssuer(
      await makeIssuerKey("RS256"),
      await makeIssuerKey("PS256"),
      await makeIssuerKey("ES256"),
      await makeIssuerKey("EdDSA"),
    );
    app = await serveRoutes(appRouter, { changes: issuer.settings });
  });
  beforeEach(async () => {
    team = await makeTeam();
  });
  after(async () => {
    await app.close();
    await issuer.close();
  });

  const keyOf = ({ keys: [key] }: TestIssuer) => {
    assert.ok(key);
    return key;
  };
  /** A token of the team's member; the claims that differ are given. */
  const tokenWith = async (changes: TestClaims = {}, header: Parameters<typeof signToken>[2] = {}) =>
    signToken(keyOf(issuer), await claimsFor(issuer, team, changes), header);
  const authorised = (token: string, headers: Record<string, string> = {}) => ({
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
  const me = (token: string) => api(undefined, app.base).get("/me", authorised(token));

  describe("that are good", () => {
    it("give the rights of the member, and GET /me shows them", async () => {
      const claims = await claimsFor(issuer, team);
      const { status, body } = await me(await signToken(keyOf(issuer), claims));
      assert.equal(status, 200);
      assert.deepEqual(body.data, {
        object: "oauth_token",
        id: claims.jti,
        key_id: "oauth_a-client",
        environment: "LIVE",
        team: { id: team.team.id },
        role: "OWNER",
        role_at_issue: null,
        api_version: "2026-08-15",
        scopes: ["lists:read", "lists:write"],
        granted_scopes: ["lists:read", "lists:write"],
      });
    });

    it("are taken with each kind of asymmetric signature", async () => {
      const claims = await claimsFor(issuer, team);
      for (const key of issuer.keys) assert.equal((await me(await signToken(key, claims))).status, 200, key.alg);
    });

    it("are taken with the type of an access token, of any JWT, or none", async () => {
      for (const typ of ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", undefined]) {
        assert.equal((await me(await tokenWith({}, { typ } as { typ: string }))).status, 200, typ);
      }
    });

    it("are taken when the API is one of several audiences", async () => {
      assert.equal((await me(await tokenWith({ aud: ["https://other.example", (await stack()).api] }))).status, 200);
    });

    it("are taken while the clocks differ by some seconds", async () => {
      assert.equal((await me(await tokenWith({ exp: inSeconds(-10) }))).status, 200);
      assert.equal((await me(await tokenWith({ nbf: inSeconds(10) }))).status, 200);
    });

    it("cost one statement, the same as a key", async () => {
      const ping = router({
        ping: route({ method: "GET", path: "/ping", scope: null, summary: "Answers" })
          .input(z.strictObject({}))
          .output(z.null())
          .query(async () => ok(null)),
      });
      const pinged = await serveRoutes(ping, { changes: issuer.settings });
      try {
        const token = await tokenWith();
        const ask = async () =>
          assert.equal((await api(undefined, pinged.base).get("/ping", authorised(token))).status, 200);
        assert.equal(await countStatements(pinged, ask), 1);
      } finally {
        await pinged.close();
      }
    });

    it("share the limit of their client in a team, and show what is left", async () => {
      const limited = await serveRoutes(appRouter, { changes: { ...issuer.settings, RATE_LIMIT_PER_MINUTE: 2 } });
      try {
        const another = await makeTeam();
        await windowWithRoom();
        const ask = async (of: TestTeam, client_id: string) => {
          const token = await signToken(keyOf(issuer), await claimsFor(issuer, of, { client_id }));
          const answer = await api(undefined, limited.base).get("/me", authorised(token));
          return [answer.status, answer.headers.get("ratelimit-remaining"), answer.headers.get("service-version")];
        };
        assert.deepEqual(await ask(team, "one"), [200, "1", "2026-08-15"]);
        await change("update teams set plan = 'FREE' where id = ?", team.team.id);
        assert.deepEqual(await ask(team, "one"), [402, "0", "2026-08-15"]);
        assert.deepEqual(await ask(team, "one"), [429, "0", "2026-08-15"]);
        assert.deepEqual(await ask(another, "one"), [200, "1", "2026-08-15"]);
        await change("update teams set requests_per_minute = 1 where id = ?", another.team.id);
        assert.deepEqual(await ask(another, "two"), [200, "0", "2026-08-15"]);
        const revoked = await claimsFor(issuer, another, { client_id: "three" });
        await revokeToken((await backdoor()).orm.em.fork(), { tokenId: String(revoked.jti), expiresAt: null });
        assert.equal(
          (await api(undefined, limited.base).get("/me", authorised(await signToken(keyOf(issuer), revoked)))).status,
          401,
        );
        assert.deepEqual(await ask(another, "three"), [200, "0", "2026-08-15"]);
      } finally {
        await limited.close();
      }
    });

    it("may stand in both headers, and are refused beside another credential", async () => {
      const token = await tokenWith();
      const ask = (headers: Record<string, string>) => api(undefined, app.base).get("/me", { headers });
      assert.equal((await ask({ authorization: `Bearer ${token}`, "x-api-key": token })).status, 200);
      const both = await ask({ authorization: `Bearer ${token}`, "x-api-key": team.keys.live });
      assert.deepEqual([both.status, code(both)], [401, "api_key_invalid"]);
    });

    it("see the rows of their environment alone", async () => {
      const client = (token: string) => {
        const { get, post } = api(undefined, app.base);
        return {
          create: (name: string) => post("/lists", { name }, authorised(token)),
          names: async () =>
            (await get("/lists", authorised(token))).body.data.map(({ name }: { name: string }) => name),
          get: (id: string) => get(`/lists/${id}`, authorised(token)),
        };
      };
      const [live, test] = [client(await tokenWith()), client(await tokenWith({ env: "test" }))];
      const created = await live.create("Of live");
      assert.equal(created.status, 201);
      assert.equal((await test.create("Of test")).status, 201);
      assert.deepEqual([await live.names(), await test.names()], [["Of live"], ["Of test"]]);
      assert.equal(code(await test.get(created.body.data.id)), "not_found");
      assert.equal((await api(team.keys.live).get(`/lists/${created.body.data.id}`)).status, 200, "a key sees it too");
    });
  });

  describe("that are not good", () => {
    const REFUSALS: Record<string, { token: () => Promise<string>; says: RegExp }> = {
      "signed by another issuer's key of the same name": {
        token: async () =>
          signToken({ ...(await makeIssuerKey()), kid: keyOf(issuer).kid }, await claimsFor(issuer, team)),
        says: /no key of its issuer/,
      },
      "changed after they were signed": {
        token: async () => {
          const [header, , signature] = (await tokenWith()).split(".");
          const claims = Buffer.from(JSON.stringify(await claimsFor(issuer, team))).toString("base64url");
          return `${header}.${claims}.${signature}`;
        },
        says: /no key of its issuer/,
      },
      "without a signature": {
        token: async () => new UnsecuredJWT((await claimsFor(issuer, team)) as JWTPayload).encode(),
        says: /malformed/,
      },
      "signed by HMAC with the public key": {
        token: async () => {
          const { publicJwk, kid } = keyOf(issuer);
          const publicKey = await importJWK({ ...publicJwk, ext: true });
          assert.ok("type" in publicKey);
          const privateKey = new TextEncoder().encode(await exportSPKI(publicKey));
          return signToken({ kid, alg: "HS256", privateKey }, await claimsFor(issuer, team));
        },
        says: /malformed/,
      },
      "of an unknown key": {
        token: async () => signToken(await makeIssuerKey(), await claimsFor(issuer, team)),
        says: /no key of its issuer/,
      },
      "of another issuer": { token: () => tokenWith({ iss: "https://issuer.example" }), says: /token's iss / },
      "without an issuer": { token: () => tokenWith({ iss: undefined }), says: /token's iss / },
      "for another audience": { token: () => tokenWith({ aud: "https://api.example" }), says: /token's aud / },
      "without an audience": { token: () => tokenWith({ aud: undefined }), says: /token's aud / },
      expired: { token: () => tokenWith({ exp: inSeconds(-60) }), says: /expired/ },
      "without an expiry": { token: () => tokenWith({ exp: undefined }), says: /token's exp / },
      "not valid yet": { token: () => tokenWith({ nbf: inSeconds(60) }), says: /token's nbf / },
      "of another type of JWT": { token: () => tokenWith({}, { typ: "logout+jwt" }), says: /token's typ / },
      "without a jti": { token: () => tokenWith({ jti: undefined }), says: /token's jti / },
      "without a client": { token: () => tokenWith({ client_id: undefined }), says: /token's client_id / },
      "without scopes": { token: () => tokenWith({ scope: undefined }), says: /token's scope / },
      "without a team": { token: () => tokenWith({ team: undefined }), says: /token's team / },
      "with a team that is no text": { token: () => tokenWith({ team: 5 }), says: /token's team / },
      "with a member whom Postgres could not compare": {
        token: () => tokenWith({ sub: "mbr\0" }),
        says: /token's sub /,
      },
      "of an unknown environment": { token: () => tokenWith({ env: "LIVE" }), says: /token's env / },
      "longer than tokens are": {
        token: () => tokenWith({ filler: "x".repeat(MAX_TOKEN_LENGTH) }),
        says: /at most 8192 characters/,
      },
      "no JWT at all": { token: async () => "aaaa.bbbb.cccc", says: /malformed/ },
    };

    for (const [title, { token, says }] of Object.entries(REFUSALS)) {
      it(`are refused: ${title}`, async () => {
        const answer = await me(await token());
        assert.deepEqual([answer.status, code(answer)], [401, "invalid_token"], answer.text);
        assert.match(answer.body.error.message, says);
        assert.deepEqual(challengeOf(answer), {
          realm: "mailkeel",
          error: "invalid_token",
          error_description: answer.body.error.message,
          resource_metadata: `${(await stack()).origin}/.well-known/oauth-protected-resource/api/v2`,
        });
      });
    }

    it("are refused alike for a member of another team and one who does not exist", async () => {
      const other = await makeTeam();
      const answers = [
        await me(await tokenWith({ sub: other.owner.id })),
        await me(await tokenWith({ team: other.team.id })),
        await me(await tokenWith({ sub: "mbr_none" })),
      ];
      assert.deepEqual(answers.map(code), Array(3).fill("invalid_token"));
      assert.equal(new Set(answers.map(({ body }) => body.error.message)).size, 1);
    });

    it("are no API keys: in x-api-key they are malformed", async () => {
      const answer = await api(await tokenWith(), app.base).get("/me");
      assert.equal(code(answer), "api_key_malformed");
      assert.equal(challengeOf(answer)["error"], undefined);
    });

    it("never make the API fail, whatever their parts hold", async () => {
      const part = (text: string) => Buffer.from(text).toString("base64url");
      const { kid } = keyOf(issuer);
      const headers = [
        "{}",
        "[]",
        "null",
        "{",
        '{"alg":"RS256"}',
        '{"alg":5}',
        `{"alg":"RS256","kid":["${kid}"]}`,
        `{"alg":"ES256","kid":"${kid}"}`,
        `{"alg":"RS256","kid":"${kid}","crit":["x"],"x":1}`,
        `{"alg":"RS256","kid":"${kid}","b64":false,"crit":["b64"]}`,
        `{"alg":"RS256","kid":"__proto__"}`,
        `{"alg":"__proto__","kid":"${kid}"}`,
        `{"alg":"RS256","jku":"http://127.0.0.1:9/","kid":"${kid}"}`,
      ];
      for (const header of headers) {
        for (const rest of [
          `${part("{}")}.${randomBytes(256).toString("base64url")}`,
          "..",
          ".",
          "*.*",
          `${part("5")}.AA`,
        ]) {
          const token = `${part(header)}.${rest}`;
          if (token.split(".").length !== 3) continue;
          assert.equal(code(await me(token)), "invalid_token", `${header} ${rest}`);
        }
      }
    });
  });

  describe("that are revoked", () => {
    it("are refused from then on, those of the same client are not", async function () {
      if (!process.env["MAILKEEL_STACK"]) this.skip();
      const claims = await claimsFor(issuer, team);
      const token = await signToken(keyOf(issuer), claims);
      assert.equal((await me(token)).status, 200);

      const expires = new Date(Date.now() + 300_000).toISOString();
      const { json } = await command("token:revoke", String(claims.jti), "--expires", expires, "--json");
      assert.deepEqual(json, { token: { id: claims.jti, revoked: true, expires_at: expires } });
      const answer = await me(token);
      assert.deepEqual(
        [code(answer), challengeOf(answer)["error_description"]],
        ["invalid_token", "The OAuth token is revoked."],
      );
      assert.equal((await me(await tokenWith())).status, 200);

      assert.equal((await command("token:revoke", String(claims.jti))).code, 0, "again, for good");
      assert.equal(code(await me(token)), "invalid_token");
    });

    it("are named by their jti: the command refuses a whole token", async function () {
      if (!process.env["MAILKEEL_STACK"]) this.skip();
      const token = await tokenWith();
      const { code: exitCode, stderr } = await command("token:revoke", token);
      assert.equal(exitCode, 1);
      assert.match(stderr, /jti claim, not the token/);
    });

    it("are forgotten a day after they expire, those without an expiry never", async () => {
      const { orm } = await backdoor();
      const em = orm.em.fork();
      const at = (hours: number) => new Date(Date.now() + hours * 3_600_000);
      const ids = { old: unique("jti"), recent: unique("jti"), kept: unique("jti") };
      await revokeToken(em, { tokenId: ids.old, expiresAt: at(-25) });
      await revokeToken(em, { tokenId: ids.recent, expiresAt: at(-1) });
      await revokeToken(em, { tokenId: ids.kept, expiresAt: null });
      await prune();
      const left = await em.execute<{ jti: string }[]>("select jti from revoked_tokens where jti = any(?)", [
        `{${Object.values(ids)}}`,
      ]);
      assert.deepEqual(left.map(({ jti }) => jti).sort(), [ids.recent, ids.kept].sort());
    });
  });

  describe("and scopes", () => {
    const ask = async (token: string, method: string, path: string, body?: unknown) =>
      api(undefined, app.base).call(method, path, body, { ...authorised(token), idempotencyKey: unique("key") });

    it("are refused in the order of keys, each refusal hiding those after it", async () => {
      const pair = "suppressions:delete newsletters:send";
      const claims = await claimsFor(issuer, team, { scope: pair });
      const token = await signToken(keyOf(issuer), claims);
      const answerOf = async (given = token) => code(await ask(given, "GET", "/lists"));
      await change("update teams set plan = 'FREE' where id = ?", team.team.id);
      await change("update members set removed_at = now() where id = ?", team.owner.id);
      assert.equal(await answerOf(), "plan_upgrade_required");
      await change("update teams set plan = 'BUSINESS' where id = ?", team.team.id);
      const left = await ask(token, "GET", "/lists");
      assert.equal(code(left), "role_insufficient");
      assert.match(left.body.error.message, /token acts for has left/);
      await change("update members set removed_at = null where id = ?", team.owner.id);
      assert.equal(await answerOf(), "forbidden_scope_pair");
      assert.equal(await answerOf(await tokenWith({ scope: "suppressions:delete" })), "insufficient_scope");
      assert.equal(await answerOf(await tokenWith()), "200");
    });

    it("follow the member's role on every request", async () => {
      const token = await tokenWith();
      await change("update members set role = 'VIEWER' where id = ?", team.owner.id);
      const { data } = (await me(token)).body;
      assert.deepEqual(
        [data.role, data.scopes, data.granted_scopes],
        ["VIEWER", ["lists:read"], ["lists:read", "lists:write"]],
      );
      const refused = await ask(token, "POST", "/lists", { name: "L" });
      assert.deepEqual([refused.status, code(refused)], [403, "role_insufficient"]);
      assert.match(refused.body.error.message, /token acts for is VIEWER now, which does not hold lists:write/);
      await change("update members set role = 'EDITOR' where id = ?", team.owner.id);
      assert.equal((await ask(token, "POST", "/lists", { name: "L" })).status, 201);
    });

    it("answer insufficient_scope naming the scope, with a challenge", async () => {
      const answer = await ask(await tokenWith({ scope: "lists:read" }), "POST", "/lists", { name: "L" });
      assert.deepEqual([answer.status, code(answer)], [403, "insufficient_scope"]);
      assert.match(answer.body.error.message, /lists:write, which the token does not hold/);
      const { error, error_description } = challengeOf(answer);
      assert.deepEqual([error, error_description], ["insufficient_scope", answer.body.error.message]);
    });

    it("that the API does not know, or gives twice, grant nothing", async () => {
      const { data } = (
        await me(await tokenWith({ scope: "openid  lists:read lists:read offline_access LISTS:WRITE" }))
      ).body;
      assert.deepEqual([data.scopes, data.granted_scopes], [["lists:read"], ["lists:read"]]);
      assert.deepEqual((await me(await tokenWith({ scope: "" }))).body.data.scopes, []);
    });

    it("of the send tier are held by no token: it neither previews nor confirms a send", async () => {
      const token = await tokenWith({ scope: SCOPES.filter((scope) => scope !== "suppressions:delete").join(" ") });
      const { data } = (await me(token)).body;
      const held = SCOPES.filter((scope) => scope !== "suppressions:delete" && !scope.endsWith(":send"));
      assert.deepEqual([data.scopes, data.granted_scopes], [held, held]);
      const list = await ask(token, "POST", "/newsletters", { name: "N" });
      assert.equal(list.status, 201, list.text);
      for (const id of [list.body.data.id, "nl_none"]) {
        for (const path of [`/newsletters/${id}/send-preview`, `/newsletters/${id}/send`]) {
          const answer = await ask(token, "POST", path);
          assert.deepEqual([answer.status, code(answer)], [403, "insufficient_scope"], path);
          assert.match(answer.body.error.message, /newsletters:send, which no OAuth client can hold/);
        }
      }
    });

    it("of lifting suppressions are held without the send tier", async () => {
      const token = await tokenWith({ scope: "suppressions:delete suppressions:write suppressions:read" });
      const email = `${unique("person")}@example.com`;
      assert.equal((await ask(token, "POST", "/suppressions", { emails: [email] })).status, 200);
      const { id } = (await ask(token, "GET", `/suppressions/${encodeURIComponent(email)}`)).body.data;
      assert.equal((await ask(token, "DELETE", `/suppressions/${id}`)).status, 200);
    });
  });

  it("own the remembered answers that hold a secret by their client", async () => {
    const scope = "webhooks:write webhooks:read subscribers:read contacts:read newsletters:read suppressions:read";
    const body = webhookBody();
    const idempotencyKey = unique("key");
    const register = async (changes: TestClaims) =>
      api(undefined, app.base).post("/webhooks", body, {
        ...authorised(await tokenWith({ scope, ...changes })),
        idempotencyKey,
      });
    const first = await register({});
    assert.equal(first.status, 201, first.text);
    const again = await register({});
    assert.equal(again.text, first.text, "another token of the same client");
    assert.equal(again.headers.get("idempotent-replayed"), "true");
    const foreign = await register({ client_id: "another-client" });
    assert.equal(code(foreign), "idempotency_key_reused");
    const byKey = await api(team.keys.live, app.base).post("/webhooks", body, { idempotencyKey });
    assert.equal(code(byKey), "idempotency_key_reused");
    assert.ok(!foreign.text.includes(first.body.data.secret) && !byKey.text.includes(first.body.data.secret));
  });

  it("reach no answer and no log", async () => {
    const written: string[] = [];
    const log = pino(
      { level: "trace", serializers: { err: scrubError } },
      { write: (line) => void written.push(line) },
    );
    const down = await openIssuer();
    down.answer = (response) => void response.writeHead(500).end();
    const logged = await serveRoutes(appRouter, { changes: down.settings, with: { log } });
    try {
      const tokens = [await tokenWith(), await tokenWith({ exp: inSeconds(-60) })];
      const ask = (base: string, token: string) => api(undefined, base).get("/me", authorised(token));
      const answers = [
        ...(await Promise.all(tokens.map(me))),
        ...(await Promise.all(tokens.map((t) => ask(logged.base, t)))),
      ];
      assert.deepEqual(answers.map(code), ["200", "invalid_token", "service_unavailable", "service_unavailable"]);
      await eventually(() => written.filter((line) => line.includes("durationMs")).length === 2);
      const texts = [...answers.map(({ text, headers }) => text + JSON.stringify([...headers])), ...written].join("\n");
      for (const part of tokens.flatMap((token) => token.split("."))) assert.ok(!texts.includes(part));
    } finally {
      await logged.close();
      await down.close();
    }
  });
});

describe("The key set of the OAuth issuer", () => {
  let issuer: TestIssuer;
  let app: TestApp | undefined;
  let team: TestTeam;
  before(async () => {
    team = await makeTeam();
  });
  beforeEach(async () => {
    issuer = await openIssuer();
  });
  afterEach(async () => {
    await app?.close();
    app = undefined;
    await issuer.close();
  });

  const signed = async (key = issuer.keys[0]) => {
    assert.ok(key);
    return signToken(key, await claimsFor(issuer, team));
  };
  const me = (token: string) => api(undefined, app?.base).get("/me", { headers: { authorization: `Bearer ${token}` } });

  it("is loaded once for all requests that need it", async () => {
    app = await serveWith(issuer);
    assert.equal(issuer.loads, 0, "not at the start: the issuer may be away then");
    const token = await signed();
    const answers = await Promise.all(Array.from({ length: 20 }, () => me(token)));
    assert.ok(answers.every(({ status }) => status === 200));
    assert.equal((await me(await signed())).status, 200);
    assert.equal(issuer.loads, 1);
  });

  it("is loaded again for a key that the issuer has added", async () => {
    app = await serveWith(issuer, { cooldownMs: 0 });
    const old = await signed();
    assert.equal((await me(old)).status, 200);
    issuer.keys.unshift(await makeIssuerKey("ES256"));
    assert.equal((await me(await signed())).status, 200);
    assert.equal((await me(old)).status, 200, "the old key is still in the set");
    assert.equal(issuer.loads, 2);
  });

  it("is loaded again when it is old: a key that the issuer has withdrawn is refused then", async () => {
    app = await serveWith(issuer, { lifetimeMs: 0 });
    const old = await signed();
    assert.equal((await me(old)).status, 200);
    issuer.keys = [await makeIssuerKey()];
    assert.equal(code(await me(old)), "invalid_token");
    assert.equal((await me(await signed())).status, 200);
  });

  it("is not loaded again for each of many tokens with unknown keys", async () => {
    app = await serveWith(issuer);
    assert.equal((await me(await signed())).status, 200);
    const unknown = await Promise.all(Array.from({ length: 10 }, async () => signed(await makeIssuerKey("ES256"))));
    for (const token of unknown) assert.equal(code(await me(token)), "invalid_token");
    assert.equal(issuer.loads, 1);
  });

  const FAILURES: Record<string, KeySetAnswer> = {
    "is answered with an error": (response) => void response.writeHead(500).end(),
    "is answered with a redirection": (response) => void response.writeHead(302, { location: "/elsewhere" }).end(),
    "is no JSON": (response) => void response.end("<html>"),
    "is no key set": (response) => void response.end('{"keys":5}'),
    "meets a closed connection": (response) => void response.destroy(),
    "is never answered": () => {},
    "stops in the middle": (response) => void response.write('{"keys":['),
    "is larger than key sets are": (response) =>
      void response.end(
        JSON.stringify({ keys: issuer.keys.map(({ publicJwk }) => publicJwk), more: "x".repeat(300_000) }),
      ),
  };
  for (const [title, answer] of Object.entries(FAILURES)) {
    it(`answers 503 while the key set ${title}, and does not load it again at once`, async () => {
      app = await serveWith(issuer, { timeoutMs: 500, retryMs: 60_000 });
      const token = await signed();
      issuer.answer = answer;
      for (let i = 0; i < 3; i++) {
        const refused = await me(token);
        assert.deepEqual([refused.status, code(refused)], [503, "service_unavailable"], refused.text);
        assert.equal(refused.headers.get("retry-after"), "5");
      }
      assert.equal(issuer.loads, 1);
    });
  }

  it("is loaded once the issuer that was away answers again", async () => {
    app = await serveWith(issuer, { retryMs: 200 });
    const token = await signed();
    const working = issuer.answer;
    issuer.answer = (response) => void response.writeHead(500).end();
    assert.equal(code(await me(token)), "service_unavailable");
    issuer.answer = working;
    await eventually(async () => (await me(token)).status === 200, { what: "the next load" });
  });

  it("serves tokens of known keys while the issuer is away", async () => {
    app = await serveWith(issuer, { cooldownMs: 0 });
    const token = await signed();
    assert.equal((await me(token)).status, 200);
    issuer.answer = (response) => void response.writeHead(500).end();
    const unknown = await me(await signed(await makeIssuerKey()));
    assert.equal(code(unknown), "service_unavailable", "the issuer may know the key");
    assert.equal((await me(token)).status, 200);
  });
});

describe("The OAuth metadata", () => {
  const PATHS = ["/.well-known/oauth-protected-resource/api/v2", "/.well-known/oauth-protected-resource"];

  it("names the issuer, and the scopes that a token can hold", async () => {
    const issuer = "https://issuer.example.com/realm";
    const changes = { OAUTH_ISSUER: issuer, OAUTH_JWKS_URL: `${issuer}/jwks.json` };
    const app = await serveRoutes(router({}), { changes });
    try {
      for (const path of PATHS) {
        const response = await fetch(`${app.origin}${path}`);
        assert.equal(response.status, 200);
        assert.match(response.headers.get("content-type") ?? "", /^application\/json/);
        const { origin } = await stack();
        assert.deepEqual(await response.json(), {
          resource: `${origin}/api/v2`,
          resource_name: "Mailkeel",
          resource_documentation: `${origin}/docs`,
          authorization_servers: [issuer],
          bearer_methods_supported: ["header"],
          scopes_supported: SCOPES.filter((scope) => !scope.endsWith(":send")),
        });
      }
    } finally {
      await app.close();
    }
  });

  it("stands where a challenge points, and without an issuer names none and takes no token", async () => {
    const team = await makeTeam();
    const issuer = await openIssuer();
    try {
      const [key] = issuer.keys;
      assert.ok(key);
      const token = await signToken(key, await claimsFor(issuer, team));
      for (const headers of [{ authorization: `Bearer ${token}` }, {}] as Record<string, string>[]) {
        const refused = await api().get("/me", { headers });
        assert.equal(refused.status, 401);
        const { resource_metadata = "", error, error_description } = challengeOf(refused);
        const isToken = "authorization" in headers;
        assert.deepEqual(
          [code(refused), error, error_description],
          isToken
            ? ["invalid_token", "invalid_token", "This service takes no OAuth tokens; send an API key."]
            : ["api_key_missing", undefined, undefined],
        );
        const { resource, bearer_methods_supported, ...rest } = (await (
          await fetch(resource_metadata)
        ).json()) as Record<string, unknown>;
        assert.deepEqual([resource, bearer_methods_supported], [(await stack()).api, []]);
        assert.ok(!("authorization_servers" in rest) && !("scopes_supported" in rest));
      }
      assert.equal(issuer.loads, 0);
    } finally {
      await issuer.close();
    }
  });

  it("has an audience of the operator's choice", async () => {
    const issuer = await openIssuer();
    const team = await makeTeam();
    const app = await serveRoutes(appRouter, { changes: { ...issuer.settings, OAUTH_AUDIENCE: "mailkeel" } });
    try {
      const [key] = issuer.keys;
      assert.ok(key);
      const ask = async (changes: TestClaims) => {
        const authorization = `Bearer ${await signToken(key, await claimsFor(issuer, team, changes))}`;
        return code(await api(undefined, app.base).get("/me", { headers: { authorization } }));
      };
      assert.equal(await ask({ aud: "mailkeel" }), "200");
      assert.equal(await ask({}), "invalid_token");
    } finally {
      await app.close();
      await issuer.close();
    }
  });
});
