/** As far as the document uses JSON Schema 2020-12. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  "x-extensible-enum"?: unknown[];
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
  /** By name and URL. */
  callbacks?: Record<string, Record<string, { post?: Operation }>>;
}

export interface OpenApiDocument {
  info: { version: string };
  paths: Record<string, Record<string, Operation>>;
  components?: {
    schemas?: Record<string, Schema>;
    parameters?: Record<string, Parameter>;
  };
}

export const lastOf = (ref: string): string => ref.slice(ref.lastIndexOf("/") + 1);

export const schemaOf = ({ content = {} }: Content): Schema | undefined => content["application/json"]?.schema;

/** @throws {Error} for a reference that leads nowhere */
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
