import type { AnyTRPCRouter } from "@trpc/server";
import express, { type Express, type RequestHandler, type Response } from "express";
import type { Env } from "../config/env.ts";
import { inSpan, logFields, markFailed } from "../config/tracing.ts";
import { withClaim } from "../db/pool.ts";
import { ApiError } from "../domain/errors.ts";
import { newId } from "../domain/ids.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import { BASE_PATH, resourceUrl } from "./base-path.ts";
import { clientAddressesOf } from "./client-address.ts";
import { consoleHandler } from "./console/http.ts";
import type { Locals } from "./context.ts";
import type { Deps } from "./deps.ts";
import { GUIDES, LLMS_PATH, REFERENCE } from "./docs/guides.ts";
import { docsRouter } from "./docs/router.ts";
import { hookRouter } from "./hooks/router.ts";
import { mcpRouter } from "./mcp/http.ts";
import { documentRouter } from "./openapi/router.ts";
import { publicRouter } from "./public/router.ts";
import { trackingHandler } from "./public/tracking.ts";
import { answerOtherMethod, restHandler } from "./rest/adapter.ts";
import { linksOf, renderSuccess } from "./rest/envelope.ts";
import { localsOf, refuseHosts, refuseLargeBodies, respond } from "./rest/http.ts";
import { refusalHandler } from "./rest/refusal.ts";
import { matchPlainCharacters } from "./rest/request-path.ts";
import { appRouter } from "./router.ts";
import { SECURITY_HEADERS } from "./security-headers.ts";
import { systemRouter } from "./system/router.ts";

/** The id is always made here: a client that could choose it could write into the logs. */
function beginRequest(env: Env): RequestHandler {
  const clientAddressOf = clientAddressesOf(env).ofRequest;
  return (req, res, next) => {
    const requestId = newId("request");
    const clientAddress = clientAddressOf(req);
    res.locals = { requestId, clientAddress, headers: { "X-Request-Id": requestId } } satisfies Locals;
    next();
  };
}

/** For the answers that are not sent by `respond`, which brings these headers along. */
const setHeadersOfAll: RequestHandler = (_req, res, next) => {
  res.set({ ...SECURITY_HEADERS, ...localsOf(res).headers });
  next();
};

/** The method and status of a message of MCP are those of the operation that it calls. */
const factsOf = (method: string, res: Response) => ({ method, status: res.statusCode, ...localsOf(res) });

/** The span of a request, which ends with it. */
const traceRequest: RequestHandler = ({ method }, res, next) => {
  const { requestId } = localsOf(res);
  const attributes = { "http.request.method": method };
  void inSpan({ name: method, kind: "SERVER", requestId, attributes }, async (span) => {
    if (!span) return next();
    const closed = new Promise((resolve) => res.once("close", resolve));
    next();
    await closed;
    const facts = factsOf(method, res);
    const { route, tool, status, teamId, sendId, code } = facts;
    if (route !== undefined) span.updateName(`${facts.method} ${route}`);
    span.setAttributes({
      "http.route": route,
      "http.response.status_code": res.writableFinished ? status : undefined,
      tool,
      team_id: teamId,
      send_id: sendId,
    });
    if (status >= 500) markFailed(code ?? String(status));
  });
};

/** Where no address is known, each request is its own caller: they are not all one client's. */
const callerOf = ({ clientAddress, requestId }: Locals): string => clientAddress ?? requestId;

/** The statements of a request are for its client's address until a credential, or a signed link, says for whom. */
const claimConnections: RequestHandler = (_req, res, next) =>
  withClaim(callerOf(localsOf(res)), () => res.closed, next);

/**
 * One line per request, of fields that are known to be harmless: the route's pattern stands for the URL, which may hold
 * an address, and no header is shown. `pino-http` would log the URL and all headers unless told otherwise, at more
 * code than this.
 */
function requestLog({ log, requestEnded }: Deps): RequestHandler {
  return ({ method }, res, next) => {
    const started = performance.now();
    // A connection is closed outside of the span of its request.
    const { traceId } = logFields();
    res.once("close", () => {
      const durationMs = Math.round(performance.now() - started);
      const { headers: _headers, clientAddress: _address, scopes: _scopes, ...facts } = factsOf(method, res);
      const { sendId, route } = facts;
      // A client that disconnected before its answer got no status.
      const status = res.writableFinished ? facts.status : null;
      const workflowId = sendId && sendWorkflowId(sendId);
      log.info({ ...facts, traceId, workflowId, status, durationMs }, "request");
      requestEnded({ method: facts.method, route, status, durationMs });
    });
    next();
  };
}

/** Names the reference and the OpenAPI document, at `/` and at the base path. */
function showEntry(publicUrl: string): RequestHandler {
  const entry = {
    object: "api",
    id: "v2",
    base_url: resourceUrl(publicUrl),
    reference: linksOf(publicUrl).docs,
    document: new URL("/openapi.json", publicUrl).href,
  };
  return (_req, res) => {
    respond(res, { status: 200, headers: {}, body: renderSuccess(localsOf(res).requestId, entry, {}) });
  };
}

/** Paths beside the REST API's endpoints. They are read only. */
const READ_PATHS = ["/", BASE_PATH, "/openapi.json", LLMS_PATH, ...[REFERENCE, ...GUIDES].map(({ path }) => path)];
const READ_METHODS = ["GET", "HEAD"];

const readOnly: RequestHandler = (req, res, next) =>
  READ_METHODS.includes(req.method) ? next() : answerOtherMethod(req, res, READ_METHODS);

/** Refuses a path that no endpoint has. The message holds nothing of the path itself, which may hold an address. */
const refusePath: RequestHandler = () => {
  throw new ApiError("not_found", "There is no such endpoint. GET / names the reference.");
};

/** @param routes of the REST API */
export function createApp(deps: Deps, routes: AnyTRPCRouter = appRouter): Express {
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.use(matchPlainCharacters, beginRequest(deps.env), traceRequest, requestLog(deps), refuseHosts, refuseLargeBodies);
  app.use(trackingHandler(deps), claimConnections);
  app.use(mcpRouter(routes, deps));
  app.use(BASE_PATH, restHandler(routes, deps));
  app.use(setHeadersOfAll, systemRouter(deps));
  app.use("/console", consoleHandler(deps));
  app.all(READ_PATHS, readOnly);
  app.use(docsRouter(deps.env, BASE_PATH));
  app.use(documentRouter(routes, deps.env));
  app.use(hookRouter(deps));
  app.use(publicRouter(deps));
  app.get(["/", BASE_PATH], showEntry(deps.env.PUBLIC_URL));
  app.use(refusePath);

  app.use(refusalHandler({ log: deps.log, links: linksOf(deps.env.PUBLIC_URL) }));
  return app;
}
