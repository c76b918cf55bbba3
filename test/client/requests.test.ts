import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import {
  ApiError,
  AuthenticationError,
  type ClientOptions,
  ConflictError,
  ConnectionError,
  InvalidRequestError,
  Mailkeel,
  MailkeelError,
  NotFoundError,
  PermissionError,
  QuotaError,
  RateLimitError,
  SERVICE_VERSION,
  ServiceError,
  TimeoutError,
} from "../../client/index.ts";
import { retryDelayMs } from "../../client/retry.ts";
import { documentedFetch } from "../support/api.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { type Fault, type FaultyProxy, openFaultyProxy, refusal } from "./faulty-proxy.ts";

/** The error that a call ends with, in its class. */
async function failureOf<Kind extends Error>(
  call: Promise<unknown>,
  kind: abstract new (...given: never[]) => Kind,
): Promise<Kind> {
  const failure = await call.then(
    () => assert.fail("it succeeded"),
    (error: unknown) => error,
  );
  assert.ok(failure instanceof kind, String(failure));
  return failure;
}

const UNAVAILABLE = refusal(503, "api_error", "service_unavailable", 0);
const IN_FLIGHT = refusal(409, "conflict_error", "request_in_flight", 0);
const INTERNAL = refusal(500, "api_error", "internal_error");

describe("A request of the client", () => {
  let team: TestTeam;
  let proxy: FaultyProxy;
  let mailkeel: Mailkeel;
  const clientOf = (options: Partial<ClientOptions> = {}) =>
    new Mailkeel({ apiKey: team.keys.live, baseUrl: proxy.baseUrl, timeoutMs: 20_000, ...options });
  const keys = () => new Set(proxy.requests.map(({ headers }) => headers["idempotency-key"]));
  const listsNamed = async (name: string) => {
    const named = [];
    for await (const list of mailkeel.lists.list({ limit: 100 })) if (list.name === name) named.push(list);
    return named;
  };

  before(async () => {
    team = await makeTeam();
    proxy = await openFaultyProxy();
    mailkeel = clientOf();
  });
  after(() => proxy.close());
  beforeEach(() => proxy.next());

  it("gives the payload and the request's id", async () => {
    const name = unique("List");
    const { data, meta } = await mailkeel.lists.create({ name });
    assert.equal(data.name, name);
    assert.equal(meta.replayed, false);
    assert.match(meta.requestId, /^req_/);
    assert.deepEqual((await mailkeel.lists.retrieve(data.id)).data, data);
    const { data: me } = await mailkeel.me.retrieve();
    assert.equal(me.team.id, team.team.id);
    assert.ok(proxy.requests.every(({ headers }) => headers["service-version"] === SERVICE_VERSION));
    assert.equal(me.api_version, SERVICE_VERSION);
  });

  it("changes what a patch names, and deletes", async () => {
    const { data: list } = await mailkeel.lists.create({ name: "Before", description: "Stays" });
    const { data: changed } = await mailkeel.lists.update(list.id, { name: "After" });
    assert.deepEqual([changed.name, changed.description], ["After", "Stays"]);
    assert.deepEqual((await mailkeel.lists.delete(list.id)).data, { object: "list", id: list.id, deleted: true });
  });

  it("says that an answer is a repeated one", async () => {
    const idempotencyKey = unique("key");
    const first = await mailkeel.lists.create({ name: "Once" }, { idempotencyKey });
    const second = await mailkeel.lists.create({ name: "Once" }, { idempotencyKey });
    assert.deepEqual(second.data, first.data);
    assert.deepEqual([first.meta.replayed, second.meta.replayed], [false, true]);
  });

  it("answers a dry run with its impact and changes nothing", async () => {
    const name = unique("List");
    const { data, meta } = await mailkeel.lists.create({ name }, { dryRun: true });
    assert.equal(data, null);
    assert.equal(meta.dryRun, true);
    assert.equal(meta.impact.would_create, 1);
    assert.deepEqual(await listsNamed(name), []);
  });

  it("writes an id of the path so that it stays one segment", async () => {
    const { code } = await failureOf(mailkeel.suppressions.retrieve("a/b?c#d@example.com"), NotFoundError);
    assert.equal(code, "not_found");
    assert.match(proxy.requests[0]?.url ?? "", /\/suppressions\/a%2Fb%3Fc%23d%40example\.com$/);
    for (const id of ["", ".", ".."]) await failureOf(mailkeel.lists.retrieve(id), MailkeelError);
    assert.equal(proxy.requests.length, 1);
    proxy.next("lose answer");
    const lost = await failureOf(mailkeel.suppressions.retrieve("ada@example.com", { maxRetries: 0 }), ConnectionError);
    assert.ok(!lost.message.includes("ada@"), lost.message);
  });

  it("carries an access token in place of a key, and exactly one of the two", async () => {
    await clientOf({ apiKey: "", accessToken: team.keys.live }).me.retrieve();
    const { headers } = proxy.requests[0] ?? {};
    assert.equal(headers?.authorization, `Bearer ${team.keys.live}`);
    assert.equal(headers?.["x-api-key"], undefined);
    assert.throws(() => clientOf({ apiKey: "" }), MailkeelError);
    assert.throws(() => clientOf({ accessToken: "x.y.z" }), MailkeelError);
    assert.throws(() => clientOf({ baseUrl: "localhost" }), MailkeelError);
  });

  describe("that is refused", () => {
    it("throws the class of the error's type, with its code, field and request id", async () => {
      const invalid = await failureOf(mailkeel.lists.create({ name: "" }), InvalidRequestError);
      assert.deepEqual(
        [invalid.status, invalid.type, invalid.code],
        [400, "invalid_request_error", "validation_failed"],
      );
      assert.equal(invalid.param, "name");
      assert.match(invalid.requestId ?? "", /^req_/);
      assert.match(invalid.docUrl ?? "", /#validation_failed$/);
      assert.ok(invalid instanceof ApiError && invalid instanceof MailkeelError);
      assert.match(invalid.message, /^validation_failed: .+ \(req_\w+\)$/s);

      const email = uniqueEmail();
      await mailkeel.subscribers.create({ email });
      const known = await failureOf(mailkeel.subscribers.create({ email }), InvalidRequestError);
      assert.deepEqual([known.status, known.code], [409, "resource_already_exists"]);

      const denied = await failureOf(clientOf({ apiKey: "mk_live_x" }).me.retrieve(), AuthenticationError);
      assert.equal(denied.code, "api_key_malformed");
      const narrow = await team.mint({ scopes: ["lists:read"] });
      const lacking = await failureOf(clientOf({ apiKey: narrow.key }).lists.create({ name: "x" }), PermissionError);
      assert.equal(lacking.code, "insufficient_scope");
      const missing = await failureOf(mailkeel.lists.retrieve("list_none"), NotFoundError);
      assert.equal(missing.param, undefined);
      const { keys: small } = await makeTeam({ plan: "FREE" });
      assert.equal((await failureOf(clientOf({ apiKey: small.live }).me.retrieve(), QuotaError)).status, 402);
      const idempotencyKey = unique("key");
      await mailkeel.lists.create({ name: "One" }, { idempotencyKey });
      const reused = await failureOf(mailkeel.lists.create({ name: "Other" }, { idempotencyKey }), ConflictError);
      assert.equal(reused.code, "idempotency_key_reused");
    });

    it("is not made again where that cannot help", async () => {
      const capped = refusal(429, "rate_limit_error", "send_cap_exceeded", 1);
      proxy.next(capped);
      const failure = await failureOf(mailkeel.newsletters.previewSend("nl_none"), RateLimitError);
      assert.deepEqual([failure.code, failure.retryAfter], ["send_cap_exceeded", 1]);
      assert.equal(proxy.requests.length, 1);
      for (const refused of [
        refusal(400, "invalid_request_error", "validation_failed"),
        refusal(409, "conflict_error", "idempotency_key_reused"),
        refusal(402, "quota_error", "quota_exceeded"),
        refusal(418, "a_type_to_come", "a_code_to_come"),
      ]) {
        proxy.next(refused);
        await failureOf(mailkeel.lists.create({ name: "x" }), ApiError);
        assert.equal(proxy.requests.length, 1);
      }
    });
  });

  describe("that writes and fails", () => {
    const failing: Record<string, Fault> = {
      "a failure of the service": INTERNAL,
      "a service that is away": UNAVAILABLE,
      "a try before that still runs": IN_FLIGHT,
      "a used-up quota": refusal(402, "quota_error", "quota_exceeded"),
      "a limit of requests": refusal(429, "rate_limit_error", "rate_limit_exceeded", 0),
      "the refusal of a proxy": { status: 503, body: "<h1>Service Unavailable</h1>" },
      "the answer of another server": { status: 404, body: "<h1>Not Found</h1>" },
      "a lost answer": "lose answer",
    };
    for (const [what, fault] of Object.entries(failing)) {
      it(`throws its key after ${what}: a repeated call under it has one effect`, async () => {
        const name = unique("List");
        proxy.next(fault);
        const { idempotencyKey } = await failureOf(mailkeel.lists.create({ name }, { maxRetries: 0 }), MailkeelError);
        assert.equal(proxy.requests.length, 1);
        assert.ok(idempotencyKey && keys().has(idempotencyKey));
        for (let call = 0; call < 2; call++) await mailkeel.lists.create({ name }, { idempotencyKey });
        assert.equal((await listsNamed(name)).length, 1);
      });
    }

    it("throws no key of a read", async () => {
      proxy.next(UNAVAILABLE);
      const failure = await failureOf(mailkeel.me.retrieve({ maxRetries: 0 }), ServiceError);
      assert.equal(failure.idempotencyKey, undefined);
    });

    it("waits for the end of a try before that still runs, beyond the number of retries", async () => {
      const name = unique("List");
      proxy.next("lose request", ...Array.from({ length: 12 }, () => IN_FLIGHT));
      await mailkeel.lists.create({ name }, { maxRetries: 1 });
      assert.equal(proxy.requests.length, 14);
      assert.equal(keys().size, 1);
      assert.equal((await listsNamed(name)).length, 1);
    });

    it("counts its retries between the tries that find another in flight", async () => {
      proxy.next("lose request", IN_FLIGHT, INTERNAL, IN_FLIGHT, INTERNAL);
      await failureOf(mailkeel.lists.create({ name: "Never" }, { maxRetries: 2 }), ServiceError);
      assert.equal(proxy.requests.length, 5);
    });

    it("waits for it no longer than for all tries", async () => {
      proxy.next(...Array.from({ length: 9 }, () => refusal(409, "conflict_error", "request_in_flight", 1)));
      const failure = await failureOf(
        mailkeel.lists.create({ name: "Never" }, { totalTimeoutMs: 2_500 }),
        ConflictError,
      );
      assert.ok(failure.idempotencyKey && keys().has(failure.idempotencyKey));
      assert.equal(proxy.requests.length, 3);
    });
  });

  describe("that may be made again", () => {
    const passing: Record<string, Fault> = {
      rate_limit_exceeded: refusal(429, "rate_limit_error", "rate_limit_exceeded", 1),
      service_unavailable: refusal(503, "api_error", "service_unavailable", 1),
      request_in_flight: refusal(409, "conflict_error", "request_in_flight", 1),
      internal_error: refusal(500, "api_error", "internal_error"),
      request_timeout: refusal(408, "api_error", "request_timeout"),
      "the refusal of a proxy": { status: 502, body: "<h1>Bad Gateway</h1>" },
      "a lost request": "lose request",
      "a lost answer": "lose answer",
    };
    for (const [what, fault] of Object.entries(passing)) {
      it(`is made again after ${what}, under the same key, and has one effect`, async () => {
        const name = unique("List");
        proxy.next(fault, fault);
        const { data, meta } = await mailkeel.lists.create({ name });
        assert.equal(proxy.requests.length, 3);
        const [key] = keys();
        assert.ok(key && keys().size === 1);
        assert.equal(meta.replayed, fault === "lose answer");
        if (typeof fault === "object" && fault.headers?.["retry-after"]) {
          const [first, second] = proxy.requests;
          // Timers may be a little early.
          assert.ok(first && second && second.at - first.at > 950, "it waited for Retry-After");
        }
        assert.deepEqual(
          (await listsNamed(name)).map(({ id }) => id),
          [data.id],
        );
      });
    }

    it("has a key of its own for each call", async () => {
      for (let i = 0; i < 3; i++) await mailkeel.lists.create({ name: "Same" });
      assert.equal(keys().size, 3);
      await mailkeel.lists.list();
      assert.equal(proxy.requests.at(-1)?.headers["idempotency-key"], undefined, "a read needs none");
    });

    it("is made again as a read after a failure of the service or of the connection", async () => {
      proxy.next("lose answer", UNAVAILABLE, refusal(500, "api_error", "internal_error"));
      assert.equal((await mailkeel.me.retrieve()).data.object, "api_key");
      assert.equal(proxy.requests.length, 4);
    });

    it("is made five times at most, then throws what it got last", async () => {
      proxy.next(...Array.from({ length: 10 }, () => UNAVAILABLE));
      const failure = await failureOf(mailkeel.me.retrieve(), ServiceError);
      assert.equal(failure.code, "service_unavailable");
      assert.equal(proxy.requests.length, 5);
      proxy.next("lose request");
      await failureOf(mailkeel.me.retrieve({ maxRetries: 0 }), ConnectionError);
      assert.equal(proxy.requests.length, 1);
    });

    it("waits for the Retry-After of a proxy, in seconds or as an instant", async () => {
      const notBefore = async (retryAfter: string, earliest: (firstAt: number) => number) => {
        proxy.next({ status: 503, headers: { "retry-after": retryAfter }, body: "<h1>Service Unavailable</h1>" });
        await mailkeel.me.retrieve();
        const [first, second] = proxy.requests;
        // Timers may be a little early.
        assert.ok(first && second && second.at > earliest(first.at) - 50, retryAfter);
      };
      await notBefore("2", (firstAt) => firstAt + 2_000);
      const instant = new Date(Date.now() + 3_000).toUTCString();
      await notBefore(instant, () => Date.parse(instant) - performance.timeOrigin);
    });

    it("is made again after a proxy's limit of requests, which the service has not seen, even as a deletion", async () => {
      const { data: list } = await mailkeel.lists.create({ name: "Short-lived" });
      const limited = { status: 429, headers: { "retry-after": "0" }, body: "<h1>Too Many Requests</h1>" };
      proxy.next(limited);
      assert.equal((await mailkeel.lists.delete(list.id)).data.deleted, true);
      assert.equal(proxy.requests.length, 2);
      proxy.next({ ...limited, headers: { "retry-after": "61" } });
      const failure = await failureOf(mailkeel.lists.create({ name: "x" }), ConnectionError);
      assert.deepEqual([failure.status, failure.retryAfter], [429, 61]);
      assert.equal(proxy.requests.length, 1);
    });

    it("is not made again where the wait would be too long", async () => {
      const later = refusal(429, "rate_limit_error", "rate_limit_exceeded", 61);
      for (const options of [{}, { totalTimeoutMs: 30_000, maxRetryAfterMs: 120_000 }]) {
        proxy.next(later);
        assert.equal((await failureOf(mailkeel.me.retrieve(options), RateLimitError)).retryAfter, 61);
        assert.equal(proxy.requests.length, 1);
      }
    });
  });

  describe("that deletes", () => {
    it("is not made again after a lost answer: a second deletion would be refused", async () => {
      const { data: list } = await mailkeel.lists.create({ name: "Short-lived" });
      proxy.next("lose answer");
      const failure = await failureOf(mailkeel.lists.delete(list.id), ConnectionError);
      assert.equal(failure.idempotencyKey, undefined);
      assert.equal(proxy.requests.length, 1);
      await failureOf(mailkeel.lists.delete(list.id), NotFoundError);
      proxy.next(UNAVAILABLE);
      await failureOf(mailkeel.lists.delete(list.id), ServiceError);
      assert.equal(proxy.requests.length, 1);
    });

    it("is made again when it was refused before it began, and as a dry run", async () => {
      const { data: list } = await mailkeel.lists.create({ name: "Short-lived" });
      proxy.next("lose answer");
      assert.equal((await mailkeel.lists.delete(list.id, { dryRun: true })).meta.impact.object, "impact");
      proxy.next(refusal(429, "rate_limit_error", "rate_limit_exceeded", 0));
      assert.equal((await mailkeel.lists.delete(list.id)).data.deleted, true);
      assert.equal(proxy.requests.length, 2);
    });
  });

  describe("that gets no answer", () => {
    it("is cut off after its time and made again", async () => {
      proxy.next("hang");
      const { data } = await mailkeel.lists.create({ name: "Late" }, { timeoutMs: 2_000 });
      assert.equal(data.name, "Late");
      assert.equal(proxy.requests.length, 2);
      assert.equal(keys().size, 1);
    });

    it("ends with a timeout that names the key, within the time for all tries", async () => {
      proxy.next("hang", "hang", "hang");
      const idempotencyKey = unique("key");
      const options = { timeoutMs: 100, maxRetries: 1, idempotencyKey };
      const failure = await failureOf(mailkeel.lists.create({ name: "Late" }, options), TimeoutError);
      assert.equal(failure.idempotencyKey, idempotencyKey);
      assert.equal(proxy.requests.length, 2);
      proxy.next("hang", "hang");
      await failureOf(mailkeel.me.retrieve({ totalTimeoutMs: 100 }), TimeoutError);
      assert.equal(proxy.requests.length, 1);
    });

    it("ends with the reason of its signal, while it runs and while it waits", async () => {
      const reason = new Error("the user has left");
      for (const fault of ["hang", refusal(503, "api_error", "service_unavailable", 30)] as const) {
        proxy.next(fault);
        const abort = new AbortController();
        const ended = failureOf(mailkeel.me.retrieve({ signal: abort.signal }), Error);
        await eventually(() => proxy.requests.length > 0, { what: "the request" });
        abort.abort(reason);
        assert.equal(await ended, reason);
        assert.equal(proxy.requests.length, 1);
      }
      await assert.rejects(mailkeel.me.retrieve({ signal: AbortSignal.abort(reason) }), reason);
    });
  });

  describe("whose answer is not one of the API's", () => {
    it("is not made again, and its key is not sent to another host", async () => {
      let asked = 0;
      const other = createServer((_request, response) => {
        asked++;
        response.end("{}");
      }).listen(0, "127.0.0.1");
      await once(other, "listening");
      try {
        const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`;
        for (const fault of [
          { status: 307, headers: { location } },
          { status: 200, body: "<h1>Welcome</h1>" },
          { status: 200, body: "{}" },
          { status: 404, body: "null" },
        ]) {
          proxy.next(fault);
          const failure = await failureOf(mailkeel.lists.create({ name: "x" }), MailkeelError);
          assert.match(failure.message, /is baseUrl right\?/);
          assert.equal(proxy.requests.length, 1);
        }
        assert.equal(asked, 0);
      } finally {
        other.close();
      }
    });
  });

  it("waits for Retry-After, else for any time up to a bound that doubles", () => {
    const failed = new ConnectionError("lost", { idempotencyKey: undefined });
    const bounds = [1, 2, 3, 4, 5, 6, 60].map((retry) => retryDelayMs(failed, retry, 1));
    assert.deepEqual(bounds, [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
    assert.equal(retryDelayMs(failed, 5, 0), 0);
    assert.equal(retryDelayMs(failed, 5, 0.5), 4_000);
  });

  it("reaches the service without a proxy in between", async () => {
    const baseUrl = `${(await stack()).api}/`;
    const direct = new Mailkeel({ apiKey: team.keys.live, baseUrl, fetch: documentedFetch });
    assert.equal((await direct.me.retrieve()).data.environment, "LIVE");
  });
});
