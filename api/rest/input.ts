import { z } from "zod";
import { ApiError } from "../../domain/errors.ts";
import type { InputSchema } from "./definition.ts";
import { describeIssue, paramName } from "./messages.ts";

/** Deeper than any body the API takes; a limit keeps hostile ones from exhausting the stack. */
const MAX_DEPTH = 32;
/** Problems that one message names. */
const MAX_PROBLEMS = 20;

/** The parts of a request before they are checked against a schema. */
export interface RawInput {
  params: Record<string, unknown>;
  query: Record<string, unknown>;
  body: unknown;
}

type Part = keyof RawInput;

const refuse = (param: string | undefined, message: string) => new ApiError("validation_failed", message, { param });

/**
 * Refuses values that no field may hold: text that Postgres cannot store (NUL, lone surrogates), a `__proto__`, and nesting
 * beyond `MAX_DEPTH`.
 */
function refuseUnstorable(value: unknown, path: readonly PropertyKey[]): void {
  if (path.length > MAX_DEPTH) throw refuse(undefined, `The body is nested over ${MAX_DEPTH} levels deep.`);
  if (typeof value === "string") {
    if (value.includes("\0") || !value.isWellFormed()) {
      const subject = paramName(path) ?? "The body";
      throw refuse(paramName(path), `${subject} must not hold NUL characters or lone surrogates.`);
    }
  } else if (value !== null && typeof value === "object") {
    for (const [name, inner] of Object.entries(value)) {
      const inside = [...path, Array.isArray(value) ? Number(name) : name];
      if (name === "__proto__") throw refuse(paramName(inside), "A field must not be called __proto__.");
      // A field's name is text too; the field around it is the one to name.
      refuseUnstorable(name, path);
      refuseUnstorable(inner, inside);
    }
  }
}

const PARTS: readonly Part[] = ["params", "query", "body"];

/** Codes of their own for parameters that have one. */
const QUERY_CODES = { sort: "sort_unsupported", expand: "expand_unsupported" } as const;

interface Problem {
  code: "validation_failed" | "unsupported_parameter" | (typeof QUERY_CODES)[keyof typeof QUERY_CODES];
  param: string | undefined;
  /** A sentence without its full stop. */
  message: string;
}

function problemsOf(issue: z.core.$ZodIssue): Problem[] {
  const [part, ...path] = issue.path;
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const param = paramName([...path, key]);
      return part === "query"
        ? {
            code: "unsupported_parameter",
            param,
            message: `${param} is not a parameter of this endpoint; leave it out`,
          }
        : { code: "validation_failed", param, message: `${param} is not a field of this request; leave it out` };
    });
  }
  const param = paramName(path);
  if (part === "body" && param === undefined) {
    return [{ code: "validation_failed", param, message: "The body must be a JSON object" }];
  }
  const [first] = path;
  const own = part === "query" && Object.entries(QUERY_CODES).find(([name]) => name === first);
  return [{ code: own ? own[1] : "validation_failed", param, message: `${param} ${issue.message}` }];
}

/** The refusal of a request with these issues: the code of the first (path, then query, then body), a sentence each. */
function refusalOf(issues: readonly z.core.$ZodIssue[]): ApiError {
  const problems = issues
    .toSorted((a, b) => PARTS.indexOf(a.path[0] as Part) - PARTS.indexOf(b.path[0] as Part))
    .flatMap(problemsOf);
  const [first] = problems;
  const sentences = [...new Set(problems.map(({ message }) => `${message}.`))];
  const others = sentences.length - MAX_PROBLEMS;
  const named = sentences.slice(0, MAX_PROBLEMS).join(" ");
  const message = others > 0 ? `${named} These are ${MAX_PROBLEMS} problems, and ${others} more are not named.` : named;
  return new ApiError(first?.code ?? "validation_failed", message, { param: first?.param });
}

const NOTHING = z.strictObject({});

/**
 * The schema of all parts of a request: a part that the route's own schema leaves out must be empty, and a body that it
 * leaves out may be missing or `{}`.
 */
export function completeInput(input: InputSchema): z.ZodType {
  const { params = NOTHING, query = NOTHING, body = NOTHING.optional() } = input.shape;
  for (const part of [params, query, body]) {
    if (part instanceof z.ZodObject && !(part.def.catchall instanceof z.ZodNever)) {
      throw new Error("Every part of a route's input must be a strict object");
    }
  }
  return z.strictObject({ params, query, body });
}

/**
 * The input parser of a route's procedure, and the one place where zod's issues become the API's message.
 * @throws {ApiError} from the parser
 */
export const parserOf =
  (schema: z.ZodType) =>
  (raw: unknown): unknown => {
    const parts = raw as RawInput;
    for (const part of PARTS) refuseUnstorable(parts[part], []);
    const result = schema.safeParse(parts, { error: describeIssue });
    if (result.success) return result.data;
    throw refusalOf(result.error.issues);
  };
