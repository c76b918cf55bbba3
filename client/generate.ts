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

/** The media types of a body, the preferred one first. */
const MEDIA_TYPES = ["application/json", "application/merge-patch+json"];

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

/** A method of the client. */
interface Method {
  /** `newsletters` */
  group: string;
  /** `create` */
  name: string;
  /** Those that its types are made of. */
  schemas: Schema[];
  /** The types of its parameters. */
  declarations: string[];
  source: string;
}

/**
 * The group of an operation is the first segment of its path. Its name is its id without the group's noun:
 * `listListSubscribers` of `lists` is `listSubscribers`.
 */
function nameOf(path: string, operationId: string): Pick<Method, "group" | "name"> {
  const group = camel(path.split("/")[1] ?? "");
  const noun = pascal(group).replace(/s$/, "");
  const [, verb = operationId, rest = ""] = new RegExp(`^([a-z]+)${noun}s?(?![a-z])(.*)$`).exec(operationId) ?? [];
  return { group, name: `${verb}${rest}` };
}

const schemaOf = ({ content = {} }: Content): Schema | undefined =>
  MEDIA_TYPES.map((type) => content[type]?.schema).find((schema) => schema !== undefined);

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
      METHODS.flatMap((method) => (item[method] ? [this.#method(method, path, item[method])] : [])),
    );
    const events = this.#events();
    const used = methods.flatMap(({ schemas }) => schemas).concat(events.schemas);
    const groups = Map.groupBy(methods, ({ group }) => group);
    return [
      "// Made from the OpenAPI document by `npm run client`: do not edit it.",
      'import { Changes, type Listing, listingOf } from "./pages.ts";',
      'import type { Answer, DryRunOption, Outcome, Page, RequestOptions, Transport, WriteOptions } from "./transport.ts";',
      `\n/** The dated version of the API that these types describe. */\nexport const SERVICE_VERSION = ${literal(this.#document.info.version)};\n`,
      ...this.#reachable(used).map(([name, schema]) => declare(pascal(name), schema)),
      this.#errorCodes(),
      ...events.declarations,
      ...methods.flatMap(({ declarations }) => declarations),
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
  #reachable(roots: readonly Schema[]): [name: string, schema: Schema][] {
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

  /** The payload of a success, and the effect that a dry run shows. */
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

  #method(method: string, path: string, operation: Operation): Method {
    const { operationId, summary, description, requestBody } = operation;
    const parameters = (operation.parameters ?? []).map((one) => this.#resolve("parameters", one));
    const inPlace = (place: Parameter["in"]) => parameters.filter((parameter) => parameter.in === place);
    const ids = inPlace("path").map(({ name }) => name);
    const isWrite = method !== "get";
    const takesKey = inPlace("header").some(({ name }) => name.toLowerCase() === "idempotency-key");
    const takesDryRun = inPlace("query").some(({ name }) => name === "dry_run");
    const query = inPlace("query").filter(({ name }) => name !== "dry_run");
    const isPaged = query.some(({ name }) => name === "cursor");
    const data = this.#data(operation);
    const declarations: string[] = [];
    const schemas = [data];

    const queryType = query.length > 0 ? `${pascal(operationId)}Query` : undefined;
    if (queryType) {
      const properties = Object.fromEntries(
        query.map(({ name, description, schema = {} }) => [
          name,
          { ...schema, ...(description ? { description } : {}) },
        ]),
      );
      const schema = { type: "object", properties, required: requiredOf(query) };
      declarations.push(declare(queryType, schema));
      schemas.push(schema);
    }
    const body = requestBody && schemaOf(requestBody);
    const bodyType = body && (body.$ref === undefined ? `${pascal(operationId)}Body` : typeOf(body));
    if (body) schemas.push(body);
    if (body && bodyType && body.$ref === undefined) declarations.push(declare(bodyType, body));
    if (takesDryRun) schemas.push({ $ref: "#/components/schemas/Impact" });

    const { group, name } = nameOf(path, operationId);
    const optionsType = [takesKey ? "WriteOptions" : "RequestOptions", ...(takesDryRun ? ["DryRunOption"] : [])].join(
      " & ",
    );
    const at = `path: ${literal(path)}${ids.length > 0 ? `, ids: { ${ids.join(", ")} }` : ""}`;
    const given = ids.map((id) => `${id}: string`);
    if (bodyType) given.push(`body: ${bodyType}`);
    const about = comment(summary && `${summary}.`, description);

    if (isPaged && queryType) {
      const item = typeOf(data.items ?? {});
      const call = `{ method: "GET", ${at}, query }`;
      const source = [
        `${about}${name}(${[...given, `query: ${queryType} = {}`, `options?: ${optionsType}`].join(", ")}): Listing<${item}> {`,
        `  const readPage = (query: ${queryType}): Promise<Page<${item}>> => this.#transport.request(${call}, options);`,
        "  return listingOf(readPage, query);",
        "}",
      ];
      const hasChanges = query.some((parameter) => parameter.name === "updated_since");
      return {
        group,
        name,
        schemas,
        declarations,
        source: [...source, ...(hasChanges ? changesMethod(name, ids, item, queryType) : [])].join("\n"),
      };
    }
    const generic = takesDryRun ? `<O extends ${optionsType}>` : "";
    const result = takesDryRun ? `Outcome<${typeOf(data)}, Impact, O>` : `Answer<${typeOf(data)}>`;
    if (queryType) given.push(`query: ${queryType}${query.some(({ required }) => required) ? "" : " = {}"}`);
    given.push(`options?: ${takesDryRun ? "O" : optionsType}`);
    const parts = [`method: ${literal(method.toUpperCase())}`, at];
    if (queryType) parts.push("query");
    if (bodyType) parts.push("body");
    if (isWrite && takesKey) parts.push("takesKey: true");
    const source = [
      `${about}${name}${generic}(${given.join(", ")}): Promise<${result}> {`,
      `  return this.#transport.request({ ${parts.join(", ")} }, options);`,
      "}",
    ].join("\n");
    return { group, name, schemas, declarations, source };
  }

  /** Every code that a refusal may have. */
  #errorCodes(): string {
    const code = this.#document.components?.schemas?.["Error"]?.properties?.["code"];
    if (!code) throw new Error("the document names no error codes");
    return declare("ErrorCode", { ...code, description: "The codes of refusals. Codes are added, never renamed." });
  }

  /** The payload of each webhook, by its type. */
  #events(): { schemas: Schema[]; declarations: string[] } {
    const events = Object.entries(this.#document.webhooks ?? {}).map(([name, item]) => {
      const schema = item.post?.requestBody && schemaOf(item.post.requestBody);
      if (!schema) throw new Error(`the webhook ${name} documents no payload`);
      return [name, schema] as const;
    });
    const fields = events.map(([name, schema]) => `${literal(name)}: ${typeOf(schema)};`);
    return {
      schemas: events.map(([, schema]) => schema),
      declarations: [
        `${comment("The payload of each webhook event, by its type.")}export type WebhookEvents = {\n${indent(fields.join("\n"))}\n};\n`,
        `${comment("The payload of a webhook: its `type` says which. Types are added: have a branch for one that is unknown.")}export type WebhookEvent = WebhookEvents[keyof WebhookEvents];\n`,
      ],
    };
  }
}

const requiredOf = (parameters: readonly Parameter[]): string[] =>
  parameters.filter(({ required }) => required).map(({ name }) => name);

/** The incremental run over a list: `list` gives `changes`, `listSubscribers` gives `changesOfSubscribers`. */
function changesMethod(name: string, ids: readonly string[], item: string, queryType: string): string[] {
  const rest = name.replace(/^[a-z]+/, "");
  const given = [
    ...ids.map((id) => `${id}: string`),
    "since?: string",
    `query: Omit<${queryType}, "updated_since" | "sort" | "cursor"> = {}`,
    "options?: RequestOptions",
  ];
  const call = `this.${name}(${[...ids, '{ ...page, ...query, sort: "updated_at", ...(since === undefined ? {} : { updated_since: since }) }', "options"].join(", ")})`;
  return [
    "",
    comment("The records that changed since an instant, all of them without one. See `Changes`.").trimEnd(),
    `changes${rest && `Of${rest}`}(${given.join(", ")}): Changes<${item}> {`,
    `  return new Changes((page) => ${call});`,
    "}",
  ];
}

function classOf(group: string, methods: readonly Method[]): string {
  const members = [
    "readonly #transport: Transport;",
    "constructor(transport: Transport) {\n  this.#transport = transport;\n}",
  ];
  const sources = [...members, ...methods.map(({ source }) => source)];
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
