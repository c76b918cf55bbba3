import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { checkLinks, MAX_CHECKED_LINKS } from "../../domain/mail/link-check.ts";
import { guardedProbe, type ProbeUrl } from "../../lib/fetch-text.ts";
import { openUrlGuard } from "../../lib/url-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { listenLocally } from "../support/listen-locally.ts";

const TLS = `${import.meta.dirname}/../data/tls`;
const readTls = (name: string) => readFileSync(`${TLS}/${name}.pem`, "utf8");
const never = new AbortController().signal;

describe("A check of links", () => {
  let dns: DnsServer;
  let servers: Server[];
  let [port, securePort, closedPort] = [0, 0, 0];
  let asked: string[];
  let probe: ProbeUrl;
  const answer: RequestListener = ({ method, headers, url = "" }, response) => {
    asked.push(`${method} ${url} ${headers["user-agent"]}`);
    const [, kind = "", rest = ""] = /^\/(\w+)\/?(.*)$/.exec(url) ?? [];
    if (kind === "to") return void response.writeHead(302, { location: decodeURIComponent(rest) }).end();
    response.writeHead(Number(kind)).end("text");
  };
  before(async () => {
    dns = await startDnsServer({
      "site.test": { a: ["127.0.0.1"] },
      "inside.test": { a: ["10.0.0.1"] },
      "mixed.test": { a: ["192.0.2.1", "127.0.0.1"] },
      "silent.test": { silent: "both" },
    });
    const secure = createSecureServer({ cert: readTls("cert"), key: readTls("key") }, answer) as Server;
    const closed = createServer();
    servers = [createServer(answer), secure];
    [port = 0, securePort = 0, closedPort = 0] = await Promise.all(
      [...servers, closed].map((server) => listenLocally(server)),
    );
    await new Promise((resolve) => closed.close(resolve));
    const guard = openUrlGuard(
      {
        EGRESS_DENIED_NETWORKS: [],
        WEBHOOK_ALLOWED_HOSTS: [port, securePort, closedPort].map((each) => `site.test:${each}`),
        WEBHOOK_DNS_SERVERS: [dns.address],
        WEBHOOK_HTTPS_ONLY: false,
      },
      { lookupTimeoutMs: 200 },
    );
    probe = guardedProbe(guard, "Test");
  });
  after(() => {
    dns.close();
    for (const server of servers) server.close();
  });
  beforeEach(() => {
    asked = [];
  });
  const outcomesOf = async (paths: readonly string[]) => {
    const urls = paths.map((path) => (path.startsWith("/") ? `http://site.test:${port}${path}` : path));
    return (await checkLinks(probe, urls, never)).map(({ outcome }) => outcome);
  };

  it("takes 404, 410 and failures of a server for broken, and refusals of a program for no answer", async () => {
    assert.deepEqual(await outcomesOf(["/200", "/204", "/304"]), ["fine", "fine", "fine"]);
    assert.deepEqual(asked.sort(), ["GET /200 Test", "GET /204 Test", "GET /304 Test"]);
    const broken = ["/404", "/410", "/500"];
    assert.deepEqual(
      await outcomesOf(broken),
      broken.map(() => "broken"),
    );
    const unchecked = ["/400", "/401", "/403", "/429", "/503", "/999"];
    assert.deepEqual(
      await outcomesOf(unchecked),
      unchecked.map(() => "unchecked"),
    );
  });

  it("follows three redirects, each checked as the first address is", async () => {
    const to = (url: string, times = 1): string =>
      times === 0 ? url : `/to/${encodeURIComponent(to(url, times - 1))}`;
    assert.deepEqual(await outcomesOf([to("/404", 3), to("/200", 3), to("/200", 4)]), ["broken", "fine", "unchecked"]);
    const refused = ["http://127.0.0.1/", "http://inside.test/", "http://site.test:25/", "file:///etc/passwd"];
    assert.deepEqual(
      await outcomesOf(refused.map((url) => to(url))),
      refused.map(() => "unchecked"),
    );
  });

  it("connects to no address of an inner network, however it is written", async () => {
    const inner = ["http://localhost/", "http://[::1]/", "http://2130706433/", "http://169.254.169.254/latest/"];
    const named = [
      "http://inside.test/",
      "http://mixed.test/",
      `http://site.test:${port + 1}/`,
      "http://a:b@site.test/",
    ];
    assert.deepEqual(
      await outcomesOf([...inner, ...named]),
      [...inner, ...named].map(() => "unchecked"),
    );
    assert.deepEqual(asked, []);
  });

  it("takes a name that does not exist, a host that refuses and a wrong certificate for broken, and no silence", async () => {
    const broken = ["http://absent.test/", `http://site.test:${closedPort}/`, `https://site.test:${securePort}/200`];
    assert.deepEqual(
      await outcomesOf(broken),
      broken.map(() => "broken"),
    );
    assert.deepEqual(await outcomesOf(["http://silent.test/", `https://site.test:${port}/`]), ["unchecked", "broken"]);
  });

  it("asks a few at once, no more than its limit, and ends with its caller", async () => {
    const gone = new AbortController();
    const signals: AbortSignal[] = [];
    const hang: ProbeUrl = async (_url, signal) => {
      signal.throwIfAborted();
      signals.push(signal);
      if (signals.length === 8) setImmediate(() => gone.abort());
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    };
    const urls = Array.from({ length: MAX_CHECKED_LINKS + 1 }, (_, i) => `https://example.com/${i}`);
    const links = await checkLinks(hang, urls, gone.signal);
    assert.equal(signals.length, 8);
    assert.deepEqual([links.length, new Set(links.map(({ outcome }) => outcome))], [50, new Set(["unchecked"])]);
  });
});
