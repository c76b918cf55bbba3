import type { AnyTRPCRouter } from "@trpc/server";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { resourceUrl } from "../base-path.ts";
import { endpointsOf } from "../rest/endpoints.ts";
import { PARAMETERS, securitySchemes } from "./components.ts";
import { ERROR_CODES, errorAnswers, OF_EVERY_OPERATION } from "./documented-errors.ts";
import { HEADERS } from "./headers.ts";
import { linksFrom } from "./links.ts";
import { operationOf } from "./operation.ts";
import { documentPaths } from "./paths.ts";
import { type JsonSchema, Schemas } from "./schemas.ts";
import { TAGS } from "./tags.ts";
import { DELIVERY_HEADERS, eventCallbacks } from "./webhooks.ts";

const DESCRIPTION = `Builds an audience, drafts newsletters and campaigns, sends them by a preview and a confirmation, keeps the do-not-mail list and delivers signed webhooks.

Every success is \`{ data, meta }\`, every other answer \`{ error, meta }\`; \`meta.request_id\` names the request. Timestamps are ISO 8601 in UTC with milliseconds. A list is read in pages by \`cursor\`. On \`PATCH\` the fields that are left out stay as they are. Answers may get further fields, and errors and events further names.

Every operation may answer the errors ${OF_EVERY_OPERATION.map((code) => `\`${code}\``).join(", ")}; each names its others.`;

/**
 * The OpenAPI 3.1 document of the API, made from the routes that serve it.
 * @param publicUrl of the service, as its users reach it
 * @param issuer of the OAuth tokens that the service takes, if it takes any
 */
export function openApiDocument(routes: AnyTRPCRouter, publicUrl: string, issuer?: string): JsonSchema {
  const schemas = new Schemas();
  const definitions = endpointsOf(routes).map(({ meta }) => meta);
  const parameters = new Map<string, JsonSchema>(Object.entries({ ...PARAMETERS, ...DELIVERY_HEADERS }));
  const paths: Record<string, JsonSchema> = {};
  const pathOf = documentPaths(definitions);
  for (const definition of definitions) {
    const { path, nameOf } = pathOf(definition);
    const item = paths[path] ?? {};
    paths[path] = item;
    const links = linksFrom(definition, definitions, pathOf);
    const operation = operationOf(schemas, parameters, definition, { nameOf, links, issuer });
    if (definition.operationId === "createWebhook") operation["callbacks"] = eventCallbacks(schemas);
    item[definition.method.toLowerCase()] = operation;
  }
  const responses = errorAnswers(schemas, definitions);
  return {
    openapi: "3.1.0",
    jsonSchemaDialect: "https://json-schema.org/draft/2020-12/schema",
    info: {
      title: "Mailkeel",
      version: CURRENT_API_VERSION,
      summary: "Email marketing",
      description: DESCRIPTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    [ERROR_CODES]: OF_EVERY_OPERATION,
    servers: [{ url: resourceUrl(publicUrl) }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas: Object.fromEntries([...schemas.byName].sort(([a], [b]) => (a < b ? -1 : 1))),
      responses,
      parameters: Object.fromEntries(parameters),
      headers: HEADERS,
      securitySchemes: securitySchemes(issuer),
    },
  };
}
