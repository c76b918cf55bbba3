import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { assertDeliveryHeadersDocumented } from "./document.ts";
import { eventually } from "./eventually.ts";

export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  /** `performance.now()` */
  at: number;
}

/** Answers one delivery; 204 unless it does. */
export type Behaviour = (received: Received, response: ServerResponse, request: IncomingMessage) => void;

/** A consumer of webhooks, on one of the addresses that the stack may deliver to. */
export interface Receiver {
  origin: string;
  received: Received[];
  behave: Behaviour;
  /** Answers at a path, instead of `behave`. */
  behaveAt(path: string, behaviour: Behaviour): void;
  /** Deliveries of a path, once there are `count`. */
  until(path: string, count: number, withinMs?: number): Promise<Received[]>;
  close(): Promise<void>;
}

const free = (process.env["MAILKEEL_RECEIVERS"] ?? "").split(",").filter(Boolean).map(Number);

/** All addresses at which a receiver may listen, as WEBHOOK_ALLOWED_HOSTS names them. */
export const RECEIVER_HOSTS: readonly string[] = free.map((port) => `127.0.0.1:${port}`);

/** Close it, so that another test can have its address. */
export async function openReceiver(
  behave: Behaviour = (_, response) => void response.writeHead(204).end(),
): Promise<Receiver> {
  const port = free.shift();
  if (port === undefined) throw new Error("no address is left for a receiver; close those you opened");
  const listener = async (request: IncomingMessage, response: ServerResponse) => {
    const body = (await buffer(request)).toString();
    const one = { path: request.url ?? "", headers: request.headers, body, at: performance.now() };
    receiver.received.push(one);
    (behaviours.get(one.path) ?? receiver.behave)(one, response, request);
    if (request.headers["x-service-event"] !== undefined) assertDeliveryHeadersDocumented(request.headers);
  };
  const server = createServer(listener);
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const behaviours = new Map<string, Behaviour>();
  const at = (path: string) => receiver.received.filter((one) => one.path === path);
  const receiver: Receiver = {
    origin: `http://127.0.0.1:${port}`,
    received: [],
    behave,
    behaveAt: (path, behaviour) => void behaviours.set(path, behaviour),
    until: async (path, count, withinMs) => {
      await eventually(() => at(path).length >= count, { withinMs, what: `${count} deliveries at ${path}` });
      return at(path);
    },
    close: async () => {
      if (!server.listening) return;
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      free.push(port);
    },
  };
  return receiver;
}
