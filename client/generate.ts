/** Writes the part of the client that follows from the OpenAPI document: its types, and a method for each operation. */

/** A JSON Schema of dialect 2020-12, as far as the document uses it. */
interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  description?: string;
}

interface Content {
  content?: Record<string, { schema?: Schema }>;
}

interface Parameter {
  $ref?: string;
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  description?: string;
  schema?: Schema;
}

interface Operation {
  operationId: string;
  summary?: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: Content & { $ref?: string; required?: boolean };
  responses: Record<string, Content & { $ref?: string }>;
}

/** The parts of an OpenAPI 3.1 document that the client is made from. */
export interface OpenApiDocument {
  info: { version: string };
  paths: Record<string, Record<string, Operation>>;
  webhooks?: Record<string, { post?: Operation }>;
  components?: {
    schemas?: Record<string, Schema>;
    parameters?: Record<string, Parameter>;
  };
}

const METHODS = ["get", "post", "patch", "put", "delete"];

const pascal = (text: string): string =>
  text.replace(/(?:^|[^a-zA-Z0-9]+)([a-zA-Z0-9])/g, (_, letter: string) => letter.toUpperCase());
const camel = (text: string): string => pascal(text).replace(/^./, (letter) => letter.toLowerCase());
const isName = (text: string): boolean => /^[A-Za-z_$][\w$]*$/.test(text);
const literal = (value: unknown): string => JSON.stringify(value);
const lastOf = (ref: string): string => ref.slice(ref.lastIndexOf("/") + 1);

const indent = (text: string): string => text.replace(/^(?=.)/gm, "  ");

/** A comment above a declaration; nothing without a text. */
function comment(...texts: (string | undefined)[]): string {
  const lines = texts
    .filter((text) => text !== undefined && text !== "")
    .join("\n\n")
    .replaceAll("*/", "*\\/")
    .split("\n");
  if (lines.join("") === "") return "";
  if (lines.length === 1) return `/** ${lines[0]} */\n`;
  return `/**\n${lines.map((line) => ` * ${line}`.trimEnd()).join("\n")}\n */\n`;
}

/** A schema as a type of TypeScript. */
function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return pascal(lastOf(schema.$ref));
  if (schema.const !== undefined) return literal(schema.const);
  if (schema.enum) return schema.enum.map(literal).join(" | ");
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return [...new Set(choices.map(typeOf))].join(" | ");
  if (schema.allOf) return schema.allOf.map((part) => `(${typeOf(part)})`).join(" & ");
  const types = [schema.type ?? "unknown"].flat();
  return types.map((type) => typeOfKind(type, schema)).join(" | ");
}

function typeOfKind(type: string, schema: Schema): string {
  switch (type) {
    case "string":
    case "boolean":
    case "null":
      return type;
    case "integer":
    case "number":
      return "number";
    case "array":
      return `Array<${typeOf(schema.items ?? {})}>`;
    case "object":
      return objectType(schema);
    default:
      return "unknown";
  }
}

function objectType({ properties = {}, required = [], additionalProperties }: Schema): string {
  const fields = Object.entries(properties).map(([name, field]) => {
    const key = isName(name) ? name : literal(name);
    return `${comment(field.description)}${key}${required.includes(name) ? "" : "?"}: ${typeOf(field)};`;
  });
  if (fields.length > 0) return `{\n${indent(fields.join("\n"))}\n}`;
  return typeof additionalProperties === "object"
    ? `Record<string, ${typeOf(additionalProperties)}>`
    : "Record<string, unknown>";
}

const declare = (name: string, schema: Schema): string =>
  `${comment(schema.description)}export type ${name} = ${typeOf(schema)};\n`;

/** The parts of an operation that a method of the client is written from. */
interface Signature {
  /** `newsletters` */
  group: string;
  /** `create` */
  name: string;
  /** `POST` */
  httpMethod: string;
  path: string;
  /** Names of the parameters in the path. */
  ids: string[];
  /** The query parameters as one object, and its type's name. */
  query: { type: string; schema: Schema } | undefined;
  body: { schema: Schema; isRequired: boolean } | undefined;
  /** The payload of a success. */
  data: Schema;
  takesKey: boolean;
  takesDryRun: boolean;
  /** The comment above it. */
  about: string;
}

/**
 * The group of an operation is the first segment of its path. Its name is its id without the group's noun:
 * `listListSubscribers` of `lists` is `listSubscribers`.
 */
function nameOf(path: string, operationId: string): Pick<Signature, "group" | "name"> {
  const group = camel(path.split("/")[1] ?? "");
  const noun = pascal(group).replace(/s$/, "");
  const [, verb = operationId, rest = ""] = new RegExp(`^([a-z]+)${noun}s?(?![a-z])(.*)$`).exec(operationId) ?? [];
  return { group, name: `${verb}${rest}` };
}

const schemaOf = ({ content = {} }: Content): Schema | undefined => content["application/json"]?.schema;

/** Every schema that a value of the document refers to, by name. */
function refsIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  const { $ref } = value as Schema;
  return [...($ref === undefined ? [] : [lastOf($ref)]), ...Object.values(value).flatMap(refsIn)];
}

class Generator {
  readonly #document: OpenApiDocument;

  constructor(document: OpenApiDocument) {
    this.#document = document;
  }

  generate(): string {
    const methods = Object.entries(this.#document.paths).flatMap(([path, item]) =>
      METHODS.flatMap((method) => (item[method] ? [this.#signature(method, path, item[method])] : [])),
    );
    const events = this.#events();
    const queries = methods.flatMap(({ query }) => (query ? [query] : []));
    const used = [methods.map(({ data, body }) => [data, body]), queries, IMPACT, events];
    const groups = Map.groupBy(methods, ({ group }) => group);
    return [
      "// Made from the OpenAPI document by `npm run client`: do not edit it.",
      'import { Changes, type Listing, listingOf } from "./pages.ts";',
      'import type { Answer, DryRunOption, Outcome, Page, RequestOptions, Transport, WriteOptions } from "./transport.ts";',
      `\n/** The dated version of the API that these types describe. */\nexport const SERVICE_VERSION = ${literal(this.#document.info.version)};\n`,
      ...this.#reachable(used).map(([name, schema]) => declare(pascal(name), schema)),
      declare("ErrorCode", this.#errorCode()),
      declare("WebhookEvents", events),
      EVENT_TYPE,
      ...queries.map(({ type, schema }) => declare(type, schema)),
      ...[...groups].map(([group, members]) => classOf(group, members)),
      resources([...groups.keys()]),
    ].join("\n");
  }

  #resolve<T extends { $ref?: string }>(section: "schemas" | "parameters", value: T): T {
    if (value.$ref === undefined) return value;
    const found = this.#document.components?.[section]?.[lastOf(value.$ref)];
    if (!found) throw new Error(`${value.$ref} is not in the document`);
    return found as unknown as T;
  }

  /** The named schemas that others lead to, by name. */
  #reachable(roots: unknown): [name: string, schema: Schema][] {
    const found = new Map<string, Schema>();
    const visit = (value: unknown): void => {
      for (const name of refsIn(value)) {
        if (found.has(name)) continue;
        const schema = this.#resolve("schemas", { $ref: `#/components/schemas/${name}` });
        found.set(name, schema);
        visit(schema);
      }
    };
    visit(roots);
    return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  /** The payload of a success. */
  #data({ operationId, responses }: Operation): Schema {
    const successes = Object.entries(responses).flatMap(([status, answer]) => (status.startsWith("2") ? [answer] : []));
    // A write that can be tried out answers `data: null` then, under a status of its own or the same one.
    const shapes = successes.flatMap((answer) => {
      const schema = schemaOf(answer) ?? {};
      return schema.oneOf ?? schema.anyOf ?? [schema];
    });
    const data = shapes
      .map((shape) => this.#resolve("schemas", shape).properties?.["data"])
      .find((found) => found !== undefined && found.type !== "null");
    if (!data) throw new Error(`${operationId} documents no payload`);
    return data;
  }

  #signature(method: string, path: string, operation: Operation): Signature {
    const { operationId, summary, description, requestBody } = operation;
    const parameters = (operation.parameters ?? []).map((one) => this.#resolve("parameters", one));
    const inPlace = (place: Parameter["in"]) => parameters.filter((parameter) => parameter.in === place);
    const query = inPlace("query").filter(({ name }) => name !== "dry_run");
    const bodySchema = requestBody && schemaOf(requestBody);
    return {
      ...nameOf(path, operationId),
      httpMethod: method.toUpperCase(),
      path,
      ids: inPlace("path").map(({ name }) => name),
      query: query.length > 0 ? { type: `${pascal(operationId)}Query`, schema: objectOf(query) } : undefined,
      body: bodySchema && { schema: bodySchema, isRequired: requestBody?.required === true },
      data: this.#data(operation),
      takesKey: inPlace("header").some(({ name }) => name.toLowerCase() === "idempotency-key"),
      takesDryRun: query.length < inPlace("query").length,
      about: comment(summary && `${summary}.`, description),
    };
  }

  /** Every code that a refusal may have. */
  #errorCode(): Schema {
    const code = this.#document.components?.schemas?.["Error"]?.properties?.["code"];
    if (!code) throw new Error("the document names no error codes");
    return { ...code, description: "The codes of refusals. Codes are added, never renamed." };
  }

  /** The payload of each webhook, by its type. */
  #events(): Schema {
    const events = Object.entries(this.#document.webhooks ?? {}).map(([name, item]) => {
      const schema = item.post?.requestBody && schemaOf(item.post.requestBody);
      if (!schema) throw new Error(`the webhook ${name} documents no payload`);
      return [name, schema] as const;
    });
    return {
      type: "object",
      description: "The payload of each webhook event, by its type.",
      properties: Object.fromEntries(events),
      required: events.map(([name]) => name),
    };
  }
}

const IMPACT: Schema = { $ref: "#/components/schemas/Impact" };

const EVENT_TYPE = `${comment("The payload of a webhook: its `type` says which. Types are added: have a branch for one that is unknown.")}export type WebhookEvent = WebhookEvents[keyof WebhookEvents];\n`;

/** Parameters as the properties of one object. */
const objectOf = (parameters: readonly Parameter[]): Schema => ({
  type: "object",
  properties: Object.fromEntries(
    parameters.map(({ name, description, schema = {} }) => [
      name,
      { ...schema, ...(description ? { description } : {}) },
    ]),
  ),
  required: parameters.filter(({ required }) => required).map(({ name }) => name),
});

const takesQuery = ({ query }: Signature, name: string): boolean => query?.schema.properties?.[name] !== undefined;

/** The declarations of a method's parameters before the query. */
const idsOf = ({ ids }: Signature): string[] => ids.map((id) => `${id}: string`);

const atPath = ({ path, ids }: Signature): string =>
  `path: ${literal(path)}${ids.length > 0 ? `, ids: { ${ids.join(", ")} }` : ""}`;

/** The method of a list, and of its incremental run where it has one. */
function listMethods(signature: Signature, queryType: string): string[] {
  const { name, data, about } = signature;
  const item = typeOf(data.items ?? {});
  const given = [...idsOf(signature), `query: ${queryType} = {}`, "options?: RequestOptions"].join(", ");
  const request = `this.#transport.request({ method: "GET", ${atPath(signature)}, query }, options)`;
  const source = [
    `${about}${name}(${given}): Listing<${item}> {`,
    `  const readPage = (query: ${queryType}): Promise<Page<${item}>> => ${request};`,
    "  return listingOf(readPage, query);",
    "}",
  ].join("\n");
  return takesQuery(signature, "updated_since") ? [source, changesMethod(signature, item, queryType)] : [source];
}

/** The incremental run over a list: `list` gives `changes`, `listSubscribers` gives `changesOfSubscribers`. */
function changesMethod(signature: Signature, item: string, queryType: string): string {
  const { name, ids } = signature;
  const rest = name.replace(/^[a-z]+/, "");
  const query = `query: Omit<${queryType}, "updated_since" | "sort" | "cursor"> = {}`;
  const given = [...idsOf(signature), "since?: string", query, "options?: RequestOptions"].join(", ");
  const since = "...(since === undefined ? {} : { updated_since: since })";
  const passed = [...ids, `{ ...page, ...query, sort: "updated_at", ${since} }`, "options"].join(", ");
  return [
    comment("The records that changed since an instant, all of them without one. See `Changes`.").trimEnd(),
    `changes${rest && `Of${rest}`}(${given}): Changes<${item}> {`,
    `  return new Changes((page) => this.${name}(${passed}));`,
    "}",
  ].join("\n");
}

/** The method of any other operation. */
function callMethod(signature: Signature): string {
  const { name, httpMethod, query, body, data, takesKey, takesDryRun, about } = signature;
  const options = [takesKey ? "WriteOptions" : "RequestOptions", ...(takesDryRun ? ["DryRunOption"] : [])].join(" & ");
  const generic = takesDryRun ? `<O extends ${options}>` : "";
  const result = takesDryRun ? `Outcome<${typeOf(data)}, Impact, O>` : `Answer<${typeOf(data)}>`;
  const given = [
    ...idsOf(signature),
    ...(body ? [`body${body.isRequired ? "" : "?"}: ${typeOf(body.schema)}`] : []),
    ...(query ? [`query: ${query.type}${query.schema.required?.length ? "" : " = {}"}`] : []),
    `options?: ${takesDryRun ? "O" : options}`,
  ];
  const call = [
    `method: ${literal(httpMethod)}`,
    atPath(signature),
    ...(query ? ["query"] : []),
    ...(body ? ["body"] : []),
    ...(takesKey ? ["takesKey: true"] : []),
  ];
  return [
    `${about}${name}${generic}(${given.join(", ")}): Promise<${result}> {`,
    `  return this.#transport.request({ ${call.join(", ")} }, options);`,
    "}",
  ].join("\n");
}

const methodsOf = (signature: Signature): string[] =>
  signature.query && takesQuery(signature, "cursor")
    ? listMethods(signature, signature.query.type)
    : [callMethod(signature)];

function classOf(group: string, methods: readonly Signature[]): string {
  const members = [
    "readonly #transport: Transport;",
    "constructor(transport: Transport) {\n  this.#transport = transport;\n}",
  ];
  const sources = [...members, ...methods.flatMap(methodsOf)];
  return `export class ${pascal(group)}Resource {\n${indent(sources.join("\n\n"))}\n}\n`;
}

function resources(groups: readonly string[]): string {
  const fields = groups.map((group) => `readonly ${group}: ${pascal(group)}Resource;`);
  const made = groups.map((group) => `this.${group} = new ${pascal(group)}Resource(transport);`);
  return [
    "/** Every operation of the API, by resource. */",
    "export class Resources {",
    indent(fields.join("\n")),
    "",
    indent(`constructor(transport: Transport) {\n${indent(made.join("\n"))}\n}`),
    "}",
    "",
  ].join("\n");
}

/**
 * The source of `generated.ts`, not formatted yet.
 * @throws {Error} for a document that no client can be made from
 */
export const generateClient = (document: OpenApiDocument): string => new Generator(document).generate();
