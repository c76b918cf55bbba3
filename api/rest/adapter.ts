import type { AnyTRPCRouter } from "@trpc/server";
import { type ErrorRequestHandler, Router } from "express";
import type { z } from "zod";
import { ApiError } from "../../domain/errors.ts";
import type { Deps } from "../deps.ts";
import { completeInput } from "./input.ts";
import type { RouteDefinition } from "./route.ts";
import { type Gates, localsOf, service } from "./serve.ts";

/** A procedure with what the adapter needs to serve it. */
export interface Endpoint {
  /** Of the procedure in the tRPC router. */
  name: string;
  type: "query" | "mutation";
  meta: RouteDefinition;
  /** Of params, query and body together. */
  schema: z.ZodType;
}

const PARAM = /\{(\w+)\}/g;
const expressPath = (path: string): string => path.replace(PARAM, ":$1");
/** What paths have in common that differ in the names of their parameters only. */
const shapeOf = (path: string): string => path.replace(PARAM, "{}");
const paramCount = (path: string): number => path.match(PARAM)?.length ?? 0;

/**
 * Every route of a tRPC router, fixed paths before those with a parameter in the same place.
 * @throws {Error} for a declaration that cannot be served
 */
export function endpointsOf(routes: AnyTRPCRouter): Endpoint[] {
  const procedures: [string, { _def: { type: string; meta?: unknown } }][] = Object.entries(routes._def.procedures);
  return procedures
    .map(([name, { _def }]) => {
      const meta = _def.meta as RouteDefinition;
      const { method, path, dryRun = false, readScope, scope } = meta;
      const type = _def.type === "query" ? ("query" as const) : ("mutation" as const);
      const wrong = (why: string) => new Error(`${method} ${path}: ${why}`);
      if ((type === "query") !== (method === "GET")) throw wrong("a GET is a query, everything else a mutation");
      if (dryRun && scope !== null && !readScope) throw wrong("a dry run needs a readScope");
      if (paramCount(path) > 0 && !meta.input.shape.params) throw wrong("its path has parameters, its input none");
      return { name, type, meta, schema: completeInput(meta.input) };
    })
    .sort((a, b) => paramCount(a.meta.path) - paramCount(b.meta.path));
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

/** The Express router of every route in a tRPC router, each with the answers of the API's envelope. */
export function restRouter(routes: AnyTRPCRouter, deps: Deps, gates: Gates = {}): Router {
  const router = Router({ caseSensitive: true });
  const endpoints = endpointsOf(routes);
  const serve = service(routes, deps, gates);
  const shapes = new Map<string, { path: string; methods: Set<string> }>();

  for (const endpoint of endpoints) {
    const { method, path } = endpoint.meta;
    const verb = method.toLowerCase() as Lowercase<typeof method>;
    router[verb](expressPath(path), (req, res) => serve(req, res, endpoint));
    const shape = shapes.get(shapeOf(path)) ?? { path, methods: new Set() };
    shapes.set(shapeOf(path), shape);
    shape.methods.add(method);
    if (method === "GET") shape.methods.add("HEAD");
  }
  for (const { path, methods } of shapes.values()) {
    router.all(expressPath(path), (_req, res) => {
      localsOf(res).route = path;
      res.set("Allow", [...methods].join(", "));
      throw new ApiError("method_not_allowed");
    });
  }

  const nameBrokenParam: ErrorRequestHandler = (error, req, _res, next) => {
    const param = error instanceof URIError ? undecodableParam(req.path, endpoints) : undefined;
    next(param ? new ApiError("validation_failed", `${param} is not correctly percent-encoded.`, { param }) : error);
  };
  router.use(nameBrokenParam);
  return router;
}
