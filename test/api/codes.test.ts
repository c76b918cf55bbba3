import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { request } from "node:http";
import { sql } from "kysely";
import { z } from "zod";
import { answersList, queryNames } from "../../api/rest/definition.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { ok, router } from "../../api/rest/route.ts";
import { appRouter } from "../../api/router.ts";
import { kysely } from "../../db/orm.ts";
import { formatKey, generateKey } from "../../domain/access/keys.ts";
import { checkTemplates } from "../../domain/drafts.ts";
import { recordErased } from "../../domain/erasure/erased-addresses.ts";
import { ERRORS, type ErrorCode, isErrorCode } from "../../domain/errors.ts";
import { type ApiAnswer, api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { confirm, freshKey, makeSender, preview, type Sender, tokenOf } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const stage = new EventEmitter();

/** Routes of which one fails, and one waits. */
const routes = router({
  fail: route({ method: "GET", path: "/fail", scope: null, summary: "Fails" })
    .input(z.strictObject({}))
    .output(z.null())
    .query(async () => {
      throw new Error("failed");
    }),
  wait: route({ method: "POST", path: "/wait", scope: null, summary: "Waits" })
    .input(z.strictObject({}))
    .output(z.null())
    .mutation(async () => {
      stage.emit("waiting");
      await once(stage, "continue");
      return ok(null);
    }),
});

let team: TestTeam;
let own: TestApp;

const client = () => api(team.keys.live);
const me = (headers: Record<string, string>) => api().get("/me", { headers });
const run = ({ em }: TestTeam, query: ReturnType<typeof sql>) => query.execute(kysely(em));

/** A key of a team of its own that is changed by `change`, with which `/me` is asked. */
async function meAfter(change: (made: TestTeam) => ReturnType<typeof sql>): Promise<ApiAnswer> {
  const made = await makeTeam();
  await run(made, change(made));
  return api(made.keys.live).get("/me");
}

/** The preview of a newsletter that is ready but for one change. */
async function previewAfter(change: (sender: Sender) => ReturnType<typeof sql>): Promise<ApiAnswer> {
  const sender = await makeSender();
  await run(sender, change(sender));
  return preview(sender);
}

/** The confirm of a preview, after a change. */
async function confirmAfter(change: (sender: Sender) => ReturnType<typeof sql>): Promise<ApiAnswer> {
  const sender = await makeSender();
  const token = await tokenOf(sender);
  await run(sender, change(sender));
  return confirm(sender, token);
}

/** A request whose body never arrives whole. */
async function postHalf(base: string): Promise<ApiAnswer> {
  const headers = { "x-api-key": team.keys.live, "content-type": "application/json", "content-length": 100 };
  const outgoing = request(`${base}/wait`, { method: "POST", headers });
  outgoing.write("{");
  const [response] = await once(outgoing, "response");
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return { status: response.statusCode, headers: new Headers(response.headers), body: JSON.parse(text), text };
}

/** A request that provokes each code. A new code needs one here. */
const PROVOCATIONS: Record<ErrorCode, () => Promise<ApiAnswer>> = {
  validation_failed: () => client().post("/lists", { name: 1 }),
  unsupported_parameter: () => client().get("/lists", { query: { page: 2 } }),
  idempotency_key_required: () => client().post("/newsletters/x/send-preview"),
  invalid_json: () => client().post("/lists", "{"),
  version_unsupported: () => client().get("/lists", { headers: { "service-version": "v2" } }),
  cursor_invalid: () => client().get("/lists", { query: { cursor: "x" } }),
  filter_unsupported: () => client().get("/lists", { query: { provider: "SMTP_OTHER" } }),
  sort_unsupported: () => client().get("/lists", { query: { sort: "name" } }),
  expand_unsupported: () => client().get("/lists", { query: { expand: "subscribers" } }),
  api_key_missing: () => me({}),
  api_key_malformed: () => me({ "x-api-key": "nonsense" }),
  api_key_invalid: () => me({ "x-api-key": formatKey(generateKey("LIVE")) }),
  api_key_expired: () =>
    meAfter((made) => sql`update api_keys set expires_at = now() where id = ${made.liveKey.record.id}`),
  api_key_revoked: () =>
    meAfter((made) => sql`update api_keys set revoked_at = now() where id = ${made.liveKey.record.id}`),
  api_key_environment_mismatch: () => me({ "x-api-key": team.keys.live.replace("mk_live_", "mk_test_") }),
  invalid_token: () => me({ authorization: "Bearer a.b.c" }),
  plan_upgrade_required: () => meAfter((made) => sql`update teams set plan = 'FREE' where id = ${made.team.id}`),
  quota_exceeded: async () => preview(await makeSender({ credits: 1 })),
  insufficient_scope: async () => api((await team.mint({ scopes: [] })).key).get("/lists"),
  role_insufficient: async () => {
    const made = await makeTeam();
    await run(made, sql`update members set role = 'VIEWER' where id = ${made.owner.id}`);
    return api(made.keys.live).post("/lists", { name: "a" });
  },
  forbidden_scope_pair: () =>
    meAfter(
      (made) =>
        sql`update api_keys set granted_scopes = '{suppressions:delete,newsletters:send}' where id = ${made.liveKey.record.id}`,
    ),
  send_not_permitted: () =>
    api(team.keys.test).post("/newsletters/x/send-preview", undefined, { idempotencyKey: freshKey() }),
  send_domain_not_allowed: async () => preview(await makeSender({ sendDomains: [] })),
  complaint_rate_exceeded: () =>
    previewAfter(
      (sender) =>
        sql`insert into analytics_days (team_id, environment, resource_id, day, sent, complaints_received)
          values (${sender.team.id}, 'LIVE', '', (now() at time zone 'UTC')::date, 100, 2)`,
    ),
  not_found: () => client().get("/lists/x"),
  method_not_allowed: () => client().put("/lists"),
  request_timeout: () => postHalf(own.base),
  idempotency_key_reused: async () => {
    const idempotencyKey = freshKey();
    await client().post("/lists", { name: "a" }, { idempotencyKey });
    return client().post("/lists", { name: "b" }, { idempotencyKey });
  },
  request_in_flight: async () => {
    const options = { idempotencyKey: freshKey() };
    const waiting = once(stage, "waiting");
    const first = api(team.keys.live, own.base).post("/wait", undefined, options);
    await waiting;
    const second = await api(team.keys.live, own.base).post("/wait", undefined, options);
    stage.emit("continue");
    assert.equal((await first).status, 200);
    return second;
  },
  confirmation_required: async () => confirm(await makeSender(), ""),
  confirmation_stale: () =>
    confirmAfter((sender) => sql`update send_previews set used_at = now() where team_id = ${sender.team.id}`),
  confirmation_invalid: async () => confirm(await makeSender(), "nonsense"),
  send_plan_changed: () =>
    confirmAfter((sender) => sql`update newsletters set subject = 'Other' where id = ${sender.newsletterId}`),
  campaign_not_ready: async () => preview(await makeSender({ detached: true })),
  sending_domain_unverified: () =>
    previewAfter((sender) => sql`update email_accounts set status = 'SUSPENDED' where id = ${sender.accountId}`),
  resource_already_exists: async () => {
    const email = uniqueEmail();
    await client().post("/subscribers", { email });
    return client().post("/subscribers", { email });
  },
  resource_limit_reached: async () => {
    const app = await serveRoutes(appRouter, { changes: { MAX_LISTS: 1 } });
    try {
      const { keys } = await makeTeam();
      await api(keys.live, app.base).post("/lists", { name: "a" });
      return await api(keys.live, app.base).post("/lists", { name: "b" });
    } finally {
      await app.close();
    }
  },
  person_erased: async () => {
    const email = uniqueEmail("erased");
    await recordErased(team.em, team.vault, { teamId: team.team.id, environment: "LIVE" }, email);
    return client().post("/subscribers", { email });
  },
  resource_state_invalid: async () => {
    const { id } = (await client().post("/newsletters", { name: "a" })).body.data;
    await run(team, sql`update newsletters set status = 'SENT' where id = ${id}`);
    return client().patch(`/newsletters/${id}`, { name: "b" });
  },
  payload_too_large: () => client().post("/lists", { name: "x".repeat(3_000_000) }),
  unsupported_media_type: () => client().post("/lists", "a=b", { headers: { "content-type": "text/plain" } }),
  send_cap_exceeded: async () => preview(await makeSender({ dailySendCap: 1 })),
  rate_limit_exceeded: async () => {
    const app = await serveRoutes(appRouter);
    const { keys, team } = await makeTeam();
    const ask = async (): Promise<ApiAnswer> => {
      // The thread that reads templates is this process's own; a request finds too many waiting, or is a moment late.
      const large = { subject: "a", body: "x".repeat(1_000_000) };
      const tenant = { teamId: team.id, environment: "LIVE" } as const;
      const filling = Promise.allSettled(Array.from({ length: 40 }, () => checkTemplates(tenant, large)));
      const answer = await api(keys.live, app.base).post("/newsletters", { name: "a", subject: "a" });
      await filling;
      assert.equal(answer.status, 429);
      return answer;
    };
    try {
      return await eventually(ask, { what: "a refusal" });
    } finally {
      await app.close();
    }
  },
  internal_error: () => api(team.keys.live, own.base).get("/fail"),
  service_unavailable: async () => {
    const database = new URL((await stack()).env.DATABASE_URL);
    database.host = "127.0.0.1:1";
    const app = await serveRoutes(routes, { changes: { DATABASE_URL: database.href } });
    try {
      return await api(team.keys.live, app.base).get("/fail");
    } finally {
      await app.close();
    }
  },
};

const RETRIED: readonly ErrorCode[] = [
  "rate_limit_exceeded",
  "send_cap_exceeded",
  "request_in_flight",
  "service_unavailable",
];

describe("The codes of errors", () => {
  before(async () => {
    team = await makeTeam();
    own = await serveRoutes(routes, { uploads: { stalledMs: 200, totalMs: 1_000 } });
  });
  after(() => own.close());

  for (const [code, provoke] of Object.entries(PROVOCATIONS)) {
    it(`a request gets ${code} with its status, type and headers`, async () => {
      assert.ok(isErrorCode(code));
      const { status, type } = ERRORS[code];
      const { status: got, headers, body, text } = await provoke();
      assert.deepEqual([body.error?.code, got, body.error?.type], [code, status, type], text);
      assert.equal(body.error.request_id, headers.get("x-request-id"));
      assert.equal(body.meta.request_id, headers.get("x-request-id"));
      assert.ok(body.error.doc_url.endsWith(`#${code}`));
      assert.ok(body.error.message.length > 10);
      assert.equal(/^[1-9]\d*$/.test(headers.get("retry-after") ?? ""), RETRIED.includes(code));
      const isChallenged = status === 401 || code === "insufficient_scope";
      assert.equal(headers.get("www-authenticate") !== null, isChallenged);
    });
  }
});

describe("A parameter that an endpoint does not have", () => {
  const reads = endpointsOf(appRouter).filter(({ meta }) => meta.method === "GET");
  /** What a list declares besides paging and sorting. */
  const PAGING = ["limit", "cursor", "order", "sort", "updated_since"];
  const parametersOf = (endpoints: typeof reads) =>
    new Set(endpoints.flatMap(({ meta }) => queryNames(meta)).filter((name) => !PAGING.includes(name)));
  const filters = parametersOf(reads.filter(({ meta }) => answersList(meta)));
  const pathOf = (path: string) => path.replaceAll(/\{\w+\}/g, unique("absent"));

  for (const { meta } of reads) {
    it(`is refused by its own code on a list, and as unsupported elsewhere: ${meta.path}`, async () => {
      const taken = queryNames(meta);
      for (const name of [...parametersOf(reads), "expand", "sort", "updated_since", "page", unique("name")]) {
        if (taken.includes(name)) continue;
        const ownCode = name === "expand" ? "expand_unsupported" : filters.has(name) ? "filter_unsupported" : undefined;
        const answer = await api(team.keys.live).get(pathOf(meta.path), { query: { [name]: "x" } });
        const expected = (answersList(meta) && ownCode) || "unsupported_parameter";
        assert.deepEqual([answer.body.error?.code, answer.body.error?.param], [expected, name], answer.text);
      }
      if (taken.includes("sort")) {
        const answer = await api(team.keys.live).get(pathOf(meta.path), { query: { sort: "id" } });
        assert.equal(answer.body.error.code, "sort_unsupported");
      }
    });
  }

  it("is known from the lists' own declarations", () => {
    assert.deepEqual(
      ["active", "email", "event", "provider", "reason", "source", "status"].filter((name) => !filters.has(name)),
      [],
    );
  });
});
