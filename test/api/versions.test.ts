import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { type ApiAnswer, api, type CallOptions } from "../support/api.ts";
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
    for (const [path, status] of [
      ["/scoped", 403],
      ["/version?x=1", 400],
    ] as const) {
      const refused = await client.get(path);
      assert.deepEqual([refused.status, echoed(refused)], [status, VERSION]);
    }
    assert.equal(echoed(await api("x", app.base).get("/version")), null);
  });

  it("is refused where it names no version there is, before the scope", async () => {
    const client = api((await team.mint({ scopes: [] })).key, app.base);
    for (const version of ["2026-08-14", "2027-01-01", "2026-8-15", "v2", "latest", "", `${VERSION}, ${VERSION}`]) {
      const answer = await client.get("/scoped", named(version));
      assert.equal(answer.status, 400, version);
      const { code, type, param, message } = answer.body.error;
      assert.deepEqual([code, type, param], ["version_unsupported", "invalid_request_error", "Service-Version"]);
      assert.ok(message.includes(VERSION), message);
      assert.equal(echoed(answer), VERSION, "the answer is in the key's own version");
    }
  });

  it("is refused where it is given twice with values that differ", async () => {
    const ask = async (versions: string[]) => {
      const given = versions.flatMap((version) => ["Service-Version", version]);
      const headers = ["host", "localhost", "x-api-key", team.keys.live, ...given];
      const [response] = await once(request(`${app.base}/version`, { headers }).end(), "response");
      response.resume();
      return response.statusCode;
    };
    assert.deepEqual([await ask([VERSION, VERSION]), await ask([VERSION, "2026-08-14"])], [200, 400]);
  });
});
