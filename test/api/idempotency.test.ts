import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { IdempotencyRecordSchema } from "../../db/entities/idempotency.ts";
import { Team } from "../../db/entities/team.ts";
import { claimKey, type IdempotencyHandle, writeAnswer } from "../../domain/access/idempotency.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, codeOf as code } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";

/** Lets a test hold a handler in the middle and watch it. */
const stage = new EventEmitter();
stage.setMaxListeners(100);
let failures = 0;
let handle: IdempotencyHandle | null = null;

const write = z.strictObject({
  body: z.strictObject({ name: z.string(), hold: z.boolean().optional(), outcome: z.string().optional() }),
  query: z.strictObject({ a: z.string().optional(), b: z.string().optional() }),
});
const made = z.object({ id: z.string(), secret: z.string().optional() });

const routes = router({
  make: route({ method: "POST", path: "/make", status: 201, scope: null, dryRun: true, summary: "Makes a row" })
    .input(write)
    .output(made)
    .mutation(async ({ ctx, input: { body } }) => {
      const id = newId("team");
      ctx.em.create(Team, { id, name: body.name, plan: "FREE" });
      await ctx.em.flush();
      if (body.hold) {
        stage.emit(`held ${body.name}`);
        await once(stage, `go ${body.name}`);
      }
      if (body.outcome === "flaky" && failures-- > 0) throw new Error("failed");
      if (body.outcome === "conflict") throw new ApiError("resource_state_invalid", `refused ${id}`);
      if (body.outcome === "cap") throw new ApiError("send_cap_exceeded", undefined, { retryAfterSeconds: 60 });
      if (body.outcome === "full") throw new ApiError("resource_limit_reached");
      if (body.outcome === "scope") throw new ApiError("insufficient_scope");
      if (body.outcome === "late") {
        await ctx.em.execute("set local statement_timeout = '100ms'");
        await ctx.em.execute("select pg_sleep(10)");
      }
      if (body.outcome === "invalid") throw new ApiError("validation_failed", "no", { param: "name" });
      return ok({ id });
    }),
  secret: route({ method: "POST", path: "/secret", scope: null, secret: true, summary: "Gives a secret once" })
    .input(z.strictObject({ body: z.strictObject({}) }))
    .output(made)
    .mutation(async () => ok({ id: newId("team"), secret: `whsec_${unique("s")}` })),
  scoped: route({ method: "POST", path: "/scoped", scope: null, summary: "Needs a scope for its content" })
    .input(z.strictObject({ body: z.strictObject({}) }))
    .output(made)
    .mutation(async () => ok({ id: newId("team") }, { neededScopes: ["contacts:read", "suppressions:read"] })),
  preview: route({
    method: "POST",
    path: "/preview",
    scope: null,
    idempotency: "required",
    recall: (_ctx, facts) => ({ ...(facts as { id: string }), token: "the-token" }),
    summary: "Answers with a token that is not kept",
  })
    .input(z.strictObject({}))
    .output(z.object({ token: z.string(), id: z.string() }))
    .workflow(async () => {
      const facts = { id: newId("team") };
      return ok({ ...facts, token: "the-token" }, { facts });
    }),
  elsewhere: route({
    method: "POST",
    path: "/elsewhere",
    scope: null,
    idempotency: "required",
    status: 202,
    recall: (_ctx, facts) => facts,
    summary: "Has its answer written in the transaction of its effect",
  })
    .input(z.strictObject({ body: z.strictObject({ outcome: z.string() }) }))
    .output(made)
    .workflow(async ({ ctx, input }) => {
      handle = ctx.idempotency;
      assert.ok(handle);
      if (input.body.outcome === "unreachable")
        throw new ApiError("service_unavailable", "away", { retryAfterSeconds: 5 });
      if (input.body.outcome === "limit") throw new ApiError("send_cap_exceeded", undefined, { retryAfterSeconds: 5 });
      if (input.body.outcome === "refuse") throw new ApiError("send_plan_changed");
      const facts = { id: "other" };
      const payload = JSON.stringify(facts);
      await ctx.em.transactional(async (em) => {
        em.create(Team, { id: newId("team"), name: handle?.keyHash ?? "", plan: "FREE" });
        await em.flush();
        assert.ok(handle && (await writeAnswer(em, handle, { status: 202, kind: "facts", payload })));
      });
      if (input.body.outcome === "stale") throw new ApiError("confirmation_stale");
      if (input.body.outcome === "late") throw new ApiError("service_unavailable", "late", { retryAfterSeconds: 5 });
      return ok(facts, { facts, requestId: handle.requestId });
    }),
});

describe("Idempotency-Key", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(routes);
  });
  after(() => app.close());
  beforeEach(async () => {
    team = await makeTeam();
  });

  const client = () => api(team.keys.live, app.base);
  const make = (name: string, idempotencyKey?: string, more: object = {}) =>
    client().post("/make", { name, ...more }, { idempotencyKey });
  const count = (name: string) => app.deps.orm.em.fork().count(Team, { name });
  const records = () => app.deps.orm.em.fork().find(IdempotencyRecordSchema, { teamId: team.team.id });
  const age = (seconds: number) =>
    app.deps.orm.em
      .fork()
      .execute("update idempotency_records set locked_at = locked_at - make_interval(secs => ?) where team_id = ?", [
        seconds,
        team.team.id,
      ]);
  const isReplay = (answer: ApiAnswer) => answer.headers.get("idempotent-replayed") === "true";
  /** Asks for a row whose request is held in the middle until `go` is emitted. */
  const makeHeld = async (name: string) => {
    const held = once(stage, `held ${name}`);
    const answer = make(name, "k", { hold: true });
    await held;
    const go = stage.rawListeners(`go ${name}`).at(-1);
    return { answer, go: () => go?.() };
  };
  const assertReplay = (first: ApiAnswer, again: ApiAnswer) => {
    assert.ok(isReplay(again) && !isReplay(first));
    assert.equal(again.status, first.status);
    assert.equal(again.text, first.text);
    assert.notEqual(again.headers.get("x-request-id"), first.headers.get("x-request-id"));
  };

  it("replays the first answer to the byte and writes nothing more", async () => {
    const name = unique("once");
    const first = await make(name, "k");
    assert.equal(first.status, 201);
    for (let i = 0; i < 3; i++) assertReplay(first, await make(name, "k"));
    assert.equal(await count(name), 1);
  });

  it("is claimed by one of eight copies that come at once", async () => {
    const tenant = { teamId: team.team.id, environment: "LIVE" } as const;
    const request = { ...tenant, keyHash: unique("key"), fingerprint: "same", requestId: newId("request") };
    const claims = await Promise.allSettled(Array.from({ length: 8 }, () => claimKey(app.deps.orm.em.fork(), request)));
    const refusals = claims.flatMap((claim) => (claim.status === "rejected" ? [claim.reason.code] : []));
    assert.deepEqual(refusals, Array(7).fill("request_in_flight"));
  });

  it("recognises a request in any order of its fields and parameters, and refuses another one under the same key", async () => {
    const name = unique("order");
    const post = (path: string, body: string | object) => client().post(path, body, { idempotencyKey: "k" });
    const first = await post("/make?a=1&b=2", `{"name":"${name}","hold":false}`);
    assertReplay(first, await post("/make?b=2&a=1", `{ "hold": false, "name": "${name}" }`));
    assert.equal(code(await post("/make?a=1&b=2", { name: `${name}2`, hold: false })), "idempotency_key_reused");
    assert.equal(code(await post("/make?a=1", { name, hold: false })), "idempotency_key_reused");
    assert.equal(code(await post("/secret", {})), "idempotency_key_reused");
    assert.equal(await count(`${name}2`), 0);
  });

  it("keeps teams, environments and keys apart", async () => {
    const other = await makeTeam();
    const name = unique("apart");
    const post = (key: string, idempotencyKey: string) =>
      api(key, app.base).post("/make", { name }, { idempotencyKey });
    const answers = await Promise.all([
      post(team.keys.live, "k"),
      post(team.keys.test, "k"),
      post(other.keys.live, "k"),
      post(team.keys.live, "K"),
    ]);
    assert.ok(answers.every((answer) => answer.status === 201 && !isReplay(answer)));
    // The key is the team's, not the API key's.
    assert.ok(isReplay(await post(team.keys.cleanup, "k")));
  });

  /** Asks while another transaction holds the team's record. */
  async function whileLocked(ask: () => Promise<ApiAnswer>): Promise<ApiAnswer> {
    const em = app.deps.orm.em.fork();
    await em.begin();
    try {
      await em.execute("select from idempotency_records where team_id = ? for update", [team.team.id]);
      return await ask();
    } finally {
      await em.rollback();
    }
  }

  it("answers request_in_flight while the first attempt runs or another transaction writes the record, then its answer", async () => {
    const name = unique("slow");
    const { answer: first, go } = await makeHeld(name);
    const meanwhile = await make(name, "k", { hold: true });
    assert.equal(code(meanwhile), "request_in_flight");
    assert.ok(Number(meanwhile.headers.get("retry-after")) >= 1);
    assert.equal(code(await make(`${name}2`, "k")), "idempotency_key_reused");
    assert.equal(code(await whileLocked(() => make(name, "k", { hold: true }))), "request_in_flight");
    go();
    assertReplay(await first, await make(name, "k", { hold: true }));
  });

  /*
   * 0 s   attempt 1 claims the key, writes its row, stalls before it commits
   * 90 s  attempt 2 takes over, writes its row
   * then  attempt 1 wakes up: its fence does not hold, its row must go with it
   */
  it("takes a stalled attempt over after 90 seconds, not before, and leaves no trace of it", async () => {
    const name = unique("stalled");
    const first = await makeHeld(name);
    await age(85);
    assert.equal(code(await make(name, "k", { hold: true })), "request_in_flight");
    await age(6);
    const second = await makeHeld(name);
    first.go();
    assert.equal(code(await first.answer), "request_in_flight");
    second.go();
    const answer = await second.answer;
    assert.equal(code(answer), "201");
    assert.equal(await count(name), 1);
    assertReplay(answer, await make(name, "k", { hold: true }));
    assert.equal((await records())[0]?.attempt, 2);
  });

  it("gives a stalled attempt the answer that the one which took it over has stored meanwhile", async () => {
    const name = unique("overtaken");
    const first = await makeHeld(name);
    await age(91);
    const second = await makeHeld(name);
    second.go();
    const answer = await second.answer;
    assert.equal(code(answer), "201");
    first.go();
    assertReplay(answer, await first.answer);
    assert.equal(await count(name), 1);
  });

  it("remembers for 24 hours, then takes the key for any request", async () => {
    const name = unique("expired");
    const first = await make(name, "k");
    const shift = (interval: string) =>
      app.deps.orm.em
        .fork()
        .execute(`update idempotency_records set expires_at = expires_at - interval '${interval}' where team_id = ?`, [
          team.team.id,
        ]);
    await shift("23 hours 59 minutes");
    assertReplay(first, await make(name, "k"));
    await shift("1 minute");
    const other = await make(`${name}2`, "k");
    assert.equal(other.status, 201);
    assertReplay(other, await make(`${name}2`, "k"));
  });

  /** The state of the key after a request that failed, by the failure. */
  const FAILURES = {
    conflict: "is remembered with its refusal, written after the rollback",
    flaky: "is free for the same request: a defect",
    full: "is free for the same request: a refusal that another try may change",
    late: "is free for the same request: a statement that took too long",
    cap: "is free for any request: a 429",
    invalid: "is free for any request: one that never began",
    scope: "is free for any request: one that was not permitted",
  };
  for (const [outcome, what] of Object.entries(FAILURES)) {
    it(`${what} (${outcome})`, async () => {
      const name = unique(outcome);
      const ask = () => make(name, "k", { outcome });
      failures = 2;
      const first = await ask();
      assert.ok(first.status >= 400);
      assert.equal(first.headers.has("retry-after"), ["cap", "late"].includes(outcome));
      const again = await ask();
      if (outcome === "conflict") assertReplay(first, again);
      else assert.deepEqual([code(again), isReplay(again)], [code(first), false]);
      const other = await make(`${name}2`, "k");
      if (what.startsWith("is free for any")) assertReplay(other, await make(`${name}2`, "k"));
      else assert.equal(code(other), "idempotency_key_reused");
      assert.equal(await count(name), 0);
      if (outcome !== "flaky") return;
      assert.equal(code(await whileLocked(ask)), "request_in_flight", "another request takes the key");
      const third = await ask();
      assert.equal(third.status, 201);
      assertReplay(third, await ask());
      assert.equal(await count(name), 1);
    });
  }

  it("takes no body, an empty one and {} as one request on a route without a body", async () => {
    const send = (body?: string, headers?: Record<string, string>) =>
      client().post("/preview", body, { idempotencyKey: "k", headers });
    const first = await send();
    assert.equal(first.body.data.token, "the-token");
    assert.ok(!(await records())[0]?.payload?.includes("the-token"), "it is made again for each answer");
    for (const again of [await send("{}"), await send(" { } "), await send("")]) assertReplay(first, again);
    const chunked = await fetch(`${app.base}/preview`, {
      method: "POST",
      headers: { "x-api-key": team.keys.live, "idempotency-key": "k" },
      body: new ReadableStream({ start: (controller) => controller.close() }),
      duplex: "half",
    });
    assert.equal(chunked.headers.get("idempotent-replayed"), "true", await chunked.text());
  });

  it("has 1 to 255 printable ASCII characters, and is required where the route declares it, before the body is read", async () => {
    for (const idempotencyKey of ["k".repeat(256), "", "a\tb", "a\u00fcb"]) {
      const answer = await make("x", idempotencyKey);
      assert.equal(code(answer), "validation_failed", JSON.stringify(idempotencyKey));
      assert.equal(answer.body.error.param, "Idempotency-Key");
    }
    for (const idempotencyKey of ["k".repeat(255), "!~ ~!"]) {
      assert.equal(code(await make("x", idempotencyKey, { unknown: true })), "validation_failed");
      assert.equal((await make("x", idempotencyKey)).status, 201, "a request that is not valid claims nothing");
    }
    assert.equal(code(await client().post("/preview", "not json")), "idempotency_key_required");
  });

  it("claims nothing and replays nothing on a dry run", async () => {
    const name = unique("dry");
    const dry = () => client().post("/make?dry_run=true", { name, outcome: "keep" }, { idempotencyKey: "k" });
    const failed = await dry();
    assert.equal(failed.status, 500, "this route gives no impact");
    assert.equal((await records()).length, 0);
    assert.equal((await make(name, "k")).status, 201);
    assert.ok(!isReplay(await dry()));
    assert.equal(await count(name), 1);
  });

  it("stores an answer with a secret encrypted, replays it to the lineage that got it, and to no other", async () => {
    const idempotencyKey = "someone@example.com";
    const ask = (key: string) => api(key, app.base).post("/secret", {}, { idempotencyKey });
    const first = await ask(team.keys.live);
    assert.match(first.body.data.secret, /^whsec_/);
    const stored = JSON.stringify(await records());
    assert.ok(!stored.includes("whsec_") && !stored.includes(idempotencyKey), "nor the client's key");
    assertReplay(first, await ask(team.keys.live));
    const other = await ask(team.keys.cleanup);
    assert.equal(code(other), "idempotency_key_reused");
    assert.ok(!other.text.includes(first.body.data.secret));
    const em = app.deps.orm.em.fork();
    await em.execute(
      "update api_keys set lineage_id = (select lineage_id from api_keys where public_id = ?) where public_id = ?",
      [team.keys.live.split("_")[2], team.keys.cleanup.split("_")[2]],
    );
    assertReplay(first, await ask(team.keys.cleanup));
  });

  it("replays to a caller that still holds the scope which the first request needed", async () => {
    const ask = () => client().post("/scoped", {}, { idempotencyKey: "k" });
    assertReplay(await ask(), await ask());
    await app.deps.orm.em.fork().execute("update api_keys set granted_scopes = '{}' where team_id = ?", [team.team.id]);
    assert.equal(code(await ask()), "insufficient_scope");
  });

  describe("on a route whose effect a workflow commits", () => {
    const ask = (outcome: string, idempotencyKey: string) =>
      client().post("/elsewhere", { outcome }, { idempotencyKey });

    it("replays an answer that was written with the effect, and a refusal that the handler throws", async () => {
      const first = await ask("done", "k");
      assert.equal(first.status, 202);
      assertReplay(first, await ask("done", "k"));
      assert.equal(await count(handle?.keyHash ?? ""), 1);
      assertReplay(await ask("refuse", "k2"), await ask("refuse", "k2"));
    });

    it("answers what another attempt has stored, not its own refusal", async () => {
      for (const outcome of ["stale", "late"]) {
        const answer = await ask(outcome, outcome);
        assert.equal(answer.status, 202, answer.text);
        assert.ok(isReplay(answer));
        assert.equal((await ask(outcome, outcome)).text, answer.text);
      }
    });

    it("is the same attempt again after an outage, and a new one after a limit", async () => {
      const attempts: (number | undefined)[] = [];
      for (const outcome of ["unreachable", "unreachable"]) {
        assert.equal((await ask(outcome, "k")).status, 503);
        attempts.push(handle?.attempt);
      }
      for (let i = 0; i < 2; i++) {
        assert.equal((await ask("limit", "k2")).status, 429);
        attempts.push(handle?.attempt);
      }
      assert.deepEqual(attempts, [1, 1, 1, 2]);
    });
  });
});
