import { ApiError } from "../../domain/errors.ts";
import { type Endpoint, shapeOf } from "./endpoints.ts";

export interface FoundPath {
  /** Parameters in braces. */
  path: string;
  /** Undefined where no endpoint of the path takes the request's method. */
  endpoint: Endpoint | undefined;
  /** The path's parameters, decoded. */
  params: Record<string, string>;
  /** The methods of its endpoints, and HEAD beside GET. */
  methods: readonly string[];
}

/** The endpoints whose paths differ in the names of their parameters alone. */
interface Shape {
  path: string;
  segments: string[];
  byMethod: Map<string, Endpoint>;
}

const isParam = (segment: string): boolean => segment.startsWith("{");

function shapesOf(endpoints: readonly Endpoint[]): Shape[] {
  const shapes = new Map<string, Shape>();
  for (const endpoint of endpoints) {
    const { method, path } = endpoint.meta;
    const shape = shapes.get(shapeOf(path)) ?? { path, segments: path.split("/"), byMethod: new Map() };
    shapes.set(shapeOf(path), shape);
    shape.byMethod.set(method, endpoint);
    if (method === "GET") shape.byMethod.set("HEAD", endpoint);
  }
  return [...shapes.values()];
}

/** An empty segment is no parameter: a path whose last id is empty by mistake would otherwise be that of the whole list. */
const fits = ({ segments }: Shape, given: readonly string[]): boolean =>
  segments.length === given.length && segments.every((s, i) => (isParam(s) ? given[i] !== "" : s === given[i]));

/** @throws {ApiError} `validation_failed` for one that is not correctly percent-encoded */
function paramsIn(path: string, given: readonly string[]): Record<string, string> {
  const params: Record<string, string> = {};
  for (const [i, segment] of path.split("/").entries()) {
    if (!isParam(segment)) continue;
    const param = segment.slice(1, -1);
    try {
      params[param] = decodeURIComponent(given[i] ?? "");
    } catch {
      throw new ApiError("validation_failed", `${param} is not correctly percent-encoded.`, { param });
    }
  }
  return params;
}

/**
 * Finds the endpoint of a request by its method and path, strict about case and a trailing slash. Express would compare
 * the path with the pattern of each endpoint in turn.
 * @param endpoints fixed paths before those with a parameter in the same place
 * @returns gives undefined for a path that no endpoint has; throws `validation_failed` for a parameter with broken encoding
 */
export function endpointFinder(
  endpoints: readonly Endpoint[],
): (method: string, path: string) => FoundPath | undefined {
  const shapes = shapesOf(endpoints);
  const fixed = new Map(shapes.filter(({ segments }) => !segments.some(isParam)).map((shape) => [shape.path, shape]));
  return (method, path) => {
    const given = path.split("/");
    const plain = fixed.get(path);
    const fitting = plain?.byMethod.has(method) ? [plain] : shapes.filter((shape) => fits(shape, given));
    const shape = fitting.find(({ byMethod }) => byMethod.has(method)) ?? fitting[0];
    if (!shape) return undefined;
    const endpoint = shape.byMethod.get(method);
    const named = endpoint?.meta.path ?? shape.path;
    return { path: named, endpoint, params: paramsIn(named, given), methods: [...shape.byMethod.keys()] };
  };
}
