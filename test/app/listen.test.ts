import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
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
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";
import { openReceiver } from "../support/receiver.ts";
import { prune } from "../support/retention.ts";
import { makeEndpoint } from "../support/webhooks.ts";

const MAIN = `${import.meta.dirname}/../../app/main.ts`;

/** A receiver on a port of its own: the service may not deliver there, the command may. */
interface LocalReceiver {
  url: string;
  received: { headers: IncomingHttpHeaders; body: Buffer }[];
  close(): Promise<void>;
}

async function listenLocally(port = 0, status = 204): Promise<LocalReceiver> {
  const received: LocalReceiver["received"] = [];
  const server: Server = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await buffer(request) });
    response.writeHead(status).end("answer");
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    received,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The command as it runs in a terminal. */
interface Running {
  child: ChildProcess;
  /** What it has printed while it ran. */
  lines(): string;
  /** Once it has ended. */
  result(): Promise<{ code: number | null; stdout: string }>;
}

const running: ChildProcess[] = [];

function listen(...args: string[]): Running {
  const child = spawn(process.execPath, [MAIN, "webhook:listen", ...args], {
    env: { PATH: process.env["PATH"], DATA_DIR: dirname(process.env["MAILKEEL_STACK"] ?? ".data/stack.json") },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.push(child);
  let printed = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    printed += chunk;
  });
  const stdout = text(child.stdout);
  const exit = once(child, "exit");
  return {
    child,
    lines: () => printed,
    result: async () => ({ code: (await exit)[0], stdout: await stdout }),
  };
}

const secretIn = (printed: string): string => /whsec_[\w-]+/.exec(printed)?.[0] ?? assert.fail(printed);

const header = (headers: IncomingHttpHeaders, name: string): string => headers[name]?.toString() ?? "";

describe("npm run app -- webhook:listen", () => {
  let team: TestTeam;
  const ofTeam = () => ["--team", team.team.id];
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
    for (const child of running.splice(0)) {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await once(child, "exit");
      }
    }
    const db = kysely(team.em);
    await db.deleteFrom("webhook_endpoints").where("team_id", "=", team.team.id).execute();
    await db.deleteFrom("webhook_deliveries").where("team_id", "=", team.team.id).execute();
  });

  it("posts each event as a worker would, prints a line without addresses, and leaves nothing behind", async () => {
    const local = await listenLocally();
    const real = await openReceiver();
    try {
      await makeEndpoint(team, { url: `${real.origin}/real`, events: ["subscriber.created"] });
      const command = listen("--url", local.url, "--events", "subscriber.created", ...ofTeam());
      await eventually(() => command.lines().includes("Forwarding"), { what: "the listener" });
      const { id, email } = await createSubscriber();
      await eventually(() => local.received.length > 0, { what: "the forwarded event" });
      const [theirs] = await real.until("/real", 1);

      const [one] = local.received;
      assert.ok(one && theirs);
      verifyWebhook({
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
      assert.equal(
        (await api(team.keys.live).get("/webhooks")).body.data.length,
        1,
        "the API lists the real one alone",
      );

      await eventually(() => command.lines().includes("204"), { what: "the event's line" });
      command.child.kill("SIGINT");
      const { code, stdout } = await command.result();
      assert.equal(code, 0, command.lines());
      assert.equal(stdout, "1 forwarded, 0 of them refused\n");
      assert.match(command.lines(), /^subscriber\.created {2}evt_\w+ {2}204$/m);
      assert.ok(!command.lines().includes(email), "no address");
      const { endpoints, deliveries } = await left();
      assert.equal(endpoints.length, 1);
      assert.equal(deliveries.length, 1);
    } finally {
      await local.close();
      await real.close();
    }
  });

  it("waits for a receiver that is down, then forwards in order; a refusal is not repeated", async () => {
    const first = await listenLocally(0, 500);
    const command = listen("--url", first.url, "--events", "subscriber.created", ...ofTeam(), "--json");
    await eventually(() => command.lines().includes("Forwarding"), { what: "the listener" });
    await createSubscriber();
    await eventually(() => first.received.length > 0, { what: "the refused event" });
    await first.close();

    const ids = [(await createSubscriber()).id, (await createSubscriber()).id];
    await eventually(() => command.lines().includes("no answer"), {
      what: "the line of the failure",
    });
    const second = await listenLocally(Number(new URL(first.url).port));
    try {
      await eventually(() => second.received.length >= 2, { what: "the events that waited" });
      await eventually(() => command.lines().match(/ 204$/gm)?.length === 2, { what: "the events' lines" });
      assert.deepEqual(
        second.received.map(({ body }) => JSON.parse(body.toString()).data.object.id),
        ids,
      );
      command.child.kill("SIGTERM");
      const { code, stdout } = await command.result();
      assert.equal(code, 0, command.lines());
      assert.deepEqual(JSON.parse(stdout), { forwarded: 3, failed: 1 });
      assert.deepEqual(await left(), { endpoints: [], deliveries: [] });
    } finally {
      await second.close();
    }
  });

  it("sends the examples of events, signed and marked as a test", async () => {
    const local = await listenLocally();
    try {
      const command = listen("--url", local.url, "--example", "*", ...ofTeam());
      const { code, stdout } = await command.result();
      assert.equal(code, 0, command.lines());
      assert.equal(stdout, `${EVENT_NAMES.length} taken\n`);
      const types = local.received.map(({ headers, body }) => {
        const signature = header(headers, "x-service-signature");
        verifyWebhook({ body, signature, secret: secretIn(command.lines()) });
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

  it("fails when an example is not taken, and names an event that there is not", async () => {
    const local = await listenLocally(0, 401);
    const refused = listen("--url", local.url, "--example", "newsletter.started", ...ofTeam());
    assert.equal((await refused.result()).code, 1);
    assert.match(refused.lines(), /error: 1 of 1 examples were not taken/);
    await local.close();
    const down = listen("--url", local.url, "--example", "newsletter.started", ...ofTeam());
    assert.equal((await down.result()).code, 1);
    const unknown = listen("--url", local.url, "--events", "newsletter.begun", ...ofTeam());
    assert.equal((await unknown.result()).code, 1);
    assert.match(unknown.lines(), /newsletter\.begun is not an event/);
  });

  it("forwards to this machine alone", async () => {
    const away = ["http://example.com/", "http://192.0.2.1:3000/", "http://localhost.example.com/", "ftp://localhost/"];
    for (const url of [...away, "localhost:3000"]) {
      const refused = listen("--url", url, "--example", "newsletter.started", ...ofTeam());
      assert.equal((await refused.result()).code, 1, url);
      assert.match(refused.lines(), /Give a URL of this machine, such as http:\/\/localhost:3000\/hooks/, url);
    }
    for (const url of ["http://localhost:3000/hooks", "https://127.0.0.2/", "http://[::1]:3000/"]) {
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
