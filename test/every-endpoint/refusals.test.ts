import assert from "node:assert/strict";
import type { Endpoint } from "../../api/rest/endpoints.ts";
import { MAX_BODY_BYTES } from "../../api/rest/http.ts";
import { appRouter } from "../../api/router.ts";
import { formatKey, generateKey } from "../../domain/access/keys.ts";
import { WINDOW_SECONDS } from "../../domain/access/request-limit.ts";
import { roleHolds, type Scope } from "../../domain/access/scopes.ts";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { type ApiAnswer, api } from "../support/api.ts";
import { serveRoutes } from "../support/app.ts";
import { makeMember, scopesBesideDeleting, scopesBesideSending, unique } from "../support/factories.ts";
import { windowWithRoom } from "../support/request-window.ts";
import { bodyOf, DIFFERENT, type Estate, keyFor, makeEstate, nameOf, pathOf } from "./endpoints.ts";

interface Change {
  /** The endpoint's valid key unless given; null sends no key. */
  key?: string | null;
  headers?: Record<string, string>;
  body?: unknown;
  withoutIdempotencyKey?: boolean;
}

interface Refusal {
  code: ErrorCode;
  change: (estate: Estate, endpoint: Endpoint) => Change | Promise<Change>;
  applies?: (endpoint: Endpoint) => boolean;
  /** Text of the message. */
  says?: (endpoint: Endpoint) => string | null | undefined;
}

const isWrite = ({ meta }: Endpoint) => meta.method !== "GET";
const needsKey = ({ meta }: Endpoint) => meta.idempotency === "required";

async function keyWithout({ mint }: Estate, scope: Scope | null | undefined): Promise<Change> {
  const others = scope === "suppressions:delete" ? scopesBesideSending("OWNER") : scopesBesideDeleting("OWNER");
  return { key: (await mint({ scopes: others.filter((other) => other !== scope) })).key };
}

/** A key that holds the endpoint's scope, of a member whose role is lowered then. */
async function keyOfViewer({ em, team, mint }: Estate, { meta }: Endpoint): Promise<Change> {
  const member = await makeMember(em, team.id, "OWNER");
  const { key } = await mint({ memberId: member.id, scopes: meta.scope === null ? [] : [meta.scope] });
  await em.execute("update members set role = 'VIEWER' where id = ?", [member.id]);
  return { key };
}

const REFUSALS: Record<string, Refusal> = {
  "a request without a credential": { code: "api_key_missing", change: () => ({ key: null }) },
  "an unknown key": { code: "api_key_invalid", change: () => ({ key: formatKey(generateKey("LIVE")) }) },
  "a key without the endpoint's scope": {
    code: "insufficient_scope",
    applies: ({ meta }) => meta.scope !== null,
    change: (estate, { meta }) => keyWithout(estate, meta.scope),
    says: ({ meta }) => meta.scope,
  },
  "a key without the second scope": {
    code: "insufficient_scope",
    applies: ({ meta }) => meta.alsoScope !== undefined,
    change: (estate, { meta }) => keyWithout(estate, meta.alsoScope),
    says: ({ meta }) => meta.alsoScope,
  },
  "a key whose creator's role no longer holds the scope": {
    code: "role_insufficient",
    applies: ({ meta }) => meta.scope !== null && !roleHolds("VIEWER", meta.scope),
    change: (estate, endpoint) => keyOfViewer(estate, endpoint),
    says: ({ meta }) => meta.scope,
  },
  "a write without the required Idempotency-Key": {
    code: "idempotency_key_required",
    applies: needsKey,
    change: () => ({ withoutIdempotencyKey: true }),
  },
  "a body that is no JSON": { code: "invalid_json", applies: isWrite, change: () => ({ body: "{" }) },
  "a body that is no object": { code: "validation_failed", applies: isWrite, change: () => ({ body: [] }) },
  "a body of another media type": {
    code: "unsupported_media_type",
    applies: isWrite,
    change: () => ({ body: "{}", headers: { "content-type": "text/plain" } }),
  },
  "a body over 2 MiB": {
    code: "payload_too_large",
    applies: isWrite,
    change: () => ({ body: " ".repeat(MAX_BODY_BYTES + 1) }),
  },
};

function assertRefused({ status, headers, body, text }: ApiAnswer, code: ErrorCode): void {
  assert.equal(body?.error?.code, code, text);
  const known = ERRORS[code];
  assert.equal(status, known.status);
  assert.equal(headers.get("content-type"), "application/json; charset=utf-8");
  const { error, meta, ...rest } = body;
  assert.deepEqual(rest, {});
  const { message, doc_url, request_id, ...others } = error;
  assert.deepEqual(others, { code, type: known.type });
  assert.ok(message.length > 0);
  assert.ok(doc_url.endsWith(`/docs/errors#${code}`), doc_url);
  assert.match(request_id, /^req_\w+$/);
  assert.deepEqual(meta, { request_id });
  assert.equal(headers.get("x-request-id"), request_id);
  assert.equal(headers.has("www-authenticate"), status === 401 || code === "insufficient_scope");
  assert.equal(headers.has("idempotent-replayed"), false);
  assert.equal(headers.get("retry-after") === null, status !== 429 && status !== 503);
}

describe("Endpoints that differ refuse alike", () => {
  let estate: Estate;
  before(async () => {
    estate = await makeEstate();
  });

  function ask(endpoint: Endpoint, change: Change, base?: string) {
    const { key = keyFor(estate, endpoint), headers = {}, body = bodyOf(endpoint) } = change;
    const idempotencyKey = needsKey(endpoint) && !change.withoutIdempotencyKey ? unique("key") : undefined;
    return api(key ?? undefined, base).call(endpoint.meta.method, pathOf(endpoint, estate.values), body, {
      idempotencyKey,
      headers,
    });
  }

  for (const [name, { applies = () => true, change, code, says }] of Object.entries(REFUSALS)) {
    it(`${name}: ${code}`, async () => {
      const endpoints = DIFFERENT.filter(applies);
      assert.ok(endpoints.length > 0);
      for (const endpoint of endpoints) {
        const answer = await ask(endpoint, await change(estate, endpoint));
        assertRefused(answer, code);
        assert.ok(answer.body.error.message.includes(says?.(endpoint) ?? ""), `${nameOf(endpoint)}: ${answer.text}`);
      }
    });
  }

  it("a key that has used up its allowance: rate_limit_exceeded", async () => {
    const limited = await serveRoutes(appRouter, { changes: { RATE_LIMIT_PER_MINUTE: 1 } });
    try {
      await windowWithRoom();
      for (const key of [estate.keys.live, estate.keys.cleanup]) await api(key, limited.base).get("/me");
      for (const endpoint of DIFFERENT) {
        const answer = await ask(endpoint, {}, limited.base);
        assertRefused(answer, "rate_limit_exceeded");
        const seconds = answer.headers.get("retry-after") ?? "";
        assert.match(seconds, /^[1-9]\d?$/);
        assert.ok(Number(seconds) <= WINDOW_SECONDS, seconds);
        for (const prefix of ["ratelimit", "x-ratelimit"]) {
          const shown = ["limit", "remaining", "reset"].map((header) => answer.headers.get(`${prefix}-${header}`));
          assert.deepEqual(shown, ["1", "0", seconds], prefix);
        }
      }
    } finally {
      await limited.close();
    }
  });
});
