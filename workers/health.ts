import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Answers `/healthz` while the process lives and `/readyz` by what `ready` says. */
export async function serveHealth(
  host: string,
  port: number,
  ready: () => boolean,
): Promise<{ port: number; server: Server }> {
  const server = createServer(({ url }, response) => {
    const status = url === "/healthz" ? 200 : url === "/readyz" ? (ready() ? 200 : 503) : 404;
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify({ status: status === 200 ? "ok" : status === 503 ? "not ready" : "not found" }));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(port, host, resolve);
  });
  return { port: (server.address() as AddressInfo).port, server };
}
