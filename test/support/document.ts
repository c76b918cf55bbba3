/** Compares answers of the API with its OpenAPI document. A field that the document does not name fails. */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { BASE_PATH } from "../../api/base-path.ts";
import { openApiDocument } from "../../api/openapi/document.ts";
import type { JsonSchema } from "../../api/openapi/schemas.ts";
import { withPlainCharacters } from "../../api/rest/request-path.ts";
import { appRouter } from "../../api/router.ts";
import { isObject } from "../../lib/json-object.ts";

/** Headers of HTTP itself and of the security policy, which the document leaves to them. */
const OF_HTTP: ReadonlySet<string> = new Set([
  "connection",
  "content-encoding",
  "content-length",
  "content-security-policy",
  "content-type",
  "cross-origin-opener-policy",
  "cross-origin-resource-policy",
  "date",
  "keep-alive",
  "origin-agent-cluster",
  "referrer-policy",
  "strict-transport-security",
  "transfer-encoding",
  "x-content-type-options",
  "x-dns-prefetch-control",
  "x-download-options",
  "x-frame-options",
  "x-permitted-cross-domain-policies",
  "x-xss-protection",
]);
/** Codes of answers to requests that no operation takes. */
const OF_NO_OPERATION = ["not_found", "method_not_allowed"];

const DOCUMENT = "document";
const PUBLIC_URL = "https://mail.example.com";
const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

const segment = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");
const pointer = (...names: readonly string[]): string => names.map((name) => `/${segment(name)}`).join("");

interface Compiled {
  document: JsonSchema;
  /** The validator of a schema at a JSON pointer into the document. */
  at: (pointer: string) => ValidateFunction;
  /** The operation that serves a request, as a pointer. */
  operationOf: (method: string, path: string) => string | undefined;
}

let made: Compiled | undefined;

function compiledDocument(): Compiled {
  made ??= compileDocument();
  return made;
}

export const documentOf = (): JsonSchema => compiledDocument().document;

export const validatorAt = (path: string): ValidateFunction => compiledDocument().at(path);

/** A copy in which an answer may have no further fields, though clients must take them. */
const withoutFurtherFields = (document: JsonSchema): JsonSchema =>
  JSON.parse(JSON.stringify(document), (_, value) =>
    isObject(value) && isObject(value["properties"]) ? { additionalProperties: false, ...value } : value,
  );

/** Reads the value at a JSON pointer, and through references. */
function read(document: JsonSchema, path: string): { value: unknown; path: string } {
  let value: unknown = document;
  for (const name of path.split("/").slice(1)) {
    value = isObject(value) ? value[name.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  const ref = isObject(value) ? value["$ref"] : undefined;
  return typeof ref === "string" ? read(document, ref.slice(1)) : { value, path };
}

function compileDocument(): Compiled {
  const document = withoutFurtherFields(openApiDocument(appRouter, PUBLIC_URL));
  // Compiling takes most of the time: most validators are used a few times.
  const quickly = { inlineRefs: false, code: { optimize: false } };
  const ajv = new Ajv2020({ strict: false, allErrors: true, formats: { "date-time": INSTANT }, ...quickly });
  ajv.addSchema(document, DOCUMENT);
  const operations = Object.entries(read(document, "/paths").value as Record<string, JsonSchema>).flatMap(
    ([template, item]) =>
      Object.keys(item).map((method) => ({
        method: method.toUpperCase(),
        pattern: new RegExp(`^${template.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
        path: pointer("paths", template, method),
        params: template.split("{").length,
      })),
  );
  // A fixed segment stands before a parameter in its place.
  operations.sort((a, b) => a.params - b.params);
  const validators = new Map<string, ValidateFunction>();
  return {
    document,
    at: (path) => {
      const validate =
        validators.get(path) ?? ajv.compile({ $ref: `${DOCUMENT}#${encodeURI(path).replaceAll("#", "%23")}` });
      validators.set(path, validate);
      return validate;
    },
    operationOf: (method, path) => {
      const verb = method === "HEAD" ? "GET" : method;
      return operations.find((one) => one.method === verb && one.pattern.test(path))?.path;
    },
  };
}

export interface AnswerToCheck {
  method: string;
  /** With the base path. */
  url: URL;
  status: number;
  headers: Headers;
  /** Parsed; null where there is none. */
  body: unknown;
}

function assertValid(validate: ValidateFunction, value: unknown, label: string): void {
  if (validate(value)) return;
  const problems = (validate.errors ?? []).map(
    ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
  );
  const shown = JSON.stringify(value).slice(0, 2_000);
  assert.fail(`${label} is unlike the document:\n${problems.join("\n")}\n${shown}`);
}

const requestOf = (event: string): string =>
  pointer("paths", "/webhooks", "post", "callbacks", event, "{$request.body#/url}", "post");

export function assertEventDocumented(event: string, object: unknown): void {
  const { at, document } = compiledDocument();
  const schema = `${requestOf(event)}${pointer("requestBody", "content", "application/json", "schema")}`;
  const { path } = read(document, schema);
  assertValid(at(`${path}${pointer("properties", "data", "properties", "object")}`), object, `the record of ${event}`);
}

/** @throws {AssertionError} for a delivery without a header that the document names, or with another `x-service-` header */
export function assertDeliveryHeadersDocumented(headers: IncomingHttpHeaders): void {
  const event = String(headers["x-service-event"]);
  const { document } = compiledDocument();
  const { value } = read(document, `${requestOf(event)}/parameters`);
  assert.ok(Array.isArray(value), `a delivery of ${event}, which the document does not name`);
  const parameters = value.map(({ $ref }) => read(document, $ref.slice(1)).value as JsonSchema);
  const declared = new Map(parameters.map(({ name, required }) => [String(name).toLowerCase(), required === true]));
  for (const [name, required] of declared) {
    assert.ok(!required || headers[name] !== undefined, `a delivery of ${event} without ${name}`);
  }
  for (const name of Object.keys(headers)) {
    assert.ok(!name.startsWith("x-service-") || declared.has(name), `a delivery of ${event} with ${name}`);
  }
}

/** @param path of the answer in the document */
function assertHeadersDocumented(
  { value: answer, path }: { value: unknown; path: string },
  headers: Headers,
  label: string,
): void {
  const { document, at } = compiledDocument();
  const declared = isObject(answer) && isObject(answer["headers"]) ? answer["headers"] : {};
  const names = new Map(Object.keys(declared).map((name) => [name.toLowerCase(), name]));
  for (const [name, value] of headers) {
    const documented = names.get(name);
    assert.ok(documented ?? OF_HTTP.has(name), `${label} with the header ${name}, which the document does not name`);
    if (documented === undefined) continue;
    const { path: header } = read(document, `${path}/headers/${documented}`);
    const { value: schema } = read(document, `${header}/schema`);
    const given = isObject(schema) && schema["type"] === "integer" ? Number(value) : value;
    assert.ok(at(`${header}/schema`)(given), `${label} with ${name}: ${value}`);
  }
  for (const [name, documented] of names) {
    const { value } = read(document, `${path}/headers/${documented}`);
    const required = isObject(value) && value["required"] === true;
    assert.ok(!required || headers.has(name), `${label} without the header ${documented}`);
  }
}

/** A refusal has one of the operation's codes, and a dry run alone has an impact and no data. */
function assertMeaningDocumented(operation: string, body: JsonSchema, label: string): void {
  const { document } = compiledDocument();
  const { error, data, meta } = body;
  if (isObject(error)) {
    const codes = ["", operation].flatMap((path) => read(document, `${path}/x-error-codes`).value);
    assert.ok(codes.includes(error["code"]), `${label} with ${error["code"]}, which the operation does not name`);
  } else if (isObject(meta) && meta["dry_run"] !== undefined) {
    const facts = [data === null, isObject(meta["impact"])];
    assert.deepEqual(facts, [meta["dry_run"], meta["dry_run"]], `${label} with the data or the impact of another kind`);
  }
}

/** @throws {AssertionError} for a status, a header, a field or a code that the document does not name for the operation */
export function assertDocumented({ method, url, status, headers, body }: AnswerToCheck): void {
  const { document, at, operationOf } = compiledDocument();
  const path = withPlainCharacters(url.pathname).slice(BASE_PATH.length);
  const operation = operationOf(method, path);
  const label = `${method} ${operation?.split("/")[2]?.replaceAll("~1", "/") ?? path} answered ${status}`;
  if (operation === undefined) {
    const code = isObject(body) && isObject(body["error"]) ? body["error"]["code"] : undefined;
    if (method !== "HEAD" && method !== "OPTIONS")
      assert.ok(OF_NO_OPERATION.includes(String(code)), `${label}: ${code}`);
    return;
  }
  const response = read(document, `${operation}/responses/${status}`);
  assert.ok(isObject(response.value), `${label}, which the document does not name: ${JSON.stringify(body)}`);

  assertHeadersDocumented(response, headers, label);
  if (method === "HEAD") return;
  assertValid(at(`${response.path}${pointer("content", "application/json", "schema")}`), body, `the body of ${label}`);
  if (isObject(body)) assertMeaningDocumented(operation, body, label);
}
