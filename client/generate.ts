/** Writes the client's types, and a method for each operation, from the OpenAPI document. */
import { lastOf, type OpenApiDocument, resolve, type Schema, schemaOf } from "./generate/document.ts";
import { classOf, readSignature, resourcesOf, type Signature } from "./generate/operations.ts";
import { comment, declare, literal, pascal } from "./generate/schema-types.ts";

export type { OpenApiDocument } from "./generate/document.ts";

const METHODS = ["get", "post", "patch", "put", "delete"];

function refsIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  const { $ref } = value as Schema;
  return [...($ref === undefined ? [] : [lastOf($ref)]), ...Object.values(value).flatMap(refsIn)];
}

function reachableFrom(document: OpenApiDocument, roots: readonly Schema[]): [name: string, schema: Schema][] {
  const found = new Map<string, Schema>();
  const visit = (value: unknown): void => {
    for (const name of refsIn(value)) {
      if (found.has(name)) continue;
      const schema = resolve<Schema>(document, "schemas", { $ref: `#/components/schemas/${name}` });
      found.set(name, schema);
      visit(schema);
    }
  };
  visit(roots);
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}

function readErrorCode({ components }: OpenApiDocument): Schema {
  const codes = components?.schemas?.["Error"]?.properties?.["code"]?.["x-extensible-enum"];
  if (!codes) throw new Error("the document names no error codes");
  return { enum: codes, description: "The codes of refusals. Codes are added, never renamed." };
}

function readEvents({ paths }: OpenApiDocument): Schema {
  const { callbacks = {} } = paths["/webhooks"]?.["post"] ?? {};
  const events = Object.entries(callbacks).map(([name, byUrl]) => {
    const post = Object.values(byUrl)[0]?.post;
    const schema = post?.requestBody && schemaOf(post.requestBody);
    if (!schema) throw new Error(`the event ${name} documents no payload`);
    // The document has one schema for all events of a kind of record.
    const ofEvent = { type: "object", properties: { type: { const: name } }, required: ["type"] };
    const payload: Schema = { description: `${post.summary}.`, allOf: [schema, ofEvent] };
    return [name, payload] as const;
  });
  return {
    type: "object",
    description: "The payload of each webhook event, by its type.",
    properties: Object.fromEntries(events),
    required: events.map(([name]) => name),
  };
}

const schemasOf = ({ data, body, query }: Signature): Schema[] => [
  data,
  ...(body ? [body.schema] : []),
  ...(query ? [query.schema] : []),
];

const IMPACT: Schema = { $ref: "#/components/schemas/Impact" };

const EVENT_TYPE = `${comment("The payload of a webhook: its `type` says which. Types are added: have a branch for one that is unknown.")}export type WebhookEvent = WebhookEvents[keyof WebhookEvents];\n`;

/** Not formatted yet. @throws {Error} for a document that no client can be made from */
export function generateClient(document: OpenApiDocument): string {
  const signatures = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.flatMap((method) => (item[method] ? [readSignature(document, method, path, item[method])] : [])),
  );
  const events = readEvents(document);
  const queries = signatures.flatMap(({ query }) => (query ? [query] : []));
  const groups = Map.groupBy(signatures, ({ group }) => group);
  const named = reachableFrom(document, [...signatures.flatMap(schemasOf), IMPACT, events]);
  return [
    "// Made from the OpenAPI document by `npm run client`: do not edit it.",
    'import { Changes, type Listing, listingOf } from "./pages.ts";',
    'import type { Answer, DryRunOption, Outcome, Page, RequestOptions, Transport, WriteOptions } from "./transport.ts";',
    `\n/** The dated version of the API that these types describe. */\nexport const SERVICE_VERSION = ${literal(document.info.version)};\n`,
    ...named.map(([name, schema]) => declare(pascal(name), schema)),
    declare("ErrorCode", readErrorCode(document)),
    declare("WebhookEvents", events),
    EVENT_TYPE,
    ...queries.map(({ type, schema }) => declare(type, schema)),
    ...[...groups].map(([group, members]) => classOf(group, members)),
    resourcesOf([...groups.keys()]),
  ].join("\n");
}
