import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { z } from "zod";
import { listsRouter } from "../../api/lists/routes.ts";
import { ok, router } from "../../api/rest/route.ts";
import { subscribersRouter } from "../../api/subscribers/routes.ts";
import { List, Subscriber } from "../../db/entities/audience.ts";
import { IdempotencyRecordSchema } from "../../db/entities/idempotency.ts";
import { Team } from "../../db/entities/team.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, codeOf } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { type DatabaseProxy, openDatabaseProxy } from "../support/tcp-proxy.ts";

/** Lets a test hold a handler in the middle. */
const stage = new EventEmitter();
const named = z.strictObject({ body: z.strictObject({ name: z.string() }) });
const made = z.object({ id: z.string() });
const refused = new Set<string>();

async function hold(name: string): Promise<void> {
  stage.emit(`held ${name}`);
  await once(stage, `go ${name}`);
  if (refused.has(name)) throw new ApiError("resource_state_invalid");
}

const routes = router({
  lists: listsRouter,
  subscribers: subscribersRouter,
  write: route({ method: "POST", path: "/write", status: 201, scope: null, summary: "Makes a row" })
    .input(named)
    .output(made)
    .mutation(async ({ ctx, input: { body } }) => {
      await hold(body.name);
      const id = newId("team");
      ctx.em.create(Team, { id, name: body.name, plan: "FREE" });
      await ctx.em.flush();
      return ok({ id });
    }),
  workflow: route({
    method: "POST",
    path: "/workflow",
    status: 201,
    scope: null,
    idempotency: "required",
    recall: (_ctx, facts) => facts,
    summary: "Makes a row elsewhere",
  })
    .input(named)
    .output(made)
    .workflow(async ({ ctx, input: { body } }) => {
      await hold(body.name);
      const id = newId("team");
      await ctx.em.transactional(async (em) => {
        em.create(Team, { id, name: body.name, plan: "FREE" });
        await em.flush();
      });
      return ok({ id }, { facts: { id } });
    }),
});

describe("While Postgres is away", () => {
  let proxy: DatabaseProxy;
  let team: TestTeam;
  let app: TestApp;

  before(async () => {
    proxy = await openDatabaseProxy();
    app = await serveRoutes(routes, { changes: { DATABASE_URL: proxy.url } });
  });
  beforeEach(async () => {
    team = await makeTeam();
  });
  afterEach(() => proxy.heal());
  after(async () => {
    await app.close();
    await proxy.close();
  });

  const isReplay = ({ headers }: ApiAnswer) => headers.get("idempotent-replayed") === "true";

  describe("an Idempotency-Key whose request failed", () => {
    const client = () => api(team.keys.live, app.base);
    /** The request is refused while its key is not free; then it must be answered 201. */
    const untilCreated = async (ask: () => Promise<ApiAnswer>) => {
      const isFree = async () => {
        const answer = await ask();
        return codeOf(answer) === "request_in_flight" ? undefined : answer;
      };
      assert.equal((await eventually(isFree, { what: "the key" }))?.status, 201);
    };
    const letGo = (name: string) => stage.on(`held ${name}`, () => setImmediate(() => stage.emit(`go ${name}`)));

    it("is free once Postgres is back when the answer to its claim was lost", async () => {
      const name = unique("claim");
      letGo(name);
      const ask = () => client().post("/write", { name }, { idempotencyKey: "k" });
      // The claim is the first statement with this value; its text is sent to a connection once.
      const passed = proxy.loseAnswerTo(team.team.id);
      const first = ask();
      await passed;
      const claims = () => team.em.fork().count(IdempotencyRecordSchema, { teamId: team.team.id });
      await eventually(async () => (await claims()) === 1, { what: "the claim" });
      proxy.cut();
      assert.equal(codeOf(await first), "service_unavailable");
      proxy.heal();
      await untilCreated(ask);
      assert.equal(await team.em.fork().count(Team, { name }), 1);
    });

    for (const [path, failure] of [
      ["/write", "no answer of Postgres"],
      ["/workflow", "a refusal that could not be remembered"],
    ] as const) {
      it(`is free for the same request once Postgres is back: ${path}, ${failure}`, async () => {
        const name = unique("late");
        const ask = (other = "") => client().post(path, { name: `${name}${other}` }, { idempotencyKey: "k" });
        if (path === "/workflow") refused.add(name);
        const held = once(stage, `held ${name}`);
        const first = ask();
        await held;
        proxy.cut();
        stage.emit(`go ${name}`);
        assert.equal(codeOf(await first), "service_unavailable");
        refused.delete(name);
        proxy.heal();

        letGo(name);
        await untilCreated(ask);
        assert.ok(isReplay(await ask()));
        assert.equal(codeOf(await ask("2")), "idempotency_key_reused");
        assert.equal(await team.em.fork().count(Team, { name }), 1);
      });
    }
  });

  it("a create that was committed although its answer was lost has one effect, and its retry gets the stored answer", async () => {
    const client = api(team.keys.live, app.base);
    // The team's first address is counted in a transaction of its own, after the one statement.
    await client.post("/subscribers", { email: uniqueEmail("first") });
    const [email, name] = [uniqueEmail("lost"), unique("lost")];
    for (const [path, body, request, made] of [
      ["/subscribers", { email }, email, () => team.em.fork().count(Subscriber, { email })],
      ["/lists", { name }, "commit\0", () => team.em.fork().count(List, { name })],
    ] as const) {
      const create = () => client.post(path, body, { idempotencyKey: path });
      const passed = proxy.loseAnswerTo(request);
      const first = create();
      await passed;
      await eventually(async () => (await made()) === 1, { what: "the commit" });
      proxy.cut();
      assert.equal(codeOf(await first), "service_unavailable");
      proxy.heal();
      const again = await create();
      assert.equal(again.status, 201, again.text);
      assert.ok(isReplay(again));
      assert.equal(await made(), 1);
    }
  });
});
