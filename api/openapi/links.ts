import type { RouteDefinition } from "../rest/definition.ts";
import { paramsOf } from "../rest/endpoints.ts";
import type { DocumentPath } from "./paths.ts";
import type { JsonSchema } from "./schemas.ts";

/**
 * The links of an answer: those that the route declares, and from the creation of a record to every operation on that
 * record alone.
 */
export function linksFrom(
  definition: RouteDefinition,
  all: readonly RouteDefinition[],
  pathOf: (definition: RouteDefinition) => DocumentPath,
): JsonSchema {
  const { path, status, links: declared = {} } = definition;
  const below = new RegExp(`^${path}/\\{(\\w+)\\}`);
  const created = status === 201 ? all.filter((other) => below.test(other.path)) : [];
  const links: JsonSchema = {};
  for (const target of created) {
    const { operationId, summary } = target;
    const [param, ...others] = paramsOf(pathOf(target).path);
    if (param === undefined || others.length > 0) continue;
    links[operationId] = { operationId, description: summary, parameters: { [param]: "$response.body#/data/id" } };
  }
  for (const [operationId, link] of Object.entries(declared)) links[operationId] = { operationId, ...link };
  return Object.keys(links).length === 0 ? {} : { links };
}
