import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { Worker } from "node:worker_threads";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { createDeliveryClient, type DeliveryClient, parseRetryAfter } from "../../activities/webhooks/http-client.ts";
import type { Answer, Answered, Failed, FailureCode } from "../../domain/webhooks/classify.ts";
import { openUrlGuard } from "../../domain/webhooks/url-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { eventually } from "../support/eventually.ts";

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
    sockets: Set<Socket>;
  }

  async function listen(server: Server): Promise<Receiver> {
    const sockets = new Set<Socket>();
    server.on("connection", (socket) => {
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    cleanUps.push(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    return { port: (server.address() as AddressInfo).port, sockets };
  }

  /** An HTTP server on 127.0.0.1, which is also hook.test. */
  const serve = (listener: RequestListener): Promise<Receiver> => listen(createServer(listener));

  /** A server that does not answer requests for /hang. */
  async function serveHanging(): Promise<{ receiver: Receiver; hanging: ServerResponse[] }> {
    const hanging: ServerResponse[] = [];
    const receiver = await serve((request, response) => {
      if (request.url === "/hang") hanging.push(response);
      else response.end("ok");
    });
    return { receiver, hanging };
  }

  /** A server that is handed each connection. */
  const serveRaw = (onConnection: (socket: Socket) => void): Promise<Receiver> => listen(createTcpServer(onConnection));

  /** A client that may reach the given ports of 127.0.0.1, hook.test and other.test. */
  function open(ports: number[], timeoutMs = 5_000): DeliveryClient {
    const guard = guardWith({
      WEBHOOK_ALLOWED_HOSTS: ports.flatMap((port) => [`127.0.0.1:${port}`, `hook.test:${port}`, `other.test:${port}`]),
      WEBHOOK_DNS_SERVERS: [dns.address],
    });
    const client = createDeliveryClient({ guard, timeoutMs, userAgent: USER_AGENT });
    cleanUps.push(() => client.close());
    return client;
  }

  const post = (client: DeliveryClient, url: string, more: { signal?: AbortSignal } = {}): Promise<Answer> =>
    client.post({ url, headers: { "content-type": "application/json" }, body: '{"id":"1"}', ...more });

  async function postTo(receiver: Receiver, timeoutMs?: number): Promise<Answer> {
    return post(open([receiver.port], timeoutMs), `http://hook.test:${receiver.port}/hooks`);
  }

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

  async function bodyOf(request: IncomingMessage): Promise<string> {
    let text = "";
    for await (const chunk of request.setEncoding("utf8")) text += chunk;
    return text;
  }

  describe("on an answer", () => {
    it("sends the body and the headers it is given, to the host of the URL", async () => {
      let seen: unknown;
      const receiver = await serve(async (request, response) => {
        const { method, url, headers } = request;
        const { host, "content-type": type, "user-agent": agent } = headers;
        seen = { method, url, host, type, agent, body: await bodyOf(request) };
        response.end("ok");
      });
      const answer = answered(await post(open([receiver.port]), `http://hook.test:${receiver.port}/a%20b?c=d#e`));
      assert.deepEqual({ ...answer, durationMs: 0 }, { kind: "answered", status: 200, body: "ok", durationMs: 0 });
      assert.ok(Number.isInteger(answer.durationMs));
      const host = `hook.test:${receiver.port}`;
      const sent = {
        method: "POST",
        url: "/a%20b?c=d",
        type: "application/json",
        agent: USER_AGENT,
        body: '{"id":"1"}',
      };
      assert.deepEqual(seen, { ...sent, host });
    });

    for (const status of [200, 201, 204, 400, 404, 410, 429, 500, 503, 599]) {
      it(`reports the status ${status}`, async () => {
        const answer = await postTo(await serve((_, response) => void response.writeHead(status).end()));
        assert.equal(answered(answer).status, status);
      });
    }

    it("takes one that came in time, even when the process was too busy to read it", async () => {
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

    for (const status of [301, 302, 303, 307, 308]) {
      it(`does not follow a redirect: ${status}`, async () => {
        let followed = 0;
        const inner = await serve((_, response) => void response.end(String(++followed)));
        const location = `http://127.0.0.1:${inner.port}/`;
        const outer = await serve((_, response) => void response.writeHead(status, { location }).end("moved"));
        const answer = await post(open([outer.port, inner.port]), `http://hook.test:${outer.port}/`);
        assert.deepEqual([answered(answer).status, answered(answer).body], [status, "moved"]);
        assert.equal(followed, 0);
      });
    }

    it("skips interim answers before the final one", async () => {
      const receiver = await serveRaw((socket) => {
        socket.once("data", () =>
          socket.write(
            "HTTP/1.1 103 Early Hints\r\nretry-after: 9\r\n\r\nHTTP/1.1 202 OK\r\ncontent-length: 2\r\n\r\nok",
          ),
        );
      });
      const answer = answered(await postTo(receiver));
      assert.deepEqual([answer.status, answer.body, answer.retryAfterSeconds], [202, "ok", undefined]);
    });

    it("skips 100 Continue that it did not ask for, in whatever pieces it comes, on each request of a connection", async () => {
      const bytes =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 \r\nx: y\r\n\r\n" +
        "HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\nHTTP/1.1 100 Continue\r\n\r";
      const [end] = bytes.match(/(?<=content-length: 24\r\n\r\n).*/s) ?? [];
      const cuts = [[], ...Array.from(bytes, (_, index) => [index]), [1, 2, 3, 30], Array.from(bytes, (_, i) => i)];
      let pieces: string[] = [];
      const receiver = await serveRaw((socket) => {
        socket.setNoDelay(true).on("data", async () => {
          for (const piece of pieces) {
            await new Promise((resolve) => socket.write(piece, resolve));
            await nextTurn();
          }
        });
      });
      const client = open([receiver.port]);
      for (const cut of cuts) {
        pieces = [0, ...cut].map((from, index) => bytes.slice(from, cut[index] ?? bytes.length)).filter(Boolean);
        const answer = answered(await post(client, `http://hook.test:${receiver.port}/`));
        assert.deepEqual([answer.status, answer.body], [200, end], cut.join());
      }
      assert.equal(receiver.sockets.size, 1);
    });

    it("reports Retry-After with any status", async () => {
      for (const status of [200, 429, 503]) {
        const receiver = await serve((_, response) => void response.writeHead(status, { "retry-after": "120" }).end());
        assert.equal(answered(await postTo(receiver)).retryAfterSeconds, 120);
      }
    });

    it("takes a body that ends with the connection", async () => {
      const receiver = await serveRaw((socket) => {
        socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end"));
      });
      assert.equal(answered(await postTo(receiver)).body, "to the end");
    });
  });

  describe("of an answer's body", () => {
    const bodyKept = async (body: Buffer | string): Promise<string> =>
      answered(await postTo(await serve((_, response) => void response.end(body)))).body;

    it("keeps 16 KiB", async () => {
      assert.equal(await bodyKept("x".repeat(16_384)), "x".repeat(16_384));
      assert.equal(await bodyKept("x".repeat(16_385)), "x".repeat(16_384));
      assert.equal(await bodyKept("x".repeat(65_536)), "x".repeat(16_384));
    });

    it("says that it keeps the beginning only", async () => {
      const problemOf = async (body: Buffer | string) =>
        answered(await postTo(await serve((_, response) => void response.end(body)))).bodyProblem;
      for (const whole of ["", "x".repeat(16_384), "ü".repeat(8_192)]) assert.equal(await problemOf(whole), undefined);
      for (const long of ["x".repeat(16_385), "x".repeat(3_000_000), Buffer.alloc(16_000, 0xff)]) {
        assert.match((await problemOf(long)) ?? "", /first 16384 bytes are kept/, String(long.length));
      }
    });

    it("keeps whole characters only", async () => {
      assert.equal(await bodyKept(`x${"ü".repeat(10_000)}`), `x${"ü".repeat(8_191)}`);
      assert.equal(await bodyKept(`xyz${"😀".repeat(5_000)}`), `xyz${"😀".repeat(4_095)}`);
    });

    it("keeps text without NUL, with a sign for each broken character", async () => {
      assert.equal(await bodyKept("a\0b"), "a\uFFFDb");
      assert.equal(await bodyKept(Buffer.from([0x61, 0xff, 0x62, 0xc3])), "a\uFFFDb\uFFFD");
      const broken = await bodyKept(Buffer.alloc(16_000, 0xff));
      assert.match(broken, /^\uFFFD+$/);
      assert.ok(Buffer.byteLength(broken) <= 16_384 && Buffer.byteLength(broken) > 16_380);
    });

    it("keeps only text that Postgres takes, from any bytes, cut anywhere", async () => {
      const pieces = fc.array(fc.uint8Array({ maxLength: 9_000 }), { maxLength: 8 });
      let chunks: Uint8Array[] = [];
      const receiver = await serve(async (_, response) => {
        for (const chunk of chunks) await new Promise((resolve) => response.write(chunk, resolve));
        response.end();
      });
      const client = open([receiver.port]);
      await fc.assert(
        fc.asyncProperty(pieces, async (given) => {
          chunks = given.filter((chunk) => chunk.length > 0);
          const { body } = answered(await post(client, `http://hook.test:${receiver.port}/`));
          assert.ok(body.isWellFormed() && !body.includes("\0") && Buffer.byteLength(body) <= 16_384);
          const whole = Buffer.concat(chunks).toString().replaceAll("\0", "\uFFFD");
          assert.ok(whole.startsWith(body));
          if (Buffer.byteLength(whole) <= 16_384) assert.equal(body, whole);
        }),
        { numRuns: 50 },
      );
    });

    it("reads no more than 64 KiB, drops the connection and goes by the status", async () => {
      let sent = 0;
      const receiver = await serve((_, response) => {
        const more = () => {
          while (!response.destroyed && response.write("x".repeat(65_536))) sent += 65_536;
        };
        response.writeHead(200).on("drain", more);
        more();
      });
      const answer = answered(await postTo(receiver));
      assert.deepEqual([answer.status, answer.body.length], [200, 16_384]);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
      assert.ok(sent < 50_000_000, String(sent));
    });
  });

  describe("on a status whose body is not complete", () => {
    /** Answers with a head and then writes the text of each body, and ends as `end` says. */
    const brokenOff = (head: string, body: string, end: (socket: Socket) => void) =>
      serveRaw((socket) => {
        socket.once("data", () => socket.write(`HTTP/1.1 ${head}\r\n\r\n${body}`, () => end(socket)));
      });
    const keepOpen = () => {};

    for (const [what, status, head, body, end, problem] of [
      ["is shorter than announced", 200, "content-length: 100", "half", (socket: Socket) => socket.end(), /closed/],
      ["is reset", 404, "content-length: 100", "half", (socket: Socket) => socket.resetAndDestroy(), /closed/],
      [
        "is chunked and broken off",
        503,
        "transfer-encoding: chunked",
        "4\r\nhalf\r\n",
        (s: Socket) => s.end(),
        /closed/,
      ],
      ["has broken chunks", 201, "transfer-encoding: chunked", "4\r\nhalf\r\nwrong\r\n", keepOpen, /not valid/],
    ] as const) {
      it(`reports the status when the body ${what}`, async () => {
        const receiver = await brokenOff(`${status} Some\r\n${head}`, body, end);
        const answer = answered(await postTo(receiver));
        assert.equal(answer.status, status);
        assert.match(answer.bodyProblem ?? "", problem);
        // A reset may overtake the bytes before it.
        assert.ok(["half", ""].includes(answer.body), answer.body);
        await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
      });
    }

    it("reports the status within the deadline when the body never ends, though bytes keep coming", async () => {
      for (const status of [200, 410, 500]) {
        const receiver = await serve((_, response) => {
          response.writeHead(status);
          const drip = setInterval(() => response.write("."), 10);
          response.on("close", () => clearInterval(drip));
        });
        const answer = answered(await postTo(receiver, 300));
        assert.equal(answer.status, status);
        assert.match(answer.bodyProblem ?? "", /did not end in time/);
        assert.match(answer.body, /^\.+$/);
        await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
      }
    });

    it("reads an endless body for a short while only, however long a request may take", async () => {
      const receiver = await serve((_, response) => void response.writeHead(200).write("begun"));
      const answer = answered(await postTo(receiver, 60_000));
      assert.deepEqual([answer.status, answer.body], [200, "begun"]);
      assert.ok(answer.durationMs < 30_000, `${answer.durationMs} ms`);
    });

    it("keeps a compressed body as it came and says so, also when it is not what it claims to be", async () => {
      for (const body of ["plain text", gzipSync("compressed").subarray(0, 20)]) {
        const receiver = await serve(
          (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(body),
        );
        const answer = answered(await postTo(receiver));
        assert.equal(answer.status, 200);
        assert.match(answer.bodyProblem ?? "", /compressed \(gzip\)/);
        if (typeof body === "string") assert.equal(answer.body, body);
      }
    });
  });

  describe("without an answer", () => {
    it("gives up when nothing comes", async () => {
      const receiver = await serve(() => {});
      assert.match(failed(await postTo(receiver, 150), "timeout").message, /did not answer within 0.15 s/);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
    });

    it("gives up when nothing follows an interim answer", async () => {
      const receiver = await serveRaw((socket) => {
        socket.once("data", () => socket.write("HTTP/1.1 100 Continue\r\n\r\n"));
      });
      failed(await postTo(receiver, 300), "timeout");
    });

    it("gives up when interim answers never end", async () => {
      const receiver = await serveRaw((socket) => {
        const drip = setInterval(() => socket.write("HTTP/1.1 102 Processing\r\n\r\n"), 10);
        socket.on("close", () => clearInterval(drip));
      });
      failed(await postTo(receiver, 200), "timeout");
    });

    it("gives up when TLS gets no further", async () => {
      const receiver = await serveRaw((socket) => void socket.resume());
      const answer = await post(open([receiver.port], 150), `https://hook.test:${receiver.port}/`);
      assert.match(failed(answer, "timeout").message, /TLS/);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
    });

    it("gives up when the name's servers say nothing", async () => {
      dns.names.set("silent.test", { silent: "both" });
      assert.match(failed(await post(open([], 150), "http://silent.test/"), "timeout").message, /looked up/);
    });

    it("says that a name does not resolve", async () => {
      failed(await post(open([]), "https://gone.test/"), "name_not_resolved");
    });

    it("says that the connection was refused", async () => {
      const server = createTcpServer();
      await once(server.listen(0, "127.0.0.1"), "listening");
      const { port } = server.address() as AddressInfo;
      await new Promise((resolve) => server.close(resolve));
      failed(await post(open([port]), `http://hook.test:${port}/`), "connect_refused");
    });

    it("says that the connection was closed or reset, and does not try again", async () => {
      let connections = 0;
      for (const end of [(socket: Socket) => socket.end(), (socket: Socket) => socket.resetAndDestroy()]) {
        connections = 0;
        const receiver = await serveRaw((socket) => {
          connections++;
          socket.once("data", () => end(socket));
        });
        failed(await postTo(receiver), "reset");
        assert.equal(connections, 1);
      }
    });

    for (const [what, text] of [
      ["another protocol", "SSH-2.0-OpenSSH_9.6\r\n"],
      ["endless headers", `HTTP/1.1 200 OK\r\n${"x: y\r\n".repeat(20_000)}`],
      ["a change of protocol", "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"],
      ["an interim answer with endless headers", `HTTP/1.1 100 Continue\r\n${"x: y\r\n".repeat(20_000)}`],
    ] as const) {
      it(`says that the answer is not HTTP: ${what}`, async () => {
        const receiver = await serveRaw((socket) => void socket.once("data", () => socket.write(text)));
        failed(await postTo(receiver), "protocol");
      });
    }

    it("says that a header cannot be sent", async () => {
      const receiver = await serve((_, response) => void response.end());
      for (const headers of [{ expect: "100-continue" }, { "bad header": "x" }, { x: "a\r\nb: c" }] as const) {
        const answer = await open([receiver.port]).post({
          url: `http://hook.test:${receiver.port}/`,
          headers: { ...headers },
          body: "{}",
        });
        failed(answer, "unsendable");
      }
    });

    it("does not report a fault of this process as the endpoint's", async () => {
      const guard = { ...guardWith() };
      guard.resolve = () => Promise.reject(new Error("too many open files"));
      const client = createDeliveryClient({ guard, timeoutMs: 5_000, userAgent: USER_AGENT });
      await assert.rejects(post(client, "http://hook.test/"), { name: "NotConnected" });
    });

    it("is cut off by the caller's signal, before and during the request", async () => {
      const controller = new AbortController();
      const receiver = await serve(() => controller.abort(new Error("stopping")));
      const client = open([receiver.port]);
      const url = `http://hook.test:${receiver.port}/`;
      await assert.rejects(post(client, url, { signal: controller.signal }), /stopping/);
      await assert.rejects(post(client, url, { signal: controller.signal }), /stopping/);
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the connection" });
    });
  });

  describe("over TLS", () => {
    const serveTls = (listener: RequestListener): Promise<Receiver> => listen(createTlsServer({ cert, key }, listener));

    it("insists on a certificate of a known issuer", async () => {
      let requests = 0;
      const receiver = await serveTls((_, response) => void response.end(String(++requests)));
      const answer = await post(open([receiver.port]), `https://hook.test:${receiver.port}/`);
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
        const client = open([receiver.port]);
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

    it("says that the other side does not speak it", async () => {
      const receiver = await serve((_, response) => void response.end());
      failed(await post(open([receiver.port]), `https://hook.test:${receiver.port}/`), "tls");
    });
  });

  describe("and the address guard", () => {
    it("sends nothing to a URL that is refused", async () => {
      let requests = 0;
      const receiver = await serve((_, response) => void response.end(String(++requests)));
      const client = open([]);
      const REFUSED = {
        [`http://127.0.0.1:${receiver.port}/`]: "address_not_public",
        [`http://localhost:${receiver.port}/`]: "address_not_public",
        [`http://[::ffff:127.0.0.1]:${receiver.port}/`]: "address_not_public",
        [`http://2130706433:${receiver.port}/`]: "address_spelling",
        [`http://hook.test:${receiver.port}/`]: "resolves_not_public",
      };
      for (const [url, reason] of Object.entries(REFUSED)) {
        const answer = await post(client, url);
        assert.equal(answer.kind, "blocked", url);
        assert.equal(answer.kind === "blocked" && answer.reason, reason, url);
      }
      assert.equal(requests, 0);
    });

    it("sends nothing to a name that was public at registration and is loopback now", async () => {
      let connections = 0;
      const receiver = await serveRaw(() => connections++);
      const guard = guardWith({ WEBHOOK_DNS_SERVERS: [dns.address] });
      const client = createDeliveryClient({ guard, timeoutMs: 5_000, userAgent: USER_AGENT });
      cleanUps.push(() => client.close());
      const url = `http://rebinding.test:${receiver.port}/`;

      dns.names.set("rebinding.test", { a: ["1.1.1.1"] });
      await guard.resolve(guard.checkUrl(url).hostname, receiver.port);
      for (const a of [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"]]) {
        dns.names.set("rebinding.test", { a });
        const answer = await post(client, url);
        assert.equal(answer.kind, "blocked", JSON.stringify(answer));
        assert.doesNotMatch(JSON.stringify(answer), /127\.0\.0\.1/);
      }
      assert.equal(connections, 0);
    });

    it("sends nothing into a denied network, nor over http where only https is taken", async () => {
      let connections = 0;
      const receiver = await serveRaw(() => connections++);
      dns.names.set("own.test", { a: ["1.1.1.1"], aaaa: ["2606:4700::1"] });
      const url = `http://own.test:${receiver.port}/`;
      for (const [reason, settings] of Object.entries({
        network_denied: { EGRESS_DENIED_NETWORKS: ["2606:4700::/32"] },
        https_only: { WEBHOOK_HTTPS_ONLY: true, WEBHOOK_ALLOWED_HOSTS: [`own.test:${receiver.port}`] },
      })) {
        const guard = guardWith({ ...settings, WEBHOOK_DNS_SERVERS: [dns.address] });
        const client = createDeliveryClient({ guard, timeoutMs: 5_000, userAgent: USER_AGENT });
        cleanUps.push(() => client.close());
        const answer = await post(client, url);
        assert.equal(answer.kind === "blocked" && answer.reason, reason);
      }
      assert.equal(connections, 0);
    });

    it("looks a name up once for a connection, and not again while that is kept", async () => {
      dns.names.set("once.test", { a: ["127.0.0.1"] });
      const receiver = await serve((_, response) => void response.end());
      const guard = guardWith({
        WEBHOOK_ALLOWED_HOSTS: [`once.test:${receiver.port}`],
        WEBHOOK_DNS_SERVERS: [dns.address],
      });
      const client = createDeliveryClient({ guard, timeoutMs: 5_000, userAgent: USER_AGENT });
      cleanUps.push(() => client.close());
      for (let request = 0; request < 5; request++) answered(await post(client, `http://once.test:${receiver.port}/`));
      assert.equal(receiver.sockets.size, 1);
      assert.equal(dns.queries("once.test"), 2); // A and AAAA
    });

    it("tries every address of a host", async () => {
      const receiver = await serve((_, response) => void response.end("here"));
      const client = open([receiver.port]);
      for (const a of [
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
      ]) {
        // Nothing listens on the others.
        dns.names.set("hook.test", { a, aaaa: ["::2"] });
        assert.equal(answered(await post(client, `http://hook.test:${receiver.port}/`)).body, "here");
        await Promise.all([...receiver.sockets].map((socket) => once(socket.end(), "close")));
      }
      dns.names.set("hook.test", { a: ["127.0.0.1"] });
    });
  });

  describe("and its connections", () => {
    it("does not wait for an answer that hangs, on the same host", async () => {
      const { receiver, hanging } = await serveHanging();
      const client = open([receiver.port]);
      const base = `http://hook.test:${receiver.port}`;
      const slow = Array.from({ length: 50 }, () => post(client, `${base}/hang`));
      assert.equal(answered(await post(client, `${base}/`)).body, "ok");
      await eventually(() => hanging.length === 50);
      for (const response of hanging) response.end("late");
      for (const answer of await Promise.all(slow)) assert.equal(answered(answer).body, "late");
    });

    it("makes a new one after the endpoint closed the kept one", async () => {
      const receiver = await serve((_, response) => void response.end("ok"));
      const client = open([receiver.port]);
      const url = `http://hook.test:${receiver.port}/`;
      answered(await post(client, url));
      for (const socket of receiver.sockets) socket.end();
      await eventually(() => receiver.sockets.size === 0);
      answered(await post(client, url));
      assert.equal(receiver.sockets.size, 1);
    });

    it("closes one that was idle for as long as the endpoint keeps it, less a margin", async () => {
      const receiver = await serve((_, response) => void response.setHeader("keep-alive", "timeout=3").end("ok"));
      answered(await postTo(receiver));
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the idle connection", withinMs: 3_000 });
    });

    /** Answers the first request of a connection; the second ends by `end`. Later connections answer everything. */
    async function staleServer(onSecond: (socket: Socket) => void): Promise<Receiver & { requests: number }> {
      const receiver = { requests: 0 };
      let connections = 0;
      const listening = await serveRaw((socket) => {
        const first = ++connections === 1;
        let requests = 0;
        socket.on("data", () => {
          receiver.requests++;
          if (first && ++requests > 1) onSecond(socket);
          else socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        });
      });
      return Object.assign(receiver, listening);
    }

    for (const [what, end] of [
      ["closed", (socket: Socket) => socket.end()],
      ["reset", (socket: Socket) => socket.resetAndDestroy()],
    ] as const) {
      it(`repeats a request once on a new one when the kept one is ${what} as it is sent`, async () => {
        const receiver = await staleServer(end);
        const client = open([receiver.port]);
        const url = `http://hook.test:${receiver.port}/`;
        answered(await post(client, url));
        assert.equal(answered(await post(client, url)).body, "ok");
        assert.equal(receiver.requests, 3);
      });
    }

    it("does not repeat a request whose answer has begun", async () => {
      for (const begun of ["H", "HTTP/1.1 20", "HTTP/1.1 100 Continue\r\n\r\n"]) {
        const receiver = await staleServer((socket) => socket.end(begun));
        const client = open([receiver.port]);
        const url = `http://hook.test:${receiver.port}/`;
        answered(await post(client, url));
        failed(await post(client, url), "reset");
        assert.equal(receiver.requests, 2);
      }
    });

    it("takes no answer for a request that was not sent", async () => {
      const receiver = await serveRaw((socket) => {
        socket.once("data", () =>
          socket.write(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\nwrong",
          ),
        );
      });
      const client = open([receiver.port]);
      const url = `http://hook.test:${receiver.port}/`;
      for (let request = 0; request < 3; request++) assert.equal(answered(await post(client, url)).body, "ok");
    });

    it("closes the idle ones and waits for attempts under way when it is closed", async () => {
      const { receiver, hanging } = await serveHanging();
      const client = open([receiver.port]);
      const base = `http://hook.test:${receiver.port}`;
      const slow = post(client, `${base}/hang`);
      answered(await post(client, base));
      await eventually(() => hanging.length === 1);
      const closed = client.close();
      await eventually(() => receiver.sockets.size === 1, { what: "the end of the idle connection", withinMs: 3_000 });
      hanging[0]?.end("late");
      assert.equal(answered(await slow).body, "late");
      await closed;
      await eventually(() => receiver.sockets.size === 0, { what: "the end of the last connection" });
      await assert.rejects(post(client, base), /closed/);
    });
  });
});

describe("Retry-After", () => {
  const now = Date.parse("2026-03-01T12:00:00Z");
  for (const [text, seconds] of [
    ["0", 0],
    ["120", 120],
    [" 7 ", 7],
    ["9".repeat(400), Number.MAX_SAFE_INTEGER],
    ["Sun, 01 Mar 2026 12:00:30 GMT", 30],
    ["Sunday, 01-Mar-26 12:00:30 GMT", 30],
    ["Sun Mar  1 12:00:30 2026", 30],
    ["Sun, 01 Mar 2026 11:00:00 GMT", 0],
    ["-1", undefined],
    ["1.5", undefined],
    ["soon", undefined],
    ["Sun, soon", undefined],
    ["tomorrow 1", undefined],
    ["2026-03-01T12:00:30Z", undefined],
    ["", undefined],
  ] as const) {
    it(`${JSON.stringify(text.slice(0, 40))} means ${seconds === undefined ? "nothing" : `${seconds} s`}`, () => {
      assert.equal(parseRetryAfter(text, now), seconds);
    });
  }
});
