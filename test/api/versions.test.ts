import assert from "node:assert/strict";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { readVersion } from "../../api/rest/versions.ts";
import { type ApiAnswer, api, type CallOptions, codeOf } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";

const VERSION = "2026-08-15";

const routes = router({
  version: route({ method: "GET", path: "/version", scope: null, summary: "Gives the version" })
    .input(z.strictObject({}))
    .output(z.string())
    .query(async ({ ctx }) => ok(ctx.version)),
  scoped: route({ method: "GET", path: "/scoped", scope: "lists:read", summary: "Needs a scope" })
    .input(z.strictObject({}))
    .output(z.null())
    .query(async () => ok(null)),
});

describe("Service-Version", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(routes);
    team = await makeTeam();
  });
  after(() => app.close());
  const named = (version: string): CallOptions => ({ headers: { "service-version": version } });
  const echoed = ({ headers }: ApiAnswer) => headers.get("service-version");

  it("is the one that the request names or the key's own, and is echoed, on refusals too", async () => {
    const client = api((await team.mint({ scopes: [] })).key, app.base);
    for (const options of [named(VERSION), {}]) {
      const answer = await client.get("/version", options);
      assert.deepEqual([answer.body.data, echoed(answer)], [VERSION, VERSION]);
    }
    for (const [path, options, code] of [
      ["/scoped", {}, "insufficient_scope"],
      ["/scoped", named("latest"), "version_unsupported"],
      ["/version?x=1", {}, "unsupported_parameter"],
    ] as const) {
      const refused = await client.get(path, options);
      assert.deepEqual([codeOf(refused), echoed(refused)], [code, VERSION]);
    }
    assert.equal(echoed(await api("x", app.base).get("/version")), null);
  });

  it("is refused where it names no version there is, or two that differ", () => {
    for (const given of [
      ...["2026-08-14", "2027-01-01", "2026-8-15", "v2", "latest", "", `${VERSION}, ${VERSION}`].map((one) => [one]),
      [VERSION, "2026-08-14"],
    ]) {
      const refusal = { code: "version_unsupported", param: "Service-Version", message: new RegExp(VERSION) };
      assert.throws(() => readVersion({ "service-version": given }, VERSION), refusal, given.join());
    }
    assert.equal(readVersion({ "service-version": [VERSION, VERSION] }, VERSION), VERSION);
  });
});
