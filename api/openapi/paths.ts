import type { RouteDefinition } from "../rest/definition.ts";
import { PARAM, paramsOf, shapeOf } from "../rest/endpoints.ts";

const join = (names: Iterable<string>): string =>
  [...new Set(names)].map((name, i) => (i === 0 ? name : `Or${name.charAt(0).toUpperCase()}${name.slice(1)}`)).join("");

/** A route's path as the document has it. */
export interface DocumentPath {
  path: string;
  /** The document's name of a path parameter. */
  nameOf: (param: string) => string;
}

/**
 * The paths of the document. OpenAPI takes paths that differ by the names of their parameters alone for the same path, so
 * two routes of that kind share one, with both names in it: `/suppressions/{emailOrSuppressionId}`.
 */
export function documentPaths(definitions: readonly RouteDefinition[]): (definition: RouteDefinition) => DocumentPath {
  const alike = Map.groupBy(definitions, ({ path }) => shapeOf(path));
  return ({ path }) => {
    const all = (alike.get(shapeOf(path)) ?? []).map((other) => paramsOf(other.path));
    const own = paramsOf(path);
    const nameOf = (param: string) => join(all.map((names) => names[own.indexOf(param)] ?? param));
    return { path: path.replace(PARAM, (_, param: string) => `{${nameOf(param)}}`), nameOf };
  };
}
