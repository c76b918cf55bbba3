import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { pino } from "pino";
import { z } from "zod";
import { receiveBody } from "../../api/rest/http.ts";
import { ok, router } from "../../api/rest/route.ts";
import { openServer } from "../../api/server.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { stack } from "../support/stack.ts";

const MAX_BODY_BYTES = 2 * 1024 * 1024;
const MAX_VALUES = 50_000;

const LARGE = "x".repeat(2_000_000);
const CHUNKED = "POST /api/v2/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";

const routes = router({
  large: route({ method: "GET", path: "/large", scope: null, summary: "Gives a large answer" })
    .input(z.strictObject({}))
    .output(z.string())
    .query(async () => ok(LARGE)),
  echo: route({ method: "POST", path: "/echo", scope: null, summary: "Counts what it is sent" })
    .input(z.strictObject({ body: z.strictObject({ items: z.array(z.unknown()) }) }))
    .output(z.object({ items: z.int() }))
    .mutation(async ({ input }) => ok({ items: input.body.items.length })),
});

/** A connection whose bytes a test writes itself. */
class Connection {
  readonly socket: Socket;
  #received = "";

  constructor(origin: string) {
    const { hostname, port } = new URL(origin);
    this.socket = connect(Number(port), hostname);
    // A connection that is refused may be reset.
    this.socket
      .on("error", () => {})
      .on("data", (chunk: Buffer) => {
        this.#received += chunk.toString();
      });
  }

  get received(): string {
    return this.#received;
  }

  async status(): Promise<number> {
    const found = await eventually(() => /(?<=HTTP\/1\.1 )[2-5]\d\d(?= .*\}$)/s.exec(this.#received), {
      what: "an answer",
    });
    return Number(found?.[0]);
  }

  get code(): string {
    return JSON.parse(this.#received.split("\r\n\r\n").at(-1) ?? "").error.code;
  }

  async closed(): Promise<void> {
    await eventually(() => this.socket.closed || this.socket.readableEnded, { what: "the end of the connection" });
  }
}

describe("The API's server", () => {
  let team: TestTeam;
  /** With the usual settings. */
  let usual: TestApp;
  const opened: Connection[] = [];
  const apps: TestApp[] = [];
  before(async () => {
    team = await makeTeam();
    usual = await serveRoutes(routes);
  });
  afterEach(async () => {
    for (const { socket } of opened.splice(0)) socket.destroy();
    for (const app of apps.splice(0)) await app.close();
  });
  after(() => usual.close());

  const serve = async (options: Parameters<typeof serveRoutes>[1]) => {
    const app = await serveRoutes(routes, options);
    apps.push(app);
    return app;
  };
  const open = (origin: string, text = "") => {
    const connection = new Connection(origin);
    opened.push(connection);
    if (text !== "") connection.socket.write(text);
    return connection;
  };
  const head = (headers: Record<string, string | number>) =>
    [
      "POST /api/v2/echo HTTP/1.1",
      ...Object.entries({ host: "x", "x-api-key": team.keys.live, "content-type": "application/json", ...headers }).map(
        ([name, value]) => `${name}: ${value}`,
      ),
      "\r\n",
    ].join("\r\n");
  const large = () => `GET /api/v2/large HTTP/1.1\r\nhost: x\r\nx-api-key: ${team.keys.live}\r\n\r\n`;
  const gzipped = async (json: string) => {
    const response = await fetch(`${usual.base}/echo`, {
      method: "POST",
      headers: { "x-api-key": team.keys.live, "content-type": "application/json", "content-encoding": "gzip" },
      body: new Uint8Array(gzipSync(json)),
    });
    return { status: response.status, text: await response.text() };
  };

  it("answers eight requests that are sent at once on a connection, and closes it at nine", async () => {
    const eight = open(usual.origin, large().repeat(8));
    const answers = () => eight.received.match(/HTTP\/1\.1 200/g)?.length;
    await eventually(() => answers() === 8, { what: "eight answers" });
    const nine = open(usual.origin, large().repeat(9));
    await once(nine.socket, "close");
    assert.equal(nine.received, "");
  });

  describe("a declared body", () => {
    for (const [what, headers] of [
      ["is refused by its declared length", {}],
      ["is refused by its declared length, without an invitation", { expect: "100-continue" }],
      ["is refused by its declared length in any encoding", { "content-encoding": "gzip" }],
    ] as const) {
      it(what, async () => {
        const connection = open(usual.origin, head({ "content-length": MAX_BODY_BYTES + 1, ...headers }));
        assert.equal(await connection.status(), 413);
        assert.equal(connection.code, "payload_too_large");
        assert.ok(!connection.received.includes("100 Continue"));
        await connection.closed();
      });
    }

    it("is refused while it grows, before its end", async () => {
      const connection = open(usual.origin, head({ "transfer-encoding": "chunked" }));
      const chunk = `${(64 * 1024).toString(16)}\r\n${" ".repeat(64 * 1024)}\r\n`;
      for (let sent = 0; sent <= MAX_BODY_BYTES; sent += 64 * 1024) connection.socket.write(chunk);
      assert.equal(await connection.status(), 413);
      await connection.closed();
    });

    it("is refused with an answer that a client which only writes still reads", async () => {
      const connection = open(usual.origin, head({ "content-length": 4 * MAX_BODY_BYTES }));
      connection.socket.write(" ".repeat(4 * MAX_BODY_BYTES));
      assert.equal(await connection.status(), 413);
    });

    it("is invited where the API accepts it", async () => {
      const body = '{"items":[1]}';
      const connection = open(usual.origin, head({ "content-length": body.length, expect: "100-continue" }));
      await eventually(() => connection.received.startsWith("HTTP/1.1 100 Continue"));
      connection.socket.write(body);
      assert.equal(await connection.status(), 200);
    });
  });

  it(`bounds a body of more than ${MAX_VALUES} values before anything walks it`, async () => {
    const items = (count: number, item = "0") => `{"items":[${Array.from({ length: count }, () => item).join(",")}]}`;
    // The body and its list are values too.
    const most = MAX_VALUES - 2;
    for (const item of ["[]", '"a,b"', '"\\\\"', '"\\","', "{ }"]) {
      const { status, text } = await gzipped(items(most, item));
      assert.equal(status, 200, `${item}: ${text}`);
    }
    for (const item of ["0", "{}", '"a"', "[0]", '{"a":0}']) {
      const perItem = item.includes("0") && item.length > 1 ? 2 : 1;
      const { status, text } = await gzipped(items(Math.floor(most / perItem) + 1, item));
      assert.equal(status, 413, text);
      assert.match(text, /50000 values/);
    }
    const bomb = items(1_000_000);
    assert.ok(gzipSync(bomb).length < 10_000);
    const before = process.memoryUsage().rss;
    for (const { status } of await Promise.all(Array.from({ length: 8 }, () => gzipped(bomb))))
      assert.equal(status, 413);
    assert.ok(process.memoryUsage().rss - before < 300 * 1024 * 1024);
  });

  describe("an upload", () => {
    it("is refused by request_timeout when it stalls or never begins", async () => {
      const codes: string[] = [];
      const server = createServer((req) =>
        receiveBody(req, { stalledMs: 50, totalMs: 10_000 }).catch(({ code }) => codes.push(code)),
      );
      try {
        const origin = `http://127.0.0.1:${await listenLocally(server)}`;
        for (const begin of ['{"items":', ""]) open(origin, `${head({ "content-length": 1_000 })}${begin}`);
        await eventually(() => codes.length === 2);
        assert.deepEqual(codes, ["request_timeout", "request_timeout"]);
      } finally {
        server.closeAllConnections();
        server.close();
      }
    });

    it("is answered when it is slow and arrives", async () => {
      const body = '{"items":[]}';
      const connection = open(usual.origin, head({ "content-length": body.length }));
      for (const byte of body) {
        connection.socket.write(byte);
        await delay(20);
      }
      assert.equal(await connection.status(), 200);
    });
  });

  for (const [what, request, status, code] of [
    ["what is not HTTP", "nonsense\r\n\r\n", 400, "validation_failed"],
    ["headers over 64 KiB", `GET / HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(70_000)}\r\n\r\n`, 413, "payload_too_large"],
    ["a malformed chunk", `${CHUNKED}\r\nzz\r\n`, 400, "validation_failed"],
  ] as const) {
    it(`answers ${what} with the envelope and a request id, not to be cached`, async () => {
      const connection = open(usual.origin, request);
      assert.equal(await connection.status(), status);
      await connection.closed();
      const [head = "", body = ""] = connection.received.split("\r\n\r\n");
      const { error, meta } = JSON.parse(body);
      assert.deepEqual([error.code, error.request_id], [code, meta.request_id]);
      for (const header of [
        `x-request-id: ${meta.request_id}`,
        "cache-control: no-store",
        "vary: Authorization, X-API-Key, Service-Version, Accept-Encoding",
        "x-content-type-options: nosniff",
      ])
        assert.match(head, new RegExp(`^${header}\r?$`, "im"));
    });
  }

  for (const [what, lines, status] of [
    ["no Host", ["GET / HTTP/1.1"], 400],
    ["two", ["GET / HTTP/1.1", "host: x", "Host: x"], 400],
    ["one that is none", ["GET / HTTP/1.1", "host: a b/c"], 400],
    ["one with a login", ["GET / HTTP/1.1", "host: a@b"], 400],
    ["two in HTTP/1.0", ["GET / HTTP/1.0", "host: x", "host: y"], 400],
    ["none in HTTP/1.0", ["GET / HTTP/1.0"], 200],
    ["an address of IPv6 with a port", ["GET / HTTP/1.1", "host: [::1]:3000"], 200],
    ["a name with a port", ["GET / HTTP/1.1", "host: m_1.example.com:443"], 200],
    ["a host in its target too", ["GET http://x/ HTTP/1.1", "host: x"], 200],
  ] as const) {
    it(`answers a request with ${what} by ${status}`, async () => {
      const connection = open(usual.origin, [...lines, "connection: close", "", ""].join("\r\n"));
      assert.equal(await connection.status(), status);
      if (status === 400) assert.equal(connection.code, "validation_failed");
    });
  }

  it("takes a body in UTF-8 only, so that two others are never the same", async () => {
    const response = await fetch(`${usual.base}/echo`, {
      method: "POST",
      headers: { "x-api-key": team.keys.live, "content-type": "application/json" },
      body: Buffer.from([...Buffer.from('{"items":["x'), 0xff, ...Buffer.from('"]}')]),
    });
    const { error } = (await response.json()) as { error: { code: string } };
    assert.deepEqual([response.status, error.code], [400, "invalid_json"]);
  });

  it("answers 408 where no whole head arrives", async () => {
    const app = await serve({ times: { headersMs: 200, requestMs: 400, checkMs: 50 } });
    for (const text of ["", "POST /api", "GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: "]) {
      const connection = open(app.origin, text);
      assert.equal(await connection.status(), 408, text);
      assert.equal(connection.code, "request_timeout");
      await connection.closed();
    }
  });

  describe("the limits on connections", () => {
    const LIMIT = 5;
    const isServed = async (origin: string) => {
      const connection = open(origin, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
      await eventually(() => connection.received !== "" || connection.socket.closed || connection.socket.readableEnded);
      return connection.received !== "";
    };
    const serveMany = async (origin: string, count: number) => {
      for (let i = 0; i < count; i++) assert.ok(await isServed(origin), `connection ${i + 1}`);
    };

    it("closes a connection beyond the limit of one address, and takes one again when another has ended", async () => {
      const app = await serve({ changes: { API_MAX_CONNECTIONS_PER_ADDRESS: LIMIT } });
      await serveMany(app.origin, LIMIT);
      assert.equal(await isServed(app.origin), false);
      opened[0]?.socket.destroy();
      await eventually(() => isServed(app.origin), { what: "the place of the connection that ended" });
    });

    it("closes a connection whose client does not read its answers", async () => {
      const app = await serve({ changes: { API_MAX_CONNECTIONS_PER_ADDRESS: 1 }, times: { silentMs: 300 } });
      const { socket } = open(app.origin);
      socket.pause();
      socket.write(large().repeat(8));
      assert.equal(await isServed(app.origin), false);
      await eventually(() => isServed(app.origin), { what: "the place of the connection that is not read" });
    });

    it("counts connections of a load balancer only among all", async () => {
      const app = await serve({
        changes: {
          API_MAX_CONNECTIONS_PER_ADDRESS: 1,
          API_MAX_CONNECTIONS: LIMIT,
          PROXY_ADDRESSES: ["127.0.0.0/8", "::1"],
        },
      });
      await serveMany(app.origin, LIMIT);
      assert.equal(await isServed(app.origin), false);
    });

    it("names each limit that is reached in the log, once a minute", async () => {
      const reported: string[] = [];
      const write = (line: string) => void reported.push(JSON.parse(line).limit);
      const log = pino({ level: "warn" }, { write });
      const env = { ...(await stack()).env, API_MAX_CONNECTIONS_PER_ADDRESS: 1 };
      const server = openServer((_req, res) => res.end(), { env, log });
      try {
        const origin = `http://127.0.0.1:${await listenLocally(server)}`;
        await serveMany(origin, 1);
        for (let i = 0; i < 2; i++) assert.equal(await isServed(origin), false);
        assert.deepEqual(reported, ["API_MAX_CONNECTIONS_PER_ADDRESS"]);
        server.maxConnections = 1;
        for (let i = 0; i < 2; i++) assert.equal(await isServed(origin), false);
        assert.deepEqual(reported, ["API_MAX_CONNECTIONS_PER_ADDRESS", "API_MAX_CONNECTIONS"]);
      } finally {
        server.closeAllConnections();
        server.close();
      }
    });

    it("takes 500 connections of one address and 10,000 in all unless set, and keeps idle ones for 75 s", async () => {
      const { env, origin } = await stack();
      assert.deepEqual([env.API_MAX_CONNECTIONS_PER_ADDRESS, env.API_MAX_CONNECTIONS], [500, 10_000]);
      const response = await fetch(`${origin}/healthz`);
      assert.match(response.headers.get("keep-alive") ?? "", /\btimeout=75\b/);
    });
  });
});
