import { EventEmitter } from "node:events";
import {
  type CallToolResult,
  createMcpHandler,
  isLegacyRequest,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { AnyTRPCRouter } from "@trpc/server";
import { type Request as ExpressRequest, type Response as ExpressResponse, Router } from "express";
import { type Admitted, authenticate } from "../../domain/access/authenticate.ts";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { ApiError, ERRORS } from "../../domain/errors.ts";
import { isObject, type JsonObject } from "../../lib/json-object.ts";
import { MCP_PATH } from "../base-path.ts";
import type { Call } from "../context.ts";
import type { Deps } from "../deps.ts";
import { answerOtherMethod, callEndpoint, LARGE_BODIES_AT_ONCE, noteCreated, noteRecord } from "../rest/adapter.ts";
import type { Answer } from "../rest/answer.ts";
import { beforeDeadline, DEADLINE_MS } from "../rest/deadline.ts";
import { linksOf, renderSuccess } from "../rest/envelope.ts";
import { toApiError } from "../rest/failures.ts";
import { localsOf, mayBeLarge, readBody, respond } from "../rest/http.ts";
import { isDeeper, MAX_DEPTH } from "../rest/input.ts";
import { shortened } from "../rest/messages.ts";
import { noteCaller, putCallerHeaders, takeTurn } from "../rest/procedures.ts";
import { refusalHandler, refusalOf } from "../rest/refusal.ts";
import { type Answering, Turns } from "../rest/turns.ts";
import { readVersion, VERSION_HEADER } from "../rest/versions.ts";
import { guidesOf, READ_GUIDE } from "./guides.ts";
import { INSTRUCTIONS, inToolWords, type OperationTool, type ToolRequest, toolsOf, visibleTools } from "./tools.ts";

/**
 * Large messages that one team has under way at once in this process. Their turn is taken before the caller's turn, so it cannot
 * be one of the API's large bodies, which is taken after it.
 */
const LARGE_MESSAGES = new Turns(LARGE_BODIES_AT_ONCE);

/** Versions of MCP in which a result may be structured: it is the body of the API's answer. */
const isStructured = (req: ExpressRequest): boolean => (req.get("mcp-protocol-version") ?? "") >= "2025-06-18";
const OUTPUT_SCHEMA = { type: "object" as const, properties: { data: {}, meta: { type: "object" } } };

const ALL_REFUSED = "Every item was refused: its error says what to change.";

/** The next step after a refusal, in the words of a tool's arguments. */
function adviceFor({ code, retryAfterSeconds }: ApiError): string {
  const { remedy, retry } = ERRORS[code];
  if (retry === "never") return remedy;
  const wait = retryAfterSeconds === undefined ? "" : ` after ${Math.ceil(retryAfterSeconds)} seconds`;
  if (retry === "after_remedy") return `${remedy} Then repeat the call${wait}, a write with a new idempotency_key.`;
  return `Repeat the same call${wait || " after a few seconds"}, a write with the same idempotency_key.`;
}

/**
 * Clients write null for the arguments of a tool that needs none. Batches are not taken, so the version of MCP that has them is
 * not agreed on: its clients speak the version before, too.
 */
function mend({ params }: JsonObject): void {
  if (!isObject(params)) return;
  if (params["protocolVersion"] === "2025-03-26") params["protocolVersion"] = "2024-11-05";
  if (params["arguments"] === null) params["arguments"] = {};
}

const text = (value: string) => ({ type: "text" as const, text: value });

/** The answer to one item of a list: its turn ends with it. */
class ItemAnswer extends EventEmitter {
  readonly #whole: Answering;

  constructor(whole: Answering) {
    super();
    this.#whole = whole;
  }

  get closed(): boolean {
    return this.#whole.closed;
  }
}

type CallOnce = (request: ToolRequest, answering: Answering) => Promise<Answer>;

/** The request of a message, whose caller is known. */
interface Message {
  req: ExpressRequest;
  res: ExpressResponse;
  access: Admitted;
}

/**
 * Serves MCP at one path, without sessions: each message is a request with a credential of its own, and counts as one. A call of
 * a tool calls the procedure that serves the operation over REST, which checks, limits and remembers as it does there.
 */
export function mcpRouter(routes: AnyTRPCRouter, deps: Deps): Router {
  const { env, log } = deps;
  const { origin } = new URL(env.PUBLIC_URL);
  const links = linksOf(env.PUBLIC_URL, MCP_PATH);
  const tools = toolsOf(routes);
  const guides = guidesOf(deps);

  /** Calls for each item of a list. One that is refused fails alone, unless the caller may not call; a failure ends the call. */
  async function callEach(requests: readonly ToolRequest[], call: CallOnce, res: ExpressResponse): Promise<Answer> {
    const locals = localsOf(res);
    const data: object[] = [];
    for (const request of requests) {
      // The turn of an item ends with it: the next one needs a turn too.
      const answering = new ItemAnswer(res);
      try {
        const answer = await call(request, answering);
        data.push({ data: answer.data, meta: answer.meta });
      } catch (thrown) {
        const { status } = toApiError(thrown);
        if (status === 403 || status >= 500) throw thrown;
        data.push(JSON.parse(inToolWords(String(refusalOf(thrown, locals, { log, links }).body))));
      } finally {
        answering.emit("close");
      }
    }
    const status = data.every((each) => "error" in each) ? 400 : 200;
    return { status, requestId: locals.requestId, data, meta: {} };
  }

  async function callTool(
    { tool, endpoint, requestOf, requestsOf, shownOf }: OperationTool,
    args: JsonObject,
    { req, res, access }: Message,
  ): Promise<CallToolResult> {
    const locals = localsOf(res);
    // Logs and metrics see the operation as over REST.
    Object.assign(locals, { tool: tool.name, method: endpoint.meta.method, route: endpoint.meta.path });
    const call: CallOnce = ({ parts, dryRun, idempotencyKey }, answering) => {
      noteRecord(locals, parts.params);
      const ctx: Call = {
        ...{ deps, locals, answering },
        headers: {
          ...req.headersDistinct,
          "idempotency-key": idempotencyKey === undefined ? undefined : [idempotencyKey],
        },
        authenticate: async () => access,
        readDryRun: () => dryRun,
      };
      return callEndpoint(routes, endpoint, ctx, async () => parts);
    };
    try {
      const answer = await beforeDeadline(DEADLINE_MS[endpoint.meta.kind], async () => {
        if (!requestsOf) return call(requestOf(args), res);
        const requests = requestsOf(args);
        // As a bulk write over REST: one request, in the line of the heavy ones.
        await takeTurn("heavy", access, res);
        return callEach(requests, call, res);
      });
      locals.status = answer.status;
      noteCreated(locals, answer);
      const body = renderSuccess(answer.requestId, shownOf?.(answer.data, args) ?? answer.data, answer.meta);
      if (answer.status >= 400) return { content: [text(body), text(ALL_REFUSED)], isError: true };
      return { content: [text(body)], ...(isStructured(req) && { structuredContent: JSON.parse(body) }) };
    } catch (thrown) {
      const { status, body } = refusalOf(thrown, locals, { log, links });
      locals.status = status;
      const parts = [String(body), adviceFor(toApiError(thrown))];
      return { content: parts.map((part) => text(inToolWords(part))), isError: true };
    }
  }

  function serverFor(message: Message): Server {
    const server = new Server(
      { name: "mailkeel", title: "Mailkeel", version: CURRENT_API_VERSION },
      { capabilities: { tools: {}, resources: {} }, instructions: INSTRUCTIONS },
    );
    server.setRequestHandler("tools/list", () => {
      const shown = visibleTools(tools, message.access);
      const output = isStructured(message.req) ? { outputSchema: OUTPUT_SCHEMA } : {};
      return { tools: [...shown.map((tool) => ({ ...tool, ...output })), READ_GUIDE] };
    });
    server.setRequestHandler("tools/call", ({ params }): CallToolResult | Promise<CallToolResult> => {
      if (params.name === READ_GUIDE.name) {
        localsOf(message.res).tool = params.name;
        return { content: guides.read(params.arguments?.["guide"]).contents.map((guide) => text(guide.text)) };
      }
      // A tool that the caller is not shown may be called: the refusal names the scope.
      const called = tools.get(params.name);
      if (!called)
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, `There is no tool ${shortened(params.name)}.`);
      return callTool(called, params.arguments ?? {}, message);
    });
    server.setRequestHandler("resources/list", () => ({ resources: guides.resources }));
    server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
    server.setRequestHandler("resources/read", ({ params }) => guides.read(params.uri));
    return server;
  }

  /** Answers a message of any version of MCP, in one JSON text: no tool sends anything before its result. */
  async function exchange(message: Message, body: JsonObject): Promise<Response> {
    const headers = new Headers({ "content-type": "application/json", accept: "application/json, text/event-stream" });
    for (const name of ["mcp-protocol-version", "mcp-method", "mcp-name"]) {
      const value = message.req.get(name);
      if (value !== undefined) headers.set(name, value);
    }
    const request = new Request(new URL(MCP_PATH, origin), { method: "POST", headers });
    const server = serverFor(message);
    if (!(await isLegacyRequest(request, body))) {
      // Mistakes of clients are reported too, and answered with another status.
      const reported: Error[] = [];
      const options = { maxSubscriptions: 0, onerror: (error: Error) => void reported.push(error) };
      const response = await createMcpHandler(() => server, options).fetch(request, { parsedBody: body });
      if (response.status === 500) throw reported.at(-1);
      return response;
    }
    const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
    await server.connect(transport);
    try {
      return await transport.handleRequest(request, { parsedBody: body });
    } finally {
      await server.close();
    }
  }

  // Strict about case and a trailing slash, as all paths of the API.
  return Router({ caseSensitive: true, strict: true })
    .all(MCP_PATH, async (req, res) => {
      const locals = localsOf(res);
      locals.route = "/mcp";
      if (req.method !== "POST") return answerOtherMethod(req, res, ["POST"]);
      // MCP demands this check; no browser reads an answer from another origin anyway.
      if (req.headers.origin !== undefined && req.headers.origin !== origin) {
        throw new ApiError("role_insufficient", "Requests from pages of other origins are refused.");
      }
      const onCallerKnown: Parameters<Call["authenticate"]>[1] = (summary) => putCallerHeaders(locals.headers, summary);
      const from = { limits: deps.limits, clientAddress: locals.clientAddress, onCallerKnown };
      const access = await beforeDeadline(DEADLINE_MS.read, async () => {
        const caller = await authenticate(deps.orm.em, deps.vault, req.headersDistinct, from, deps.verifyToken);
        if (mayBeLarge(req)) await LARGE_MESSAGES.take(caller.tenant.teamId, res);
        return caller;
      });
      noteCaller(locals, access);
      locals.headers[VERSION_HEADER] = readVersion(req.headersDistinct, access.caller.apiVersion);
      const body = await readBody(req);
      if (!isObject(body))
        throw new ApiError("validation_failed", "The body must be one JSON-RPC message; there are no batches.");
      // The SDK would overflow its stack. Arguments of an operation may be nested by MAX_DEPTH themselves.
      if (isDeeper(body, MAX_DEPTH + 4)) throw new ApiError("validation_failed", "The message is nested too deep.");
      mend(body);
      const response = await exchange({ req, res, access }, body);
      // Answers may hold secrets beside texts of others: they are not compressed.
      respond(res, { status: response.status, headers: {}, body: await response.text(), holdsSecret: true });
    })
    .use(MCP_PATH, refusalHandler({ log, links }));
}
