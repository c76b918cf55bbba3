import { STATUS_CODES } from "node:http";
import { isDeepStrictEqual } from "node:util";
import type { z } from "zod";
import type { Scope } from "../../domain/access/scopes.ts";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { isObject } from "../../lib/json-object.ts";
import { answersList, isPaged, type RouteDefinition } from "../rest/definition.ts";
import { isRememberedCode } from "../rest/idempotency.ts";
import { impact } from "../rest/impact.ts";
import { dryRunResponse, errorResponseOf, METAS, securityOf } from "./components.ts";
import { errorsOf } from "./documented-errors.ts";
import { COMMON_HEADERS, type HeaderName } from "./headers.ts";
import { type JsonSchema, refTo, type Schemas } from "./schemas.ts";
import { tagOf } from "./tags.ts";

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const code = (text: string): string => `\`${text}\``;

const headersOf = (names: readonly HeaderName[]): JsonSchema =>
  Object.fromEntries(names.map((name) => [name, refTo("headers", name)]));

const json = (schema: JsonSchema, examples: JsonSchema): JsonSchema => ({
  "application/json": { schema, examples },
});

/** Answers whose codes and headers are the same for every operation. */
const SHARED_STATUSES: ReadonlySet<number> = new Set([401, 408, 413, 415, 500, 503]);
const RETRY_STATUSES: ReadonlySet<number> = new Set([409, 429, 503]);

const sharedName = (status: number): string => (STATUS_CODES[status] ?? String(status)).replaceAll(/[^A-Za-z]/g, "");

function errorAnswer(schemas: Schemas, status: number, codes: readonly ErrorCode[], replayed: boolean): JsonSchema {
  const headers: HeaderName[] = [...COMMON_HEADERS];
  // A token that lacks a scope is challenged too (RFC 6750, 3.1).
  if (status === 401 || codes.includes("insufficient_scope")) headers.push("WWW-Authenticate");
  if (RETRY_STATUSES.has(status)) headers.push("Retry-After");
  if (replayed && codes.some(isRememberedCode)) headers.push("Idempotent-Replayed");
  return {
    description: codes.map((name) => `- ${code(name)}: ${ERRORS[name].meaning}`).join("\n"),
    headers: headersOf(headers),
    content: json(
      errorResponseOf(schemas, codes),
      Object.fromEntries(codes.map((name) => [name, refTo("examples", name)])),
    ),
  };
}

/**
 * The errors of an operation; those that every operation has become components.
 * @throws {Error} where such an answer differs from that of another operation
 */
function errorAnswers(schemas: Schemas, shared: Map<string, JsonSchema>, definition: RouteDefinition): JsonSchema {
  const replayed = definition.idempotency !== "none";
  return Object.fromEntries(
    [...errorsOf(definition)].map(([status, codes]) => {
      if (!SHARED_STATUSES.has(status)) return [status, errorAnswer(schemas, status, codes, replayed)];
      const name = sharedName(status);
      const answer = errorAnswer(schemas, status, codes, false);
      const known = shared.get(name);
      if (known && !isDeepStrictEqual(known, answer)) {
        throw new Error(`${definition.operationId} answers ${status} with other codes: take it out of SHARED_STATUSES`);
      }
      shared.set(name, answer);
      return [status, refTo("responses", name)];
    }),
  );
}

function metaOf(definition: RouteDefinition): z.ZodType {
  const { kind, input } = definition;
  if (kind !== "read") return METAS.write;
  if (!isPaged(definition)) return answersList(definition) ? METAS.page : METAS.read;
  const query = input.shape.query as z.ZodObject;
  return "updated_since" in query.shape ? METAS.syncedPage : METAS.page;
}

/** The answer to a dry run that would create, change or delete one record, by the operation's method. */
function dryRunExample(schemas: Schemas, answer: JsonSchema, { method, path, input }: RouteDefinition): unknown {
  const { data, meta } = schemas.exampleOf(answer) as z.infer<typeof dryRunResponse>;
  const record = path.endsWith("}") ? parametersIn(schemas, "path", input.shape.params).at(-1) : undefined;
  const effect = impact({
    would_create: method === "POST" ? 1 : 0,
    would_update: method === "PATCH" ? 1 : 0,
    would_delete: method === "DELETE" ? 1 : 0,
    affected_ids: record ? [String(record["example"])] : [],
  });
  return { data, meta: { ...meta, impact: effect } };
}

/** The successes of an operation: the real one, and that of a dry run, which may share its status. */
function successes(schemas: Schemas, definition: RouteDefinition, links: JsonSchema): JsonSchema {
  const { status = 200, dryRun, output, operationId, summary } = definition;
  const data = schemas.convert(output, "output");
  const meta = schemas.convert(metaOf(definition), "output");
  const done = schemas.add(`${capitalised(operationId)}Response`, {
    type: "object",
    description: `The answer of ${code(operationId)}.`,
    properties: { data, meta },
    required: ["data", "meta"],
    additionalProperties: false,
  });
  const headers: HeaderName[] = [...COMMON_HEADERS];
  if (definition.idempotency !== "none") headers.push("Idempotent-Replayed");

  const real = { done: { summary, value: schemas.exampleOf(done) } };
  const rehearsed = schemas.convert(dryRunResponse, "output");
  const dry = { dry_run: { summary: "A dry run", value: dryRunExample(schemas, rehearsed, definition) } };
  const answer = (description: string, names: readonly HeaderName[], content: JsonSchema): JsonSchema => ({
    description,
    headers: headersOf(names),
    content,
  });
  if (!dryRun) return { [status]: { ...answer("Done.", headers, json(done, real)), ...links } };
  if (status === 200) {
    const either = { oneOf: [done, rehearsed] };
    return { 200: { ...answer("Done, or a dry run.", headers, json(either, { ...real, ...dry })), ...links } };
  }
  const created: HeaderName[] = status === 201 ? [...headers, "Location"] : headers;
  return {
    200: answer("A dry run: nothing was done.", COMMON_HEADERS, json(rehearsed, dry)),
    [status]: { ...answer("Done.", created, json(done, real)), ...links },
  };
}

function parametersIn(
  schemas: Schemas,
  place: "path" | "query",
  schema: z.ZodType | undefined,
  nameOf = (name: string) => name,
): JsonSchema[] {
  if (!schema) return [];
  const { properties, required = [] } = schemas.convert(schema, "input");
  return Object.entries(isObject(properties) ? properties : {}).map(([name, field]) => {
    const { description, ...rest } = field as JsonSchema;
    return {
      name: nameOf(name),
      in: place,
      required: (required as string[]).includes(name),
      description,
      schema: rest,
      example: schemas.exampleOf(field as JsonSchema),
    };
  });
}

function parametersOf(schemas: Schemas, definition: RouteDefinition, nameOf: (param: string) => string): JsonSchema[] {
  const { input, dryRun } = definition;
  const policy = definition.idempotency;
  return [
    ...parametersIn(schemas, "path", input.shape.params, nameOf),
    ...parametersIn(schemas, "query", input.shape.query),
    ...(dryRun ? [refTo("parameters", "DryRun")] : []),
    ...(policy === "optional" ? [refTo("parameters", "IdempotencyKey")] : []),
    ...(policy === "required" ? [refTo("parameters", "RequiredIdempotencyKey")] : []),
    refTo("parameters", "ServiceVersion"),
  ];
}

/** The types that a request's body may have. A PATCH leaves out fields that do not change: it is a merge patch (RFC 7396). */
const bodyTypes = (method: string): string[] =>
  method === "PATCH" ? ["application/json", "application/merge-patch+json"] : ["application/json"];

function bodyOf(schemas: Schemas, { method, input, operationId, documentedBody }: RouteDefinition): JsonSchema {
  const body = documentedBody ?? input.shape.body;
  if (!body) return {};
  const schema = schemas.add(`${capitalised(operationId)}Body`, schemas.convert(body, "input"));
  const media = { schema, examples: { example: { value: schemas.exampleOf(schema) } } };
  const content = Object.fromEntries(bodyTypes(method).map((type) => [type, media]));
  return { requestBody: { required: !body.safeParse(undefined).success, content } };
}

/** The scopes that a caller must hold, all of them. */
const scopesOf = ({ scope, alsoScope }: RouteDefinition): Scope[] =>
  [scope, alsoScope].filter((name) => name !== null && name !== undefined);

/** What the operation's own description leaves to the document: scopes, the Idempotency-Key and the dry run. */
function commonRules(definition: RouteDefinition): string[] {
  const { dryRunScope, dryRun } = definition;
  const scopes = scopesOf(definition).map(code);
  const lines = [scopes.length === 0 ? "**Scope:** none." : `**Scope:** ${scopes.join(" and ")}.`];
  const policy = definition.idempotency;
  if (definition.method === "DELETE") {
    lines.push("**Idempotency-Key:** has no effect here. A second deletion is 404 `not_found`.");
  } else if (policy === "optional") {
    lines.push("**Idempotency-Key:** optional, strongly recommended: with it a request can be repeated safely.");
  } else if (policy === "required") {
    lines.push("**Idempotency-Key:** required. Without it the request is 400 `idempotency_key_required`.");
  }
  if (dryRun) {
    const besides = dryRunScope ? `, which needs ${code(dryRunScope)} besides` : "";
    lines.push(`**Dry run:** \`?dry_run=true\` answers the effect and does nothing${besides}.`);
  }
  return lines;
}

interface OperationContext {
  /** The document's name of a parameter of the path. */
  nameOf: (param: string) => string;
  links: JsonSchema;
  /** Of OAuth tokens; undefined when the service takes none. */
  issuer: string | undefined;
}

export function operationOf(
  schemas: Schemas,
  shared: Map<string, JsonSchema>,
  definition: RouteDefinition,
  { nameOf, links, issuer }: OperationContext,
): JsonSchema {
  const { operationId, path, summary, description } = definition;
  const scopes = scopesOf(definition);
  return {
    operationId,
    tags: [tagOf(path)],
    summary,
    description: [description, ...commonRules(definition)].join("\n\n"),
    security: securityOf(scopes, issuer),
    parameters: parametersOf(schemas, definition, nameOf),
    ...bodyOf(schemas, definition),
    responses: {
      ...successes(schemas, definition, links),
      ...errorAnswers(schemas, shared, definition),
    },
  };
}
