import { z } from "zod";
import { ApiError } from "../../domain/errors.ts";
import type { InputSchema } from "./definition.ts";
import { describeIssue, paramName } from "./messages.ts";

/** Deeper than any body the API takes; a limit keeps hostile ones from exhausting the stack. */
export const MAX_DEPTH = 32;
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
 * @param path of the value; the same list serves all values inside, which are up to 50,000
 */
function refuseUnstorable(value: unknown, path: PropertyKey[]): void {
  if (path.length > MAX_DEPTH) throw refuse(undefined, `The body is nested over ${MAX_DEPTH} levels deep.`);
  if (typeof value === "string") refuseText(value, path);
  else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) refuseInside(value[i], i, path);
  } else if (value !== null && typeof value === "object") {
    for (const name of Object.keys(value)) {
      if (name === "__proto__") throw refuse(paramName([...path, name]), "A field must not be called __proto__.");
      // A field's name is text too; the field around it is the one to name.
      refuseText(name, path);
      refuseInside((value as Record<string, unknown>)[name], name, path);
    }
  }
}

function refuseInside(value: unknown, name: PropertyKey, path: PropertyKey[]): void {
  path.push(name);
  refuseUnstorable(value, path);
  path.pop();
}

function refuseText(text: string, path: readonly PropertyKey[]): void {
  if (!text.includes("\0") && text.isWellFormed()) return;
  const subject = paramName(path) ?? "The body";
  throw refuse(paramName(path), `${subject} must not hold NUL characters or lone surrogates.`);
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

/** How many problems an issue is. */
const countOf = (issue: z.core.$ZodIssue): number => (issue.code === "unrecognized_keys" ? issue.keys.length : 1);

function* problemsOf(issue: z.core.$ZodIssue): Generator<Problem> {
  const [part, ...path] = issue.path;
  const param = paramName(path);
  if (issue.code === "unrecognized_keys") {
    const code = part === "query" ? "unsupported_parameter" : "validation_failed";
    const place = part === "query" ? "parameter of this endpoint" : "field of this request";
    for (const key of issue.keys) {
      const name = paramName([...path, key]);
      yield { code, param: name, message: `${name} is not a ${place}; leave it out` };
    }
  } else if (part === "body" && param === undefined) {
    yield { code: "validation_failed", param, message: "The body must be a JSON object" };
  } else {
    const [first] = path;
    const own = part === "query" && Object.entries(QUERY_CODES).find(([name]) => name === first);
    yield { code: own ? own[1] : "validation_failed", param, message: `${param} ${issue.message}` };
  }
}

/** The first problems of a request: those of its path, then of its query, then of its body. */
function* inOrder(issues: readonly z.core.$ZodIssue[]): Generator<Problem> {
  for (const part of PARTS) {
    for (const issue of issues) if (issue.path[0] === part) yield* problemsOf(issue);
  }
}

/** The refusal of a request with these issues: the code of the first (path, then query, then body), a sentence each. */
function refusalOf(issues: readonly z.core.$ZodIssue[]): ApiError {
  let first: Problem | undefined;
  let looked = 0;
  const sentences = new Set<string>();
  // A request may have 50,000 problems: no more of them are put into words than the message names.
  for (const problem of inOrder(issues)) {
    first ??= problem;
    looked++;
    sentences.add(`${problem.message}.`);
    if (sentences.size === MAX_PROBLEMS) break;
  }
  const others = issues.reduce((sum, issue) => sum + countOf(issue), 0) - looked;
  const named = [...sentences].join(" ");
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
