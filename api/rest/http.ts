import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import express, { type Request, type Response } from "express";
import { ApiError } from "../../domain/errors.ts";
import type { Locals, Query } from "../context.ts";
import type { HttpAnswer } from "./envelope.ts";
import { shortened } from "./messages.ts";

/** Of a body, after it is inflated. */
export const MAX_BODY_BYTES = 2 * 1024 * 1024;
const ENCODINGS: ReadonlySet<string> = new Set(["identity", "gzip", "deflate"]);
const MEDIA_TYPE = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?$/i;

/** The fields of a request for the log, which the layers of the app fill. */
export const localsOf = (res: Response): Locals => res.locals as Locals;

/** Sends an answer; does nothing for a client that has gone. */
export function send(res: Response, { status, headers, body }: HttpAnswer): void {
  if (res.headersSent || res.destroyed) return;
  res.status(status).set(headers);
  res.set({ "Content-Type": "application/json; charset=utf-8", "Content-Length": String(Buffer.byteLength(body)) });
  res.end(body);
}

const refuseParam = (name: string, problem: string) =>
  new ApiError("validation_failed", `${shortened(name)} ${problem}`, { param: shortened(name) });

function decodeQueryPart(text: string, name: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    throw refuseParam(name, "is not correctly percent-encoded.");
  }
}

/**
 * The query parameters of a URL, decoded strictly.
 * @param takesDryRun whether `dry_run` stands apart from the other parameters
 * @throws {ApiError} `validation_failed` for a parameter that is given twice or not correctly encoded
 */
export function readQuery(url: string, takesDryRun: boolean): Query {
  const start = url.indexOf("?");
  const pairs = start < 0 ? [] : url.slice(start + 1).split("&");
  // No prototype: a parameter may be called anything.
  const parameters: Record<string, string> = Object.create(null);
  let dryRun: string | undefined;
  for (const pair of pairs) {
    if (pair === "") continue;
    const [, rawName = "", rawValue = ""] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
    const name = decodeQueryPart(rawName, rawName);
    const isDryRun = takesDryRun && name === "dry_run";
    if (name in parameters || (isDryRun && dryRun !== undefined)) throw refuseParam(name, "is given more than once.");
    const value = decodeQueryPart(rawValue, name);
    if (isDryRun) dryRun = value;
    else parameters[name] = value;
  }
  return { dryRun, parameters };
}

const hasNoBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";

function refuseMediaType(headers: IncomingHttpHeaders): void {
  const type = headers["content-type"];
  if (type === undefined || !MEDIA_TYPE.test(type.trim())) {
    throw new ApiError("unsupported_media_type", "Send the body as application/json in UTF-8.");
  }
  const encoding = (headers["content-encoding"] ?? "identity").trim().toLowerCase();
  if (!ENCODINGS.has(encoding)) throw new ApiError("unsupported_media_type");
}

/** A decoder would replace bytes that are no UTF-8, and make two different bodies the same. */
const parseJson = express.json({
  limit: MAX_BODY_BYTES,
  strict: false,
  type: () => true,
  verify: (_req, _res, bytes) => {
    if (!isUtf8(bytes)) throw Object.assign(new Error("not UTF-8"), { type: "body.not.utf8" });
  },
});

/** body-parser's failures as refusals. */
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
  // zlib: the body does not match its Content-Encoding.
  const isClientError = "status" in error && error.status === 400;
  return isClientError
    ? new ApiError("invalid_json", "The body cannot be inflated; it does not match its Content-Encoding.")
    : error;
}

/**
 * The JSON body of a request; undefined when it has none.
 * @throws {ApiError} `unsupported_media_type`, `payload_too_large`, `invalid_json`
 */
export async function readBody(req: Request, res: Response): Promise<unknown> {
  if (hasNoBody(req)) return undefined;
  refuseMediaType(req.headers);
  await new Promise<void>((resolve, reject) => {
    parseJson(req, res, (error: unknown) => (error === undefined ? resolve() : reject(bodyFailure(error))));
  });
  return req.body;
}
