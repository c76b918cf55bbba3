import { type AnyTRPCRouter, callTRPCProcedure } from "@trpc/server";
import type { Request, RequestHandler, Response } from "express";
import { JsonText } from "../../db/json.ts";
import { authenticate } from "../../domain/access/authenticate.ts";
import { ApiError } from "../../domain/errors.ts";
import { idsIn } from "../../domain/ids.ts";
import type { Call, Locals } from "../context.ts";
import type { Deps } from "../deps.ts";
import { SECURITY_HEADERS } from "../security-headers.ts";
import type { Answer } from "./answer.ts";
import { beforeDeadline, DEADLINE_MS, type PauseDeadline } from "./deadline.ts";
import { type Endpoint, endpointsOf } from "./endpoints.ts";
import { type HttpAnswer, renderSuccess } from "./envelope.ts";
import { thrownBy } from "./failures.ts";
import { hasNoBody, localsOf, mayBeLarge, PATCH_TYPES, readBody, readQuery, respond } from "./http.ts";
import type { RawInput } from "./input.ts";
import { endpointFinder } from "./paths.ts";
import { Turns } from "./turns.ts";

/**
 * Requests with a large body that one team, with all its keys, has under way at once in this process: a body of 2 MiB takes
 * several times as much memory until it is written.
 */
export const LARGE_BODIES_AT_ONCE = 4;
const LARGE_BODIES = new Turns(LARGE_BODIES_AT_ONCE);

/** Calls the procedure of an endpoint, outside of a request by tRPC. @throws what its steps and its handler throw */
export async function callEndpoint(
  routes: AnyTRPCRouter,
  { name, type }: Endpoint,
  ctx: Call,
  getRawInput: () => Promise<RawInput>,
): Promise<Answer> {
  const procedure = { router: routes, path: name, type, getRawInput, ctx, signal: undefined, batchIndex: 0 };
  return callTRPCProcedure(procedure).catch((error) => {
    throw thrownBy(error);
  });
}

/** Shows the last ID of a path in the request's line of the log. An address may stand in the place of one. */
export function noteRecord(locals: Locals, params: Readonly<Record<string, unknown>>): void {
  const id = idsIn(params).at(-1);
  if (id !== undefined) locals.resourceId = id;
}

/** Shows the record that a request made in its line of the log. @returns the id; undefined when it made none */
export function noteCreated(locals: Locals, { status, data }: Answer): string | undefined {
  if (status !== 201) return undefined;
  const { id } = Object(data instanceof JsonText ? data.toJSON() : data) as { id?: unknown };
  if (typeof id !== "string") return undefined;
  locals.resourceId = id;
  return id;
}

/** The answer to a create names the path of the new record, which is below the path it was posted to. */
function render({ baseUrl, path }: Request, locals: Locals, answer: Answer): HttpAnswer {
  const id = noteCreated(locals, answer);
  const headers: Record<string, string> =
    id === undefined ? {} : { Location: `${baseUrl}${path}/${encodeURIComponent(id)}` };
  return { status: answer.status, headers, body: renderSuccess(answer.requestId, answer.data, answer.meta) };
}

/** Answers a request for a method that a path does not take, and OPTIONS. */
export function answerOtherMethod({ method }: Request, res: Response, methods: readonly string[]): void {
  const allowed = [...methods, "OPTIONS"].join(", ");
  const { headers } = localsOf(res);
  headers["Allow"] = allowed;
  if (method !== "OPTIONS") throw new ApiError("method_not_allowed", `This path takes ${allowed}.`);
  // No header of CORS: a key in a page could be read by its visitors, so browsers must not call from other origins.
  if (methods.includes("PATCH")) headers["Accept-Patch"] = PATCH_TYPES;
  res.set({ ...SECURITY_HEADERS, ...headers });
  res.status(204).end();
}

/** Serves every route of a tRPC router: a request becomes a procedure's call, its result an answer. */
export function restHandler(routes: AnyTRPCRouter, deps: Deps): RequestHandler {
  const find = endpointFinder(endpointsOf(routes));

  async function call(
    endpoint: Endpoint,
    params: Record<string, string>,
    { req, res, pauseDeadline }: { req: Request; res: Response; pauseDeadline: PauseDeadline },
  ): Promise<Answer> {
    const locals = localsOf(res);
    const query = () => readQuery(req.originalUrl, endpoint.meta.dryRun);
    const ctx: Call = {
      deps,
      locals,
      headers: req.headersDistinct,
      authenticate: (_scope, onCallerKnown) => {
        const origin = { limits: deps.limits, clientAddress: locals.clientAddress, onCallerKnown };
        return authenticate(deps.orm.em, deps.vault, req.headersDistinct, origin, deps.verifyToken);
      },
      answering: res,
      readDryRun: () => query().dryRun,
    };
    const readOwnBody = async () => {
      if (hasNoBody(req)) return undefined;
      return pauseDeadline(async () => {
        if (mayBeLarge(req)) await LARGE_BODIES.take(locals.teamId ?? "", res);
        return readBody(req);
      });
    };
    let raw: Promise<RawInput> | undefined;
    const read = async (): Promise<RawInput> => ({ params, query: query().parameters, body: await readOwnBody() });
    const getRawInput = () => {
      raw ??= read();
      return raw;
    };
    return callEndpoint(routes, endpoint, ctx, getRawInput);
  }

  return async (req, res, next) => {
    const found = find(req.method, req.path);
    if (!found) return next();
    const { path, endpoint, params, methods } = found;
    const locals = localsOf(res);
    locals.route = path;
    noteRecord(locals, params);
    if (!endpoint) return answerOtherMethod(req, res, methods);
    const answer = (pauseDeadline: PauseDeadline) =>
      call(endpoint, params, { req, res, pauseDeadline }).then((success) => render(req, locals, success));
    const { kind, secret = false } = endpoint.meta;
    // A preview's answer holds its confirmation token.
    const holdsSecret = secret || kind === "workflow";
    respond(res, { ...(await beforeDeadline(DEADLINE_MS[kind], answer)), holdsSecret });
  };
}
