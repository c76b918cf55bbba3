import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { localUrl } from "../../app/options.ts";
import { verifyWebhook } from "../../client/index.ts";
import { kysely } from "../../db/orm.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import { presumedDeadListeners } from "../../domain/webhooks/listener.ts";
import { api } from "../support/api.ts";
import { runApp } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { openReceiver } from "../support/receiver.ts";
import { prune } from "../support/retention.ts";
import { makeEndpoint } from "../support/webhooks.ts";

const MAIN = `${import.meta.dirname}/../../app/main.mjs`;

/** A receiver on a port of its own: the service may not deliver there, the command may. */
interface LocalReceiver {
  url: string;
  /** Of its answers. */
  status: number;
  received: { headers: IncomingHttpHeaders; body: Buffer }[];
  close(): Promise<void>;
}

async function listenLocally(port = 0, status = 204): Promise<LocalReceiver> {
  const received: LocalReceiver["received"] = [];
  const local = { status };
  const server: Server = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await buffer(request) });
    response.writeHead(local.status).end("answer");
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return Object.assign(local, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    received,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

/** The command in a process of its own, as in a terminal. */
function listen(...args: string[]) {
  const { PATH, NODE_COMPILE_CACHE } = process.env;
  const child = spawn(process.execPath, [MAIN, "webhook:listen", ...args], {
    env: { PATH, NODE_COMPILE_CACHE, DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json") },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    printed += chunk;
  });
  const stdout = text(child.stdout);
  const exit = once(child, "exit");
  return {
    child,
    lines: () => printed,
    result: async () => ({ code: (await exit)[0] as number | null, stdout: await stdout }),
  };
}

const secretIn = (printed: string): string => /whsec_[\w-]+/.exec(printed)?.[0] ?? assert.fail(printed);

const header = (headers: IncomingHttpHeaders, name: string): string => headers[name]?.toString() ?? "";

describe("npm run app -- webhook:listen", () => {
  let team: TestTeam;
  const ofTeam = () => ["--team", team.team.id];
  const inProcess = (...args: string[]) => runApp(["webhook:listen", ...args, ...ofTeam()]);
  const createSubscriber = async () => {
    const email = uniqueEmail();
    const answer = await api(team.keys.live).post("/subscribers", { email });
    assert.equal(answer.status, 201, answer.text);
    return { id: answer.body.data.id as string, email };
  };
  const left = async () => {
    const db = kysely(team.em);
    const of = { endpoints: db.selectFrom("webhook_endpoints"), deliveries: db.selectFrom("webhook_deliveries") };
    return {
      endpoints: await of.endpoints.select("id").where("team_id", "=", team.team.id).execute(),
      deliveries: await of.deliveries.select("id").where("team_id", "=", team.team.id).execute(),
    };
  };

  before(async () => {
    team = await makeTeam();
  });
  afterEach(async () => {
    const db = kysely(team.em);
    await db.deleteFrom("webhook_endpoints").where("team_id", "=", team.team.id).execute();
    await db.deleteFrom("webhook_deliveries").where("team_id", "=", team.team.id).execute();
  });

  it("posts each event as a worker would, in order, waits for a receiver that is down, and leaves nothing behind", async () => {
    const first = await listenLocally();
    let second: LocalReceiver | undefined;
    const real = await openReceiver();
    const command = listen("--url", first.url, "--events", "subscriber.created", ...ofTeam());
    try {
      await makeEndpoint(team, { url: `${real.origin}/real`, events: ["subscriber.created"] });
      await eventually(() => command.lines().includes("Forwarding"), { what: "the listener" });
      const { id, email } = await createSubscriber();
      await eventually(() => first.received.length > 0, { what: "the forwarded event" });
      const [theirs] = await real.until("/real", 1);

      const [one] = first.received;
      assert.ok(one && theirs);
      await verifyWebhook({
        body: one.body,
        signature: header(one.headers, "x-service-signature"),
        secret: secretIn(command.lines()),
      });
      assert.equal(one.body.toString(), theirs.body, "the same bytes");
      assert.equal(JSON.parse(one.body.toString()).data.object.id, id);
      const namesOf = (headers: IncomingHttpHeaders) =>
        Object.keys(headers).filter((name) => name.startsWith("x-service-") || name === "content-type");
      assert.deepEqual(namesOf(one.headers).sort(), namesOf(theirs.headers).sort());
      assert.equal(header(one.headers, "x-service-event-id"), header(theirs.headers, "x-service-event-id"));
      assert.match(header(one.headers, "user-agent"), /^Mailkeel-Webhooks\/1 /);
      const { data } = (await api(team.keys.live).get("/webhooks")).body;
      assert.equal(data.length, 1, "the API lists the real one alone");

      await eventually(() => /^subscriber\.created {2}evt_\w+ {2}204$/m.test(command.lines()), { what: "its line" });
      first.status = 500;
      await createSubscriber();
      await eventually(() => / 500$/m.test(command.lines()), { what: "the line of the refused event" });
      await first.close();
      const ids = [(await createSubscriber()).id, (await createSubscriber()).id];
      await eventually(() => command.lines().includes("no answer"), { what: "the line of the failure" });
      second = await listenLocally(Number(new URL(first.url).port));
      await eventually(() => command.lines().match(/ 204$/gm)?.length === 3, { what: "the events that waited" });
      const later = second.received.map(({ body }) => JSON.parse(body.toString()).data.object.id);
      assert.deepEqual(later, ids, "in order, and the refused one is not repeated");

      command.child.kill("SIGINT");
      const { code, stdout } = await command.result();
      assert.equal(code, 0, command.lines());
      assert.equal(stdout, "4 forwarded, 1 of them refused\n");
      assert.ok(!command.lines().includes(email), "no address");
      const { endpoints, deliveries } = await left();
      assert.deepEqual([endpoints.length, deliveries.length], [1, 4], "the real endpoint and its deliveries");
    } finally {
      command.child.kill("SIGKILL");
      await Promise.all([command.result(), second?.close(), real.close()]);
    }
  });

  it("sends the examples of events, signed and marked as a test", async () => {
    const local = await listenLocally();
    try {
      const { code, stdout, stderr } = await inProcess("--url", local.url, "--example", "*");
      assert.deepEqual([code, stdout], [0, `${EVENT_NAMES.length} taken\n`], stderr);
      for (const { headers, body } of local.received)
        await verifyWebhook({ body, signature: header(headers, "x-service-signature"), secret: secretIn(stderr) });
      const types = local.received.map(({ headers, body }) => {
        assert.equal(header(headers, "x-service-test"), "true");
        const { type, data } = JSON.parse(body.toString());
        assert.equal(header(headers, "x-service-event"), type);
        assert.equal(typeof data.object.object, "string");
        return type;
      });
      assert.deepEqual(types, EVENT_NAMES);
      assert.deepEqual(await left(), { endpoints: [], deliveries: [] });
    } finally {
      await local.close();
    }
  });

  it("fails when an example is not taken, for an event that there is not, and for another machine's URL", async () => {
    const local = await listenLocally(0, 401);
    const example = ["--url", local.url, "--example", "newsletter.started"];
    const refused = await inProcess(...example);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /error: 1 of 1 examples were not taken/);
    await local.close();
    assert.equal((await inProcess(...example)).code, 1);
    assert.match((await inProcess(...example, "--events", "no.event")).stderr, /no\.event is not an event/);
    const away = await inProcess("--url", "http://192.0.2.1:3000/", "--example", "newsletter.started");
    assert.equal(away.code, 1);
    assert.match(away.stderr, /Give a URL of this machine, such as http:\/\/localhost:4000\/hooks/);
    for (const url of ["http://example.com/", "http://localhost.example.com/", "ftp://localhost/", "localhost:3000"]) {
      assert.throws(() => localUrl(url), /Give a URL of this machine/, url);
    }
    for (const url of ["http://localhost:4000/hooks", "https://127.0.0.2/", "http://[::1]:3000/"]) {
      assert.equal(localUrl(url), url);
    }
  });

  it("has its endpoint deleted by retention when the command was killed", async () => {
    const set = { origin: "LISTENER", active: false, disabled_reason: "delivery_failures" };
    const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    const url = "http://127.0.0.1:1/";
    await makeEndpoint(team, { url, set: { ...set, updated_at: minutesAgo(6) } });
    const alive = await makeEndpoint(team, { url, set: { ...set, updated_at: minutesAgo(4) } });
    await prune({}, { prunings: [presumedDeadListeners] });
    assert.deepEqual((await left()).endpoints, [{ id: alive.id }]);
  });
});
