import assert from "node:assert/strict";
import { z } from "zod";
import { impact, ok, router } from "../../api/rest/route.ts";
import { List } from "../../db/entities/audience.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";

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
