import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer, type Server } from "node:https";
import { AddressRefused } from "../../lib/address-guard.ts";
import { guardedFetch } from "../../lib/fetch-text.ts";
import { openUrlGuard } from "../../lib/url-guard.ts";
import { type DnsServer, startDnsServer } from "../support/dns-server.ts";
import { listenLocally } from "../support/listen-locally.ts";

const TLS = `${import.meta.dirname}/../data/tls`;
const cert = readFileSync(`${TLS}/cert.pem`, "utf8");
const key = readFileSync(`${TLS}/key.pem`, "utf8");

describe("A guarded fetch", () => {
  let dns: DnsServer;
  let server: Server;
  let listener: RequestListener;
  let port: number;
  before(async () => {
    dns = await startDnsServer({ "hook.test": { a: ["127.0.0.1"] } });
    server = createServer({ cert, key }, (request, response) => listener(request, response));
    port = await listenLocally(server);
  });
  after(() => {
    dns.close();
    server.closeAllConnections();
    server.close();
  });

  const open = ({ isAllowed = true, isKnownIssuer = true, timeoutMs = 30_000 } = {}) => {
    const guard = openUrlGuard({
      EGRESS_DENIED_NETWORKS: [],
      WEBHOOK_ALLOWED_HOSTS: isAllowed ? [`hook.test:${port}`] : [],
      WEBHOOK_DNS_SERVERS: [dns.address],
      WEBHOOK_HTTPS_ONLY: true,
    });
    const fetchText = guardedFetch(guard, { timeoutMs, ...(isKnownIssuer ? { ca: cert } : {}) });
    return (path: string) => fetchText(new URL(`https://hook.test:${port}${path}`));
  };

  it("gives the answer's status and text, and asks for the whole path", async () => {
    listener = ({ url }, response) => void response.writeHead(404).end(url);
    assert.deepEqual(await open()("/a.pem?b=c"), { status: 404, text: "/a.pem?b=c" });
  });

  it("connects to no address that is not public", async () => {
    listener = () => assert.fail("a request came");
    await assert.rejects(open({ isAllowed: false })("/"), AddressRefused);
  });

  it("takes certificates of well-known issuers alone", async () => {
    listener = () => assert.fail("a request came");
    await assert.rejects(open({ isKnownIssuer: false })("/"), /self-signed|self signed/);
  });

  it("ends in its time where a server changes the protocol, which gives no answer", async () => {
    listener = ({ socket }) =>
      void socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    await assert.rejects(open({ timeoutMs: 200 })("/"));
  });

  it("follows no redirect", async () => {
    let requests = 0;
    listener = (_, response) => {
      requests++;
      response.writeHead(302, { location: `https://hook.test:${port}/other` }).end();
    };
    assert.equal((await open()("/")).status, 302);
    assert.equal(requests, 1);
  });

  it("reads no more than 64 KiB", async () => {
    listener = (_, response) => {
      const write = () => {
        while (!response.destroyed && response.write("x".repeat(16_384)));
        response.once("drain", write);
      };
      write();
    };
    await assert.rejects(open()("/"));
  });

  it("waits no longer than its limit", async () => {
    listener = () => {};
    await assert.rejects(open({ timeoutMs: 200 })("/"), /timeout|aborted/i);
  });
});
