import { isObject } from "../../lib/json-object.ts";
import type { JsonSchema } from "../openapi/schemas.ts";

/** Keywords that the tools of every provider take. One that meets another keyword refuses the whole list of tools. */
const KEPT = ["properties", "required", "items", "minimum", "maximum", "minItems", "maxItems", "maxLength"];
/** Arguments that the server's instructions describe, once for all tools. */
const SHARED = /^(limit|cursor|order|sort|updated_since|\w+Id)$/;
/** Characters of a field's description; of a longer one the first sentence is shown. */
const LONGEST_DESCRIPTION = 160;

const brief = (text: string): string =>
  (text.length > LONGEST_DESCRIPTION ? text.slice(0, text.search(/\.(\s|$)/) + 1) : text).replaceAll("`", "");

const isType = (type: unknown): boolean => type !== "null";

/**
 * A JSON Schema of zod's as a tool shows it: in few words, and in the keywords of every provider. References are written out.
 * Null, which says the same as no value or clears a field, is left out.
 */
export const toolSchema = ({ $defs = {}, ...root }: JsonSchema): JsonSchema =>
  JSON.parse(
    JSON.stringify(root, (name, given) => {
      if (name === "properties" || !isObject(given)) return given;
      const { $ref = "", anyOf = [] } = given as { $ref?: string; anyOf?: JsonSchema[] };
      const named = ($defs as Record<string, JsonSchema>)[$ref.slice("#/$defs/".length)];
      const schema: JsonSchema = { ...named, ...anyOf.find(({ type }) => isType(type)), ...given };
      const { type, const: only, "x-extensible-enum": known = only === undefined ? undefined : [only] } = schema;
      const { enum: values = known, description = "" } = schema;
      const kept = { type: [type].flat().find(isType), enum: values };
      if (SHARED.test(name)) return kept;
      const others = Object.fromEntries(KEPT.map((keyword) => [keyword, schema[keyword]]));
      return { ...kept, ...others, description: brief(String(description)) || undefined };
    }),
  );
