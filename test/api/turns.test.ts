import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { pino } from "pino";
import { z } from "zod";
import { ok, router } from "../../api/rest/route.ts";
import { api } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";

/** The level of errors in a log of pino. */
const ERROR = 50;

/** Reads that wait for the test to let them end, by team. */
const held = new Map<string, (() => void)[]>();

/** A route that reads until the test lets it end. */
const slowRoute = (path: `/${string}`, isHeavy = false) =>
  route({ method: "GET", path, scope: "lists:read", summary: "Reads until the test lets it end", isHeavy })
    .input(z.strictObject({}))
    .output(z.object({ object: z.literal("slow") }))
    .query(async ({ ctx }) => {
      const ofTeam = held.get(ctx.tenant.teamId) ?? [];
      held.set(ctx.tenant.teamId, ofTeam);
      await new Promise<void>((resolve) => ofTeam.push(resolve));
      return ok({ object: "slow" as const });
    });

const routes = router({
  slow: slowRoute("/slow"),
  long: slowRoute("/long", true),
  quick: route({ method: "GET", path: "/quick", scope: "lists:read", summary: "Reads at once" })
    .input(z.strictObject({}))
    .output(z.object({ object: z.literal("quick") }))
    .query(async () => ok({ object: "quick" as const })),
  take: route({ method: "POST", path: "/take", scope: "lists:write", summary: "Takes a text" })
    .input(z.strictObject({ body: z.strictObject({ text: z.string() }) }))
    .output(z.object({ object: z.literal("taken") }))
    .mutation(async () => ok({ object: "taken" as const })),
});

/** An upload that the API has begun to read and that never ends. */
function stall(app: TestApp, key: string, path: string, bytes = 1_000): { socket: Socket; begun: Promise<unknown> } {
  const { hostname, port, pathname } = new URL(`${app.base}${path}`);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  socket.write(
    `POST ${pathname} HTTP/1.1\r\nhost: ${hostname}\r\nx-api-key: ${key}\r\ncontent-type: application/json\r\n` +
      `content-length: ${bytes}\r\nexpect: 100-continue\r\n\r\n`,
  );
  return { socket, begun: once(socket, "data").then(() => socket.write('{"text":"')) };
}

describe("The turns of requests", () => {
  let app: TestApp;
  const logged: string[] = [];
  before(async () => {
    const log = pino({}, { write: (line: string) => void logged.push(line) });
    // Half of the connections are more than all reads of a team that are under way.
    app = await serveRoutes(routes, { with: { log }, changes: { DATABASE_POOL_MAX: 40 } });
  });
  after(() => app.close());

  /** Asks for more slow reads than may be under way, and lets them end one by one. */
  async function askFor({
    team,
    keys,
    atOnce,
    path = "/slow",
  }: {
    team: TestTeam;
    keys: readonly string[];
    atOnce: number;
    path?: string;
  }) {
    const other = await makeTeam();
    const begun = () => held.get(team.team.id)?.length ?? 0;
    const asked = keys.flatMap((key) => Array.from({ length: 12 }, () => api(key, app.base).get(path)));
    await eventually(() => begun() === atOnce, { what: `${atOnce} reads` });
    const answers = await Promise.all(Array.from({ length: 8 }, () => api(other.keys.live, app.base).get("/quick")));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(begun(), atOnce);

    for (let ended = 0; ended < asked.length; ended++) {
      await eventually(() => begun() > ended);
      assert.ok(begun() <= ended + atOnce);
      held.get(team.team.id)?.[ended]?.();
    }
    for (const { status } of await Promise.all(asked)) assert.equal(status, 200);
  }

  it("runs eight reads of a key at once and delays no other key", async () => {
    const team = await makeTeam();
    await askFor({ team, keys: [team.keys.live], atOnce: 8 });
  });

  it("runs one heavy request of a key at a time, and its other reads beside it", async () => {
    const team = await makeTeam();
    const asked = askFor({ team, keys: [team.keys.live], atOnce: 1, path: "/long" });
    assert.equal((await api(team.keys.live, app.base).get("/quick")).status, 200);
    await asked;
  });

  it("runs sixteen reads of a team at once, over all its keys, and delays no other team", async () => {
    const team = await makeTeam();
    const more = await Promise.all(Array.from({ length: 4 }, async () => (await team.mint()).key));
    await askFor({ team, keys: [team.keys.live, ...more], atOnce: 16 });
  });

  /** Holds as many bodies as may be taken at once, sends one more and asks beside it. @param keys one for each body */
  async function fillUp(stalling: TestTeam, keys: readonly string[], text: string, { bytes = 0, path = "/take" } = {}) {
    const other = await makeTeam();
    const client = api(stalling.keys.live, app.base);
    const send = ({ post }: typeof client, text: string) =>
      post(path, path === "/take" ? { text } : { jsonrpc: "2.0", id: 1, method: "ping", params: { text } });
    const uploads = keys.map((key) => stall(app, key, path, bytes || undefined));
    await Promise.all(uploads.map(({ begun }) => begun));
    // Each key was looked up before that of a later request with it.
    for (const key of keys) assert.equal((await api(key, app.base).get("/quick")).status, 200);
    let isAnswered = false;
    const further = send(client, text).finally(() => {
      isAnswered = true;
    });
    assert.equal((await send(api(other.keys.live, app.base), text)).status, 200);
    assert.equal((await client.get("/quick")).status, 200);
    if (bytes) assert.equal((await send(client, "x")).status, 200, "a small one");
    assert.ok(!isAnswered);
    for (const { socket } of uploads) socket.destroy();
    assert.equal((await further).status, 200);
  }

  it("takes eight bodies of a key at once, and the next one when one of them ends", async () => {
    const team = await makeTeam();
    await fillUp(team, Array(8).fill(team.keys.live), "x");
  });

  it("takes four large bodies of a team at once, over all its keys", async () => {
    const team = await makeTeam();
    const keys = await Promise.all(Array.from({ length: 4 }, async () => (await team.mint()).key));
    await fillUp(team, keys, "x".repeat(100_000), { bytes: 100_000 });
  });

  it("takes four large messages of MCP of a team at once, and small ones beside them", async () => {
    const team = await makeTeam();
    await fillUp(team, Array(4).fill(team.keys.live), "x".repeat(100_000), { bytes: 100_000, path: "/mcp" });
  });

  it("logs no error for clients that leave before their turn", async () => {
    const [{ keys, team }, other] = [await makeTeam(), await makeTeam()];
    const client = api(keys.live, app.base);
    const asked = Array.from({ length: 8 }, () => client.get("/slow"));
    await eventually(() => held.get(team.id)?.length === 8);
    const leaving = new AbortController();
    const headers = { "x-api-key": keys.live };
    const left = Array.from({ length: 20 }, () => fetch(`${app.base}/slow`, { headers, signal: leaving.signal }));
    // Their key was looked up before that of a later request: they wait for their turn.
    for (let i = 0; i < 3; i++) assert.equal((await api(other.keys.live, app.base).get("/quick")).status, 200);
    const last = client.get("/quick");
    leaving.abort();
    await Promise.allSettled(left);
    for (const end of held.get(team.id) ?? []) end();
    for (const { status } of await Promise.all([...asked, last])) assert.equal(status, 200);
    assert.deepEqual(
      logged.filter((line) => JSON.parse(line).level >= ERROR),
      [],
    );
  });
});
