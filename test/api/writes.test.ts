import assert from "node:assert/strict";
import { z } from "zod";
import { impact, ok, router } from "../../api/rest/route.ts";
import { List } from "../../db/entities/audience.ts";
import { Team } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { snapshotTables } from "../support/tables.ts";

const input = z.strictObject({ body: z.strictObject({ outcome: z.string() }) });

const routes = router({
  write: route({
    method: "POST",
    path: "/write",
    status: 201,
    scope: "lists:write",
    dryRunScope: "lists:read",
    dryRun: true,
    summary: "Writes in every way there is",
  })
    .input(input)
    .output(z.object({ dry: z.boolean() }))
    .mutation(async ({ ctx, input }) => {
      const id = newId("list");
      ctx.em.create(List, { id, ...ctx.tenant, name: "flushed", optin: "SINGLE" });
      await ctx.em.flush();
      await kysely(ctx.em)
        .insertInto("lists")
        .values({ id: newId("list"), team_id: ctx.tenant.teamId, environment: "LIVE", name: "bulk", optin: "SINGLE" })
        .execute();
      await ctx.em.transactional((em) => em.nativeUpdate(Team, { id: ctx.tenant.teamId }, { name: "renamed" }));
      await kysely(ctx.em)
        .updateTable("members")
        .set({ name: "changed" })
        .where("team_id", "=", ctx.tenant.teamId)
        .execute();
      if (input.body.outcome === "refuse") throw new ApiError("resource_state_invalid");
      // Left for the adapter to flush: the database must have its say on a dry run too.
      const twin = input.body.outcome === "duplicate" ? id : newId("list");
      ctx.em.create(List, { id: newId("list"), ...ctx.tenant, name: "late", optin: "SINGLE" });
      if (twin === id) await ctx.em.execute("insert into lists select * from lists where id = ?", [id]);
      const quota = { kind: "contact_slots" as const, amount: 1, used: 2, limit: 10, remaining: 8 };
      return ok(
        { dry: ctx.dryRun },
        { impact: impact({ would_create: 3, would_update: 2, affected_ids: [id], quota }) },
      );
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

  const post = (query: string, outcome = "keep", idempotencyKey?: string) =>
    api(team.keys.live, app.base).post(`/write${query}`, { outcome }, { idempotencyKey });

  it("answers 200 with the impact and no data, and commits nothing to any table", async () => {
    const em = app.deps.orm.em.fork();
    const before = await snapshotTables(em, team.team.id);
    const { status, body, headers } = await post("?dry_run=true", "keep", "a-key");
    assert.equal(status, 200);
    assert.equal(body.data, null);
    const { affected_ids, ...impact } = body.meta.impact;
    assert.deepEqual(impact, {
      object: "impact",
      would_create: 3,
      would_update: 2,
      would_delete: 0,
      affected_count: 5,
      quota: { kind: "contact_slots", amount: 1, used: 2, limit: 10, remaining: 8 },
    });
    assert.equal(affected_ids.length, 1);
    assert.equal(body.meta.dry_run, true);
    assert.equal(body.meta.request_id, headers.get("x-request-id"));
    assert.deepEqual(await snapshotTables(em, team.team.id), before);
  });

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
    dryRunScope: "lists:read",
    dryRun: true,
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
