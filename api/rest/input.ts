import { z } from "zod";
import { ApiError, type ErrorCode } from "../../domain/errors.ts";
import { isObject } from "../../lib/json-object.ts";
import { answersList, type InputSchema, type RouteDefinition } from "./definition.ts";
import { isFilter } from "./filters.ts";
import { describeIssue, paramName } from "./messages.ts";

/** Deeper than any body the API takes; a limit keeps hostile ones from exhausting the stack. */
export const MAX_DEPTH = 32;
/** JSON values in a body: ten fields for each of the 1,000 records of a bulk call take a fifth of it. */
export const MAX_BODY_VALUES = 50_000;
/** Problems that one message names. */
export const MAX_PROBLEMS = 20;

/** The parts of a request before they are checked against a schema. */
export interface RawInput {
  params: Record<string, unknown>;
  query: Record<string, unknown>;
  body: unknown;
}

/** The parts of an input that was not looked at yet. */
export function partsOf(raw: unknown): RawInput {
  const { params = {}, query = {}, body } = (isObject(raw) ? raw : {}) as Partial<RawInput>;
  return { params, query, body };
}

type Part = keyof RawInput;

/** The codes of query parameters that have one of their own. */
const QUERY_CODES: Readonly<Record<string, "sort_unsupported" | "cursor_invalid">> = {
  sort: "sort_unsupported",
  cursor: "cursor_invalid",
};

/** The code for a value that is not valid. @param path of the value, from the request's part on */
const codeOf = ([part, name]: readonly PropertyKey[]) =>
  (part === "query" && Object.hasOwn(QUERY_CODES, String(name)) && QUERY_CODES[String(name)]) || "validation_failed";

/** @param path from the request's part on */
const valueRefusal = (path: readonly PropertyKey[], problem: (subject: string) => string) => {
  const param = paramName(path.slice(1));
  return new ApiError(codeOf(path), problem(param ?? "The body"), { param });
};

export const isDeeper = (value: unknown, levels: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1)));

/**
 * Refuses text that Postgres cannot store (NUL, lone surrogates), a `__proto__`, and nesting beyond `MAX_DEPTH`.
 * @param path of the value, from the request's part on; the same list serves all values inside
 */
function refuseUnstorable(value: unknown, path: PropertyKey[]): void {
  if (path.length > MAX_DEPTH + 1) throw valueRefusal([], (body) => `${body} is nested over ${MAX_DEPTH} levels deep.`);
  if (typeof value === "string") refuseText(value, path);
  else if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) refuseInside(value[i], i, path);
  } else if (value !== null && typeof value === "object") {
    for (const name of Object.keys(value)) {
      if (name === "__proto__") throw valueRefusal([...path, name], () => "A field must not be called __proto__.");
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
  throw valueRefusal(path, (subject) => `${subject} must not hold NUL characters or lone surrogates.`);
}

const PARTS: readonly Part[] = ["params", "query", "body"];

interface Problem {
  code: ErrorCode;
  param: string | undefined;
  /** A sentence without its full stop. */
  message: string;
}

const countOf = (issue: z.core.$ZodIssue): number => (issue.code === "unrecognized_keys" ? issue.keys.length : 1);

/** Of a query parameter that an endpoint does not have; a list has codes of its own. */
function unknownParameter(key: string, isList: boolean): [code: ErrorCode, problem: string] {
  if (isList && key === "expand") return ["expand_unsupported", "is not supported by this list"];
  if (isList && isFilter(key)) return ["filter_unsupported", "is a filter of other lists and not of this one"];
  return ["unsupported_parameter", "is not a parameter of this endpoint"];
}

type Elsewhere = RouteDefinition["elsewhere"];

function* problemsOf(issue: z.core.$ZodIssue, isList: boolean, elsewhere: Elsewhere = {}): Generator<Problem> {
  const [part, ...path] = issue.path;
  const param = paramName(path);
  if (issue.code === "unrecognized_keys") {
    for (const key of issue.keys) {
      const name = paramName([...path, key]);
      const [code, problem] =
        part === "query"
          ? unknownParameter(key, isList)
          : (["validation_failed", "is not a field of this request"] as const);
      const hint = part === "body" && Object.hasOwn(elsewhere, key) ? `: ${elsewhere[key]}` : "";
      yield { code, param: name, message: `${name} ${problem}; leave it out${hint}` };
    }
  } else if (part === "body" && param === undefined) {
    yield { code: "validation_failed", param, message: "The body must be a JSON object" };
  } else {
    yield { code: codeOf(issue.path), param, message: `${param} ${issue.message}` };
  }
}

/** The first problems of a request: those of its path, then of its query, then of its body. */
function* inOrder(issues: readonly z.core.$ZodIssue[], isList: boolean, elsewhere: Elsewhere): Generator<Problem> {
  for (const part of PARTS) {
    for (const issue of issues) if (issue.path[0] === part) yield* problemsOf(issue, isList, elsewhere);
  }
}

/** The refusal of a request with these issues: the code of the first (path, then query, then body), a sentence each. */
function issuesRefusal(issues: readonly z.core.$ZodIssue[], isList = false, elsewhere?: Elsewhere): ApiError {
  let first: Problem | undefined;
  let looked = 0;
  const sentences = new Set<string>();
  const problems: Record<string, string> = {};
  // A request may have 50,000 problems: no more of them are put into words than the message names.
  for (const problem of inOrder(issues, isList, elsewhere)) {
    first ??= problem;
    looked++;
    sentences.add(`${problem.message}.`);
    if (problem.param !== undefined) problems[problem.param] ??= `${problem.message}.`;
    if (sentences.size === MAX_PROBLEMS) break;
  }
  const others = issues.reduce((sum, issue) => sum + countOf(issue), 0) - looked;
  const named = [...sentences].join(" ");
  const message = others > 0 ? `${named} These are ${MAX_PROBLEMS} problems, and ${others} more are not named.` : named;
  return new ApiError(first?.code ?? "validation_failed", message, { param: first?.param, problems });
}

const NOTHING = z.strictObject({});

/** The schema of all parts of a request: one that the route leaves out must be empty; a body may be missing then. */
export function completeInput(input: InputSchema): z.ZodType {
  const { params = NOTHING, query = NOTHING, body = NOTHING.optional() } = input.shape;
  for (const given of [params, query, body]) {
    const part = given instanceof z.ZodOptional ? given.unwrap() : given;
    if (part instanceof z.ZodObject && !(part.def.catchall instanceof z.ZodNever)) {
      throw new Error("Every part of a route's input must be a strict object");
    }
  }
  return z.strictObject({ params, query, body });
}

/** A body without the items that its handler parses one by one. */
const withoutItems = (body: unknown, itemsIn: string): unknown =>
  body !== null && typeof body === "object" && itemsIn in body ? { ...body, [itemsIn]: [] } : body;

/**
 * Parses one item of a route's `itemsIn`.
 * @param path of the item in the body
 * @throws {ApiError} as the parser of the whole request
 */
export function parseItem<S extends z.ZodType>(schema: S, item: unknown, path: readonly PropertyKey[]): z.output<S> {
  const place: PropertyKey[] = ["body", ...path];
  refuseUnstorable(item, place);
  const result = schema.safeParse(item, { error: describeIssue });
  if (result.success) return result.data;
  throw issuesRefusal(result.error.issues.map((issue) => ({ ...issue, path: [...place, ...issue.path] })));
}

/** Values of a body on every level: objects, arrays, strings, numbers and literals; some more than `most` when there are more. */
function countValues(value: unknown, most: number, depth = 0): number {
  // A body that is nested deeper is refused anyway.
  if (value === null || typeof value !== "object" || depth > MAX_DEPTH) return 1;
  let count = 1;
  for (const inner of Object.values(value)) {
    count += countValues(inner, most, depth + 1);
    if (count > most) break;
  }
  return count;
}

/**
 * The input parser of a route's procedure, and the one place where zod's issues become the API's message.
 * @throws {ApiError} from the parser
 */
export function parserOf(
  definition: Pick<RouteDefinition, "input" | "output" | "itemsIn" | "elsewhere">,
): (raw: unknown) => unknown {
  const schema = completeInput(definition.input);
  const { itemsIn, elsewhere } = definition;
  // Unknown parameters of a list have codes of their own.
  const isList = answersList(definition);
  return (raw) => {
    const parts = partsOf(raw);
    if (countValues(parts.body, MAX_BODY_VALUES) > MAX_BODY_VALUES) {
      throw new ApiError("payload_too_large", `The body may hold ${MAX_BODY_VALUES} values at most.`);
    }
    for (const part of PARTS) {
      const value = parts[part];
      refuseUnstorable(part === "body" && itemsIn !== undefined ? withoutItems(value, itemsIn) : value, [part]);
    }
    const result = schema.safeParse(parts, { error: describeIssue });
    if (result.success) return result.data;
    throw issuesRefusal(result.error.issues, isList, elsewhere);
  };
}
