import { type AnyTRPCRouter, callTRPCProcedure } from "@trpc/server";
import { type ErrorRequestHandler, type Request, type Response, Router } from "express";
import stringify from "safe-stable-stringify";
import { ApiError } from "../../domain/errors.ts";
import { type ClientAddresses, clientAddressesOf } from "../client-address.ts";
import type { CallContext } from "../context.ts";
import type { Deps } from "../deps.ts";
import type { Success } from "./answer.ts";
import type { RouteKind } from "./definition.ts";
import { type Endpoint, endpointsOf, expressPath, shapeOf } from "./endpoints.ts";
import { type HttpAnswer, type Links, linksOf, renderError, renderSuccess } from "./envelope.ts";
import { thrownBy, unavailable } from "./failures.ts";
import {
  localsOf,
  mayBeLarge,
  PATCH_TYPES,
  readBody,
  readQuery,
  respond,
  UPLOAD_LIMITS,
  type UploadLimits,
} from "./http.ts";
import { Replayed } from "./idempotency.ts";
import { Turns } from "./turns.ts";

/** No request waits longer than this for its answer. A confirm may wait for Temporal for a minute. */
export const DEADLINE_MS: Record<RouteKind, number> = { read: 30_000, write: 30_000, workflow: 75_000 };

/** Waits for work that has a limit of its own. The deadline is off meanwhile and starts again afterwards. */
type PauseDeadline = <T>(wait: () => Promise<T>) => Promise<T>;

/** @throws {ApiError} `service_unavailable` when the work does not end within `deadlineMs` */
async function beforeDeadline<T>(deadlineMs: number, work: (pauseDeadline: PauseDeadline) => Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const expire = () => reject(unavailable(new Error(`No answer within ${deadlineMs} ms`)));
  let timer = setTimeout(expire, deadlineMs);
  const pauseDeadline: PauseDeadline = async (wait) => {
    clearTimeout(timer);
    try {
      return await wait();
    } finally {
      timer = setTimeout(expire, deadlineMs);
    }
  };
  try {
    return await Promise.race([work(pauseDeadline), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Computes a value when it is first asked for, once. */
function once<T>(compute: () => T): () => T {
  let computed: { value: T } | undefined;
  return () => {
    computed ??= { value: compute() };
    return computed.value;
  };
}

/** Why the signal of a call is aborted. Without a reason each abort would make an exception with its stack. */
const ENDED = "the call has ended";

/**
 * Requests with a large body that one team, with all its keys, has under way at once in this process: a body of 2 MiB takes
 * several times as much memory until it is written.
 */
export const LARGE_BODIES_AT_ONCE = 4;
const LARGE_BODIES = new Turns(LARGE_BODIES_AT_ONCE);

/** What a call needs besides its request. */
interface Backend {
  routes: AnyTRPCRouter;
  deps: Deps;
  clientAddresses: ClientAddresses;
  uploads: UploadLimits;
}

/** Calls the procedure of an endpoint. The query string and the body are read when the procedure asks for them. */
async function call(
  { routes, deps, clientAddresses, uploads }: Backend,
  { meta, name, type }: Endpoint,
  req: Request,
  res: Response,
  pauseDeadline: PauseDeadline,
) {
  const params = { ...req.params };
  const query = once(() => readQuery(req.originalUrl, meta.dryRun === true));
  const locals = localsOf(res);
  const ended = new AbortController();
  res.once("close", () => ended.abort(ENDED));
  const context: CallContext = {
    ...deps,
    requestId: locals.requestId,
    headers: req.headersDistinct,
    clientAddress: clientAddresses.ofRequest(req),
    // The deadline may have answered already.
    setHeaders: (headers) => void (res.headersSent || res.set(headers)),
    ended: ended.signal,
    query,
    target: `${meta.method} ${meta.path} ${stringify(params)}`,
    locals,
  };
  const body = () =>
    pauseDeadline(async () => {
      if (mayBeLarge(req)) await LARGE_BODIES.take(locals.teamId ?? "", ended.signal);
      return readBody(req, uploads);
    });
  const getRawInput = once(async () => ({ params, query: query().parameters, body: await body() }));
  const procedure = {
    router: routes,
    path: name,
    type,
    getRawInput,
    ctx: { call: context },
    signal: undefined,
    batchIndex: 0,
  };
  return (await callTRPCProcedure(procedure)) as Success;
}

type Render = (success: Success) => HttpAnswer;

const render: Render = ({ status, requestId, data, meta }) => ({
  status,
  headers: {},
  body: renderSuccess(requestId, data, meta),
});

/** As `render`; the answer to a create names the path of the new record, which is below the path it was posted to. */
function renderCreated({ baseUrl, path }: Request, success: Success): HttpAnswer {
  const answer = render(success);
  const { id } = Object(success.data) as { id?: unknown };
  if (success.status !== 201 || typeof id !== "string") return answer;
  return { ...answer, headers: { Location: `${baseUrl}${path}/${encodeURIComponent(id)}` } };
}

/** Renders a replayed answer. Any other error is thrown again, for the error handler of the app. */
function replay(thrown: unknown, renderAnswer: Render, links: Links): HttpAnswer {
  if (!(thrown instanceof Replayed)) throw thrown;
  const { requestId, answer } = thrown;
  const rendered = answer instanceof ApiError ? renderError(requestId, answer, links) : renderAnswer(answer);
  return { ...rendered, headers: { ...rendered.headers, "Idempotent-Replayed": "true" } };
}

function isDecodable(segment: string): boolean {
  try {
    decodeURIComponent(segment);
    return true;
  } catch {
    return false;
  }
}

/** The name of the path parameter whose percent-encoding is broken. */
function undecodableParam(path: string, endpoints: readonly Endpoint[]): string | undefined {
  const given = path.split("/");
  for (const { meta } of endpoints) {
    const segments = meta.path.split("/");
    const fits = segments.length === given.length && segments.every((s, i) => s.startsWith("{") || s === given[i]);
    const broken = fits ? segments.find((s, i) => s.startsWith("{") && !isDecodable(given[i] ?? "")) : undefined;
    if (broken) return broken.slice(1, -1);
  }
  return undefined;
}

/** The Express router of every route in a tRPC router: a request becomes a procedure's call, its result an answer. */
export function restRouter(routes: AnyTRPCRouter, deps: Deps, uploads: UploadLimits = UPLOAD_LIMITS): Router {
  // Strict about a trailing slash: a path whose last id is empty by mistake would otherwise be that of the whole list.
  const router = Router({ caseSensitive: true, strict: true });
  const endpoints = endpointsOf(routes);
  const clientAddresses = clientAddressesOf(deps.env);
  const links = linksOf(deps.env.PUBLIC_URL);
  const shapes = new Map<string, { path: string; methods: Set<string> }>();
  const retrieved = new Set(endpoints.filter(({ type }) => type === "query").map(({ meta }) => shapeOf(meta.path)));

  for (const endpoint of endpoints) {
    const { method, path, kind } = endpoint.meta;
    const verb = method.toLowerCase() as Lowercase<typeof method>;
    const isCreate = endpoint.meta.status === 201 && retrieved.has(`${shapeOf(path)}/{}`);
    router[verb](expressPath(path), async (req, res) => {
      localsOf(res).route = path;
      const renderAnswer: Render = isCreate ? (created) => renderCreated(req, created) : render;
      const answer = (pauseDeadline: PauseDeadline) =>
        call({ routes, deps, clientAddresses, uploads }, endpoint, req, res, pauseDeadline).then(
          renderAnswer,
          (error) => replay(thrownBy(error), renderAnswer, links),
        );
      respond(res, await beforeDeadline(DEADLINE_MS[kind], answer));
    });
    const shape = shapes.get(shapeOf(path)) ?? { path, methods: new Set() };
    shapes.set(shapeOf(path), shape);
    shape.methods.add(method);
    if (method === "GET") shape.methods.add("HEAD");
  }
  for (const { path, methods } of shapes.values()) {
    const allowed = [...methods, "OPTIONS"].join(", ");
    router.all(expressPath(path), (req, res) => {
      localsOf(res).route = path;
      res.set("Allow", allowed);
      if (req.method !== "OPTIONS") throw new ApiError("method_not_allowed", `This path takes ${allowed}.`);
      // No header of CORS: a key in a page could be read by its visitors, so browsers must not call from other origins.
      if (methods.has("PATCH")) res.set("Accept-Patch", PATCH_TYPES);
      res.status(204).end();
    });
  }

  const nameBrokenParam: ErrorRequestHandler = (error, req, _res, next) => {
    const param = error instanceof URIError ? undecodableParam(req.path, endpoints) : undefined;
    next(param ? new ApiError("validation_failed", `${param} is not correctly percent-encoded.`, { param }) : error);
  };
  router.use(nameBrokenParam);
  return router;
}
