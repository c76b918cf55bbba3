import assert from "node:assert/strict";
import { createServer } from "node:http";
import { apiErrorOf } from "../../client/errors.ts";
import {
  ApiError,
  type ClientOptions,
  ConflictError,
  ConnectionError,
  InvalidRequestError,
  Mailkeel,
  MailkeelError,
  NotFoundError,
  RateLimitError,
  SERVICE_VERSION,
  ServiceError,
  TimeoutError,
} from "../../client/index.ts";
import { mayRetry, retryDelayMs } from "../../client/retry.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { type Fault, type FaultyProxy, openFaultyProxy, refusal } from "./faulty-proxy.ts";

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
    const { data: changed } = await mailkeel.lists.update(data.id, { description: "Changed" });
    assert.deepEqual([changed.name, changed.description], [name, "Changed"]);
    assert.deepEqual((await mailkeel.lists.delete(data.id)).data, { object: "list", id: data.id, deleted: true });
    const { data: me } = await mailkeel.me.retrieve();
    assert.equal(me.team.id, team.team.id);
    assert.ok(proxy.requests.every(({ headers }) => headers["service-version"] === SERVICE_VERSION));
    assert.equal(me.api_version, SERVICE_VERSION);
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
    for (const apiKey of ["mk_live_…", "secret\nkey"]) {
      const hidden = (error: unknown) => error instanceof MailkeelError && !error.message.includes(apiKey);
      assert.throws(() => clientOf({ apiKey }), hidden);
    }
    assert.throws(() => clientOf({ accessToken: "x.y.z" }), MailkeelError);
  });

  it("needs an address of HTTP without credentials and a query, and times above 0: else the constructor throws", async () => {
    const { host, pathname } = new URL(proxy.baseUrl);
    for (const baseUrl of [
      ...["", "localhost", `${host}${pathname}`, `//me:secret@${host}${pathname}`, `ftp://${host}${pathname}`],
      ...[`http://me:secret@${host}${pathname}`, `http://me@${host}`, `${proxy.baseUrl}?`, `${proxy.baseUrl}#x`],
    ])
      assert.throws(
        () => clientOf({ baseUrl }),
        (error) =>
          error instanceof MailkeelError && /^baseUrl must /.test(error.message) && !/secret/.test(error.message),
        baseUrl,
      );
    for (const name of ["timeoutMs", "totalTimeoutMs"])
      for (const ms of [0, -1, Number.NaN]) {
        const refused = { name: "MailkeelError", message: `${name} must be a number of milliseconds above 0.` };
        assert.throws(() => clientOf({ [name]: ms }), refused);
        await assert.rejects(mailkeel.me.retrieve({ [name]: ms }), refused);
      }
    assert.equal(proxy.requests.length, 0);
  });

  it("needs a whole number of retries", () => {
    for (const maxRetries of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY])
      assert.throws(() => clientOf({ apiKey: "mk_test_x", maxRetries }), MailkeelError);
  });

  it("takes each time above 0, and one beyond those of a timer as the longest", async () => {
    for (const ms of [2 ** 31 - 1, 2 ** 31, Infinity, 9_999.5])
      for (const options of [{ timeoutMs: ms }, { totalTimeoutMs: ms }, { timeoutMs: ms, totalTimeoutMs: ms }]) {
        await mailkeel.me.retrieve({ ...options, maxRetries: 0 });
        await clientOf({ ...options, maxRetries: 0 }).me.retrieve();
      }
    // A wait that is longer than a timer does not end at once: the signal ends it.
    proxy.next(refusal(429, "rate_limit_error", "rate_limit_exceeded", 30 * 86_400));
    const abort = new AbortController();
    const endless = { totalTimeoutMs: Infinity, maxRetryAfterMs: Infinity, signal: abort.signal };
    const reason = new Error("the user has left");
    const waiting = assert.rejects(mailkeel.me.retrieve(endless), reason);
    await eventually(() => proxy.requests.length > 0, { what: "the request" });
    for (let turn = 0; turn < 3; turn++) await mailkeel.me.retrieve();
    assert.equal(proxy.requests.length, 4);
    abort.abort(reason);
    await waiting;
  });

  it("takes an option that is undefined as one that is not given", async () => {
    const none = { serviceVersion: undefined, timeoutMs: undefined, totalTimeoutMs: undefined, maxRetries: undefined };
    await clientOf({ ...none, fetch: undefined, signal: undefined }).lists.create(
      { name: "Readers", description: undefined },
      { ...none, idempotencyKey: undefined, dryRun: undefined },
    );
    assert.equal(proxy.requests[0]?.headers["service-version"], SERVICE_VERSION);
    assert.match(String(proxy.requests[0]?.headers["idempotency-key"]), /^[\w-]{36}$/);
    proxy.next("hang");
    const hasty = clientOf({ timeoutMs: 100, maxRetries: 0 });
    await failureOf(hasty.lists.list({}, { timeoutMs: undefined, maxRetries: undefined }), TimeoutError);
    assert.equal(proxy.requests.length, 1);
    const reason = new Error("stopped");
    const stopped = clientOf({ signal: AbortSignal.abort(reason) });
    await assert.rejects(stopped.me.retrieve({ signal: undefined }), reason);
  });

  it("that is refused by a record that exists gives its id", async () => {
    const person = { email: uniqueEmail() };
    const { data } = await mailkeel.subscribers.create(person);
    const taken = await failureOf(mailkeel.subscribers.create(person), InvalidRequestError);
    assert.deepEqual([taken.code, taken.resourceId], ["resource_already_exists", data.id]);
  });

  it("that is refused throws the class of the error's type, with its code, field and request id", async () => {
    const invalid = await failureOf(mailkeel.lists.create({ name: "" }), InvalidRequestError);
    const facts = [invalid.status, invalid.type, invalid.code, invalid.param];
    assert.deepEqual(facts, [400, "invalid_request_error", "validation_failed", "name"]);
    assert.match(invalid.requestId ?? "", /^req_/);
    assert.match(invalid.docUrl ?? "", /#validation_failed$/);
    assert.ok(invalid instanceof ApiError && invalid instanceof MailkeelError);
    assert.match(invalid.message, /^validation_failed: .+ \(req_\w+\)$/s);
    assert.equal((await failureOf(mailkeel.lists.retrieve("list_none"), NotFoundError)).param, undefined);
    const idempotencyKey = unique("key");
    await mailkeel.lists.create({ name: "One" }, { idempotencyKey });
    const reused = await failureOf(mailkeel.lists.create({ name: "Other" }, { idempotencyKey }), ConflictError);
    assert.equal(reused.code, "idempotency_key_reused");
    assert.equal(proxy.requests.length, 4, "none of them was made again");
    proxy.next(refusal(418, "a_type_to_come", "a_code_to_come"));
    await failureOf(mailkeel.lists.create({ name: "x" }), ApiError);
    assert.equal(proxy.requests.length, 1);
  });

  it("is made again after every error that may pass, and a write without a key after those before it began", () => {
    const refused = (code: string) =>
      apiErrorOf({
        ...{ status: 400, type: "api_error", code, message: "", param: undefined, docUrl: undefined },
        ...{ requestId: undefined, retryAfter: undefined, idempotencyKey: undefined },
      });
    const expected: [error: Error, repeatable: boolean, withoutKey: boolean][] = [
      [refused("service_unavailable"), true, false],
      [refused("internal_error"), true, false],
      [refused("request_in_flight"), true, false],
      [refused("rate_limit_exceeded"), true, true],
      [refused("request_timeout"), true, true],
      [refused("send_cap_exceeded"), false, false],
      [refused("quota_exceeded"), false, false],
      [refused("validation_failed"), false, false],
      [new ConnectionError("lost"), true, false],
      [new ConnectionError("a proxy's", { status: 502 }), true, false],
      [new ConnectionError("a proxy's", { status: 429 }), true, true],
      [new MailkeelError("another"), false, false],
    ];
    for (const [error, repeatable, withoutKey] of expected)
      assert.deepEqual([mayRetry(error, true), mayRetry(error, false)], [repeatable, withoutKey], error.message);
  });

  describe("that writes", () => {
    const failing: Record<string, Fault> = {
      "a limit of requests": refusal(429, "rate_limit_error", "rate_limit_exceeded", 1),
      "a lost request": "lose request",
      "a lost answer": "lose answer",
    };
    for (const [what, fault] of Object.entries(failing)) {
      it(`throws its key after ${what}, or is made again under the same one, and has one effect`, async () => {
        const name = unique("List");
        proxy.next(fault);
        const { idempotencyKey } = await failureOf(mailkeel.lists.create({ name }, { maxRetries: 0 }), MailkeelError);
        assert.equal(proxy.requests.length, 1);
        assert.ok(idempotencyKey && keys().has(idempotencyKey));
        await mailkeel.lists.create({ name }, { idempotencyKey });
        assert.equal((await listsNamed(name)).length, 1);

        const other = unique("List");
        proxy.next(fault);
        const { data, meta } = await mailkeel.lists.create({ name: other });
        assert.deepEqual([proxy.requests.length, keys().size], [2, 1]);
        assert.equal(meta.replayed, fault === "lose answer");
        if (what === "a limit of requests") {
          const [first, second] = proxy.requests;
          // Timers may be a little early.
          assert.ok(first && second && second.at - first.at > 950, "it waited for Retry-After");
        }
        assert.deepEqual(
          (await listsNamed(other)).map(({ id }) => id),
          [data.id],
        );
      });
    }

    it("waits for the end of a try before that still runs, beyond the number of retries", async () => {
      const name = unique("List");
      proxy.next("lose request", ...Array.from({ length: 12 }, () => IN_FLIGHT));
      await mailkeel.lists.create({ name }, { maxRetries: 1 });
      assert.deepEqual([proxy.requests.length, keys().size], [14, 1]);
      assert.equal((await listsNamed(name)).length, 1);
      // Its retries are counted between them.
      proxy.next("lose request", IN_FLIGHT, INTERNAL, IN_FLIGHT, INTERNAL);
      await failureOf(mailkeel.lists.create({ name: "Never" }, { maxRetries: 2 }), ServiceError);
      assert.equal(proxy.requests.length, 5);
    });

    it("waits no longer than for all tries", async () => {
      proxy.next(...Array.from({ length: 9 }, () => refusal(409, "conflict_error", "request_in_flight", 1)));
      const waiting = mailkeel.lists.create({ name: "Never" }, { totalTimeoutMs: 1_900 });
      const { idempotencyKey } = await failureOf(waiting, ConflictError);
      assert.ok(idempotencyKey && keys().has(idempotencyKey));
      assert.equal(proxy.requests.length, 2);
    });

    it("has a key of its own for each call; a read has none", async () => {
      for (let i = 0; i < 3; i++) await mailkeel.lists.create({ name: "Same" });
      assert.equal(keys().size, 3);
      proxy.next(UNAVAILABLE);
      const failure = await failureOf(mailkeel.me.retrieve({ maxRetries: 0 }), ServiceError);
      assert.equal(failure.idempotencyKey, undefined);
      assert.deepEqual([...keys()], [undefined]);
    });
  });

  it("is made five times at most, then throws what it got last", async () => {
    proxy.next(...Array.from({ length: 10 }, () => UNAVAILABLE));
    const failure = await failureOf(mailkeel.me.retrieve(), ServiceError);
    assert.equal(failure.code, "service_unavailable");
    assert.equal(proxy.requests.length, 5);
  });

  it("reads the Retry-After of a proxy, in seconds or as an instant", async () => {
    for (const [retryAfter, seconds] of [
      ["40", 40],
      [new Date(Date.now() + 40_000).toUTCString(), 39],
    ] as const) {
      proxy.next({ status: 503, headers: { "retry-after": retryAfter }, body: "<h1>Service Unavailable</h1>" });
      const failure = await failureOf(mailkeel.me.retrieve({ maxRetries: 0 }), ConnectionError);
      assert.ok(Math.abs((failure.retryAfter ?? 0) - seconds) <= 10, `${failure.retryAfter}`);
      assert.equal(retryDelayMs(failure, 1, 1), (failure.retryAfter ?? 0) * 1_000);
    }
  });

  it("is not made again where the wait would be too long", async () => {
    for (const options of [{}, { totalTimeoutMs: 30_000, maxRetryAfterMs: 120_000 }]) {
      proxy.next(refusal(429, "rate_limit_error", "rate_limit_exceeded", 61));
      assert.equal((await failureOf(mailkeel.me.retrieve(options), RateLimitError)).retryAfter, 61);
      assert.equal(proxy.requests.length, 1);
    }
  });

  it("that deletes is made again when it was refused before it began, and as a dry run, not after a lost answer", async () => {
    const { data: list } = await mailkeel.lists.create({ name: "Short-lived" });
    proxy.next("lose answer");
    assert.equal((await mailkeel.lists.delete(list.id, { dryRun: true })).meta.impact.object, "impact");
    proxy.next(refusal(429, "rate_limit_error", "rate_limit_exceeded", 0), "lose answer");
    const failure = await failureOf(mailkeel.lists.delete(list.id), ConnectionError);
    assert.equal(failure.idempotencyKey, undefined);
    assert.equal(proxy.requests.length, 2);
    await failureOf(mailkeel.lists.delete(list.id), NotFoundError);
    proxy.next(UNAVAILABLE);
    await failureOf(mailkeel.lists.delete(list.id), ServiceError);
    assert.equal(proxy.requests.length, 1);
  });

  describe("that gets no answer", () => {
    it("is cut off after its time and made again, and ends with a timeout that names the key, within the time for all tries", async () => {
      proxy.next("hang");
      const { data } = await mailkeel.lists.create({ name: "Late" }, { timeoutMs: 1_000 });
      assert.equal(data.name, "Late");
      assert.deepEqual([proxy.requests.length, keys().size], [2, 1]);
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

  it("whose answer is not one of the API's is not made again, and its key is not sent to another host", async () => {
    let asked = 0;
    const other = createServer((_request, response) => {
      asked++;
      response.end("{}");
    });
    const port = await listenLocally(other);
    try {
      const location = `http://127.0.0.1:${port}/`;
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

  it("waits for Retry-After, else for any time up to a bound that doubles", () => {
    const failed = new ConnectionError("lost", { idempotencyKey: undefined });
    const bounds = [1, 2, 3, 4, 5, 6, 60].map((retry) => retryDelayMs(failed, retry, 1));
    assert.deepEqual(bounds, [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
    assert.equal(retryDelayMs(failed, 5, 0), 0);
    assert.equal(retryDelayMs(failed, 5, 0.5), 4_000);
  });
});
