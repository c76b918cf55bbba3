import type { AnyTRPCRouter } from "@trpc/server";
import type { Request, Response } from "express";
import { type Access, authenticate, requireScope } from "../../domain/access/authenticate.ts";
import { ApiError } from "../../domain/errors.ts";
import type { Deps } from "../deps.ts";
import type { Endpoint } from "./adapter.ts";
import { canonicalJson } from "./canonical.ts";
import { type Answer, linksOf } from "./envelope.ts";
import { executor } from "./execute.ts";
import { toApiError, unavailable } from "./failures.ts";
import { keyedRequest, readKey } from "./idempotency.ts";
import { parseQuery, readBody, validate } from "./input.ts";
import type { RouteMeta } from "./route.ts";

/** Runs before a request goes on; throws an `ApiError` to refuse it, may set headers of the answer. */
export type Gate = (req: Request, res: Response) => Promise<void> | void;
/** The same, once it is known who asks. */
export type AccessGate = (req: Request, res: Response, access: Access) => Promise<void> | void;

/** Where limits and versions join in. */
export interface Gates {
  beforeAuthentication?: readonly Gate[];
  /** Hear that a credential was refused. */
  authenticationRefused?: readonly Gate[];
  afterAuthentication?: readonly AccessGate[];
}

/** What the layers of the app tell each other about a request; all of it may be logged. */
export interface Locals {
  requestId: string;
  /** The path's pattern: the path itself may hold an address. */
  route?: string;
  teamId?: string;
}
export const localsOf = (res: Response): Locals => res.locals as Locals;

/** Sends an answer; does nothing for a client that has gone. */
export function send(res: Response, { status, headers, body }: Answer): void {
  if (res.headersSent || res.destroyed) return;
  res.status(status).set(headers);
  res.set({ "Content-Type": "application/json; charset=utf-8", "Content-Length": String(Buffer.byteLength(body)) });
  res.end(body);
}

/** So that nothing can hang a client. A confirm may wait for Temporal for a minute. */
const DEADLINE_MS = { adapter: 30_000, handler: 75_000 } as const;

async function beforeDeadline(work: Promise<Answer>, deadlineMs: number): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(unavailable(new Error(`No answer within ${deadlineMs} ms`))), deadlineMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether nothing is to be committed. Takes the parameter out of the query; where it is not accepted it stays. */
function takeDryRun(query: Record<string, string>, { dryRun: accepted = false }: RouteMeta): boolean {
  const value = query["dry_run"];
  if (value === undefined || !accepted) return false;
  if (value !== "true" && value !== "false") {
    throw new ApiError("validation_failed", "dry_run must be true or false.", { param: "dry_run" });
  }
  delete query["dry_run"];
  return value === "true";
}

/**
 * Serves the endpoints of a router. A request goes through: gates, authentication, gates, scope, presence of an
 * Idempotency-Key, validation, the claim of that key, the handler.
 */
export function service(routes: AnyTRPCRouter, deps: Deps, gates: Gates) {
  const execute = executor(routes, deps, linksOf(deps.env.PUBLIC_URL));

  async function identify(req: Request, res: Response): Promise<Access> {
    for (const gate of gates.beforeAuthentication ?? []) await gate(req, res);
    try {
      const access = await authenticate(deps.orm.em, deps.vault, req.headersDistinct);
      localsOf(res).teamId = access.tenant.teamId;
      for (const gate of gates.afterAuthentication ?? []) await gate(req, res, access);
      return access;
    } catch (error) {
      if (toApiError(error).status === 401) for (const gate of gates.authenticationRefused ?? []) await gate(req, res);
      throw error;
    }
  }

  async function answer(req: Request, res: Response, endpoint: Endpoint): Promise<Answer> {
    const { meta, schema } = endpoint;
    const { requestId } = localsOf(res);
    const access = await identify(req, res);
    if (meta.scope) requireScope(access, meta.scope);
    const query = parseQuery(req.originalUrl);
    const dryRun = takeDryRun(query, meta);
    if (dryRun && meta.readScope) requireScope(access, meta.readScope);
    const key = readKey(req, meta);
    const raw = { params: { ...req.params }, query, body: await readBody(req, res) };
    const input = validate(schema, raw);

    return execute({
      endpoint,
      input,
      context: {
        tenant: access.tenant,
        access,
        requestId,
        target: `${meta.method} ${meta.path} ${canonicalJson(raw.params)}`,
        dryRun,
        log: deps.log.child({ requestId, teamId: access.tenant.teamId }),
      },
      // Nothing comes of a dry run that could be replayed.
      keyed: key === null || dryRun ? null : keyedRequest(deps.vault, access, key, requestId, meta, raw),
    });
  }

  return async (req: Request, res: Response, endpoint: Endpoint): Promise<void> => {
    localsOf(res).route = endpoint.meta.path;
    send(res, await beforeDeadline(answer(req, res, endpoint), DEADLINE_MS[endpoint.meta.answer ?? "adapter"]));
  };
}
