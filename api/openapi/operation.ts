import { isDeepStrictEqual } from "node:util";
import type { z } from "zod";
import type { Scope } from "../../domain/access/scopes.ts";
import { ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { exampleId } from "../../domain/ids.ts";
import { isObject } from "../../lib/json-object.ts";
import { answersList, isPaged, type RouteDefinition } from "../rest/definition.ts";
import { type Impact, impact } from "../rest/impact.ts";
import { paging } from "../rest/list.ts";
import { METAS, securityOf } from "./components.ts";
import { answerName, ERROR_CODES, errorsOf, OF_EVERY_OPERATION } from "./documented-errors.ts";
import { COMMON_HEADERS, type HeaderName, headersOf } from "./headers.ts";
import { type JsonSchema, pascal, refTo, type Schemas } from "./schemas.ts";
import { tagOf } from "./tags.ts";

const code = (text: string): string => `\`${text}\``;

/** The answers of an operation that are no success. */
const errorAnswersOf = (codes: readonly ErrorCode[]): JsonSchema =>
  Object.fromEntries(codes.map((name) => [ERRORS[name].status, refTo("responses", answerName(name))]));

function metaOf(definition: RouteDefinition): z.ZodType {
  const { kind, input } = definition;
  if (kind !== "read") return METAS.write;
  if (!isPaged(definition)) return answersList(definition) ? METAS.page : METAS.read;
  const query = input.shape.query as z.ZodObject;
  return "updated_since" in query.shape ? METAS.syncedPage : METAS.page;
}

/** The effect of a dry run that would create, change or delete one record, by the operation's method. */
function exampleImpact(schemas: Schemas, { method, path, input }: RouteDefinition): Impact {
  const record = path.endsWith("}") ? parametersIn(schemas, "path", input.shape.params).at(-1) : undefined;
  return impact({
    would_create: method === "POST" ? 1 : 0,
    would_update: method === "PATCH" ? 1 : 0,
    would_delete: method === "DELETE" ? 1 : 0,
    affected_ids: record ? [String(record["example"])] : [],
  });
}

/** The successes of an operation: the real one, and that of a dry run, which has the same shape and may share its status. */
function successes(schemas: Schemas, definition: RouteDefinition, links: JsonSchema): JsonSchema {
  const { status = 200, dryRun, output, operationId, summary } = definition;
  const data = schemas.convert(output, "output");
  const meta = schemas.convert(metaOf(definition), "output");
  const schema = schemas.add(`${pascal(operationId)}Answer`, {
    type: "object",
    description: `The answer of ${code(operationId)}.`,
    properties: { data: dryRun ? { anyOf: [data, { type: "null" }] } : data, meta },
    required: ["data", "meta"],
  });
  const headers: HeaderName[] = [...COMMON_HEADERS];
  if (definition.idempotency !== "none") headers.push("Idempotent-Replayed");
  // Where there is no choice of examples, those of the fields say it all.
  const answer = (description: string, names: readonly HeaderName[], examples = {}): JsonSchema => ({
    description,
    headers: headersOf(names),
    content: { "application/json": { schema, ...examples } },
  });

  if (!dryRun) return { [status]: { ...answer("Done.", headers), ...links } };
  const done = { summary, value: schemas.exampleOf(schema) };
  const rehearsed = { request_id: exampleId("request"), dry_run: true, impact: exampleImpact(schemas, definition) };
  const dry_run = { summary: "A dry run", value: { data: null, meta: rehearsed } };
  if (status === 200)
    return { 200: { ...answer("Done, or a dry run.", headers, { examples: { done, dry_run } }), ...links } };
  const created: HeaderName[] = status === 201 ? [...headers, "Location"] : headers;
  return {
    200: answer("A dry run: nothing was done.", COMMON_HEADERS, { examples: { dry_run } }),
    [status]: { ...answer("Done.", created), ...links },
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
    const { description, examples, ...rest } = field as JsonSchema;
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

/** Parameters that are the same in many operations become components: the ids of paths, and those of pages. */
function sharedWhereAlike(shared: Map<string, JsonSchema>, parameter: JsonSchema): JsonSchema {
  const text = String(parameter["name"]);
  if (parameter["in"] !== "path" && !Object.hasOwn(paging, text) && text !== "updated_since") return parameter;
  const name = pascal(text);
  const known = shared.get(name) ?? parameter;
  shared.set(name, known);
  return isDeepStrictEqual(known, parameter) ? refTo("parameters", name) : parameter;
}

/** @param shared parameters among the components, by name; added to */
function parametersOf(
  schemas: Schemas,
  shared: Map<string, JsonSchema>,
  definition: RouteDefinition,
  nameOf: (param: string) => string,
): JsonSchema[] {
  const { input, dryRun } = definition;
  const policy = definition.idempotency;
  const own = [
    ...parametersIn(schemas, "path", input.shape.params, nameOf),
    ...parametersIn(schemas, "query", input.shape.query),
  ];
  return [
    ...own.map((parameter) => sharedWhereAlike(shared, parameter)),
    ...(dryRun ? [refTo("parameters", "DryRun")] : []),
    ...(policy === "optional" ? [refTo("parameters", "IdempotencyKey")] : []),
    ...(policy === "required" ? [refTo("parameters", "RequiredIdempotencyKey")] : []),
    refTo("parameters", "ServiceVersion"),
  ];
}

/** The types that a request's body may have. A PATCH leaves out fields that do not change: it is a merge patch (RFC 7396). */
const bodyTypes = (method: string): string[] =>
  method === "PATCH" ? ["application/json", "application/merge-patch+json"] : ["application/json"];

/** With each default of a field in words: generators take the keyword for a field that must be given, or refuse it. */
function withoutDefaults({ default: _, properties, ...schema }: JsonSchema): JsonSchema {
  const fields = Object.entries(isObject(properties) ? properties : {}).map(([name, field]) => {
    const { default: preset, description, ...rest } = field as JsonSchema;
    // Of null and of an empty object or array there is nothing to say.
    const values = [preset].flat().filter((value) => value !== undefined && typeof value !== "object");
    const said = values.length > 0 && `${values.map((value) => code(String(value))).join(", ")} unless given.`;
    const words = [description, said].filter(Boolean).join(" ");
    return [name, { ...(words && { description: words }), ...rest }];
  });
  return { ...schema, properties: Object.fromEntries(fields) };
}

function bodyOf(schemas: Schemas, { method, input, operationId, documentedBody }: RouteDefinition): JsonSchema {
  const body = documentedBody ?? input.shape.body;
  if (!body) return {};
  const schema = schemas.add(`${pascal(operationId)}Body`, withoutDefaults(schemas.convert(body, "input")));
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
  const codes = errorsOf(definition);
  const ownCodes = codes.filter((name) => !OF_EVERY_OPERATION.includes(name));
  const errorsInWords = `**Errors:** ${[...ownCodes.map(code), "those of every operation"].join(", ")}.`;
  return {
    operationId,
    tags: [tagOf(path)],
    summary,
    description: [description, ...commonRules(definition), errorsInWords].join("\n\n"),
    security: securityOf(scopes, issuer),
    parameters: parametersOf(schemas, shared, definition, nameOf),
    ...bodyOf(schemas, definition),
    responses: { ...successes(schemas, definition, links), ...errorAnswersOf(codes) },
    [ERROR_CODES]: ownCodes,
  };
}
