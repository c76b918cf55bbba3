import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { listenLocally } from "../support/listen-locally.ts";

/** The reverse proxy of an upgrade: it takes each new request to the API that serves now, and keeps those that fail. */
export interface UpgradeProxy {
  origin: string;
  /** Answers of 500 and more, and requests that got none; each as a line. */
  failures: readonly string[];
  answered: number;
  /** Takes new requests to the API at this port of this machine. */
  lead(port: number): void;
  close(): void;
}

/** @param report called with each failure as it happens */
export async function openProxy(report: (failure: string) => void): Promise<UpgradeProxy> {
  let port = 0;
  const failures: string[] = [];
  const pass = (incoming: IncomingMessage, response: ServerResponse) => {
    const { method, url, headers } = incoming;
    const startedAt = performance.now();
    const failed = (how: unknown) => {
      const ms = Math.round(performance.now() - startedAt);
      failures.push(`${method} ${url?.replace(/[?#].*/, "")}: ${how} after ${ms} ms`);
      report(failures.at(-1) ?? "");
    };
    // A connection for each request, because an API that stops closes those that wait.
    const outgoing = request({ host: "127.0.0.1", port, method, path: url, headers, agent: false }, (answer) => {
      proxy.answered++;
      const { statusCode = 502 } = answer;
      if (statusCode >= 500) failed(statusCode);
      response.writeHead(statusCode, answer.headers);
      answer.pipe(response);
    });
    outgoing.on("error", (error) => {
      failed(error.message);
      response.destroy();
    });
    incoming.pipe(outgoing);
  };
  const server = createServer(pass);
  const proxy = {
    origin: `http://127.0.0.1:${await listenLocally(server)}`,
    failures,
    answered: 0,
    lead: (to: number) => {
      port = to;
    },
    close: () => void server.close().closeAllConnections(),
  };
  return proxy;
}
