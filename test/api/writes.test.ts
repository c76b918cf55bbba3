import assert from "node:assert/strict";
import { z } from "zod";
import { impact, ok, router } from "../../api/rest/route.ts";
import { List } from "../../db/entities/audience.ts";
import { Team } from "../../db/entities/team.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";

const input = z.strictObject({ body: z.strictObject({ outcome: z.string() }) });

const routes = router({
  write: route({
    method: "POST",
    path: "/write",
    status: 201,
    scope: "lists:write",
    summary: "Makes a list",
  })
    .input(input)
    .output(z.object({}))
    .mutation(async ({ ctx, input }) => {
      const id = newId("list");
      ctx.em.create(List, { id, ...ctx.tenant, name: "flushed", optin: "SINGLE" });
      await ctx.em.flush();
      if (input.body.outcome === "refuse") throw new ApiError("resource_state_invalid");
      // The database must have its say on a dry run too.
      await ctx.em.execute("insert into lists select * from lists where id = ?", [id]);
      return ok({}, { impact: impact({ would_create: 2 }) });
    }),
});

describe("dry_run", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(routes);
    team = await makeTeam();
  });
  after(() => app.close());

  const post = (query: string, outcome: string) => api(team.keys.live, app.base).post(`/write${query}`, { outcome });

  it("is refused where the real request would be", async () => {
    for (const outcome of ["refuse", "duplicate"]) {
      const dry = await post("?dry_run=true", outcome);
      const real = await post("", outcome);
      assert.ok(dry.status >= 400);
      assert.deepEqual([dry.status, dry.body.error.code], [real.status, real.body.error.code]);
    }
  });
});

/** The checks that ran, and whether a transaction was open. */
let checks: { name: string; inTransaction: boolean; tenant: string }[] = [];

const checkedRoutes = router({
  make: route({
    method: "POST",
    path: "/make",
    scope: "lists:write",
    summary: "Checks something, then makes a row",
  })
    .input(z.strictObject({ body: z.strictObject({ name: z.string().min(3) }) }))
    .output(z.object({ id: z.string() }))
    .before(async ({ ctx, input: { body } }) => {
      const { em, tenant } = ctx;
      checks.push({ name: body.name, inTransaction: em.isInTransaction(), tenant: tenant.teamId });
      if (body.name.startsWith("invalid")) throw new ApiError("validation_failed", "no", { param: "name" });
      if (body.name.startsWith("refused")) throw new ApiError("resource_state_invalid");
    })
    .mutation(async ({ ctx, input: { body } }) => {
      assert.ok(ctx.em.isInTransaction());
      const id = newId("team");
      ctx.em.create(Team, { id, name: body.name, plan: "FREE" });
      return ok({ id }, { impact: impact({ would_create: 1 }) });
    }),
});

describe("A check before a route's transaction", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(checkedRoutes);
  });
  after(() => app.close());
  beforeEach(async () => {
    checks = [];
    team = await makeTeam();
  });

  const make = (
    name: string,
    options: { idempotencyKey?: string; query?: Record<string, string>; key?: string } = {},
  ) => api(options.key ?? team.keys.live, app.base).post("/make", { name }, options);
  const count = (name: string) => app.deps.orm.em.fork().count(Team, { name });

  for (const [how, options] of [
    ["as it is", () => ({})],
    ["under an Idempotency-Key", () => ({ idempotencyKey: unique("key") })],
    ["on a dry run", () => ({ query: { dry_run: "true" } })],
  ] as const) {
    it(`runs once and in no transaction: ${how}`, async () => {
      const name = unique("team");
      assert.equal((await make(name, options())).status, 200);
      assert.deepEqual(checks, [{ name, inTransaction: false, tenant: team.team.id }]);
      const invalid = unique("invalid");
      const refused = await make(invalid, options());
      assert.equal(refused.status, 400);
      assert.equal(refused.body.error.param, "name");
      assert.equal(await count(invalid), 0);
    });
  }

  it("does not run for a key without the scope, for a request that is not valid, or when an answer is replayed", async () => {
    const { key } = await team.mint({ scopes: ["lists:read"] });
    assert.equal((await make(unique("team"), { key })).status, 403);
    assert.equal((await make("x")).status, 400);
    assert.deepEqual(checks, []);
    const name = unique("team");
    const first = await make(name, { idempotencyKey: "k" });
    assert.equal((await make(name, { idempotencyKey: "k" })).text, first.text);
    assert.equal(checks.length, 1);
    assert.equal(await count(name), 1);
  });

  it("refuses like the handler: an invalid request frees the Idempotency-Key, a refusal is remembered", async () => {
    for (const kind of ["invalid", "refused"]) {
      const name = unique(kind);
      for (let i = 0; i < 2; i++) await make(name, { idempotencyKey: kind });
      assert.equal(checks.filter((check) => check.name === name).length, kind === "invalid" ? 2 : 1);
    }
  });
});
