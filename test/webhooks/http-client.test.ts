import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { Worker } from "node:worker_threads";
import fc from "fast-check";
import { AnswerReader } from "../../activities/webhooks/answer-reader.ts";
import { createDeliveryClient, type DeliveryClient, parseRetryAfter } from "../../activities/webhooks/http-client.ts";
import type { Answer, Answered, Failed, FailureCode } from "../../domain/webhooks/classify.ts";
import { openUrlGuard } from "../../lib/url-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { eventually } from "../support/eventually.ts";
import { listenLocally } from "../support/listen-locally.ts";

const TLS = `${import.meta.dirname}/../data/tls`;
const cert = readFileSync(`${TLS}/cert.pem`, "utf8");
const key = readFileSync(`${TLS}/key.pem`, "utf8");

const USER_AGENT = "Mailkeel-Webhooks/1 (+https://mail.example.com/docs/webhooks)";

const guardWith = (settings: Partial<Parameters<typeof openUrlGuard>[0]> = {}) =>
  openUrlGuard({
    EGRESS_DENIED_NETWORKS: [],
    WEBHOOK_ALLOWED_HOSTS: [],
    WEBHOOK_DNS_SERVERS: [],
    WEBHOOK_HTTPS_ONLY: false,
    ...settings,
  });

describe("A webhook's HTTP client", () => {
  let dns: DnsServer;
  const cleanUps: (() => unknown)[] = [];

  before(async () => {
    dns = await startDnsServer({ "hook.test": { a: ["127.0.0.1"] }, "other.test": { a: ["127.0.0.1"] } });
  });
  after(() => dns.close());
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
  });

  interface Receiver {
    port: number;
    url: string;
    /** Those that are open. */
    sockets: Set<Socket>;
    /** How many were opened. */
    connections: number;
  }

  async function listen(server: Server): Promise<Receiver> {
    const receiver: Receiver = { port: 0, url: "", sockets: new Set(), connections: 0 };
    const { sockets } = receiver;
    server.on("connection", (socket) => {
      receiver.connections++;
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    });
    const port = await listenLocally(server);
    cleanUps.push(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    return Object.assign(receiver, { port, url: `http://hook.test:${port}/` });
  }

  /** An HTTP server on 127.0.0.1, which is also hook.test. */
  const serve = (listener: RequestListener): Promise<Receiver> => listen(createServer(listener));

  /** A server that is handed each connection. */
  const serveRaw = (onConnection: (socket: Socket) => void): Promise<Receiver> => listen(createTcpServer(onConnection));

  /** A server that does not answer requests for /hang. */
  async function serveHanging(): Promise<{ receiver: Receiver; hanging: ServerResponse[] }> {
    const hanging: ServerResponse[] = [];
    const receiver = await serve((request, response) => {
      if (request.url === "/hang") hanging.push(response);
      else response.end("ok");
    });
    return { receiver, hanging };
  }

  function openWith(settings: Parameters<typeof guardWith>[0], timeoutMs = 5_000): DeliveryClient {
    const guard = guardWith({ WEBHOOK_DNS_SERVERS: [dns.address], ...settings });
    const client = createDeliveryClient({ guard, timeoutMs, userAgent: USER_AGENT });
    cleanUps.push(() => client.close());
    return client;
  }

  /** A client that may reach the given ports of 127.0.0.1, hook.test and other.test. */
  const open = (ports: number[], timeoutMs?: number): DeliveryClient =>
    openWith(
      {
        WEBHOOK_ALLOWED_HOSTS: ports.flatMap((port) =>
          ["127.0.0.1", "hook.test", "other.test"].map((host) => `${host}:${port}`),
        ),
      },
      timeoutMs,
    );

  const post = (client: DeliveryClient, url: string, more: { signal?: AbortSignal } = {}): Promise<Answer> =>
    client.post({ url, headers: { "content-type": "application/json" }, body: Buffer.from('{"id":"1"}'), ...more });

  const openTo = ({ port }: Receiver, timeoutMs?: number): DeliveryClient => open([port], timeoutMs);
  const postTo = (receiver: Receiver, ms?: number): Promise<Answer> => post(openTo(receiver, ms), receiver.url);

  function answered(answer: Answer): Answered {
    assert.equal(answer.kind, "answered", JSON.stringify(answer));
    return answer as Answered;
  }

  function failed(answer: Answer, code: FailureCode): Failed {
    assert.equal(answer.kind, "failed", JSON.stringify(answer));
    assert.equal((answer as Failed).code, code, JSON.stringify(answer));
    assert.doesNotMatch((answer as Failed).message, /127\.0\.0\.1|hook\.test|::1/);
    return answer as Failed;
  }

  it("sends the body and the headers it is given, to the host of the URL", async () => {
    let seen: unknown;
    const receiver = await serve(async (request, response) => {
      const { method, url, headers } = request;
      const { host, "content-type": type, "user-agent": agent } = headers;
      seen = { method, url, host, type, agent, body: await text(request) };
      response.end("ok");
    });
    const answer = answered(await post(openTo(receiver), `http://hook.test:${receiver.port}/a%20b?c=d#e`));
    assert.deepEqual({ ...answer, durationMs: 0 }, { kind: "answered", status: 200, body: "ok", durationMs: 0 });
    assert.ok(Number.isInteger(answer.durationMs));
    const sent = { method: "POST", url: "/a%20b?c=d", type: "application/json", agent: USER_AGENT, body: '{"id":"1"}' };
    assert.deepEqual(seen, { ...sent, host: `hook.test:${receiver.port}` });
  });

  it("takes an answer that came in time, even when the process was too busy to read it", async () => {
    const server = new Worker(
      `const { parentPort } = require("node:worker_threads");
      const server = require("node:http").createServer((_, response) => {
        parentPort.postMessage("arrived");
        setTimeout(() => response.end("ok"), 20);
      });
      server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));`,
      { eval: true },
    );
    cleanUps.push(() => server.terminate());
    const [port] = await once(server, "message");
    const answer = post(open([port], 300), `http://hook.test:${port}/`);
    await once(server, "message");
    // Nothing else runs here until long after the deadline.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
    assert.equal(answered(await answer).body, "ok");
  });

  it("does not follow redirects", async () => {
    let followed = 0;
    const inner = await serve((_, response) => void response.end(String(++followed)));
    for (const status of [301, 302, 303, 307, 308]) {
      const location = `http://127.0.0.1:${inner.port}/`;
      const outer = await serve((_, response) => void response.writeHead(status, { location }).end("moved"));
      const answer = answered(await post(open([outer.port, inner.port]), outer.url));
      assert.deepEqual([answer.status, answer.body], [status, "moved"]);
    }
    assert.equal(followed, 0);
  });

  /** How the connection ends: "kept" by both sides, "dropped" by the client, or by the server. */
  type End = "kept" | "dropped" | "closed" | "reset";
  const HEAD = "HTTP/1.1 200 OK\r\n";
  const CHUNKS = `${HEAD}transfer-encoding: chunked\r\n`;
  const LONG = "x".repeat(70_000);
  const INTERIM =
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\ncontent-length: 9\r\n\r\nHTTP/1.1 100 \r\nx: y\r\n\r\n";
  const ANSWERS: Record<string, [bytes: string, end: End, status: number, body: string, problem?: RegExp]> = {
    plain: [`${HEAD}Content-Length: 2\r\n\r\nok`, "kept", 200, "ok"],
    "without a reason": ["HTTP/1.1 599\r\ncontent-length: 0\r\n\r\n", "kept", 599, ""],
    "of HTTP/1.0": ["HTTP/1.0 404 No\r\nserver: x\r\n\r\nto the end", "closed", 404, "to the end"],
    "that is not kept": [`${HEAD}connection: Close\r\ncontent-length: 2\r\n\r\nok`, "dropped", 200, "ok"],
    "in chunks": [`${CHUNKS}\r\n1;a=b\r\no\r\n01\r\nk\r\n0\r\nx: y\r\n\r\n`, "kept", 200, "ok"],
    "after interim ones": [`${INTERIM}HTTP/1.1 202 OK\r\ncontent-length: 2\r\n\r\nok`, "kept", 202, "ok"],
    "like an interim one": [`${HEAD}content-length: 16\r\n\r\nHTTP/1.1 100 \r\n\r`, "kept", 200, "HTTP/1.1 100 \r\n\r"],
    "after empty lines": [`\r\n\n${HEAD}content-length: 0\r\n\r\n`, "kept", 200, ""],
    "with bare line feeds": ["HTTP/1.1 200 OK\ncontent-length: 2\n\nok", "kept", 200, "ok"],
    "with two lengths": [`${HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\nok`, "kept", 200, "ok"],
    "with a length and chunks": [`${CHUNKS}content-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n`, "kept", 200, "ok"],
    "with no length that is one": [`${HEAD}content-length: two\r\n\r\nok`, "closed", 200, "ok"],
    "204 with a body": ["HTTP/1.1 204 No\r\n\r\nbody", "dropped", 204, ""],
    "204 before its body": ["HTTP/1.1 204 No\r\ncontent-length: 4\r\n\r\n", "dropped", 204, ""],
    "before another one": [`${HEAD}content-length: 2\r\n\r\nok${HEAD}`, "dropped", 200, "ok"],
    "with broken headers": [`${HEAD}a b\r\n: c\r\nd\0: e\r\ncontent-length: 2\r\n\r\nok`, "kept", 200, "ok"],
    "with broken chunks": [`${CHUNKS}\r\n4\r\nhalf\r\nwrong\r\n`, "dropped", 200, "half", /not valid/],
    "with endless headers": [HEAD + "x: y\r\n".repeat(12_000), "dropped", 200, "", /not valid/],
    "broken off in its headers": [`${HEAD}content-len`, "closed", 200, "", /closed/],
    "broken off in its body": ["HTTP/1.1 404 No\r\ncontent-length: 9\r\n\r\nhalf", "closed", 404, "half", /closed/],
    "broken off in a chunk": [`${CHUNKS}\r\n9\r\nhalf`, "closed", 200, "half", /closed/],
    "that is reset": ["HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nhalf", "reset", 500, "half", /closed/],
    "that is too long": [`${HEAD}\r\n${LONG}`, "dropped", 200, LONG.slice(0, 16_384), /first 16384 bytes/],
    "that is compressed": [
      `${HEAD}content-encoding: x\r\ncontent-length: 2\r\n\r\nok`,
      "kept",
      200,
      "ok",
      /compressed/,
    ],
  };
  for (const [what, [bytes, end, status, body, problem = /^$/]] of Object.entries(ANSWERS)) {
    it(`reads an answer ${what}, in any pieces`, async () => {
      const receiver = await serveRaw((socket) => {
        socket.on("data", () => socket.write(bytes, "latin1", () => end === "closed" && socket.end()));
        if (end === "reset") socket.on("data", () => setImmediate(() => socket.resetAndDestroy()));
      });
      const client = openTo(receiver);
      for (let request = 0; request < 2; request++) {
        const answer = answered(await post(client, receiver.url));
        // A reset may overtake the bytes before it.
        assert.deepEqual([answer.status, end === "reset" ? body : answer.body], [status, body]);
        assert.match(answer.bodyProblem ?? "", problem);
      }
      const open = end === "kept" ? 1 : 0;
      await eventually(() => receiver.sockets.size === open, { what: "the end of the connections" });
      const reader = new AnswerReader();
      for (const byte of Buffer.from(bytes, "latin1")) if (reader.add(Buffer.of(byte))) break;
      assert.deepEqual([reader.status, reader.body().text], [status, body]);
    });
  }

  it("reports Retry-After with any status, and not from an interim answer", async () => {
    for (const status of [200, 429, 503]) {
      const receiver = await serve((_, response) => void response.writeHead(status, { "retry-after": "120" }).end());
      assert.equal(answered(await postTo(receiver)).retryAfterSeconds, 120);
    }
    const early = await serve((_, response) => {
      response.writeEarlyHints({ link: "</a>", "retry-after": "9" });
      response.end();
    });
    assert.equal(answered(await postTo(early)).retryAfterSeconds, undefined);
  });

  describe("of an answer's body", () => {
    const x = (count: number) => "x".repeat(count);
    for (const [what, body, expected, isCut] of [
      ["all of 16 KiB", x(16_384), x(16_384), false],
      ["16 KiB of more", x(16_385), x(16_384), true],
      ["whole characters of two bytes", `x${"ü".repeat(10_000)}`, `x${"ü".repeat(8_191)}`, true],
      ["whole characters of four bytes", `xyz${"😀".repeat(5_000)}`, `xyz${"😀".repeat(4_095)}`, true],
      ["a sign for NUL", "a\0b", "a\uFFFDb", false],
      ["a sign for a broken character", Buffer.from([0x61, 0xff, 0x62, 0xc3]), "a\uFFFDb\uFFFD", false],
      ["16 KiB of signs", Buffer.alloc(16_000, 0xff), "\uFFFD".repeat(5_461), true],
    ] as const) {
      it(`keeps ${what}`, async () => {
        const answer = answered(await postTo(await serve((_, response) => void response.end(body))));
        assert.deepEqual([answer.body, answer.bodyProblem !== undefined], [expected, isCut]);
      });
    }

    it("keeps only text that Postgres takes, from any bytes, cut anywhere", () => {
      const pieces = fc.array(fc.uint8Array({ minLength: 1, maxLength: 9_000 }), { maxLength: 8 });
      fc.assert(
        fc.property(pieces, (chunks) => {
          const reader = new AnswerReader();
          for (const chunk of [Buffer.from(`${HEAD}\r\n`), ...chunks]) reader.add(Buffer.from(chunk));
          const { text: body } = reader.body();
          assert.ok(body.isWellFormed() && !body.includes("\0") && Buffer.byteLength(body) <= 16_384);
          const whole = Buffer.concat(chunks).toString().replaceAll("\0", "\uFFFD");
          assert.ok(whole.startsWith(body));
          if (Buffer.byteLength(whole) <= 16_384) assert.equal(body, whole);
        }),
      );
    });

    it("reads no more than 64 KiB, and drops the connection", async () => {
      let sent = 0;
      const receiver = await serve((_, response) => {
        const more = () => {
          while (!response.destroyed && response.write(x(65_536))) sent += 65_536;
        };
        response.writeHead(200).on("drain", more);
        more();
      });
      assert.equal(answered(await postTo(receiver)).body.length, 16_384);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
      assert.ok(sent < 50_000_000, String(sent));
    });

    it("reads until the deadline when it never ends, though bytes keep coming", async () => {
      const receiver = await serve((_, response) => {
        response.writeHead(410);
        const drip = setInterval(() => response.write("."), 10);
        response.on("close", () => clearInterval(drip));
      });
      const answer = answered(await postTo(receiver, 300));
      assert.equal(answer.status, 410);
      assert.match(answer.bodyProblem ?? "", /did not end in time/);
      assert.match(answer.body, /^\.+$/);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
    });

    it("reads for a short while only, however long a request may take", async () => {
      const receiver = await serve((_, response) => void response.writeHead(200).write("begun"));
      const answer = answered(await postTo(receiver, 60_000));
      assert.deepEqual([answer.status, answer.body], [200, "begun"]);
      assert.ok(answer.durationMs < 30_000, `${answer.durationMs} ms`);
    });
  });

  describe("without an answer", () => {
    const drip = (text: string) => (socket: Socket) => {
      const timer = setInterval(() => socket.write(text), 10);
      socket.on("close", () => clearInterval(timer));
    };
    const send = (text: string) => (socket: Socket) => void socket.once("data", () => socket.write(text));
    const close = (socket: Socket) => void socket.once("data", () => socket.end());
    const reset = (socket: Socket) => void socket.once("data", () => socket.resetAndDestroy());
    const endless = `HTTP/1.1 100 C\r\n${"x: y\r\n".repeat(12_000)}`;
    for (const [what, scheme, code, message, onConnection] of [
      ["nothing comes", "http", "timeout", /did not answer within 0.3 s/, () => {}],
      ["nothing follows an interim answer", "http", "timeout", /did not answer/, send("HTTP/1.1 100 Continue\r\n\r\n")],
      ["interim answers never end", "http", "timeout", /did not answer/, drip("HTTP/1.1 102 Processing\r\n\r\n")],
      ["TLS gets no further", "https", "timeout", /TLS/, () => {}],
      ["the other side does not speak TLS", "https", "tls", /handshake/, (socket: Socket) => void socket.end("HTTP")],
      ["another protocol is spoken", "http", "protocol", /not valid HTTP/, send("SSH-2.0-OpenSSH_9.6\r\n")],
      ["an interim answer is too long", "http", "protocol", /not valid/, send(endless)],
      ["the connection is closed", "http", "reset", /closed/, close],
      ["the connection is reset", "http", "reset", /closed/, reset],
    ] as const) {
      it(`says that there is none, once, when ${what}`, async () => {
        const receiver = await serveRaw((socket) => onConnection(socket.resume()));
        const answer = await post(openTo(receiver, 300), `${scheme}://hook.test:${receiver.port}/`);
        assert.match(failed(answer, code).message, message);
        await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
        assert.equal(receiver.connections, 1);
      });
    }

    it("says that the name's servers say nothing, or that it does not resolve", async () => {
      dns.names.set("silent.test", { silent: "both" });
      assert.match(failed(await post(open([], 150), "http://silent.test/"), "timeout").message, /looked up/);
      failed(await post(open([]), "https://gone.test/"), "name_not_resolved");
    });

    it("says that the connection was refused", async () => {
      const server = createTcpServer();
      const port = await listenLocally(server);
      await new Promise((resolve) => server.close(resolve));
      failed(await post(open([port]), `http://hook.test:${port}/`), "connect_refused");
    });

    it("does not report a fault of this process as the endpoint's", async () => {
      const guard = { ...guardWith(), resolve: () => Promise.reject(new Error("too many open files")) };
      const client = createDeliveryClient({ guard, timeoutMs: 5_000, userAgent: USER_AGENT });
      await assert.rejects(post(client, "http://hook.test/"), /too many open files/);
    });
  });

  describe("over TLS", () => {
    const serveTls = (listener: RequestListener): Promise<Receiver> => listen(createTlsServer({ cert, key }, listener));

    it("insists on a certificate of a known issuer", async () => {
      let requests = 0;
      const receiver = await serveTls((_, response) => void response.end(String(++requests)));
      const answer = await post(openTo(receiver), `https://hook.test:${receiver.port}/`);
      assert.match(failed(answer, "tls").message, /self-signed/);
      assert.equal(requests, 0);
    });

    it("insists on a certificate for the host of the URL, which it names", async () => {
      const names: unknown[] = [];
      const receiver = await serveTls((request, response) => {
        const socket = request.socket as Socket & { servername?: string };
        names.push(socket.servername);
        response.end("safe");
      });
      const authorities = getCACertificates("default");
      setDefaultCACertificates([...authorities, cert]);
      try {
        const client = openTo(receiver);
        assert.equal(answered(await post(client, `https://hook.test:${receiver.port}/`)).body, "safe");
        assert.equal(answered(await post(client, `https://hook.test.:${receiver.port}/`)).body, "safe");
        assert.deepEqual(names, ["hook.test", "hook.test"]);
        assert.equal(receiver.sockets.size, 1);
        for (const host of ["other.test", "127.0.0.1"]) {
          const answer = await post(client, `https://${host}:${receiver.port}/`);
          assert.match(failed(answer, "tls").message, /another host name/);
        }
      } finally {
        setDefaultCACertificates(authorities);
      }
    });
  });

  describe("and the address guard", () => {
    it("sends nothing where it may not go", async () => {
      const receiver = await serveRaw(() => {});
      const { port } = receiver;
      dns.names.set("own.test", { a: ["1.1.1.1"], aaaa: ["2606:4700::1"] });
      for (const [url, reason, settings] of [
        ["http://127.0.0.1", "address_not_public", {}],
        ["http://localhost", "address_not_public", {}],
        ["http://[::ffff:127.0.0.1]", "address_not_public", {}],
        ["http://2130706433", "address_spelling", {}],
        ["http://hook.test", "resolves_not_public", {}],
        ["http://own.test", "network_denied", { EGRESS_DENIED_NETWORKS: ["2606:4700::/32"] }],
        ["http://own.test", "https_only", { WEBHOOK_HTTPS_ONLY: true, WEBHOOK_ALLOWED_HOSTS: [`own.test:${port}`] }],
      ] as const) {
        const answer = await post(openWith({ ...settings } as Parameters<typeof guardWith>[0]), `${url}:${port}/`);
        assert.equal(answer.kind === "blocked" && answer.reason, reason, url);
      }
      assert.equal(receiver.connections, 0);
    });

    it("sends nothing to a name that was public at registration and is loopback now", async () => {
      const receiver = await serveRaw(() => {});
      const client = openWith({});
      const guard = guardWith({ WEBHOOK_DNS_SERVERS: [dns.address] });
      dns.names.set("rebinding.test", { a: ["1.1.1.1"] });
      await guard.resolve("rebinding.test", receiver.port);
      for (const a of [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"]]) {
        dns.names.set("rebinding.test", { a });
        const answer = await post(client, `http://rebinding.test:${receiver.port}/`);
        assert.equal(answer.kind, "blocked", JSON.stringify(answer));
        assert.doesNotMatch(JSON.stringify(answer), /127\.0\.0\.1/);
      }
      assert.equal(receiver.connections, 0);
    });

    it("looks a name up once for a connection, and not again while that is kept", async () => {
      dns.names.set("once.test", { a: ["127.0.0.1"] });
      const receiver = await serve((_, response) => void response.end());
      const client = openWith({ WEBHOOK_ALLOWED_HOSTS: [`once.test:${receiver.port}`] });
      for (let request = 0; request < 5; request++) answered(await post(client, `http://once.test:${receiver.port}/`));
      assert.equal(receiver.connections, 1);
      assert.equal(dns.queries("once.test"), 2); // A and AAAA
    });

    it("tries every address of a host", async () => {
      const receiver = await serve((_, response) => void response.end("here"));
      const client = openTo(receiver);
      for (const a of [
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
      ]) {
        // Nothing listens on the others.
        dns.names.set("hook.test", { a, aaaa: ["::2"] });
        assert.equal(answered(await post(client, receiver.url)).body, "here");
        await Promise.all([...receiver.sockets].map((socket) => once(socket.end(), "close")));
      }
      dns.names.set("hook.test", { a: ["127.0.0.1"] });
    });
  });

  describe("and its connections", () => {
    it("does not wait for an answer that hangs, on the same host", async () => {
      const { receiver, hanging } = await serveHanging();
      const client = openTo(receiver);
      const slow = Array.from({ length: 50 }, () => post(client, `${receiver.url}hang`));
      assert.equal(answered(await post(client, receiver.url)).body, "ok");
      await eventually(() => hanging.length === 50);
      for (const response of hanging) response.end("late");
      for (const answer of await Promise.all(slow)) assert.equal(answered(answer).body, "late");
    });

    it("makes a new one after the endpoint closed the kept one", async () => {
      const receiver = await serve((_, response) => void response.end("ok"));
      const client = openTo(receiver);
      answered(await post(client, receiver.url));
      for (const socket of receiver.sockets) socket.end();
      await eventually(() => receiver.sockets.size === 0);
      answered(await post(client, receiver.url));
      assert.equal(receiver.sockets.size, 1);
    });

    it("closes one that was idle for as long as the endpoint keeps it, less a margin", async () => {
      const receiver = await serve((_, response) => void response.setHeader("keep-alive", "timeout=3").end("ok"));
      answered(await postTo(receiver));
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the idle connection", withinMs: 3_000 });
    });

    for (const [what, requests, end] of [
      ["repeats a request once on a new one when the kept one is closed", 3, (socket: Socket) => socket.end()],
      [
        "repeats a request once on a new one when the kept one is reset",
        3,
        (socket: Socket) => socket.resetAndDestroy(),
      ],
      ["does not repeat one after a byte of an answer", 2, (socket: Socket) => socket.end("H")],
      ["does not repeat one after an interim answer", 2, (socket: Socket) => socket.end("HTTP/1.1 100 \r\n\r\n")],
    ] as const) {
      it(`${what} as it is sent`, async () => {
        let count = 0;
        const receiver = await serveRaw((socket) => {
          socket.on("data", () => {
            if (++count === 2) end(socket);
            else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
          });
        });
        const client = openTo(receiver);
        answered(await post(client, receiver.url));
        const answer = await post(client, receiver.url);
        if (requests === 3) answered(answer);
        else failed(answer, "reset");
        assert.equal(count, requests);
      });
    }

    it("closes the idle ones when it is closed, and those in use after their requests", async () => {
      const { receiver, hanging } = await serveHanging();
      const client = openTo(receiver);
      const slow = post(client, `${receiver.url}hang`);
      answered(await post(client, receiver.url));
      await eventually(() => hanging.length === 1);
      client.close();
      await eventually(() => receiver.sockets.size === 1, { what: "the end of the idle connection", withinMs: 3_000 });
      hanging[0]?.end("late");
      assert.equal(answered(await slow).body, "late");
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the last connection" });
    });
  });
});

describe("Retry-After", () => {
  const now = Date.parse("2026-03-01T12:00:00Z");
  for (const [text, seconds] of [
    ...([
      ["0", 0],
      ["120", 120],
      [" 7 ", 7],
      ["9".repeat(400), Number.MAX_SAFE_INTEGER],
    ] as const),
    ["Sun, 01 Mar 2026 12:00:30 GMT", 30],
    ["Sunday, 01-Mar-26 12:00:30 GMT", 30],
    ["Sun Mar  1 12:00:30 2026", 30],
    ["Sun, 01 Mar 2026 11:00:00 GMT", 0],
    ...["", "-1", "1.5", "soon", "Sun, soon", "tomorrow 1", "2026-03-01T12:00:30Z"].map((text) => [text] as const),
  ] as const) {
    it(`${JSON.stringify(text.slice(0, 40))} means ${seconds === undefined ? "nothing" : `${seconds} s`}`, () => {
      assert.equal(parseRetryAfter(text, now), seconds);
    });
  }
});
