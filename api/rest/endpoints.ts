import type { AnyTRPCRouter } from "@trpc/server";
import type { RouteDefinition } from "./definition.ts";

export interface Endpoint {
  name: string;
  type: "query" | "mutation";
  meta: RouteDefinition;
}

export const PARAM = /\{(\w+)\}/g;
/** A path without the names of its parameters: two routes with the same shape match the same URLs. */
export const shapeOf = (path: string): string => path.replace(PARAM, "{}");
export const paramsOf = (path: string): string[] => [...path.matchAll(PARAM)].map(([, name = ""]) => name);
const paramCount = (path: string): number => paramsOf(path).length;

/**
 * Every route of a tRPC router, fixed paths before those with a parameter in the same place.
 * @throws {Error} for a declaration that cannot be served
 */
export function endpointsOf(routes: AnyTRPCRouter): Endpoint[] {
  const procedures: [string, { _def: { type: string; meta?: unknown } }][] = Object.entries(routes._def.procedures);
  return procedures
    .map(([name, { _def }]) => {
      const meta = _def.meta as RouteDefinition;
      const { method, path } = meta;
      const type = _def.type === "query" ? ("query" as const) : ("mutation" as const);
      const wrong = (why: string) => new Error(`${method} ${path}: ${why}`);
      if ((type === "query") !== (method === "GET")) throw wrong("a GET is a query, everything else a mutation");
      if (paramCount(path) > 0 && !meta.input.shape.params) throw wrong("its path has parameters, its input none");
      return { name, type, meta };
    })
    .sort((a, b) => paramCount(a.meta.path) - paramCount(b.meta.path));
}
