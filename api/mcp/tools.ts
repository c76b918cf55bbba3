import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Tool } from "@modelcontextprotocol/server";
import type { AnyTRPCRouter } from "@trpc/server";
import { z } from "zod";
import type { Access } from "../../domain/access/access.ts";
import { roleHolds } from "../../domain/access/scopes.ts";
import type { JsonObject } from "../../lib/json-object.ts";
import type { analyticsOverview } from "../analytics/schema.ts";
import { shownAs } from "../openapi/schemas.ts";
import type { InputSchema, RouteDefinition } from "../rest/definition.ts";
import { type Endpoint, endpointsOf } from "../rest/endpoints.ts";
import { readIdempotencyKey } from "../rest/idempotency.ts";
import { parserOf, type RawInput } from "../rest/input.ts";
import { subscriberBody } from "../subscribers/schema.ts";
import { toolSchema } from "./schema.ts";

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
  /** Of a tool that takes a list of records: a request for each. @throws {ApiError} `validation_failed` for another list */
  requestsOf?: (args: JsonObject) => ToolRequest[];
  requestOf(args: JsonObject): ToolRequest;
  /** Of a tool that shows less than the operation answers. */
  shownOf?: (data: unknown, args: JsonObject) => unknown;
}

/** For every client that shows them to its model, and by operationId what a tool says beside the operation's summary. */
const [INSTRUCTIONS = "", ...SECTIONS] = readFileSync(`${import.meta.dirname}/tools.md`, "utf8").split("\n## ");
const NOTES = Object.fromEntries(SECTIONS.map((section) => section.trim().split("\n")));

export { INSTRUCTIONS };

/** Operations that are no tools. */
const NO_TOOLS: ReadonlySet<string> = new Set([
  // A webhook is set up beside the program that gets its events: its secret does not belong in a conversation, and no text must
  // lead an assistant to send the team's events to another URL.
  ...["createWebhook", "updateWebhook", "deleteWebhook", "rotateWebhookSecret", "testWebhook", "listWebhookEventTypes"],
  // Another tool shows or changes the same records.
  ...["retrieveWebhook", "retrieveWebhookDelivery", "replayWebhookDelivery", "retrieveAccount", "createContact"],
]);

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
  const key = z.string();
  const own = {
    ...(dryRun && { dry_run: z.boolean().optional() }),
    ...(idempotency !== "none" && { idempotency_key: idempotency === "required" ? key : key.optional() }),
  };
  const parts = [...[params, query, documentedBody ?? body].map(fieldsOf), own];
  const names = parts.flatMap((part) => Object.keys(part));
  if (new Set(names).size < names.length) throw new Error(`${operationId} has two arguments of one name`);
  return toolSchema(shownAs(z.strictObject(Object.assign({}, ...parts)))) as Tool["inputSchema"];
}

function toolOf(endpoint: Endpoint): OperationTool {
  const { meta } = endpoint;
  const { operationId, summary, kind, method, status, scope, idempotency, input } = meta;
  // A preview changes nothing, and a record that an editor may create leaves all others as they are.
  const isHarmless =
    operationId.startsWith("preview") || (status === 201 && (scope === null || roleHolds("EDITOR", scope)));
  const note = NOTES[operationId];
  const tool: Tool = {
    name: operationId,
    description: note === undefined ? summary : `${summary}. ${note}`,
    inputSchema: inputSchemaOf(meta),
    annotations:
      kind === "read"
        ? { readOnlyHint: true }
        : { destructiveHint: !isHarmless, idempotentHint: method !== "POST" || idempotency === "required" },
  };
  const { params, query, body } = input.shape;
  const inPath = fieldsOf(params);
  const inQuery = fieldsOf(query);
  const placeOf = (name: string): keyof RawInput => {
    if (Object.hasOwn(inPath, name)) return "params";
    return body && !Object.hasOwn(inQuery, name) ? "body" : "query";
  };
  const inBody = fieldsOf(body);
  const requestOf = (all: JsonObject): ToolRequest => {
    // Models write null for a value that they leave out.
    const values = Object.entries(all).filter(
      ([name, value]) => value !== null || (Object.hasOwn(inBody, name) && inBody[name]?.safeParse(null).success),
    );
    const { dry_run, idempotency_key, ...args }: JsonObject = Object.fromEntries(values);
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

const SUBSCRIBERS_AT_ONCE = 100;
const subscribersInput = (person: z.ZodType): InputSchema =>
  z.strictObject({ body: z.strictObject({ subscribers: z.array(person).min(1).max(SUBSCRIBERS_AT_ONCE) }) });
const checkSubscribers = parserOf({
  input: subscribersInput(z.looseObject({})),
  output: z.null(),
  itemsIn: "subscribers",
});

/** The tool of `createSubscriber` takes a list of people: assistants fill one call more reliably than fifty. */
function createSubscribers(endpoint: Endpoint): OperationTool {
  const summary = `Create up to ${SUBSCRIBERS_AT_ONCE} subscribers, on no list yet`;
  const meta = { ...endpoint.meta, operationId: "createSubscribers", summary, input: subscribersInput(subscriberBody) };
  const { requestOf, tool } = toolOf({ ...endpoint, meta });
  const requestsOf = (args: JsonObject) => {
    const { parts, dryRun, idempotencyKey: given } = requestOf(args);
    checkSubscribers(parts);
    const key = given === undefined ? null : readIdempotencyKey({ "idempotency-key": [given] }, endpoint.meta);
    // A key may be as long as one can be: no place fits behind it.
    const hash = key && createHash("sha256").update(key).digest("base64url");
    const { subscribers } = parts.body as { subscribers: unknown[] };
    return subscribers.map((body, place) => ({
      ...{ parts: { ...parts, body }, dryRun },
      idempotencyKey: hash === null ? undefined : `${hash}/${place}`,
    }));
  };
  return { tool, endpoint, requestOf, requestsOf };
}

/** A report on one mail has no empty days: most of a range are before it, or after its last click. */
function analyticsTool(endpoint: Endpoint): OperationTool {
  const shownOf: OperationTool["shownOf"] = (data, { resource_id }) => {
    if (typeof resource_id !== "string") return data;
    const { days, ...rest } = data as z.output<typeof analyticsOverview>;
    return { ...rest, days: days.filter(({ date: _, ...counts }) => Object.values(counts).some(Boolean)) };
  };
  return { ...toolOf(endpoint), shownOf };
}

/** Operations whose tool differs from them. */
const OWN_TOOLS: Readonly<Record<string, (endpoint: Endpoint) => OperationTool>> = {
  createSubscriber: createSubscribers,
  retrieveAnalyticsOverview: analyticsTool,
};

/** The operations of a router as tools, by their names. */
export function toolsOf(routes: AnyTRPCRouter): ReadonlyMap<string, OperationTool> {
  const tools = endpointsOf(routes)
    .filter(({ meta }) => !NO_TOOLS.has(meta.operationId))
    .map((each) => (OWN_TOOLS[each.meta.operationId] ?? toolOf)(each));
  return new Map(tools.map((each) => [each.tool.name, each]));
}

/** The tools whose scopes a caller has. No token has the scope of a send, so no token is shown the tool that confirms one. */
export const visibleTools = (tools: ReadonlyMap<string, OperationTool>, { scopes }: Pick<Access, "scopes">): Tool[] =>
  [...tools.values()]
    .filter(({ endpoint: { meta } }) => [meta.scope, meta.alsoScope].every((scope) => !scope || scopes.includes(scope)))
    .map(({ tool }) => tool);
