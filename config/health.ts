import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** The facts of a pool that its health port reports. */
export interface HealthSource {
  ready: () => boolean;
  /** In the text format of Prometheus. */
  metrics: () => Promise<string>;
}

/** Answers `/healthz` while the process lives, `/readyz` by what `ready` says, and `/metrics`. */
export async function serveHealth(
  host: string,
  port: number,
  { ready, metrics }: HealthSource,
): Promise<{ port: number; server: Server }> {
  const server = createServer(({ url }, response) => {
    if (url === "/metrics") return void answerMetrics(response, metrics);
    const status = url === "/healthz" ? 200 : url === "/readyz" ? (ready() ? 200 : 503) : 404;
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify({ status: status === 200 ? "ok" : status === 503 ? "not ready" : "not found" }));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(port, host, resolve);
  });
  return { port: (server.address() as AddressInfo).port, server };
}

async function answerMetrics(response: ServerResponse, metrics: () => Promise<string>): Promise<void> {
  try {
    const text = await metrics();
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" }).end(text);
  } catch {
    // A part of the metrics would hide that the rest is missing; a failed scrape is visible.
    response.writeHead(500, { "content-type": "application/json" }).end(JSON.stringify({ status: "no metrics" }));
  }
}
