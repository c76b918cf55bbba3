/** From outside: its properties are unchecked. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function parseObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** JSON in which objects have their properties in one order: equal values give equal texts. */
export const stableJson = (value: unknown): string =>
  JSON.stringify(value, (_name, part) =>
    isObject(part) ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1))) : part,
  );

/** The names of an object, and of objects in it, in snake case: `windows1252Lines` becomes `windows_1252_lines`. */
export const toJson = (value: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(value).map(([name, part]) => [
      name.replace(/[A-Z]|(?<=[a-z])\d/g, (start) => `_${start.toLowerCase()}`),
      part?.constructor === Object ? toJson(part) : part,
    ]),
  );
