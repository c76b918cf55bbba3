import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { exportSPKI, importJWK, type JWTPayload, UnsecuredJWT } from "jose";
import { pino } from "pino";
import { tokenRulesOf } from "../../api/deps.ts";
import { router } from "../../api/rest/route.ts";
import { appRouter } from "../../api/router.ts";
import type { Env } from "../../config/env.ts";
import { scrubError } from "../../config/scrub.ts";
import type { EntityManager } from "../../db/orm.ts";
import { MAX_TOKEN_LENGTH, openTokenVerifier, revokeToken } from "../../domain/access/oauth.ts";
import { KEY_SET_TIMES } from "../../domain/access/oauth-keys.ts";
import { SCOPES } from "../../domain/access/scopes.ts";
import { readEntries } from "../../domain/audit/read.ts";
import { type ApiAnswer, api, codeOf as code, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { app as command } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { execute, makeTeam, setLimits, type TestTeam, tenantOf, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
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

function challengeOf({ headers }: ApiAnswer): Record<string, string> {
  const header = headers.get("www-authenticate") ?? "";
  const parameters = [...header.matchAll(/(?:^Bearer |, )(\w+)="([^"]*)"/g)];
  assert.equal(header, `Bearer ${parameters.map(([, name, value]) => `${name}="${value}"`).join(", ")}`);
  return Object.fromEntries(parameters.map(([, name = "", value = ""]) => [name, value]));
}

/** A member and a team that are in no database: of tokens that are only verified. */
const TEAM = "team_x";
const HOLDER = { team: { id: TEAM }, owner: { id: "mbr_x" } } as unknown as TestTeam;

/** A verifier of an issuer's tokens, for which the database always finds the holder. @returns gives a token's outcome */
async function openVerifier({ settings }: { settings: Partial<Env> }, times: Partial<typeof KEY_SET_TIMES> = {}) {
  const { env } = await stack();
  const verify = openTokenVerifier(tokenRulesOf({ ...env, ...settings }), { ...KEY_SET_TIMES, ...times });
  return async (token: string): Promise<{ code: string; message?: string; retryAfterSeconds?: number | undefined }> => {
    const row = { team_id: TEAM, revoked: false };
    const limits = { findAndCount: async () => ({ row }) };
    const origin = { limits, clientAddress: null } as unknown as Parameters<typeof verify>[2];
    return verify({} as EntityManager, token, origin).then(
      () => ({ code: "200" }),
      (error) => error,
    );
  };
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
  /** Claims that the verifier alone decides on, and a token of them. */
  const anyClaims = (changes: TestClaims = {}) => claimsFor(issuer, HOLDER, changes);
  const anyToken = async (changes: TestClaims = {}, header: Parameters<typeof signToken>[2] = {}) =>
    signToken(keyOf(issuer), await anyClaims(changes), header);
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
      assert.equal((await me(await tokenWith({ env: "test" }))).body.data.environment, "TEST");
    });

    it("are taken with each kind of asymmetric signature, each type of a JWT, several audiences, and clocks that differ", async () => {
      const verify = await openVerifier(issuer);
      const aud = ["https://other.example", (await stack()).api];
      const types = ["at+jwt", "application/at+jwt", "AT+JWT", "JWT", undefined] as string[];
      const tokens = [
        ...(await Promise.all(issuer.keys.map(async (key) => signToken(key, await anyClaims())))),
        ...(await Promise.all(types.map(async (typ) => signToken(keyOf(issuer), await anyClaims(), { typ })))),
        ...(await Promise.all(
          [{ aud }, { aud: `${(await stack()).api}/mcp` }, { exp: inSeconds(-10) }, { nbf: inSeconds(10) }].map(
            (changes) => anyToken(changes),
          ),
        )),
      ];
      assert.equal(tokens.length, 13);
      for (const token of tokens) assert.equal((await verify(token)).code, "200", token);
    });

    it("share the limit of their client in a team, and show what is left", async () => {
      await windowWithRoom();
      await setLimits(team, { requestsPerMinute: 2 });
      const ask = async (client_id: string, revoked = false) => {
        const claims = await claimsFor(issuer, team, { client_id });
        if (revoked) await revokeToken(team.em.fork(), { tokenId: String(claims.jti), expiresAt: null });
        const { status, headers } = await me(await signToken(keyOf(issuer), claims));
        return [status, headers.get("ratelimit-remaining")];
      };
      assert.deepEqual(await ask("one"), [200, "1"]);
      await execute("update teams set plan = 'FREE' where id = ?", team.team.id);
      assert.deepEqual(await ask("one"), [402, "0"]);
      assert.deepEqual(await ask("one"), [429, "0"]);
      assert.deepEqual(await ask("two", true), [401, null], "a token that is revoked is not counted");
      assert.deepEqual(await ask("two"), [402, "1"]);
    });
  });

  describe("that are not good", () => {
    const REFUSALS: Record<string, { token: () => Promise<string>; says: RegExp }> = {
      "signed by another issuer's key of the same name": {
        token: async () => signToken({ ...(await makeIssuerKey()), kid: keyOf(issuer).kid }, await anyClaims()),
        says: /no key of its issuer/,
      },
      "changed after they were signed": {
        token: async () => {
          const [header, , signature] = (await anyToken()).split(".");
          const claims = Buffer.from(JSON.stringify(await anyClaims())).toString("base64url");
          return `${header}.${claims}.${signature}`;
        },
        says: /no key of its issuer/,
      },
      "without a signature": {
        token: async () => new UnsecuredJWT((await anyClaims()) as JWTPayload).encode(),
        says: /malformed/,
      },
      "signed by HMAC with the public key": {
        token: async () => {
          const { publicJwk, kid } = keyOf(issuer);
          const publicKey = await importJWK({ ...publicJwk, ext: true });
          assert.ok("type" in publicKey);
          const privateKey = new TextEncoder().encode(await exportSPKI(publicKey));
          return signToken({ kid, alg: "HS256", privateKey }, await anyClaims());
        },
        says: /malformed/,
      },
      "of an unknown key": {
        token: async () => signToken(await makeIssuerKey(), await anyClaims()),
        says: /no key of its issuer/,
      },
      "of another issuer": { token: () => anyToken({ iss: "https://issuer.example" }), says: /token's iss / },
      "without an issuer": { token: () => anyToken({ iss: undefined }), says: /token's iss / },
      "for another audience": { token: () => anyToken({ aud: "https://api.example" }), says: /token's aud / },
      "without an audience": { token: () => anyToken({ aud: undefined }), says: /token's aud / },
      expired: { token: () => anyToken({ exp: inSeconds(-60) }), says: /expired/ },
      "without an expiry": { token: () => anyToken({ exp: undefined }), says: /token's exp / },
      "not valid yet": { token: () => anyToken({ nbf: inSeconds(60) }), says: /token's nbf / },
      "of another type of JWT": { token: () => anyToken({}, { typ: "logout+jwt" }), says: /token's typ / },
      "without a jti": { token: () => anyToken({ jti: undefined }), says: /token's jti / },
      "without a client": { token: () => anyToken({ client_id: undefined }), says: /token's client_id / },
      "without scopes": { token: () => anyToken({ scope: undefined }), says: /token's scope / },
      "without a team": { token: () => anyToken({ team: undefined }), says: /token's team / },
      "with a team that is no text": { token: () => anyToken({ team: 5 }), says: /token's team / },
      "with a member whom Postgres could not compare": {
        token: () => anyToken({ sub: "mbr\0" }),
        says: /token's sub /,
      },
      "of an unknown environment": { token: () => anyToken({ env: "LIVE" }), says: /token's env / },
      "longer than tokens are": {
        token: () => anyToken({ filler: "x".repeat(MAX_TOKEN_LENGTH) }),
        says: /at most 8192 characters/,
      },
      "no JWT at all": { token: async () => "aaaa.bbbb.cccc", says: /malformed/ },
    };

    for (const [title, { token, says }] of Object.entries(REFUSALS)) {
      it(`are refused: ${title}`, async () => {
        const { code, message = "" } = await (await openVerifier(issuer))(await token());
        assert.equal(code, "invalid_token", message);
        assert.match(message, says);
      });
    }

    it("are challenged with the reason and the metadata", async () => {
      const answer = await me(await anyToken({ exp: inSeconds(-60) }));
      assert.deepEqual([answer.status, code(answer)], [401, "invalid_token"], answer.text);
      assert.deepEqual(challengeOf(answer), {
        realm: "mailkeel",
        error: "invalid_token",
        error_description: answer.body.error.message,
        resource_metadata: `${(await stack()).origin}/.well-known/oauth-protected-resource/api/v2`,
      });
    });

    it("are refused for another audience than that of the operator's choice", async () => {
      const verify = await openVerifier({ settings: { ...issuer.settings, OAUTH_AUDIENCE: "mailkeel" } });
      const outcomes = [await verify(await anyToken({ aud: "mailkeel" })), await verify(await anyToken())];
      assert.deepEqual(
        outcomes.map(({ code }) => code),
        ["200", "invalid_token"],
      );
    });

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

    it("never make the API fail, whatever their parts hold", async () => {
      const part = (text: string) => Buffer.from(text).toString("base64url");
      const { kid } = keyOf(issuer);
      const verify = await openVerifier(issuer);
      const headers = [
        ...["{}", "[]", "null", "{", '{"alg":"RS256"}', '{"alg":5}', `{"alg":"RS256","kid":["${kid}"]}`],
        ...[`{"alg":"ES256","kid":"${kid}"}`, `{"alg":"RS256","kid":"${kid}","crit":["x"],"x":1}`],
        ...[`{"alg":"RS256","kid":"${kid}","b64":false,"crit":["b64"]}`, `{"alg":"RS256","kid":"__proto__"}`],
        ...[`{"alg":"__proto__","kid":"${kid}"}`, `{"alg":"RS256","jku":"http://127.0.0.1:9/","kid":"${kid}"}`],
      ];
      for (const header of headers) {
        for (const rest of [`${part("{}")}.${randomBytes(256).toString("base64url")}`, ".", "*.*", `${part("5")}.AA`]) {
          const token = `${part(header)}.${rest}`;
          if (token.split(".").length !== 3) continue;
          assert.equal((await verify(token)).code, "invalid_token", `${header} ${rest}`);
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
      const ofTeam = ["--team", team.team.id];
      const { json } = await command("token:revoke", String(claims.jti), ...ofTeam, "--expires", expires, "--json");
      assert.deepEqual(json, { token: { id: claims.jti, revoked: true, expires_at: expires } });
      const answer = await me(token);
      assert.deepEqual(
        [code(answer), challengeOf(answer)["error_description"]],
        ["invalid_token", "The OAuth token is revoked."],
      );
      assert.equal((await me(await tokenWith())).status, 200);

      assert.equal((await command("token:revoke", String(claims.jti), ...ofTeam)).code, 0, "again, for good");
      assert.equal(code(await me(token)), "invalid_token");
      assert.match((await command("token:revoke", token)).stderr, /jti claim, not the token/);
      const entries = await readEntries(team.em.fork(), tenantOf(team), {}, { after: "", limit: 10 });
      assert.deepEqual(
        entries.map(({ way, act }) => [way, act]),
        [
          ["COMMAND", "token:revoke"],
          ["COMMAND", "token:revoke"],
        ],
      );
    });
  });

  describe("and scopes", () => {
    const ask = async (token: string, method: string, path: string, body?: unknown) =>
      api(undefined, app.base).call(method, path, body, { ...authorised(token), idempotencyKey: unique("key") });

    it("follow the member's role on every request", async () => {
      const token = await tokenWith();
      await execute("update members set role = 'VIEWER' where id = ?", team.owner.id);
      const refused = await ask(token, "POST", "/lists", { name: "L" });
      assert.deepEqual([refused.status, code(refused)], [403, "role_insufficient"]);
      assert.match(refused.body.error.message, /token acts for is VIEWER now, which does not hold lists:write/);
    });

    it("answer insufficient_scope naming the scope, with a challenge", async () => {
      const answer = await ask(await tokenWith({ scope: "lists:read" }), "POST", "/lists", { name: "L" });
      assert.deepEqual([answer.status, code(answer)], [403, "insufficient_scope"]);
      assert.match(answer.body.error.message, /lists:write, which the token does not hold/);
      const { error, error_description } = challengeOf(answer);
      assert.deepEqual([error, error_description], ["insufficient_scope", answer.body.error.message]);
    });

    it("of the send tier, those that the API does not know and second ones are held by no token", async () => {
      const others = SCOPES.filter((scope) => scope !== "suppressions:delete");
      const token = await tokenWith({ scope: `openid  lists:read LISTS:WRITE ${others.join(" ")}` });
      const { data } = (await me(token)).body;
      const held = others.filter((scope) => !scope.endsWith(":send"));
      assert.deepEqual(
        [data.scopes, data.granted_scopes].map((all) => all.toSorted()),
        [held.toSorted(), held.toSorted()],
      );
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
  beforeEach(async () => {
    issuer = await openIssuer();
  });
  afterEach(() => issuer.close());

  const signed = async (key = issuer.keys[0]) => {
    assert.ok(key);
    return signToken(key, await claimsFor(issuer, HOLDER));
  };
  const fail: KeySetAnswer = (response) => void response.writeHead(500).end();

  it("is loaded once for all tokens that need it, not at the start, nor for each with an unknown key", async () => {
    const verify = await openVerifier(issuer);
    assert.equal(issuer.loads, 0, "the issuer may be away at the start");
    const token = await signed();
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => verify(token)));
    assert.ok(outcomes.every(({ code }) => code === "200"));
    for (let i = 0; i < 5; i++)
      assert.equal((await verify(await signed(await makeIssuerKey("ES256")))).code, "invalid_token");
    assert.equal(issuer.loads, 1);
  });

  it("is loaded again for a key that the issuer has added", async () => {
    const verify = await openVerifier(issuer, { intervalMs: 0 });
    const old = await signed();
    assert.equal((await verify(old)).code, "200");
    issuer.keys.unshift(await makeIssuerKey("ES256"));
    assert.equal((await verify(await signed())).code, "200");
    assert.equal((await verify(old)).code, "200", "the old key is still in the set");
    assert.equal(issuer.loads, 2);
  });

  it("is loaded again when it is old: a key that the issuer has withdrawn is refused then", async () => {
    const verify = await openVerifier(issuer, { lifetimeMs: 0, intervalMs: 0 });
    const old = await signed();
    assert.equal((await verify(old)).code, "200");
    issuer.keys = [await makeIssuerKey("ES256")];
    assert.equal((await verify(old)).code, "invalid_token");
    assert.equal((await verify(await signed())).code, "200");
  });

  const FAILURES: Record<string, KeySetAnswer> = {
    "is answered with an error": fail,
    "is answered with a redirection": (response) => void response.writeHead(302, { location: "/elsewhere" }).end(),
    "is no key set": (response) => void response.end('{"keys":5}'),
    "is never answered": () => {},
  };
  for (const [title, answer] of Object.entries(FAILURES)) {
    it(`is not loaded again at once while it ${title}: the service is unavailable`, async () => {
      const verify = await openVerifier(issuer, { timeoutMs: 300, intervalMs: 60_000 });
      const token = await signed();
      issuer.answer = answer;
      for (let i = 0; i < 3; i++) {
        const { code, retryAfterSeconds } = await verify(token);
        assert.deepEqual([code, retryAfterSeconds], ["service_unavailable", 5]);
      }
      assert.equal(issuer.loads, 1);
    });
  }

  it("serves tokens of known keys while the issuer is away, and is loaded once it answers again", async () => {
    const verify = await openVerifier(issuer, { intervalMs: 0 });
    const token = await signed();
    assert.equal((await verify(token)).code, "200");
    const working = issuer.answer;
    issuer.answer = fail;
    issuer.keys.unshift(await makeIssuerKey("ES256"));
    const unknown = await signed();
    assert.equal((await verify(unknown)).code, "service_unavailable", "the issuer may know the key");
    assert.equal((await verify(token)).code, "200");
    issuer.answer = working;
    await eventually(async () => (await verify(unknown)).code === "200", { what: "the next load" });
  });
});

describe("The OAuth metadata", () => {
  const RESOURCES = { "": "/api/v2", "/api/v2": "/api/v2", "/api/v2/mcp": "/api/v2/mcp" };

  it("names the issuer, and the scopes that a token can hold", async () => {
    const issuer = "https://issuer.example.com/realm";
    const changes = { OAUTH_ISSUER: issuer, OAUTH_JWKS_URL: `${issuer}/jwks.json` };
    const app = await serveRoutes(router({}), { changes });
    try {
      for (const [path, resource] of Object.entries(RESOURCES)) {
        const { origin } = await stack();
        const answer = await fetch(`${app.origin}/.well-known/oauth-protected-resource${path}`);
        assert.deepEqual(await answer.json(), {
          resource: `${origin}${resource}`,
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
    const { api: resource } = await stack();
    for (const [headers, expected] of [
      [{ authorization: "Bearer aaaa.bbbb.cccc" }, "This service takes no OAuth tokens; send an API key."],
      [{}, undefined],
    ] as const) {
      const refused = await api().get("/me", { headers });
      const { resource_metadata = "", error_description } = challengeOf(refused);
      assert.deepEqual([refused.status, error_description], [401, expected]);
      const metadata: Json = await (await fetch(resource_metadata)).json();
      assert.deepEqual([metadata.resource, metadata.bearer_methods_supported], [resource, []]);
      assert.ok(!("authorization_servers" in metadata) && !("scopes_supported" in metadata));
    }
  });
});
