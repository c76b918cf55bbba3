import { lastOf, type Schema } from "./document.ts";

/** `send_cap` and `sendCap` as `SendCap`. */
export const pascal = (text: string): string =>
  text.replace(/(?:^|[^a-zA-Z0-9]+)([a-zA-Z0-9])/g, (_, letter: string) => letter.toUpperCase());
export const camel = (text: string): string => pascal(text).replace(/^./, (letter) => letter.toLowerCase());
const isName = (text: string): boolean => /^[A-Za-z_$][\w$]*$/.test(text);
export const literal = (value: unknown): string => JSON.stringify(value);

export const indent = (text: string): string => text.replace(/^(?=.)/gm, "  ");

export function comment(...texts: (string | undefined)[]): string {
  const lines = texts
    .filter((text) => text !== undefined && text !== "")
    .join("\n\n")
    .replaceAll("*/", "*\\/")
    .split("\n");
  if (lines.join("") === "") return "";
  if (lines.length === 1) return `/** ${lines[0]} */\n`;
  return `/**\n${lines.map((line) => ` * ${line}`.trimEnd()).join("\n")}\n */\n`;
}

export function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return pascal(lastOf(schema.$ref));
  if (schema.const !== undefined) return literal(schema.const);
  if (schema.enum) return schema.enum.map(literal).join(" | ");
  // Editors offer the known values, and others are taken.
  const known = schema["x-extensible-enum"];
  if (known) return [...known.map(literal), "(string & {})"].join(" | ");
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
    // The client takes undefined for not given, also from a project that tells them apart (exactOptionalPropertyTypes).
    const type = required.includes(name) ? `: ${typeOf(field)}` : `?: ${typeOf(field)} | undefined`;
    return `${comment(field.description)}${key}${type};`;
  });
  if (fields.length > 0) return `{\n${indent(fields.join("\n"))}\n}`;
  return typeof additionalProperties === "object"
    ? `Record<string, ${typeOf(additionalProperties)}>`
    : "Record<string, unknown>";
}

export const declare = (name: string, schema: Schema): string =>
  `${comment(schema.description)}export type ${name} = ${typeOf(schema)};\n`;
