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
  fixed: route({ method: "GET", path: "/things/fixed", scope: null, summary: "Stands before its neighbour" })
    .input(z.strictObject({}))
    .output(anything)
    .query(async () => ok({ fixed: true })),
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
    .input(z.strictObject({ body: z.strictObject({ name: z.string(), outcome: z.enum(["keep", "refuse", "fail"]) }) }))
    .output(anything)
    .mutation(async ({ ctx, input }) => {
      ctx.em.create(Team, { id: newId("team"), name: input.body.name, plan: "FREE" });
      await ctx.em.flush();
      if (input.body.outcome === "refuse") throw new ApiError("resource_state_invalid");
      if (input.body.outcome === "fail") throw new Error("failed");
      return ok({ name: input.body.name }, { impact: impact({ would_create: 1 }) });
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
      const answers = [
        await client().get("/things", { headers }),
        await client().get("/absent", { headers }),
        await client().put("/things", {}, { headers }),
        await api(undefined, app.base).get("/things", { headers }),
        await client().get("/fail/boom", { headers }),
      ];
      const ids = answers.map((answer) => answer.headers.get("x-request-id") ?? "");
      assert.ok(ids.every((id) => /^req_[0-9a-z]{26}$/.test(id)));
      assert.equal(new Set(ids).size, ids.length);
      for (const [i, { body }] of answers.entries()) {
        assert.equal(body.meta.request_id, ids[i]);
        if (body.error) assert.equal(body.error.request_id, ids[i]);
      }
    });

    for (const [code, { status, type, meaning }] of Object.entries(ERRORS)) {
      it(`answers ${code} as ${status} ${type}`, async () => {
        const { status: got, headers, body } = await client().get(`/fail/${code}`);
        assert.equal(got, status);
        const { message, doc_url, ...error } = body.error;
        assert.deepEqual(error, { type, code, param: "p", request_id: body.meta.request_id });
        assert.equal(message, status === 500 ? meaning : "because");
        assert.ok(doc_url.endsWith(`/errors#${code}`) && URL.canParse(doc_url));
        assert.equal(headers.get("retry-after"), RETRIED.has(code) ? "2" : null);
      });
    }

    it("shows nothing of the cause when a handler fails", async () => {
      const answer = await client().get("/fail/boom");
      refused(answer, "internal_error");
      assert.equal(answer.body.error.message, ERRORS.internal_error.meaning);
      assert.ok(!answer.text.includes("secret"));
    });

    it("leaves out fields that the schema does not name", async () => {
      assert.deepEqual((await client().get("/leak")).body.data, { shown: "yes" });
    });

    it("answers unknown paths and wrong methods in JSON", async () => {
      refused(await client().get("/absent"), "not_found");
      refused(await api(undefined, app.origin).get("/absent"), "not_found");
      const wrong = await client().put("/things/x", {});
      refused(wrong, "method_not_allowed");
      assert.equal(wrong.headers.get("allow"), "GET, HEAD, DELETE, OPTIONS");
      refused(await client().put("/things"), "method_not_allowed");
    });

    it("answers HEAD like GET, without a body", async () => {
      const answer = await client().call("HEAD", "/things");
      assert.equal(answer.status, 200);
      assert.equal(answer.text, "");
      assert.ok(Number(answer.headers.get("content-length")) > 0);
    });

    it("sends no name of its framework, and no entity tags", async () => {
      const { headers } = await client().get("/things");
      assert.equal(headers.get("x-powered-by"), null);
      assert.equal(headers.get("etag"), null);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
    });

    it("prefers a fixed path to one with a parameter", async () => {
      assert.deepEqual((await client().get("/things/fixed")).body.data, { fixed: true });
    });
  });

  describe("path parameters", () => {
    it("decodes them once", async () => {
      assert.deepEqual((await client().get("/things/a%40b.example")).body.data, { thing: "a@b.example" });
      assert.deepEqual((await client().get("/things/a%2540b%2Fc")).body.data, { thing: "a%40b/c" });
    });

    it("names the parameter whose encoding is broken", async () => {
      for (const path of ["/things/%zz", "/things/%E0%A4%A", "/things/%ff"]) {
        const { status, text } = await raw("GET", path, {});
        assert.equal(status, 400);
        const { error } = JSON.parse(text);
        assert.deepEqual([error.code, error.param], ["validation_failed", "thing"]);
      }
    });

    it("refuses a value that is too long, and one that Postgres cannot store", async () => {
      refused(await client().get(`/things/${"x".repeat(65)}`), "validation_failed", "thing");
      refused(await client().get("/things/a%00b"), "validation_failed", "thing");
    });
  });

  describe("query parameters", () => {
    it("refuses one it does not take, by name", async () => {
      refused(await client().get("/things?filter=1"), "unsupported_parameter", "filter");
      refused(await client().post("/echo?x=1", { name: "a" }), "unsupported_parameter", "x");
      refused(await client().get("/things?limit[]=1"), "unsupported_parameter", "limit[]");
      refused(await client().get("/things?dry_run=true"), "unsupported_parameter", "dry_run");
      refused(await client().get("/things?expand=x"), "unsupported_parameter", "expand");
    });

    it("refuses one that is given twice, or is not encoded correctly", async () => {
      refused(await client().get("/things?limit=1&limit=1"), "validation_failed", "limit");
      assert.equal((await raw("GET", "/things?limit=%zz", {})).status, 400);
      assert.equal((await raw("GET", "/things?%ff=1", {})).status, 400);
    });

    it("refuses a wrong value, and a wrong sort by its own code", async () => {
      refused(await client().get("/things?limit=ten"), "validation_failed", "limit");
      refused(await client().get("/things?flag=1"), "validation_failed", "flag");
      refused(await client().get("/things?sort=name"), "sort_unsupported", "sort");
      refused(await client().get("/things?limit=a%00"), "validation_failed", "limit");
    });

    it("treats names that every object has like any unknown name", async () => {
      for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
        const answer = await client().get(`/things?${name}=1`);
        assert.equal(answer.status, 400);
        assert.equal(answer.body.error.param, name);
      }
    });
  });

  describe("bodies", () => {
    it("refuses an unknown field by name, a missing one and a wrong one by path", async () => {
      refused(await echo({ name: "a", status: "SENT" }), "validation_failed", "status");
      refused(await echo({}), "validation_failed", "name");
      refused(await echo({ name: "a", emails: ["ok@x", "ok@y", "ok@z", 3] }), "validation_failed", "emails[3]");
      refused(await echo({ name: "a", headers: { "x-a": 1 } }), "validation_failed", "headers.x-a");
    });

    it("reports the first problem and mentions the others", async () => {
      const answer = await client().post("/echo?page=2", { name: "", emails: ["a"], extra: 1 });
      refused(answer, "unsupported_parameter", "page");
      for (const name of ["page", "name", "emails[0]", "extra"]) assert.ok(answer.body.error.message.includes(name));
    });

    it("never repeats a value in a message", async () => {
      const answer = await echo({ name: "someone@example.com", emails: ["x@"], extra: "secret-value" });
      assert.ok(!/someone|x@|secret-value/.test(answer.text), answer.text);
    });

    it("answers invalid_json for a text that is not JSON", async () => {
      for (const text of ["{", "{'a':1}", '{"name":"a"', '{"name":undefined}', "\ufeff{}x"]) {
        refused(await echo(text), "invalid_json");
      }
    });

    it("refuses JSON that is not an object, and a missing body where one is needed", async () => {
      for (const text of ["[]", "null", "1", '"text"', "true"]) refused(await echo(text), "validation_failed");
      refused(await client().call("POST", "/echo"), "validation_failed");
    });

    it("takes no field on a route without a body: empty or {} passes, a field is refused by name", async () => {
      assert.equal((await client().call("DELETE", "/things/x", {})).status, 200);
      refused(await client().call("DELETE", "/things/x", { why: 1 }), "validation_failed", "why");
      const headers = { "content-type": "application/json", "content-length": "9" };
      const { text } = await raw("GET", "/things", headers, '{"why":1}');
      assert.equal(JSON.parse(text).error.param, "why");
    });

    it("takes application/json in UTF-8 only", async () => {
      for (const type of ["application/json; charset=utf-8", 'application/json;charset="UTF-8"', "Application/JSON"]) {
        assert.equal((await echo({ name: "a" }, { headers: { "content-type": type } })).status, 201);
      }
      for (const type of [
        "text/plain",
        "application/json; charset=latin1",
        "application/x-www-form-urlencoded",
        "json",
      ]) {
        refused(await echo('{"name":"a"}', { headers: { "content-type": type } }), "unsupported_media_type");
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
      assert.equal(await status("br", brotliCompressSync(plain)), 415);
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

    it("refuses characters that Postgres cannot store, naming the field", async () => {
      refused(await echo({ name: "a\u0000" }), "validation_failed", "name");
      refused(await echo('{"name":"a","emails":["abc","\\ud800bc"]}'), "validation_failed", "emails[1]");
      refused(await echo({ name: "a", headers: { "k\u0000": "v" } }), "validation_failed", "headers");
      assert.equal((await echo({ name: "😀ü漢" })).body.data.name, "😀ü漢");
    });

    it("refuses keys meant for prototypes, and nesting over 32 levels", async () => {
      refused(await echo('{"name":"a","__proto__":{"admin":true}}'), "validation_failed", "__proto__");
      refused(await echo('{"name":"a","headers":{"__proto__":"x"}}'), "validation_failed", "headers.__proto__");
      refused(await echo('{"name":"a","constructor":{"prototype":{}}}'), "validation_failed", "constructor");
      refused(await echo(`{"name":${"[".repeat(40_000)}${"]".repeat(40_000)}}`), "validation_failed");
      assert.equal(({} as { admin?: boolean }).admin, undefined);
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
