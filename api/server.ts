import { createServer, type RequestListener, type Server } from "node:http";
import type { Socket } from "node:net";
import type { Logger } from "pino";
import type { Env } from "../config/env.ts";
import { atMostOnceAMinute } from "../config/log.ts";
import { clientAddressesOf } from "./client-address.ts";
import { answerRawErrors } from "./raw-errors.ts";
import { linksOf } from "./rest/envelope.ts";
import { declaresTooMuch } from "./rest/http.ts";

/** Times of the server's connections, in milliseconds. */
export interface ServerTimes {
  /** For the request line and all headers, from the connection or the request's first byte on. */
  headersMs: number;
  /** For a whole request with its body; a body has limits of its own that end sooner. */
  requestMs: number;
  /** How long a connection without a request is kept: longer than a load balancer keeps it, which is mostly 60 s. */
  idleMs: number;
  /** How long no byte may pass while a request is answered: a client that does not read would keep its answer here. */
  silentMs: number;
  /** How often connections are checked for requests that do not arrive. */
  checkMs: number;
}

export const SERVER_TIMES: ServerTimes = {
  headersMs: 15_000,
  requestMs: 60_000,
  idleMs: 75_000,
  // Longer than a confirm may wait for its answer.
  silentMs: 120_000,
  checkMs: 1_000,
};

/** Far above any header the API takes, so that the API itself refuses a long one and names it. */
const MAX_HEADER_BYTES = 64 * 1024;
/** Requests of one connection that may lack their answers. Hardly any client sends a second before it has the first. */
const MAX_PIPELINED = 8;

/** The settings that limit connections. */
type ConnectionLimits = Pick<
  Env,
  "API_MAX_CONNECTIONS" | "API_MAX_CONNECTIONS_PER_ADDRESS" | "PROXY_ADDRESSES" | "PROXY_HOPS"
>;

/**
 * The HTTP server around the application: limits on connections and times, and answers in the API's envelope to
 * requests that are not valid HTTP. It does not listen yet.
 */
export function openServer(
  app: RequestListener,
  { env, log, times = SERVER_TIMES }: { env: Env; log: Logger; times?: ServerTimes },
): Server {
  const server = createServer(
    {
      headersTimeout: times.headersMs,
      requestTimeout: times.requestMs,
      keepAliveTimeout: times.idleMs,
      connectionsCheckingInterval: times.checkMs,
      maxHeaderSize: MAX_HEADER_BYTES,
      // Node would refuse a request without Host by an answer that has no body; the application does it in the envelope.
      requireHostHeader: false,
    },
    oneByOne(app),
  );
  server.setTimeout(times.silentMs);
  answerRawErrors(server, linksOf(env.PUBLIC_URL));
  inviteBodies(server);
  limitConnections(server, env, log);
  return server;
}

/**
 * Begins the next request of a connection when the one before is answered, and closes a connection on which too many wait.
 * Node begins all of them at once: a request whose answer waits for an earlier answer would hold resources that the earlier
 * request needs.
 */
function oneByOne(app: RequestListener): RequestListener {
  const begin = (waiting: (() => void)[]) => waiting[0]?.();
  const requests = new WeakMap<Socket, (() => void)[]>();
  return (request, response) => {
    const { socket } = request;
    const waiting = requests.get(socket) ?? [];
    requests.set(socket, waiting);
    if (waiting.length === MAX_PIPELINED) return void socket.destroy();
    response.once("close", () => {
      waiting.shift();
      if (!socket.destroyed) begin(waiting);
    });
    waiting.push(() => app(request, response));
    if (waiting.length === 1) begin(waiting);
  };
}

/** Answers `Expect: 100-continue` with an invitation only where the declared body may be sent at all. */
function inviteBodies(server: Server): void {
  server.on("checkContinue", (request, response) => {
    if (!declaresTooMuch(request)) response.writeContinue();
    server.emit("request", request, response);
  });
  // An unknown `Expect` header is ignored.
  server.on("checkExpectation", (request, response) => void server.emit("request", request, response));
}

/** Closes a connection beyond the limits at once. Those of load balancers count among all, but not per address. */
function limitConnections(server: Server, limits: ConnectionLimits, log: Logger): void {
  server.maxConnections = limits.API_MAX_CONNECTIONS;
  const clientAddresses = clientAddressesOf(limits);
  const open = new Map<string, number>();
  const rarely = atMostOnceAMinute();
  const report = (limit: "API_MAX_CONNECTIONS" | "API_MAX_CONNECTIONS_PER_ADDRESS") =>
    rarely(limit, () => log.warn({ limit, most: limits[limit] }, "connections are refused"));

  server.on("drop", () => report("API_MAX_CONNECTIONS"));
  server.on("connection", (socket: Socket) => {
    const { remoteAddress } = socket;
    // It has gone already.
    if (remoteAddress === undefined) return void socket.destroy();
    const clientAddress = clientAddresses.ofConnection(remoteAddress);
    if (clientAddress === null) return;
    const count = (open.get(clientAddress) ?? 0) + 1;
    if (count > limits.API_MAX_CONNECTIONS_PER_ADDRESS) {
      report("API_MAX_CONNECTIONS_PER_ADDRESS");
      return void socket.destroy();
    }
    open.set(clientAddress, count);
    socket.once("close", () => {
      const left = (open.get(clientAddress) ?? 1) - 1;
      if (left > 0) open.set(clientAddress, left);
      else open.delete(clientAddress);
    });
  });
}
