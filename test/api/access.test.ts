import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import type { Role } from "../../db/entities/team.ts";
import { formatKey, generateKey, parseKey } from "../../domain/access/keys.ts";
import { roleHolds, SCOPES } from "../../domain/access/scopes.ts";
import { api, codeOf as code } from "../support/api.ts";
import { execute, makeTeam, type TestTeam } from "../support/factories.ts";
import { stack } from "../support/stack.ts";

const me = (headers: Record<string, string> = {}) => api().get("/me", { headers });

const setKey = ({ liveKey }: TestTeam, what: string) =>
  execute(`update api_keys set ${what} where id = ?`, liveKey.record.id);

describe("authentication", () => {
  let team: TestTeam;
  beforeEach(async () => {
    team = await makeTeam();
  });

  it("takes a key in x-api-key, or as a bearer token in any case of the scheme", async () => {
    const { live } = team.keys;
    for (const headers of [
      { "X-API-Key": live },
      { Authorization: `Bearer ${live}` },
      { authorization: `bearer   ${live}` },
      { authorization: `BEARER ${live}` },
    ]) {
      assert.equal((await me(headers)).status, 200);
    }
  });

  it("answers api_key_missing without a credential, with an empty one, and for another scheme", async () => {
    for (const headers of [{}, { "x-api-key": "" }, { authorization: "Bearer" }, { authorization: "Basic YTpi" }])
      assert.equal(code(await me(headers)), "api_key_missing");
  });

  it("takes the same credential twice and refuses two that differ, in both headers or in one", async () => {
    const { live, cleanup } = team.keys;
    const { origin } = await stack();
    const ask = async (...headers: string[]) => {
      const sent = request(`${origin}/api/v2/me`, { headers: ["host", "localhost", ...headers] }).end();
      const [response] = await once(sent, "response");
      response.resume();
      return response.statusCode;
    };
    for (const [other, status] of [
      [live, 200],
      [cleanup, 401],
      ["nonsense", 401],
    ] as const) {
      assert.equal(await ask("x-api-key", other, "authorization", `Bearer ${live}`), status);
      assert.equal(await ask("x-api-key", live, "x-api-key", other), status);
      assert.equal(await ask("authorization", `Bearer ${live}`, "authorization", `Bearer ${other}`), status);
    }
    assert.equal(code(await me({ "x-api-key": live, authorization: `Bearer ${cleanup}` })), "api_key_invalid");
  });

  it("answers api_key_malformed when the format or the checksum is wrong", async () => {
    const { live } = team.keys;
    const wrong = live.slice(0, -1) + (live.endsWith("0") ? "1" : "0");
    for (const headers of [
      { "x-api-key": "aaaa.bbbb.cccc" },
      { "x-api-key": wrong },
      { authorization: `Bearer ${wrong}` },
    ]) {
      assert.equal(code(await me(headers)), "api_key_malformed");
    }
  });

  it("answers alike for an unknown id and a wrong secret, and tells the environment to a key's holder only", async () => {
    const swapped = team.keys.live.replace("mk_live_", "mk_test_");
    const guess = (key: string) => {
      const parts = parseKey(key);
      assert.ok(parts);
      return formatKey({ ...parts, secret: generateKey("LIVE").secret });
    };
    const answers = [];
    for (const key of [formatKey(generateKey("LIVE")), guess(team.keys.live), guess(swapped)])
      answers.push(await me({ "x-api-key": key }));
    assert.deepEqual(answers.map(code), ["api_key_invalid", "api_key_invalid", "api_key_invalid"]);
    assert.equal(new Set(answers.map(({ body }) => body.error.message)).size, 1);
    for (const key of [swapped, team.keys.test.replace("mk_test_", "mk_live_")])
      assert.equal(code(await me({ "x-api-key": key })), "api_key_environment_mismatch");
  });

  it("refuses in a fixed order, each refusal hiding those after it", async () => {
    const { live } = team.keys;
    const ask = async (headers: Record<string, string>) => code(await me(headers));
    // Everything is wrong at once; then one thing after the other is put right.
    await setKey(team, "revoked_at = now(), expires_at = now() - interval '1 day'");
    await execute("update teams set plan = 'FREE' where id = ?", team.team.id);
    await execute("update members set removed_at = now() where id = ?", team.owner.id);
    await setKey(team, "granted_scopes = array['suppressions:delete', 'newsletters:send']");

    const swapped = live.replace("mk_live_", "mk_test_");
    assert.equal(await ask({ "x-api-key": swapped, authorization: "Bearer a.b.c" }), "api_key_invalid");
    assert.equal(await ask({ authorization: "Bearer a.b.c" }), "invalid_token");
    assert.equal(await ask({ "x-api-key": `${swapped}0` }), "api_key_malformed");
    assert.equal(await ask({ "x-api-key": formatKey(generateKey("TEST")) }), "api_key_invalid");
    assert.equal(await ask({ "x-api-key": swapped }), "api_key_environment_mismatch");
    assert.equal(await ask({ "x-api-key": live }), "api_key_revoked");
    await setKey(team, "revoked_at = null");
    assert.equal(await ask({ "x-api-key": live }), "api_key_expired");
    await setKey(team, "expires_at = null");
    const unpaid = await me({ "x-api-key": live });
    assert.equal(unpaid.status, 402);
    assert.equal(code(unpaid), "plan_upgrade_required");
    await execute("update teams set plan = 'BUSINESS' where id = ?", team.team.id);
    assert.equal(await ask({ "x-api-key": live }), "role_insufficient");
    await execute("update members set removed_at = null where id = ?", team.owner.id);
    assert.equal(await ask({ "x-api-key": live }), "forbidden_scope_pair");
    await setKey(team, "granted_scopes = array['lists:read']");
    assert.equal(await ask({ "x-api-key": live }), "200");
  });
});

describe("GET /me", () => {
  it("shows the key, its team, its scopes and its version, and nothing else", async () => {
    const { keys, liveKey, team } = await makeTeam({ role: "ADMIN", scopes: ["lists:read", "lists:write"] });
    const { status, body, headers } = await api(keys.live).get("/me");
    assert.equal(status, 200);
    assert.deepEqual(body.data, {
      object: "api_key",
      id: liveKey.record.id,
      key_id: keys.live.slice(0, "mk_live_".length + 12),
      environment: "LIVE",
      team: { id: team.id },
      role: "ADMIN",
      role_at_issue: "ADMIN",
      api_version: "2026-08-15",
      scopes: ["lists:read", "lists:write"],
      granted_scopes: ["lists:read", "lists:write"],
    });
    assert.deepEqual(body.meta, { request_id: headers.get("x-request-id") });
  });

  it("shows the test environment to a test key, and needs no scope", async () => {
    const { keys, mint } = await makeTeam();
    const { data } = (await api(keys.test).get("/me")).body;
    assert.equal(data.environment, "TEST");
    assert.ok(data.key_id.startsWith("mk_test_"));
    assert.equal((await api((await mint({ scopes: [] })).key).get("/me")).status, 200);
  });

  it("follows the role of the key's creator on every request", async () => {
    const { keys, owner } = await makeTeam();
    await execute("update members set role = 'VIEWER' where id = ?", owner.id);
    const { data } = (await api(keys.live).get("/me")).body;
    assert.equal(data.role, "VIEWER");
    assert.equal(data.role_at_issue, "OWNER");
    assert.ok(data.scopes.every((scope: string) => scope.endsWith(":read")));
    assert.ok(data.granted_scopes.includes("newsletters:send"));
    await execute("update members set role = 'OWNER' where id = ?", owner.id);
    const restored = (await api(keys.live).get("/me")).body.data;
    assert.deepEqual(restored.scopes, restored.granted_scopes);
  });
});

describe("scopes", () => {
  it("are checked before anything else about the request", async () => {
    const { mint } = await makeTeam();
    const { key } = await mint({ scopes: ["lists:read"] });
    const answer = await api(key).post("/lists?x=1", "not json");
    assert.equal(answer.status, 403);
    assert.equal(code(answer), "insufficient_scope");
    assert.match(answer.body.error.message, /lists:write/);
  });

  it("gives a viewer every read, an editor the audience, drafts and suppressions, the others everything", () => {
    const held = (role: Role) => SCOPES.filter((scope) => roleHolds(role, scope));
    const reads = SCOPES.filter((scope) => scope.endsWith(":read"));
    assert.deepEqual(held("VIEWER"), reads);
    assert.deepEqual(
      held("EDITOR").filter((scope) => !scope.endsWith(":read")),
      [
        "lists:write",
        "subscribers:write",
        "contacts:write",
        "newsletters:write",
        "campaigns:write",
        "suppressions:write",
      ],
    );
    assert.deepEqual(held("ADMIN"), [...SCOPES]);
    assert.deepEqual(held("OWNER"), [...SCOPES]);
  });
});
