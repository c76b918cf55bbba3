import { z } from "zod";
import { isObject } from "../../lib/json-object.ts";

/** A JSON Schema of dialect 2020-12, or a part of the document. */
export interface JsonSchema {
  [keyword: string]: unknown;
}

export const refTo = (section: string, name: string): { $ref: string } => ({ $ref: `#/components/${section}/${name}` });

/** A name of the document as the name of a component: `updated_since` as `UpdatedSince`. */
export const pascal = (text: string): string =>
  text.replaceAll(/(?:^|[._])(\w)/g, (_, letter: string) => letter.toUpperCase());

type Io = "input" | "output";

/** For the `meta` of a text: the values that there are now, to which others may be added. */
export const openSet = (known: readonly string[]) => ({ enum: undefined, "x-extensible-enum": known });

/** As generators of clients read it: a value or null is of one type, values of several types are a choice of schemas. */
function withOneType(schema: JsonSchema): JsonSchema {
  const { anyOf, type, ...beside } = schema;
  if (Array.isArray(type) && type[1] !== "null") return { ...beside, anyOf: type.map((one) => ({ type: one })) };
  const [value, none] = Array.isArray(anyOf) ? anyOf : [];
  if (none?.type !== "null" || typeof value.type !== "string") return schema;
  return { ...value, ...beside, type: [value.type, "null"], ...(value.enum && { enum: [...value.enum, null] }) };
}

/** A copy of a schema of zod's in which every reference into `$defs` points into the document's components. */
const inDocument = (schema: unknown, io: Io): JsonSchema =>
  JSON.parse(
    JSON.stringify(schema).replaceAll('"$ref":"#/$defs/', `"$ref":"${refTo("schemas", "").$ref}`),
    (keyword, value) => {
      // Answers may get further fields.
      if (io === "output" && keyword === "additionalProperties" && value === false) return undefined;
      return isObject(value) ? withOneType(value) : value;
    },
  );

/**
 * Removes the keywords that zod writes for its own validator: the long pattern of a format, and the bounds of every safe
 * integer. Puts back the examples that zod leaves out where a schema transforms: ours always show the value as it is sent.
 */
const override: NonNullable<z.core.ToJSONSchemaParams["override"]> = ({ zodSchema, jsonSchema }) => {
  const { examples } = z.globalRegistry.get(zodSchema) ?? {};
  if (Array.isArray(examples)) jsonSchema.examples = examples;
  if (jsonSchema.format === "date-time") delete jsonSchema.pattern;
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
};

/**
 * The `meta` of a schema that the document shows as another one: for a value that is parsed later, by that one.
 * @param schema as a client sends it, without parts that are components
 */
export function shownAs(schema: z.ZodType): JsonSchema {
  const { $schema, ...shown } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any", override });
  return shown;
}

/** The schemas of the document's `components`. A zod schema with an `id` in its meta becomes one of them. */
export class Schemas {
  readonly byName = new Map<string, JsonSchema>();
  /** Conversions that were made: most schemas stand in many operations. */
  readonly #converted = { input: new Map<z.ZodType, JsonSchema>(), output: new Map<z.ZodType, JsonSchema>() };

  /** Names a schema. @throws {Error} when another schema has the name */
  add(name: string, schema: JsonSchema): { $ref: string } {
    const known = this.byName.get(name);
    if (known && JSON.stringify(known) !== JSON.stringify(schema)) throw new Error(`two schemas are called ${name}`);
    this.byName.set(name, schema);
    return refTo("schemas", name);
  }

  /**
   * A zod schema as JSON Schema, with references to components.
   * @param io `input` for values that a client sends, `output` for those that it gets
   */
  convert(schema: z.ZodType, io: Io): JsonSchema {
    const known = this.#converted[io].get(schema);
    if (known) return known;
    const { $schema, $defs = {}, ...root } = z.toJSONSchema(schema, { io, unrepresentable: "any", override });
    for (const [name, definition] of Object.entries($defs)) {
      this.add(name, inDocument(definition, io));
    }
    const converted = inDocument(root, io);
    this.#converted[io].set(schema, converted);
    return converted;
  }

  resolve(schema: JsonSchema): JsonSchema {
    const { $ref } = schema;
    if (typeof $ref !== "string") return schema;
    const found = this.byName.get($ref.slice($ref.lastIndexOf("/") + 1));
    if (!found) throw new Error(`${$ref} is not there`);
    return this.resolve(found);
  }

  /**
   * A value of a schema, made from the examples of its fields; of fields without one, from their defaults and types.
   * @throws {Error} for a schema that gives no value
   */
  exampleOf(schema: JsonSchema): unknown {
    const { examples, const: constant, enum: values, default: preset, anyOf, oneOf, type, properties, items } = schema;
    if (Array.isArray(examples)) return examples[0];
    if (constant !== undefined) return constant;
    if (Array.isArray(values)) return values[0];
    if (schema["$ref"] !== undefined) return this.exampleOf(this.resolve(schema));
    if (preset !== undefined && preset !== null) return preset;
    const choices = anyOf ?? oneOf;
    if (Array.isArray(choices)) return this.exampleOf(choices[0] as JsonSchema);
    if (type === "array" && isObject(items)) return [this.exampleOf(items)];
    if (type === "object") {
      const fields = Object.entries(isObject(properties) ? properties : {});
      return Object.fromEntries(fields.map(([name, field]) => [name, this.exampleOf(field as JsonSchema)]));
    }
    if (type === "integer" || type === "number") return schema["minimum"] ?? 0;
    if (type === "boolean") return true;
    if (type === "null") return null;
    throw new Error(`no example of ${JSON.stringify(schema)}`);
  }
}
