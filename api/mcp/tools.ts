import type { Tool } from "@modelcontextprotocol/server";
import type { AnyTRPCRouter } from "@trpc/server";
import { z } from "zod";
import type { Access } from "../../domain/access/access.ts";
import { roleHolds } from "../../domain/access/scopes.ts";
import { isObject, type JsonObject } from "../../lib/json-object.ts";
import { shownAs } from "../openapi/schemas.ts";
import type { RouteDefinition } from "../rest/definition.ts";
import { type Endpoint, endpointsOf } from "../rest/endpoints.ts";
import { MAX_IDEMPOTENCY_KEY_LENGTH } from "../rest/idempotency.ts";
import type { RawInput } from "../rest/input.ts";

/** The arguments of a call, as the parts of the request that they stand for. */
export interface ToolRequest {
  parts: RawInput;
  dryRun: string | undefined;
  idempotencyKey: string | undefined;
}

/** An operation of the API as a tool of MCP. */
export interface OperationTool {
  tool: Tool;
  endpoint: Endpoint;
  requestOf(args: JsonObject): ToolRequest;
}

const DRY_RUN = {
  dry_run: { type: "boolean", description: "True: checks the call and answers its impact, and changes nothing." },
};
const IDEMPOTENCY_KEY = {
  idempotency_key: {
    type: "string",
    minLength: 1,
    maxLength: MAX_IDEMPOTENCY_KEY_LENGTH,
    description:
      "A new random text, such as a UUID, for each intended effect. A repeated call with the same key and arguments has one effect.",
  },
};

/** A text about REST in the words of a tool: a header is an argument. */
export const inToolWords = (text: string): string =>
  text.replaceAll(/(?<![.\w-])Idempotency-Key(?: header)?(?![\w-])/g, "idempotency_key");

/** The fields of a part of the input, which may be missing or have a default. */
function fieldsOf(part: z.ZodType | undefined): Record<string, z.ZodType> {
  const schema = part instanceof z.ZodOptional || part instanceof z.ZodDefault ? part.unwrap() : part;
  return schema instanceof z.ZodObject ? schema.shape : {};
}

/** Fields of the path, the query and the body stand beside each other: assistants fill flat arguments more reliably. */
function inputSchemaOf({ operationId, input, documentedBody, dryRun, idempotency }: RouteDefinition) {
  const { params, query, body } = input.shape;
  const parts = [params, query, documentedBody ?? body].map(fieldsOf);
  const { properties, required, ...schema } = shownAs(z.strictObject(Object.assign({}, ...parts)));
  const own = { ...(dryRun && DRY_RUN), ...(idempotency !== "none" && IDEMPOTENCY_KEY) };
  const names = [...parts, own].flatMap((part) => Object.keys(part));
  if (new Set(names).size < names.length) throw new Error(`${operationId} has two arguments of one name`);
  return {
    ...schema,
    type: "object",
    properties: { ...(isObject(properties) && properties), ...own },
    required: [
      ...(Array.isArray(required) ? (required as string[]) : []),
      ...(idempotency === "required" ? ["idempotency_key"] : []),
    ],
  } as Tool["inputSchema"];
}

function toolOf(endpoint: Endpoint): OperationTool {
  const { meta } = endpoint;
  const { operationId, summary, description, kind, method, status, scope, idempotency, input } = meta;
  // A record that an editor may create leaves all others as they are. A webhook, which only an administrator may, sends data away.
  const isHarmless = kind === "read" || (status === 201 && (scope === null || roleHolds("EDITOR", scope)));
  const tool: Tool = {
    name: operationId,
    title: summary,
    description: inToolWords(description),
    inputSchema: inputSchemaOf(meta),
    annotations: {
      readOnlyHint: kind === "read",
      destructiveHint: !isHarmless,
      idempotentHint: method !== "POST" || idempotency === "required",
    },
  };
  const { params, query, body } = input.shape;
  const inPath = fieldsOf(params);
  const inQuery = fieldsOf(query);
  const placeOf = (name: string): keyof RawInput => {
    if (Object.hasOwn(inPath, name)) return "params";
    return body && !Object.hasOwn(inQuery, name) ? "body" : "query";
  };
  const requestOf = ({ dry_run, idempotency_key, ...args }: JsonObject): ToolRequest => {
    const given = Object.groupBy(Object.entries(args), ([name]) => placeOf(name));
    // The API reads a query as text.
    const queryText = (given.query ?? []).map(([name, value]) => [
      name,
      typeof value === "object" ? value : String(value),
    ]);
    return {
      parts: {
        // In the order of the path, as over REST.
        params: Object.fromEntries(Object.keys(inPath).map((name) => [name, args[name]])),
        query: Object.fromEntries(queryText),
        body: body && Object.fromEntries(given.body ?? []),
      },
      // Another value than a boolean, and an empty key, are refused with the rule for them.
      dryRun: dry_run === undefined ? undefined : typeof dry_run === "boolean" ? `${dry_run}` : "",
      idempotencyKey: idempotency_key === undefined || typeof idempotency_key === "string" ? idempotency_key : "",
    };
  };
  return { tool, endpoint, requestOf };
}

/** Every operation of a router as a tool, by its name. */
export const toolsOf = (routes: AnyTRPCRouter): ReadonlyMap<string, OperationTool> =>
  new Map(endpointsOf(routes).map((endpoint) => [endpoint.meta.operationId, toolOf(endpoint)]));

/** The tools whose scopes a caller has. No token has the scope of a send, so no token is shown the tool that confirms one. */
export const visibleTools = (tools: ReadonlyMap<string, OperationTool>, { scopes }: Pick<Access, "scopes">): Tool[] =>
  [...tools.values()]
    .filter(({ endpoint: { meta } }) => [meta.scope, meta.alsoScope].every((scope) => !scope || scopes.includes(scope)))
    .map(({ tool }) => tool);
