/** A JSON Schema of dialect 2020-12, as far as the document uses it. */
export interface Schema {
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

export interface Content {
  content?: Record<string, { schema?: Schema }>;
}

export interface Parameter {
  $ref?: string;
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  description?: string;
  schema?: Schema;
}

export interface Operation {
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

/** The name at the end of a reference. */
export const lastOf = (ref: string): string => ref.slice(ref.lastIndexOf("/") + 1);

/** The schema of a body or an answer, where it has one as JSON. */
export const schemaOf = ({ content = {} }: Content): Schema | undefined => content["application/json"]?.schema;

/**
 * The part of the document that a reference leads to; any other value as it is.
 * @throws {Error} for a reference that leads nowhere
 */
export function resolve<T extends { $ref?: string }>(
  { components }: OpenApiDocument,
  section: "schemas" | "parameters",
  value: T,
): T {
  if (value.$ref === undefined) return value;
  const found = components?.[section]?.[lastOf(value.$ref)];
  if (!found) throw new Error(`${value.$ref} is not in the document`);
  return found as unknown as T;
}
