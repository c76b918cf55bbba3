import assert from "node:assert/strict";
import { z } from "zod";
import { ok, route, router } from "../../api/rest/route.ts";
import { ApiError } from "../../domain/errors.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam } from "../support/factories.ts";

/** Reads that wait for the test to let them end, by team. */
const held = new Map<string, (() => void)[]>();

const routes = router({
  slow: route({ method: "GET", path: "/slow", scope: "lists:read", summary: "Reads until the test lets it end" })
    .input(z.strictObject({}))
    .output(z.object({ object: z.literal("slow") }))
    .query(async ({ ctx }) => {
      const ofTeam = held.get(ctx.tenant.teamId) ?? [];
      held.set(ctx.tenant.teamId, ofTeam);
      await new Promise<void>((resolve) => ofTeam.push(resolve));
      return ok({ object: "slow" as const });
    }),
  quick: route({ method: "GET", path: "/quick", scope: "lists:read", summary: "Reads at once" })
    .input(z.strictObject({}))
    .output(z.object({ object: z.literal("quick") }))
    .query(async () => ok({ object: "quick" as const })),
  failing: route({ method: "GET", path: "/failing", scope: "lists:read", summary: "Refuses" })
    .input(z.strictObject({}))
    .output(z.object({}))
    .query(async () => {
      throw new ApiError("resource_state_invalid");
    }),
});

describe("Reads of a team", () => {
  let app: TestApp;
  before(async () => {
    app = await serveRoutes(routes);
  });
  after(() => app.close());

  it("run two at once, all are answered, and those of another team wait for none of them", async () => {
    const [slow, other] = [await makeTeam(), await makeTeam()];
    const begun = () => held.get(slow.team.id)?.length ?? 0;
    const asked = Array.from({ length: 12 }, () => api(slow.keys.live, app.base).get("/slow"));
    await eventually(() => begun() === 2, { what: "two reads" });
    const answers = await Promise.all(Array.from({ length: 8 }, () => api(other.keys.live, app.base).get("/quick")));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(begun(), 2);

    for (let ended = 0; ended < asked.length; ended++) {
      await eventually(() => begun() > ended);
      assert.ok(begun() <= ended + 2);
      held.get(slow.team.id)?.[ended]?.();
    }
    for (const { status } of await Promise.all(asked)) assert.equal(status, 200);
  });

  it("leave their place when they fail", async () => {
    const { keys } = await makeTeam();
    const client = api(keys.live, app.base);
    const refused = await Promise.all(Array.from({ length: 12 }, () => client.get("/failing")));
    assert.deepEqual([...new Set(refused.map(({ status }) => status))], [409]);
    assert.equal((await client.get("/quick")).status, 200);
  });
});
