import { type OpenApiDocument, type Operation, type Parameter, resolve, type Schema, schemaOf } from "./document.ts";
import { camel, comment, indent, literal, pascal, typeOf } from "./schema-types.ts";

export interface Signature {
  /** Such as `newsletters`. */
  group: string;
  /** Such as `create`. */
  name: string;
  /** Such as `POST`. */
  httpMethod: string;
  path: string;
  ids: string[];
  /** As one object, and its type's name. */
  query: { type: string; schema: Schema } | undefined;
  body: { schema: Schema; isRequired: boolean } | undefined;
  data: Schema;
  takesKey: boolean;
  takesDryRun: boolean;
  about: string;
}

/**
 * The first segment of the path, and the operation's id without its noun: `createList` → `create`; `listListSubscribers` →
 * `listSubscribers`.
 */
function nameOf(path: string, operationId: string): Pick<Signature, "group" | "name"> {
  const group = camel(path.split("/")[1] ?? "");
  const noun = pascal(group).replace(/s$/, "");
  const [, verb = operationId, rest = ""] = new RegExp(`^([a-z]+)${noun}s?(?![a-z])(.*)$`).exec(operationId) ?? [];
  return { group, name: `${verb}${rest}` };
}

/** Of the write itself: a dry run answers `data: null` in the same shape. */
function readPayload(document: OpenApiDocument, { operationId, responses }: Operation): Schema {
  const [, success = {}] = Object.entries(responses).find(([status]) => status.startsWith("2")) ?? [];
  const { data } = resolve(document, "schemas", schemaOf(success) ?? {}).properties ?? {};
  if (!data) throw new Error(`${operationId} documents no payload`);
  return data.anyOf?.find(({ type }) => type !== "null") ?? data;
}

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

/** @param method in lower case @throws {Error} for an operation without a payload */
export function readSignature(
  document: OpenApiDocument,
  method: string,
  path: string,
  operation: Operation,
): Signature {
  const { operationId, summary, description, requestBody } = operation;
  const parameters = (operation.parameters ?? []).map((one) => resolve(document, "parameters", one));
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
    data: readPayload(document, operation),
    takesKey: inPlace("header").some(({ name }) => name.toLowerCase() === "idempotency-key"),
    takesDryRun: query.length < inPlace("query").length,
    about: comment(summary && `${summary}.`, description),
  };
}

const takesQuery = ({ query }: Signature, name: string): boolean => query?.schema.properties?.[name] !== undefined;

const idsOf = ({ ids }: Signature): string[] => ids.map((id) => `${id}: string`);

const atPath = ({ path, ids }: Signature): string =>
  `path: ${literal(path)}${ids.length > 0 ? `, ids: { ${ids.join(", ")} }` : ""}`;

/** And of its incremental run where it has one. */
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

/** `list` gives `changes`, `listSubscribers` gives `changesOfSubscribers`. */
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

export function classOf(group: string, methods: readonly Signature[]): string {
  const members = [
    "readonly #transport: Transport;",
    "constructor(transport: Transport) {\n  this.#transport = transport;\n}",
  ];
  const sources = [...members, ...methods.flatMap(methodsOf)];
  return `export class ${pascal(group)}Resource {\n${indent(sources.join("\n\n"))}\n}\n`;
}

export function resourcesOf(groups: readonly string[]): string {
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
