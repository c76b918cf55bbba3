/**
 * A lean consumer of webhooks that counts events and the times of their arrival. Started by `startWebhookSink`, it is a
 * process of its own. A path answers after as many ms as its last part says (`/e3/50`); `/hang` never does.
 */
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";
import { answerEach, startModule } from "./own-process.ts";

/** The deliveries to one path. */
export interface Arrivals {
  /** Deliveries answered. */
  received: number;
  /** When each event arrived first, in ms since the epoch, by the number it carries. */
  at: Record<number, number>;
}

interface Received extends Arrivals {
  /** Different events; `received` also counts repeats. */
  events: number;
}

/** A sink in a process of its own. */
export interface WebhookSink {
  pid: number;
  port: number;
  /** How many different events arrived at these paths; without `paths` at all of them. */
  count(paths?: readonly string[]): Promise<number>;
  /** All arrivals: megabytes after a long run, so ask for them at its end. */
  arrivals(): Promise<Record<string, Arrivals>>;
  clear(): Promise<void>;
  close(): void;
}

/** An event carries its number in a field of its own, or in the address of a subscriber. */
const NUMBER = /"n":(\d+)|-(\d+)@/;

type Request = { ask: "arrivals" | "clear" } | { ask: "count"; paths: readonly string[] | undefined };

/** Starts a sink at this port. */
export async function startWebhookSink(port: number): Promise<WebhookSink> {
  const { pid, reply, ask, close } = startModule(import.meta.filename, ["--port", String(port)]);
  await reply();
  return {
    pid,
    port,
    count: (paths) => ask({ ask: "count", paths } satisfies Request),
    arrivals: () => ask({ ask: "arrivals" } satisfies Request),
    clear: () => ask({ ask: "clear" } satisfies Request),
    close,
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { port: { type: "string", default: "0" } } });
  let byPath: Record<string, Received> = {};

  const answer = (response: ServerResponse) => response.writeHead(204).end();
  const server: Server = createServer((request, response) => {
    const arrivedAt = performance.timeOrigin + performance.now();
    const path = request.url ?? "";
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const [, made, subscribed] = NUMBER.exec(Buffer.concat(chunks).toString("latin1")) ?? [];
      const n = Number(made ?? subscribed ?? -1);
      byPath[path] ??= { received: 0, events: 0, at: {} };
      const here = byPath[path];
      here.received++;
      if (here.at[n] === undefined) {
        here.at[n] = arrivedAt;
        here.events++;
      }
      const wait = path.split("/").at(-1);
      if (wait === "hang") return;
      if (wait === "0" || wait === undefined) answer(response);
      else setTimeout(() => answer(response), Number(wait));
    });
  });
  server.keepAliveTimeout = 60_000;
  server.listen(Number(values.port), "127.0.0.1");
  await once(server, "listening");
  answerEach((request: Request) => {
    if (request.ask === "count") {
      const { paths = Object.keys(byPath) } = request;
      return paths.reduce((sum, path) => sum + (byPath[path]?.events ?? 0), 0);
    }
    if (request.ask === "clear") byPath = {};
    return byPath;
  });
  process.send?.("listening");
}

if (import.meta.main) await main();
