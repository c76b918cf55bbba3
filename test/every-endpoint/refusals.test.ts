import assert from "node:assert/strict";
import { idempotencyPolicy, isPaged } from "../../api/rest/definition.ts";
import { type Endpoint, paramsOf } from "../../api/rest/endpoints.ts";
import { MAX_BODY_BYTES } from "../../api/rest/http.ts";
import { appRouter } from "../../api/router.ts";
import { formatKey, generateKey } from "../../domain/access/keys.ts";
import { WINDOW_SECONDS } from "../../domain/access/request-limit.ts";
import { roleHolds, SCOPES, type Scope } from "../../domain/access/scopes.ts";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { type ApiAnswer, api, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { makeMember, makeTeam, scopesBesideDeleting, scopesBesideSending, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { bodyOf, ENDPOINTS, type Estate, keyFor, makeEstate, nameOf, pathOf } from "./endpoints.ts";

/** A request that differs from a valid one of its endpoint. */
interface Change {
  /** Without it, no credential is sent. */
  key?: string;
  headers?: Record<string, string>;
  query?: Record<string, string>;
  /** In place of the valid body. */
  body?: unknown;
  withoutIdempotencyKey?: boolean;
}

interface Refusal {
  name: string;
  applies?: (endpoint: Endpoint) => boolean;
  change: (endpoint: Endpoint, keys: Keys) => Change;
  code: ErrorCode;
  param?: string;
  /** Text of the message. */
  says?: (endpoint: Endpoint) => string;
}

const isWrite = ({ meta }: Endpoint) => meta.method !== "GET";
const takesBody = ({ meta }: Endpoint) => meta.input.shape.body !== undefined;
const takesKey = ({ meta }: Endpoint) => idempotencyPolicy(meta) !== "none";
const needsKey = ({ meta }: Endpoint) => idempotencyPolicy(meta) === "required";

/** The names of the fields of an object's schema. */
const fieldsOf = (schema: unknown): string[] => Object.keys((schema as { shape?: object } | undefined)?.shape ?? {});

/** Keys that are refused, each for one reason. */
type Keys = Awaited<ReturnType<typeof makeKeys>>;

async function makeKeys(estate: Estate) {
  const { em, team, mint } = estate;
  const changed = async (what: string, scopes?: readonly Scope[]) => {
    const { key, record } = await mint(scopes ? { scopes } : {});
    await em.execute(`update api_keys set ${what} where id = ?`, [record.id]);
    return key;
  };
  const without = new Map<Scope, string>();
  for (const scope of SCOPES) {
    const rest = scope === "suppressions:delete" ? scopesBesideSending("OWNER") : scopesBesideDeleting("OWNER");
    without.set(scope, (await mint({ scopes: rest.filter((other) => other !== scope) })).key);
  }
  const colleague = await makeMember(em, team.id, "OWNER");
  const lowered = {
    sending: await mint({ memberId: colleague.id }),
    deleting: await mint({ memberId: colleague.id, scopes: scopesBesideDeleting("OWNER") }),
  };
  await em.execute("update members set role = 'VIEWER' where id = ?", [colleague.id]);
  const former = await makeMember(em, team.id, "OWNER");
  const left = await mint({ memberId: former.id });
  await em.execute("update members set removed_at = now() where id = ?", [former.id]);
  const unpaid = await makeTeam();
  await em.execute("update teams set plan = 'FREE' where id = ?", [unpaid.team.id]);
  return {
    valid: (endpoint: Endpoint) => keyFor(estate, endpoint),
    other: estate.keys.test,
    expired: await changed("expires_at = now() - interval '1 second'"),
    revoked: await changed("revoked_at = now()"),
    pair: await changed(`granted_scopes = '{suppressions:delete,newsletters:send}'`),
    unpaid: unpaid.keys.live,
    without,
    lowered: ({ meta }: Endpoint) => (meta.scope === "suppressions:delete" ? lowered.deleting : lowered.sending).key,
    left: left.key,
  };
}

const REFUSALS: readonly Refusal[] = [
  { name: "a request without a credential", change: () => ({}), code: "api_key_missing" },
  {
    name: "a request with two credentials",
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), headers: { authorization: `Bearer ${keys.other}` } }),
    code: "api_key_invalid",
  },
  {
    name: "a malformed key",
    change: (endpoint, keys) => ({ key: keys.valid(endpoint).slice(0, -1) }),
    code: "api_key_malformed",
  },
  { name: "an unknown key", change: () => ({ key: unknownKey() }), code: "api_key_invalid" },
  { name: "an expired key", change: (_, keys) => ({ key: keys.expired }), code: "api_key_expired" },
  { name: "a revoked key", change: (_, keys) => ({ key: keys.revoked }), code: "api_key_revoked" },
  {
    name: "a key with the other environment's prefix",
    change: (endpoint, keys) => ({ key: keys.valid(endpoint).replace("mk_live_", "mk_test_") }),
    code: "api_key_environment_mismatch",
  },
  {
    name: "an OAuth token of no issuer",
    change: () => ({ headers: { authorization: "Bearer aaaa.bbbb.cccc" } }),
    code: "invalid_token",
  },
  {
    name: "a key of a team whose plan lacks the API",
    change: (_, keys) => ({ key: keys.unpaid }),
    code: "plan_upgrade_required",
  },
  {
    name: "a key with two scopes that exclude each other",
    change: (_, keys) => ({ key: keys.pair }),
    code: "forbidden_scope_pair",
  },
  { name: "a key whose creator has left", change: (_, keys) => ({ key: keys.left }), code: "role_insufficient" },
  {
    name: "a key without the endpoint's scope",
    applies: ({ meta }) => meta.scope !== null,
    change: ({ meta }, keys) => ({ key: keys.without.get(meta.scope as Scope) ?? "" }),
    code: "insufficient_scope",
    says: ({ meta }) => meta.scope ?? "",
  },
  {
    name: "a key without the second scope",
    applies: ({ meta }) => meta.alsoScope !== undefined,
    change: ({ meta }, keys) => ({ key: keys.without.get(meta.alsoScope as Scope) ?? "" }),
    code: "insufficient_scope",
    says: ({ meta }) => meta.alsoScope ?? "",
  },
  {
    name: "a key whose creator's role no longer holds the scope",
    applies: ({ meta }) => meta.scope !== null && !roleHolds("VIEWER", meta.scope),
    change: (endpoint, keys) => ({ key: keys.lowered(endpoint) }),
    code: "role_insufficient",
    says: ({ meta }) => meta.scope ?? "",
  },
  {
    name: "an unknown query parameter",
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), query: { nonsense: "1" } }),
    code: "unsupported_parameter",
    param: "nonsense",
  },
  {
    name: "a cursor that no page gave",
    applies: ({ meta }) => isPaged(meta),
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), query: { cursor: "nonsense" } }),
    code: "cursor_invalid",
    param: "cursor",
  },
  {
    name: "a limit of 101",
    applies: ({ meta }) => isPaged(meta),
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), query: { limit: "101" } }),
    code: "validation_failed",
    param: "limit",
  },
  {
    name: "a write without the required Idempotency-Key",
    applies: needsKey,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), withoutIdempotencyKey: true }),
    code: "idempotency_key_required",
  },
  {
    name: "an Idempotency-Key of 256 characters",
    applies: takesKey,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), headers: { "idempotency-key": "x".repeat(256) } }),
    code: "validation_failed",
    param: "Idempotency-Key",
  },
  {
    name: "a body that is no JSON",
    applies: isWrite,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), body: "{" }),
    code: "invalid_json",
  },
  {
    name: "a body that is no object",
    applies: isWrite,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), body: [] }),
    code: "validation_failed",
  },
  {
    name: "an unknown field of the body",
    applies: isWrite,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), body: { ...bodyOf(endpoint), nonsense: 1 } }),
    code: "validation_failed",
    param: "nonsense",
  },
  {
    name: "a body of another media type",
    applies: isWrite,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), body: "{}", headers: { "content-type": "text/plain" } }),
    code: "unsupported_media_type",
  },
  {
    name: "a body over 2 MiB",
    applies: isWrite,
    change: (endpoint, keys) => ({ key: keys.valid(endpoint), body: " ".repeat(MAX_BODY_BYTES + 1) }),
    code: "payload_too_large",
  },
];

/** A well-formed key that no team has. */
function unknownKey(): string {
  return formatKey(generateKey("LIVE"));
}

/** Every part of a refusal that all refusals have in common. */
function assertRefused({ status, headers, body, text }: ApiAnswer, code: ErrorCode, param?: string): void {
  assert.equal(body?.error?.code, code, text);
  const known = ERRORS[code];
  assert.equal(status, known.status);
  assert.equal(headers.get("content-type"), "application/json; charset=utf-8");
  const { error, meta, ...rest } = body;
  assert.deepEqual(rest, {});
  const { type, message, doc_url, request_id, code: _code, param: named, ...others } = error;
  assert.deepEqual(others, {});
  assert.equal(type, known.type);
  assert.ok(message.length > 0);
  assert.equal(named, param);
  assert.ok(doc_url.endsWith(`/docs/errors#${code}`), doc_url);
  assert.match(request_id, /^req_\w+$/);
  assert.deepEqual(meta, { request_id });
  assert.equal(headers.get("x-request-id"), request_id);
  assert.equal(headers.has("www-authenticate"), status === 401 || code === "insufficient_scope");
  assert.equal(headers.has("idempotent-replayed"), false);
  assert.equal(headers.get("retry-after") === null, status !== 429 && status !== 503);
}

describe("Every endpoint refuses", () => {
  let estate: Estate;
  let keys: Keys;
  before(async () => {
    estate = await makeEstate();
    keys = await makeKeys(estate);
  });

  /** @param base another API's base URL */
  async function ask(
    endpoint: Endpoint,
    { key, headers = {}, query, body, withoutIdempotencyKey }: Change,
    base?: string,
  ) {
    const sent = body === undefined ? bodyOf(endpoint) : body;
    const idempotencyKey = needsKey(endpoint) && !withoutIdempotencyKey ? unique("key") : undefined;
    const path = pathOf(endpoint, estate.values);
    return api(key, base).call(endpoint.meta.method, path, sent, {
      query,
      headers: { ...(idempotencyKey && { "idempotency-key": idempotencyKey }), ...headers },
    });
  }

  for (const { name, applies = () => true, change, code, param, says } of REFUSALS) {
    describe(name, () => {
      for (const endpoint of ENDPOINTS.filter(applies)) {
        it(`${nameOf(endpoint)}: ${code}`, async () => {
          const answer = await ask(endpoint, change(endpoint, keys));
          assertRefused(answer, code, param);
          if (says) assert.ok(answer.body.error.message.includes(says(endpoint)), answer.text);
        });
      }
    });
  }

  describe("a key that has used up its allowance", () => {
    let limited: TestApp;
    before(async () => {
      limited = await serveRoutes(appRouter, { changes: { RATE_LIMIT_PER_MINUTE: 1 } });
    });
    after(() => limited.close());

    for (const endpoint of ENDPOINTS) {
      it(`${nameOf(endpoint)}: rate_limit_exceeded`, async () => {
        await windowWithRoom();
        const key = keyFor(estate, endpoint);
        await api(key, limited.base).get("/me");
        const answer = await ask(endpoint, { key }, limited.base);
        assertRefused(answer, "rate_limit_exceeded");
        const seconds = answer.headers.get("retry-after") ?? "";
        assert.match(seconds, /^[1-9]\d?$/);
        assert.ok(Number(seconds) <= WINDOW_SECONDS, seconds);
        for (const prefix of ["ratelimit", "x-ratelimit"]) {
          const shown = ["limit", "remaining", "reset"].map((name) => answer.headers.get(`${prefix}-${name}`));
          assert.deepEqual(shown, ["1", "0", seconds], prefix);
        }
      });
    }
  });

  describe("a field of the wrong type", () => {
    for (const endpoint of ENDPOINTS.filter(takesBody)) {
      for (const field of fieldsOf(endpoint.meta.input.shape.body)) {
        it(`${nameOf(endpoint)}: ${field}`, async () => {
          // An item of the wrong type fails alone.
          const wrong = field === endpoint.meta.itemsIn ? "no list" : [[[]]];
          const body: Json = { ...bodyOf(endpoint), [field]: wrong };
          const answer = await ask(endpoint, { key: keyFor(estate, endpoint), body });
          assert.equal(answer.body.error.code, "validation_failed", answer.text);
          const { param } = answer.body.error;
          assert.ok(param === field || param.startsWith(`${field}[`), param);
          assertRefused(answer, "validation_failed", param);
        });
      }
    }
  });

  it("an id of 65 characters, by its parameter", async () => {
    for (const endpoint of ENDPOINTS) {
      for (const param of paramsOf(endpoint.meta.path).filter((name) => name !== "email")) {
        const values = { ...estate.values, [param]: "x".repeat(65) };
        const answer = await api(keyFor(estate, endpoint)).call(
          endpoint.meta.method,
          pathOf(endpoint, values),
          bodyOf(endpoint),
          needsKey(endpoint) ? { idempotencyKey: unique("key") } : {},
        );
        assertRefused(answer, "validation_failed", param);
      }
    }
  });
});
