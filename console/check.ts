import { describeIssue, paramName } from "../api/rest/messages.ts";

/** The part of JSON Schema that is checked here. The service checks all of it, and its further rules. */
interface Schema
  extends Partial<Record<"minLength" | "maxLength" | "minimum" | "maximum" | "minItems" | "maxItems", number>> {
  type?: string;
  anyOf?: readonly Schema[];
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
}

type Problem = readonly [param: string, problem: string];

/** The problems of a value, in the service's own words. @param path from the request's part on */
export function* problemsIn(schema: Schema, value: unknown, path: readonly string[] = []): Generator<Problem> {
  const [one = {}, ...others] = schema.anyOf?.filter(({ type }) => type !== "null") ?? [schema];
  if (value === null || others.length > 0) return;
  const input = typeof value === "string" ? value.trim() : value;
  const problem = (facts: object): Problem => {
    const param = paramName(path.slice(1)) ?? "";
    return [param, `${param} ${describeIssue({ input, path: [...path], ...facts } as never)}.`];
  };
  const { type: expected, properties = {}, required = [] } = one;
  const { minLength = 0, maxLength = Infinity, minimum = -Infinity, maximum = Infinity } = one;
  const { minItems = 0, maxItems = Infinity } = one;
  if (input === undefined) yield problem({ code: "invalid_type", expected });
  else if (typeof input === "string") yield* outside(input.length, "string", minLength, maxLength);
  else if (typeof input === "number") yield* outside(input, "number", minimum, maximum);
  else if (Array.isArray(input)) yield* outside(input.length, "array", minItems, maxItems);
  else {
    for (const [name, inner] of Object.entries(properties)) {
      const field = (input as Record<string, unknown>)[name];
      if (field !== undefined || required.includes(name)) yield* problemsIn(inner, field, [...path, name]);
    }
  }
  function* outside(size: number, origin: string, least: number, most: number) {
    if (size < least) yield problem({ code: "too_small", minimum: least, origin });
    if (size > most) yield problem({ code: "too_big", maximum: most, origin });
  }
}

let schemas: Promise<Readonly<Record<string, Schema>>> | undefined;

/** Reads the schemas of all writes, once. */
export function readSchemas() {
  // Without them the service alone checks.
  schemas ??= fetch("/console/schemas")
    .then((response) => response.json() as Promise<Record<string, Schema>>)
    .catch(() => ({}));
  return schemas;
}

/** The service's refusal of a write, without asking it, where the input is one that it refuses. */
export async function refusedHere(url: unknown, body: unknown): Promise<Response | undefined> {
  if (typeof body !== "string") return;
  const schema = (await readSchemas())[String(url).replace(/.*\//, "")];
  const problems = Object.fromEntries(schema ? problemsIn(schema, JSON.parse(body)) : []);
  const [param] = Object.keys(problems);
  if (param === undefined) return;
  const data = { code: "validation_failed", status: 400, param, problems };
  const error = { message: Object.values(problems).join(" "), code: -32_600, data };
  return Response.json({ error }, { status: 400 });
}
