import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import express, { type Request, type Response } from "express";
import { z } from "zod";
import { ApiError } from "../../domain/errors.ts";

/** Of a body, after it is inflated. */
export const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** Deeper than any body the API takes; a limit keeps hostile ones from exhausting the stack. */
const MAX_DEPTH = 32;
const MAX_NAME_IN_MESSAGE = 64;
/** Things wrong that one message names. */
const MAX_COMPLAINTS = 20;
const ENCODINGS: ReadonlySet<string> = new Set(["identity", "gzip", "deflate"]);
const MEDIA_TYPE = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?$/i;

/** The parts of a request before they are checked against a schema. */
export interface RawInput {
  params: Record<string, unknown>;
  query: Record<string, unknown>;
  body: unknown;
}

type Part = keyof RawInput;

const refuse = (
  param: string | undefined,
  message: string,
  code: "validation_failed" | "unsupported_parameter" = "validation_failed",
) => new ApiError(code, message, { param });

const shortened = (name: string) =>
  name.length > MAX_NAME_IN_MESSAGE ? `${name.slice(0, MAX_NAME_IN_MESSAGE)}…` : name;

function decodeQueryPart(text: string, name: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    throw refuse(shortened(name), `${shortened(name)} is not correctly percent-encoded.`);
  }
}

/**
 * The query parameters of a URL, decoded strictly.
 * @throws {ApiError} `validation_failed` for a parameter that is given twice or not correctly encoded
 */
export function parseQuery(url: string): Record<string, string> {
  const start = url.indexOf("?");
  const pairs = start < 0 ? [] : url.slice(start + 1).split("&");
  // No prototype: a parameter may be called anything.
  const query: Record<string, string> = Object.create(null);
  for (const pair of pairs) {
    if (pair === "") continue;
    const [, rawName = "", rawValue = ""] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
    const name = decodeQueryPart(rawName, rawName);
    if (name in query) throw refuse(shortened(name), `${shortened(name)} is given more than once.`);
    query[name] = decodeQueryPart(rawValue, name);
  }
  return query;
}

const isMissing = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";

function refuseMediaType(headers: IncomingHttpHeaders): void {
  const type = headers["content-type"];
  if (type === undefined || !MEDIA_TYPE.test(type.trim())) {
    throw new ApiError("unsupported_media_type", "Send the body as application/json in UTF-8.");
  }
  const encoding = (headers["content-encoding"] ?? "identity").trim().toLowerCase();
  if (!ENCODINGS.has(encoding)) throw new ApiError("unsupported_media_type");
}

/** Bytes that are no UTF-8 would be replaced, and two different bodies become the same. */
const parseJson = express.json({
  limit: MAX_BODY_BYTES,
  strict: false,
  type: () => true,
  verify: (_req, _res, bytes) => {
    if (!isUtf8(bytes)) throw Object.assign(new Error("not UTF-8"), { type: "body.not.utf8" });
  },
});

/** What body-parser's failures mean to a client. */
const BODY_FAILURES: Record<string, () => ApiError> = {
  "entity.too.large": () => new ApiError("payload_too_large", `The body may be ${MAX_BODY_BYTES} bytes at most.`),
  "encoding.unsupported": () => new ApiError("unsupported_media_type"),
  "charset.unsupported": () => new ApiError("unsupported_media_type"),
  "body.not.utf8": () => new ApiError("invalid_json", "The body is not valid UTF-8."),
  "entity.parse.failed": () => new ApiError("invalid_json"),
  "request.size.invalid": () => new ApiError("invalid_json", "The body is shorter than its Content-Length."),
};

function bodyFailure(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const known = "type" in error && typeof error.type === "string" ? BODY_FAILURES[error.type] : undefined;
  if (known) return known();
  // zlib: the body is not what its Content-Encoding says.
  const isClientError = "status" in error && error.status === 400;
  return isClientError ? new ApiError("invalid_json", "The body could not be read.") : error;
}

/**
 * The JSON body of a request; undefined when it has none.
 * @throws {ApiError} `unsupported_media_type`, `payload_too_large`, `invalid_json`
 */
export async function readBody(req: Request, res: Response): Promise<unknown> {
  if (isMissing(req)) return undefined;
  refuseMediaType(req.headers);
  await new Promise<void>((resolve, reject) => {
    parseJson(req, res, (error: unknown) => (error === undefined ? resolve() : reject(bodyFailure(error))));
  });
  return req.body;
}

/** `["emails", 3]` as `emails[3]`. */
function paramName(path: readonly PropertyKey[]): string | undefined {
  const name = path.reduce<string>(
    (text, step) =>
      typeof step === "number" ? `${text}[${step}]` : text === "" ? String(step) : `${text}.${String(step)}`,
    "",
  );
  return name === "" ? undefined : shortened(name);
}

/**
 * Refuses what no field may hold: text that Postgres cannot store (NUL, lone surrogates), a `__proto__`, and nesting
 * without end.
 */
function refuseUnstorable(value: unknown, path: readonly PropertyKey[]): void {
  if (path.length > MAX_DEPTH) throw refuse(undefined, "The body is nested too deeply.");
  if (typeof value === "string") {
    if (value.includes("\0") || !value.isWellFormed()) {
      throw refuse(paramName(path), `${paramName(path) ?? "The body"} holds characters that are not allowed.`);
    }
  } else if (value !== null && typeof value === "object") {
    for (const [name, inner] of Object.entries(value)) {
      const inside = [...path, Array.isArray(value) ? Number(name) : name];
      if (name === "__proto__") throw refuse(paramName(inside), "There is no field __proto__.");
      // A field's name is text too; it is the field around it that is named.
      refuseUnstorable(name, path);
      refuseUnstorable(inner, inside);
    }
  }
}

const PARTS: readonly Part[] = ["params", "query", "body"];

/** Codes of their own for parameters that have one. */
const QUERY_CODES = { sort: "sort_unsupported", expand: "expand_unsupported" } as const;

interface Complaint {
  code: "validation_failed" | "unsupported_parameter" | (typeof QUERY_CODES)[keyof typeof QUERY_CODES];
  param: string | undefined;
  message: string;
}

function complaintsOf(issue: z.core.$ZodIssue): Complaint[] {
  const [part, ...path] = issue.path;
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => {
      const param = paramName([...path, key]);
      return part === "query"
        ? { code: "unsupported_parameter", param, message: `there is no parameter ${param}` }
        : { code: "validation_failed", param, message: `there is no field ${param}` };
    });
  }
  const param = paramName(path);
  if (part === "body" && param === undefined) {
    return [{ code: "validation_failed", param, message: "the body must be a JSON object" }];
  }
  const [first] = path;
  const own = part === "query" && Object.entries(QUERY_CODES).find(([name]) => name === first);
  const missing = issue.code === "invalid_type" && issue.message.endsWith("received undefined");
  const message = `${param}: ${missing ? "is required" : issue.message}`;
  return [{ code: own ? own[1] : "validation_failed", param, message }];
}

/**
 * Checks a request against its route's schema.
 * @returns the parsed input
 * @throws {ApiError} for the first thing wrong (path, then query, then body); the message names the first twenty
 */
export function validate(schema: z.ZodType, raw: RawInput): unknown {
  for (const part of PARTS) refuseUnstorable(raw[part], []);
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  const complaints = result.error.issues
    .toSorted((a, b) => PARTS.indexOf(a.path[0] as Part) - PARTS.indexOf(b.path[0] as Part))
    .flatMap(complaintsOf);
  const [first] = complaints;
  const messages = [...new Set(complaints.map(({ message }) => message))];
  const others = messages.length - MAX_COMPLAINTS;
  const message = [...messages.slice(0, MAX_COMPLAINTS), ...(others > 0 ? [`and ${others} more`] : [])].join("; ");
  throw new ApiError(first?.code ?? "validation_failed", `The request is not valid: ${message}.`, {
    param: first?.param,
  });
}

const NOTHING = z.strictObject({});

/**
 * The whole of what a route takes: a part its own schema leaves out must be empty, and a body it does not ask for may
 * be missing or `{}`.
 */
export function completeInput(input: { shape: { params?: z.ZodType; query?: z.ZodType; body?: z.ZodType } }) {
  const { params = NOTHING, query = NOTHING, body = NOTHING.optional() } = input.shape;
  for (const part of [params, query, body]) {
    if (part instanceof z.ZodObject && !(part.def.catchall instanceof z.ZodNever)) {
      throw new Error("Every part of a route's input must be a strict object");
    }
  }
  return z.strictObject({ params, query, body });
}
