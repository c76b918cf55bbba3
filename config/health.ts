import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Env, SettingsError } from "./env.ts";

export interface HealthSource {
  ready: () => boolean | Promise<boolean>;
  stalled?: () => string[];
  metrics: () => Promise<string>;
}

/** On a port of its own, because it asks for no credential. @throws {SettingsError} when the port cannot be had */
export async function serveHealth(
  { HEALTH_HOST: host, HEALTH_PORT: port }: Pick<Env, "HEALTH_HOST" | "HEALTH_PORT">,
  source: HealthSource,
): Promise<{ port: number; server: Server }> {
  const server = createServer(({ url }, response) => {
    const answer = url === "/metrics" ? answerMetrics(response, source) : answerState(response, url, source);
    answer.catch(() => response.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) =>
      reject(portFailure({ host: "HEALTH_HOST", port: "HEALTH_PORT" }, host, port, cause)),
    );
    server.listen(port, host, resolve);
  });
  return { port: (server.address() as AddressInfo).port, server };
}

/** @param settings the names of those that give the address and the port */
export function portFailure(
  settings: { host: string; port: string },
  host: string,
  port: number,
  { code }: NodeJS.ErrnoException,
): SettingsError {
  if (code === "EADDRINUSE") {
    return new SettingsError(
      `${settings.port}: port ${port} of ${host} is in use. Set ${settings.port} to a free one, or to 0 for any.`,
    );
  }
  return new SettingsError(
    `${settings.host} and ${settings.port}: port ${port} of ${host} cannot be listened on (${code}).`,
  );
}

async function answerState(
  response: ServerResponse,
  url: string | undefined,
  { ready, stalled = () => [] }: HealthSource,
): Promise<void> {
  const status = url === "/healthz" ? 200 : url === "/readyz" ? ((await ready()) ? 200 : 503) : 404;
  response.writeHead(status, { "content-type": "application/json" });
  const named = status === 503 ? stalled() : [];
  response.end(
    JSON.stringify({
      status: status === 200 ? "ok" : status === 503 ? "not ready" : "not found",
      ...(named.length > 0 && { stalled: named }),
    }),
  );
}

async function answerMetrics(response: ServerResponse, { metrics }: HealthSource): Promise<void> {
  try {
    const text = await metrics();
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" }).end(text);
  } catch {
    // A part of the metrics would hide that the rest is missing; a failed scrape is visible.
    response.writeHead(500, { "content-type": "application/json" }).end(JSON.stringify({ status: "no metrics" }));
  }
}
