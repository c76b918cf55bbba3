import assert from "node:assert/strict";
import { BASE_PATH } from "../../api/base-path.ts";
import { endpointsOf } from "../../api/rest/endpoints.ts";
import { appRouter } from "../../api/router.ts";
import { type ApiAnswer, type ApiClient, api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { webhookBody } from "../support/webhooks.ts";

/** Headers that count the requests of a key. */
const ALLOWANCE = ["", "x-"].flatMap((prefix) => [`${prefix}ratelimit-remaining`, `${prefix}ratelimit-reset`]);
/** Headers that differ between two requests of one kind. */
const OWN_HEADERS = ["connection", "date", "keep-alive", "x-request-id", ...ALLOWANCE];

/** What an answer says besides that. */
const likeness = ({ status, headers, text: body }: ApiAnswer) => {
  const id = headers.get("x-request-id") ?? "";
  const others = [...headers].filter(([name]) => !OWN_HEADERS.includes(name));
  return { status, headers: others, body: body.replaceAll(id, "") };
};

describe("HTTP", () => {
  let team: TestTeam;
  let client: ApiClient;
  before(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  it("forbids to cache any answer, which belongs to its credential and its version", async () => {
    const { id } = (await client.post("/lists", { name: "a" })).body.data;
    for (const [asked, status] of [
      [client.get("/me"), 200],
      [client.post("/lists", { name: "a" }), 201],
      [client.get("/lists/absent"), 404],
      [client.get("/nowhere"), 404],
      [client.patch(`/lists/${id}`, { name: "b" }), 200],
      [client.put("/lists"), 405],
      [api().get("/me"), 401],
      [client.call("HEAD", "/lists"), 200],
    ] as const) {
      const { headers, status: got } = await asked;
      assert.deepEqual(
        [got, headers.get("cache-control"), headers.get("vary")],
        [status, "no-store", "Authorization, X-API-Key, Service-Version, Accept-Encoding"],
      );
    }
  });

  it("compresses an answer above 1 KB for a client that takes gzip, but none that holds a secret", async () => {
    const read = async (path: string, encodings: string) => {
      const { headers, text, status } = await client.get(path, { headers: { "accept-encoding": encodings } });
      return { status, encoding: headers.get("content-encoding"), data: JSON.parse(text).data };
    };
    const plain = await read("/webhooks/events", "identity");
    assert.equal(plain.encoding, null);
    assert.deepEqual(await read("/webhooks/events", "br, gzip"), { ...plain, encoding: "gzip" });
    assert.equal((await read("/webhooks/events", "gzip;q=0, *")).encoding, null);
    assert.equal((await read("/lists", "gzip")).encoding, null);
    const secret = await client.post("/webhooks", webhookBody({ events: ["*"] }));
    assert.equal(secret.status, 201);
    assert.ok(secret.text.length > 1_024);
    assert.equal(secret.headers.get("content-encoding"), null);
  });

  describe("Location", () => {
    const bodies = (): Record<string, object> => ({
      "/lists": { name: "a" },
      "/subscribers": { email: uniqueEmail() },
      "/contacts": { email: uniqueEmail() },
      "/campaigns": { name: unique("campaign") },
      "/newsletters": { name: "a" },
      "/webhooks": webhookBody(),
    });

    it("names the record of every create, also on a replay, and stands on no other answer", async () => {
      const creates = endpointsOf(appRouter).filter(({ meta }) => meta.status === 201);
      assert.deepEqual(creates.map(({ meta }) => meta.path).toSorted(), Object.keys(bodies()).toSorted());
      for (const [path, body] of Object.entries(bodies())) {
        const dry = await client.post(path, body, { query: { dry_run: true } });
        assert.deepEqual([dry.status, dry.headers.get("location")], [200, null], dry.text);
        const idempotencyKey = unique("location");
        const created = await client.post(path, body, { idempotencyKey });
        assert.equal(created.status, 201, created.text);
        const location = created.headers.get("location");
        assert.equal(location, `${BASE_PATH}${path}/${created.body.data.id}`);
        const read = await client.get(location.slice(BASE_PATH.length));
        assert.equal(read.body.data.id, created.body.data.id);
        assert.equal(read.headers.get("location"), null);
        const replayed = await client.post(path, body, { idempotencyKey });
        assert.equal(replayed.headers.get("idempotent-replayed"), "true");
        assert.equal(replayed.headers.get("location"), location);
      }
    });
  });

  describe("a merge patch", () => {
    const merge = { headers: { "content-type": "application/merge-patch+json" } };

    it("is taken by PATCH under its own type, and leaves what it omits", async () => {
      const { id } = (await client.post("/lists", { name: "a", description: "kept" })).body.data;
      for (const type of ["application/merge-patch+json", "Application/Merge-Patch+JSON; charset=utf-8"]) {
        const name = unique("name");
        const answer = await client.patch(`/lists/${id}`, { name }, { headers: { "content-type": type } });
        assert.equal(answer.status, 200, answer.text);
        assert.deepEqual([answer.body.data.name, answer.body.data.description], [name, "kept"]);
      }
      const [body, idempotencyKey] = [{ description: null }, unique("merge")];
      const first = await client.patch(`/lists/${id}`, body, { idempotencyKey, ...merge });
      assert.equal(first.body.data.description, null);
      // The same request under an Idempotency-Key, whichever type it is sent as.
      const second = await client.patch(`/lists/${id}`, body, { idempotencyKey });
      assert.equal(second.headers.get("idempotent-replayed"), "true");
    });

    it("is refused by a POST, and so is a PATCH of another type, with the types to send", async () => {
      const posted = await client.post("/lists", { name: "a" }, merge);
      assert.deepEqual([posted.status, posted.body.error.code], [415, "unsupported_media_type"]);
      const headers = { "content-type": "application/json-patch+json" };
      const patched = await client.patch("/lists/x", [], { headers });
      assert.equal(patched.status, 415);
      assert.match(patched.body.error.message, /application\/merge-patch\+json or application\/json/);
    });
  });

  describe("HEAD", () => {
    it("gives the status and the headers of GET, without its body", async () => {
      const { id } = (await client.post("/lists", { name: "a" })).body.data;
      for (const path of ["/me", `/lists/${id}`, "/lists/absent", "/nowhere", "/webhooks/events"]) {
        // Compressed, two answers with request ids of their own differ in length.
        const headers = { "accept-encoding": "identity" };
        const got = likeness(await client.get(path, { headers }));
        const head = likeness(await client.call("HEAD", path, undefined, { headers }));
        assert.deepEqual(head, { ...got, body: "" }, path);
      }
      assert.equal((await api().call("HEAD", "/me")).status, 401);
    });

    it("is refused where there is no GET", async () => {
      const answer = await client.call("HEAD", "/lists/x/subscribers/y");
      assert.deepEqual([answer.status, answer.headers.get("allow")], [405, "PATCH, DELETE, OPTIONS"]);
    });
  });

  describe("OPTIONS", () => {
    it("answers 204 with the methods of the path, to any caller alike", async () => {
      for (const caller of [client, api(), api("nonsense")]) {
        const answer = await caller.call("OPTIONS", "/lists/absent");
        assert.deepEqual([answer.status, answer.text], [204, ""]);
        assert.equal(answer.headers.get("allow"), "GET, HEAD, PATCH, DELETE, OPTIONS");
        assert.equal(answer.headers.get("accept-patch"), "application/merge-patch+json, application/json");
      }
      const { headers } = await api().call("OPTIONS", "/lists");
      assert.deepEqual([headers.get("allow"), headers.get("accept-patch")], ["POST, GET, HEAD, OPTIONS", null]);
      assert.equal((await api().call("OPTIONS", "/nowhere")).status, 404);
    });

    it("lets no page of another origin call the API", async () => {
      const headers = { origin: "https://elsewhere.example", "access-control-request-method": "GET" };
      for (const method of ["OPTIONS", "GET"]) {
        const answer = await client.call(method, "/lists", undefined, { headers });
        const allowing = [...answer.headers].filter(([name]) => name.startsWith("access-control-"));
        assert.deepEqual(allowing, []);
      }
    });
  });

  describe("a path", () => {
    it("is decoded once", async () => {
      const local = unique("a%2Fb+c");
      const email = `${local}@example.com`;
      const { added } = (await client.post("/suppressions", { emails: [email] })).body.data;
      const read = await client.get(`/suppressions/${encodeURIComponent(email)}`);
      assert.deepEqual([read.status, read.body.data.email], [200, added[0]]);
      assert.equal((await client.get(`/suppressions/${encodeURIComponent(encodeURIComponent(email))}`)).status, 404);
      // A percent sign that is encoded twice is decoded to one that is encoded.
      assert.equal((await client.get(`/suppressions/${email.replace("%2F", "%252F")}`)).body.data.email, added[0]);
      assert.equal((await client.get(`/suppressions/${email}`)).status, 404);

      const slashed = `${unique("a/b")}@example.com`;
      await client.post("/suppressions", { emails: [slashed] });
      assert.equal((await client.get(`/suppressions/${encodeURIComponent(slashed)}`)).status, 200);
    });

    it("that is not correctly encoded is no failure of the service, wherever it leads", async () => {
      const { origin } = await stack();
      const paths = ["/console/%ff", "/console/%", "/console/preview/%ff", "/console/trpc/%ff", "/hooks/ses/%ff"];
      for (const path of paths) {
        for (const method of ["GET", "POST"]) {
          const { status } = await fetch(`${origin}${path}`, { method, headers: { origin } });
          assert.ok([400, 404].includes(status), `${method} ${path}: ${status}`);
        }
      }
      const refused = await fetch(`${origin}/hooks/sendgrid/%`, { method: "POST" });
      assert.deepEqual([refused.status, ((await refused.json()) as Json).error.code], [400, "validation_failed"]);
    });

    it("with a slash in an id names no other endpoint", async () => {
      const { id } = (await client.post("/lists", { name: "a" })).body.data;
      const answer = await client.get(`/lists/${encodeURIComponent(`${id}/subscribers`)}`);
      assert.deepEqual([answer.status, answer.body.error.message], [404, "No record has this id."]);
    });

    it("with an empty id is none of the list's", async () => {
      for (const path of ["/lists/", "/lists//subscribers", "/suppressions/", "//lists"]) {
        const { status, body } = await client.get(path);
        assert.deepEqual([status, body.error.code], [404, "not_found"], path);
      }
    });

    it("that no endpoint has is 404; the message holds nothing of the path", async () => {
      const { origin } = await stack();
      for (const url of ["/api/v2/list", "/api/v2/subscribers/someone%40example.com/lists", "/lists/someone"]) {
        const { status, body } = await api(undefined, origin).get(url);
        const message = "There is no such endpoint. GET / names the reference.";
        assert.deepEqual([status, body.error.code, body.error.message], [404, "not_found", message]);
      }
    });

    it("that is only read names its methods to every other one", async () => {
      const { origin } = await stack();
      for (const path of ["/", BASE_PATH, "/docs/errors", "/openapi.json"]) {
        for (const [method, status] of [
          ["POST", 405],
          ["DELETE", 405],
          ["OPTIONS", 204],
        ] as const) {
          const answer = await api(undefined, origin).call(method, path);
          assert.deepEqual([answer.status, answer.headers.get("allow")], [status, "GET, HEAD, OPTIONS"], path);
        }
      }
    });
  });

  it("names the reference and the document at / and at the base path", async () => {
    const { origin } = await stack();
    for (const url of [origin, `${origin}/`, `${origin}${BASE_PATH}`, `${origin}${BASE_PATH}/`]) {
      const response = await fetch(url);
      assert.equal(response.status, 200, url);
      const { data, meta } = (await response.json()) as { data: Record<string, string>; meta: { request_id: string } };
      assert.equal(meta.request_id, response.headers.get("x-request-id"));
      assert.deepEqual(data, {
        object: "api",
        id: "v2",
        base_url: `${origin}${BASE_PATH}`,
        reference: `${origin}/docs`,
        document: `${origin}/openapi.json`,
      });
    }
  });
});
