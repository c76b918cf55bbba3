import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { inferRouterInputs, inferRouterOutputs } from "@trpc/server";
import { fetchRequestHandler } from "@trpc/server/adapters/fetch";
import type { Call, Locals } from "../../api/context.ts";
import { appRouter } from "../../api/router.ts";
import { authenticate } from "../../domain/access/authenticate.ts";
import { newId } from "../../domain/ids.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { makeTeam, unique } from "../support/factories.ts";

type Inputs = inferRouterInputs<typeof appRouter>;
type Outputs = inferRouterOutputs<typeof appRouter>;

describe("The router over tRPC", () => {
  let app: TestApp;
  before(async () => {
    app = await serveRoutes(appRouter);
  });
  after(() => app.close());

  async function call<Output>(path: string, method: "GET" | "POST", input: unknown, headers: Record<string, string>) {
    const locals: Locals = { requestId: newId("request"), headers: {} };
    const answering = Object.assign(new EventEmitter(), { closed: false });
    const given = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]));
    const context: Call = {
      ...{ deps: app.deps, locals, answering, headers: given },
      authenticate: (_scope, onCallerKnown) =>
        authenticate(app.deps.orm.em, app.deps.vault, given, {
          limits: app.deps.limits,
          clientAddress: null,
          onCallerKnown,
        }),
      readDryRun: () => undefined,
    };
    const text = JSON.stringify(input);
    const url = `http://console.example/trpc/${path}${method === "GET" ? `?input=${encodeURIComponent(text)}` : ""}`;
    const type = { "content-type": "application/json" };
    const req = new Request(url, { method, ...(method === "POST" && { body: text, headers: type }) });
    const response = await fetchRequestHandler({
      ...{ endpoint: "/trpc", router: appRouter, req },
      createContext: () => context,
    });
    answering.emit("close");
    const { result, error } = (await response.json()) as { result?: { data: Output }; error?: { message: string } };
    return { data: result?.data, error, headers: locals.headers };
  }

  it("counts calls, knows keys and gives records as REST does, also those of a page that Postgres made", async () => {
    const { keys } = await makeTeam();
    const [rest, idempotencyKey] = [api(keys.live, app.base), unique("k")];
    const credential = { "x-api-key": keys.live };
    const input: Inputs["lists"]["create"] = { body: { name: "Customers" } };
    const keyed = { ...credential, "idempotency-key": idempotencyKey };
    const made = await call<Outputs["lists"]["create"]>("lists.create", "POST", input, keyed);
    assert.equal(made.data?.data.name, "Customers");
    const replay = await rest.post("/lists", { name: "Customers" }, { idempotencyKey });
    assert.equal(replay.headers.get("idempotent-replayed"), "true");
    assert.equal(replay.body.data.id, made.data.data.id);
    const again = await call<Outputs["lists"]["create"]>("lists.create", "POST", input, keyed);
    assert.deepEqual([again.data?.data, again.headers["Idempotent-Replayed"]], [made.data.data, "true"]);

    const page = await call<Outputs["lists"]["page"]>("lists.page", "GET", { query: {} }, credential);
    assert.deepEqual(page.data?.data, (await rest.get("/lists")).body.data);
    const left = (headers: Record<string, string>) => Number(headers["RateLimit-Remaining"]);
    assert.equal(left(page.headers), left(made.headers) - 3);
    assert.match((await call("lists.page", "GET", {}, {})).error?.message ?? "", /key/i);
  });
});
