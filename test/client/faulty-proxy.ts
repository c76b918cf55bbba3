import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { buffer } from "node:stream/consumers";
import { api } from "../support/api.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { stack } from "../support/stack.ts";

/** Headers of one message between two hosts. */
const OF_MESSAGE = new Set(["connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"]);

export type Fault =
  /** The service gets it and answers, and its answer is lost. */
  | "lose answer"
  /** The service does not get it. */
  | "lose request"
  /** The service does not get it, and the connection stays open without an answer. */
  | "hang"
  /** The proxy answers in the service's place. */
  | { status: number; headers?: Record<string, string>; body?: string };

export interface Passed {
  method: string;
  /** Path and query. */
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
  /** `performance.now()` */
  at: number;
}

/** A proxy before the stack's API with faults that a test asks for. The API's answers are compared with its document. */
export interface FaultyProxy {
  /** As the API's own, with the version. */
  baseUrl: string;
  requests: Passed[];
  /** Forgets earlier requests and faults; the next requests meet these faults, those after them none. */
  next(...faults: Fault[]): void;
  /** @throws what kept it from passing an answer on, such as one that the document does not name */
  close(): Promise<void>;
}

export async function openFaultyProxy(): Promise<FaultyProxy> {
  const base = new URL((await stack()).api).pathname;
  let faults: Fault[] = [];
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => {
      failure = error;
      request.socket.destroy();
    });
  });
  let failure: unknown;
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    const { method = "", url = "", headers } = request;
    proxy.requests.push({ method, url, headers, body: body.toString(), at: performance.now() });
    const fault = faults.shift();
    if (fault === "hang") return;
    if (fault === "lose request") return void request.socket.destroy();
    if (typeof fault === "object") {
      response.writeHead(fault.status, fault.headers).end(fault.body);
      return;
    }
    const { host: _, connection: __, "content-length": ___, "transfer-encoding": ____, ...passed } = headers;
    const given = { headers: Object.fromEntries(Object.entries(passed).map(([name, value]) => [name, String(value)])) };
    const answer = await api().call(
      method,
      url.slice(base.length),
      body.length > 0 ? body.toString() : undefined,
      given,
    );
    if (fault === "lose answer") return void request.socket.destroy();
    response.writeHead(
      answer.status,
      Object.fromEntries([...answer.headers].filter(([name]) => !OF_MESSAGE.has(name))),
    );
    response.end(answer.text);
  }
  const proxy: FaultyProxy = {
    baseUrl: `http://127.0.0.1:${await listenLocally(server)}${base}`,
    requests: [],
    next: (...given) => {
      faults = given;
      proxy.requests = [];
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      if (failure !== undefined) throw failure;
    },
  };
  return proxy;
}

/** A refusal as the service answers it. */
export function refusal(status: number, type: string, code: string, retryAfter?: number): Fault {
  const request_id = "req_1";
  const error = { type, code, message: "A message.", doc_url: `https://example.com/docs/errors#${code}`, request_id };
  const headers = {
    "content-type": "application/json",
    ...(retryAfter !== undefined && { "retry-after": `${retryAfter}` }),
  };
  return { status, headers, body: JSON.stringify({ error, meta: { request_id } }) };
}
