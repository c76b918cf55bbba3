import assert from "node:assert/strict";
import { request } from "node:http";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { z } from "zod";
import { idParam, impact, ok, router } from "../../api/rest/route.ts";
import { Team } from "../../db/entities/team.ts";
import { ApiError, ERRORS, isErrorCode, notFound } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, type CallOptions } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";

const body = z.strictObject({
  name: z.string().min(1).max(10),
  emails: z.array(z.string().min(3)).optional(),
  headers: z.record(z.string(), z.string()).optional(),
});
const anything = z.record(z.string(), z.unknown());

const routes = router({
  echo: route({ method: "POST", path: "/echo", status: 201, scope: null, summary: "Gives back what it is sent" })
    .input(z.strictObject({ body }))
    .output(anything)
    .mutation(async ({ input }) => ok(input.body)),
  list: route({ method: "GET", path: "/things", scope: null, summary: "Lists" })
    .input(
      z.strictObject({
        query: z.strictObject({
          limit: z.string().regex(/^\d+$/).optional(),
          sort: z.enum(["updated_at"]).optional(),
          flag: z.stringbool({ truthy: ["true"], falsy: ["false"] }).optional(),
        }),
      }),
    )
    .output(anything)
    .query(async ({ input }) => ok(input.query, { meta: { has_more: false } })),
  get: route({ method: "GET", path: "/things/{thing}", scope: null, summary: "Retrieves" })
    .input(z.strictObject({ params: z.strictObject({ thing: idParam }) }))
    .output(anything)
    .query(async ({ input }) => {
      if (input.params.thing === "absent") throw notFound();
      return ok(input.params);
    }),
  remove: route({ method: "DELETE", path: "/things/{other}", scope: null, summary: "Deletes" })
    .input(z.strictObject({ params: z.strictObject({ other: idParam }) }))
    .output(anything)
    .mutation(async ({ input }) => ok({ id: input.params.other, deleted: true })),
  fail: route({ method: "GET", path: "/fail/{how}", scope: null, summary: "Fails" })
    .input(z.strictObject({ params: z.strictObject({ how: z.string() }) }))
    .output(z.null())
    .query(async ({ input }) => {
      const { how } = input.params;
      if (isErrorCode(how)) {
        throw new ApiError(how, "because", { param: "p", ...(RETRIED.has(how) ? { retryAfterSeconds: 1.2 } : {}) });
      }
      throw new Error("a secret of the inside: someone@example.com");
    }),
  leak: route({ method: "GET", path: "/leak", scope: null, summary: "Gives more than it declares" })
    .input(z.strictObject({}))
    .output(z.object({ shown: z.string() }))
    .query(async () => {
      const row = { shown: "yes", hidden: "password" };
      return ok(row);
    }),
  save: route({ method: "POST", path: "/save", scope: null, dryRun: true, summary: "Writes, then perhaps refuses" })
    .input(z.strictObject({ body: z.strictObject({ name: z.string(), outcome: z.string() }) }))
    .output(anything)
    .mutation(async ({ ctx, input }) => {
      const { name, outcome } = input.body;
      const id = outcome === "taken" ? ctx.tenant.teamId : newId("team");
      ctx.em.create(Team, { id, name, plan: "FREE" });
      if (outcome === "taken") return ok({}, { impact: impact({}) });
      await ctx.em.flush();
      if (outcome === "refuse") throw new ApiError("resource_state_invalid");
      if (outcome === "fail") throw new Error("failed");
      return ok({ name }, { impact: impact({ would_create: 1 }) });
    }),
});
const RETRIED = new Set(["send_cap_exceeded", "rate_limit_exceeded", "request_in_flight", "service_unavailable"]);

describe("the REST adapter", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(routes);
    team = await makeTeam();
  });
  after(() => app.close());

  const client = () => api(team.keys.live, app.base);
  const refused = (answer: ApiAnswer, code: keyof typeof ERRORS, param?: string) => {
    assert.equal(answer.body?.error?.code, code, answer.text);
    assert.equal(answer.status, ERRORS[code].status);
    assert.equal(answer.body.error.type, ERRORS[code].type);
    assert.equal(answer.body.error.param, param);
  };
  const echo = (sent: unknown, options?: CallOptions) => client().post("/echo", sent, options);

  /** A request as raw as can be: fetch would not send it. */
  const raw = (method: string, path: string, headers: Record<string, string>, sent?: string | Buffer) =>
    new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
      const all = { "x-api-key": team.keys.live, ...headers };
      const outgoing = request(`${app.base}${path}`, { method, headers: all }, async (response) => {
        let text = "";
        for await (const chunk of response.setEncoding("utf8")) text += chunk;
        resolve({ status: response.statusCode, text });
      });
      outgoing.on("error", reject).end(sent);
    });

  describe("envelopes", () => {
    it("wraps a success in data and meta, with dry_run on writes only", async () => {
      const written = await echo({ name: "a" });
      assert.equal(written.status, 201);
      assert.deepEqual(written.body.data, { name: "a" });
      assert.deepEqual(written.body.meta, { request_id: written.headers.get("x-request-id"), dry_run: false });
      const read = await client().get("/things");
      assert.deepEqual(read.body.meta, { request_id: read.headers.get("x-request-id"), has_more: false });
    });

    it("gives every request an id of its own, also when the client sends one", async () => {
      const headers = { "x-request-id": "mine" };
      const asked = [
        client().get("/things", { headers }),
        client().get("/absent", { headers }),
        client().put("/things", {}, { headers }),
        api(undefined, app.base).get("/things", { headers }),
        client().get("/fail/boom", { headers }),
      ];
      const ids = new Set<string>();
      for (const { headers: got, body } of await Promise.all(asked)) {
        const id = got.get("x-request-id") ?? "";
        assert.match(id, /^req_[0-9a-z]{26}$/);
        assert.deepEqual([body.meta.request_id, body.error?.request_id ?? id], [id, id]);
        ids.add(id);
      }
      assert.equal(ids.size, asked.length);
    });

    it("answers every code with its status, type, meaning and headers", async () => {
      for (const [code, { status, type, meaning }] of Object.entries(ERRORS)) {
        const { status: got, headers, body } = await client().get(`/fail/${code}`);
        assert.equal(got, status);
        const { message, doc_url, ...error } = body.error;
        assert.deepEqual(error, { type, code, param: "p", request_id: body.meta.request_id });
        assert.equal(message, status === 500 ? meaning : "because");
        assert.ok(doc_url.endsWith(`/errors#${code}`) && URL.canParse(doc_url));
        assert.equal(headers.get("retry-after"), RETRIED.has(code) ? "2" : null);
        assert.equal(headers.has("www-authenticate"), status === 401 || code === "insufficient_scope");
      }
    });

    it("shows nothing of the cause when a handler fails", async () => {
      const answer = await client().get("/fail/boom");
      refused(answer, "internal_error");
      assert.equal(answer.body.error.message, ERRORS.internal_error.meaning);
      assert.ok(!answer.text.includes("secret"));
    });

    it("leaves out fields that the schema does not name", async () => {
      assert.deepEqual((await client().get("/leak")).body.data, { shown: "yes" });
    });

    it("sends no name of its framework, and no entity tags", async () => {
      const { headers } = await client().get("/things");
      assert.equal(headers.get("x-powered-by"), null);
      assert.equal(headers.get("etag"), null);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
    });
  });

  it("names the parameter of the path or the query whose encoding is broken", async () => {
    for (const [path, param] of [
      ["/things/%zz", "thing"],
      ["/things/%E0%A4%A", "thing"],
      ["/things/%ff", "thing"],
      ["/things?limit=%zz", "limit"],
      ["/things?%ff=1", undefined],
    ]) {
      const { status, text } = await raw("GET", path ?? "", {});
      const { code, param: named } = JSON.parse(text).error;
      assert.deepEqual([status, code, named], [400, "validation_failed", param ?? named], path);
    }
  });

  const QUERIES: [path: string, code: keyof typeof ERRORS, param: string][] = [
    ["/things/a%00b", "validation_failed", "thing"],
    ["/things?filter=1", "unsupported_parameter", "filter"],
    ["/things?limit[]=1", "unsupported_parameter", "limit[]"],
    ["/things?dry_run=true", "unsupported_parameter", "dry_run"],
    ["/things?expand=x", "unsupported_parameter", "expand"],
    ["/things?__proto__=1", "validation_failed", "__proto__"],
    ...["constructor", "toString", "hasOwnProperty"].map((name): [string, "unsupported_parameter", string] => [
      `/things?${name}=1`,
      "unsupported_parameter",
      name,
    ]),
    ["/things?limit=1&limit=1", "validation_failed", "limit"],
    ["/things?limit=ten", "validation_failed", "limit"],
    ["/things?flag=1", "validation_failed", "flag"],
    ["/things?sort=name", "sort_unsupported", "sort"],
    ["/things?limit=a%00", "validation_failed", "limit"],
  ];
  it("refuses a parameter that it does not take, that is given twice or is not valid, by its name", async () => {
    for (const [path, code, param] of QUERIES) refused(await client().get(path), code, param);
  });

  const BODIES: [body: unknown, code: keyof typeof ERRORS, param?: string][] = [
    [{ name: "a", status: "SENT" }, "validation_failed", "status"],
    [{}, "validation_failed", "name"],
    [{ name: "a", emails: ["ok@x", "ok@y", "ok@z", 3] }, "validation_failed", "emails[3]"],
    [{ name: "a", headers: { "x-a": 1 } }, "validation_failed", "headers.x-a"],
    ...["{", "{'a':1}", '{"name":"a"', '{"name":undefined}', "\ufeff{}x"].map((text): [string, "invalid_json"] => [
      text,
      "invalid_json",
    ]),
    ...["[]", "null", "1", '"text"', "true", undefined].map((text): [unknown, "validation_failed"] => [
      text,
      "validation_failed",
    ]),
    // Characters that Postgres cannot store.
    [{ name: "a\u0000" }, "validation_failed", "name"],
    ['{"name":"a","emails":["abc","\\ud800bc"]}', "validation_failed", "emails[1]"],
    [{ name: "a", headers: { "k\u0000": "v" } }, "validation_failed", "headers"],
    // Keys that are meant for prototypes, and too many levels.
    ['{"name":"a","__proto__":{"admin":true}}', "validation_failed", "__proto__"],
    ['{"name":"a","headers":{"__proto__":"x"}}', "validation_failed", "headers.__proto__"],
    ['{"name":"a","constructor":{"prototype":{}}}', "validation_failed", "constructor"],
    [`{"name":${"[".repeat(40_000)}${"]".repeat(40_000)}}`, "validation_failed"],
  ];

  describe("bodies", () => {
    it("refuses one that is no JSON, no object or not valid, by the path of its field", async () => {
      for (const [body, code, param] of BODIES) refused(await echo(body), code, param);
      assert.equal(({} as { admin?: boolean }).admin, undefined);
      assert.equal((await echo({ name: "😀ü漢" })).body.data.name, "😀ü漢");
    });

    it("reports the first problem, mentions the others, and never repeats a value", async () => {
      const body = { name: "someone@example.com", emails: ["x@"], extra: "secret-value" };
      const answer = await client().post("/echo?page=2", body);
      refused(answer, "unsupported_parameter", "page");
      for (const name of ["page", "name", "emails[0]", "extra"]) assert.ok(answer.body.error.message.includes(name));
      assert.ok(!/someone|x@|secret-value/.test(answer.text), answer.text);
    });

    it("takes no field on a route without a body: empty or {} passes, a field is refused by name", async () => {
      assert.equal((await client().call("DELETE", "/things/x", {})).status, 200);
      refused(await client().call("DELETE", "/things/x", { why: 1 }), "validation_failed", "why");
      const headers = { "content-type": "application/json", "content-length": "9" };
      const { text } = await raw("GET", "/things", headers, '{"why":1}');
      assert.equal(JSON.parse(text).error.param, "why");
    });

    it("takes application/json in UTF-8 only, with any other parameters", async () => {
      for (const parameters of [
        ...["", ";", ";charset=UTF-8;", "; charset=utf8", '; Charset="utf-8"', "; charset=us-ascii"],
        ...["; version=1", '; a="b;charset=latin1"', "; charset=utf-8; boundary=x", " ; odata=verbose"],
      ]) {
        const headers = { "content-type": `Application/JSON${parameters}` };
        assert.equal((await echo({ name: "a" }, { headers })).status, 201, parameters);
      }
      for (const type of ["text/plain", "application/json; charset=latin1", "json", "application/json, text/json"]) {
        const answer = await echo('{"name":"a"}', { headers: { "content-type": type } });
        refused(answer, "unsupported_media_type");
        assert.match(answer.body.error.message, /application\/json in UTF-8, .* gzip or deflate/);
      }
    });

    it("inflates gzip and deflate, and refuses other encodings", async () => {
      const plain = JSON.stringify({ name: "zipped" });
      const headers = (encoding: string) => ({ "content-type": "application/json", "content-encoding": encoding });
      const status = async (encoding: string, sent: Buffer) =>
        (await raw("POST", "/echo", headers(encoding), sent)).status;
      assert.equal(await status("gzip", gzipSync(plain)), 201);
      assert.equal(await status("deflate", deflateSync(plain)), 201);
      assert.equal(await status("identity", Buffer.from(plain)), 201);
      const other = await raw("POST", "/echo", headers("br"), brotliCompressSync(plain));
      assert.equal(other.status, 415);
      assert.match(other.text, /Content-Encoding gzip or deflate/);
      assert.equal(await status("gzip, gzip", gzipSync(gzipSync(plain))), 415);
      const broken = await raw("POST", "/echo", headers("gzip"), "no gzip");
      assert.equal(JSON.parse(broken.text).error.code, "invalid_json");
    });

    it("answers payload_too_large beyond 2 MiB, also when it only inflates to that", async () => {
      const size = 2 * 1024 * 1024;
      const big = JSON.stringify({ name: "x".repeat(size) });
      refused(await echo(big), "payload_too_large");
      const headers = { "content-type": "application/json", "content-encoding": "gzip" };
      const bomb = await raw("POST", "/echo", headers, gzipSync(big));
      assert.equal(bomb.status, 413);
      // Just as large as is allowed: it is refused for its content.
      refused(await echo(JSON.stringify({ name: "x".repeat(size - 11) })), "validation_failed", "name");
    });
  });

  describe("transactions", () => {
    const count = (name: string) => app.deps.orm.em.fork().count(Team, { name });
    const save = (name: string, outcome: string, query = "") => client().post(`/save${query}`, { name, outcome });

    it("commits the changes of a handler that succeeds, and none of one that refuses or fails", async () => {
      const name = unique("kept");
      assert.equal((await save(name, "keep")).status, 200);
      assert.equal(await count(name), 1);
      const gone = unique("gone");
      refused(await save(gone, "refuse"), "resource_state_invalid");
      refused(await save(gone, "fail"), "internal_error");
      assert.equal(await count(gone), 0);
    });

    it("refuses a dry run as the request itself, also for changes that are not flushed yet", async () => {
      for (const query of ["", "?dry_run=true"]) {
        refused(await save(unique("team"), "refuse", query), "resource_state_invalid");
        refused(await save(unique("team"), "taken", query), "internal_error");
      }
    });

    it("takes dry_run as exactly true or false", async () => {
      for (const value of ["1", "TRUE", "yes", "", "true "]) {
        refused(await save("x", "keep", `?dry_run=${encodeURIComponent(value)}`), "validation_failed", "dry_run");
      }
      refused(await save("x", "keep", "?dry_run=true&dry_run=true"), "validation_failed", "dry_run");
      refused(await client().post("/echo?dry_run=true", { name: "a" }), "unsupported_parameter", "dry_run");
      const name = unique("real");
      assert.equal((await save(name, "keep", "?dry_run=false")).body.meta.dry_run, false);
      assert.equal(await count(name), 1);
    });
  });
});
