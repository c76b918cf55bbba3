import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { MIMEType, promisify } from "node:util";
import { gunzip, gzip, inflate } from "node:zlib";
import type { Request, RequestHandler, Response } from "express";
import getRawBody from "raw-body";
import { ApiError } from "../../domain/errors.ts";
import { MAX_IMAGE_BYTES } from "../../domain/images/clean.ts";
import type { Locals } from "../context.ts";
import { SECURITY_HEADERS } from "../security-headers.ts";
import { ANSWER_HEADERS, type HttpAnswer } from "./envelope.ts";
import { shortened } from "./messages.ts";

/** The largest body but that of an image, as it is sent and after it is inflated, in bytes. */
export const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** How long the rest of a request is discarded after an answer that did not wait for it. */
const LINGER_MS = 2_000;
/** Names of UTF-8, and of ASCII, which is a part of it. */
const CHARSET = /^(?:utf-?8|(?:us-)?ascii)$/i;
/** A host with or without a port (RFC 9110, 7.2). */
const HOST = /^(?:\[[\da-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i;
/** Types of a PATCH's body: it leaves out what does not change, so it is a merge patch (RFC 7396), called so or not. */
export const PATCH_TYPES = "application/merge-patch+json, application/json";

/** The facts of a request that the layers of the app share. */
export const localsOf = (res: Response): Locals => res.locals as Locals;

/** Names and values, in turn, of the headers that every JSON answer has. */
const JSON_HEADERS: readonly string[] = Object.entries({ ...SECURITY_HEADERS, ...ANSWER_HEADERS }).flat();

/** Longer answers are compressed where the client takes that. */
export const PLAIN_ANSWER_BYTES = 1_024;
/** The quickest: the process answers other requests beside. */
const COMPRESSION_LEVEL = 1;

/** Sends an answer, with the headers that are the same for all; does nothing for a client that has gone. */
export function respond(res: Response, answer: HttpAnswer): void {
  const { body, headers, holdsSecret = false } = answer;
  const isPlain = holdsSecret || body.length <= PLAIN_ANSWER_BYTES || !takesGzip(res.req);
  if (isPlain) return void send(res, answer);
  gzip(body, { level: COMPRESSION_LEVEL }, (error, zipped) =>
    send(res, error ? answer : { ...answer, headers: { ...headers, "Content-Encoding": "gzip" }, body: zipped }),
  );
}

const takesGzip = (req: Request): boolean =>
  req.headers["accept-encoding"] !== undefined && req.acceptsEncodings("gzip") !== false;

function send(res: Response, answer: HttpAnswer): void {
  if (hasNoBody(res.req)) respondWhole(res, answer);
  // A body in the same packet as the head has arrived by then.
  else process.nextTick(() => (res.req.complete ? respondWhole : respondBeforeBody)(res, answer));
}

const isAnswered = (res: Response): boolean => res.headersSent || res.destroyed;

/** All headers go to Node in one list: each that is set by itself is looked over and stored before it is written. */
function writeHead(res: Response, { status, headers, body }: HttpAnswer, connection?: "close"): void {
  const list: (string | number)[] = [...JSON_HEADERS, "Content-Length", Buffer.byteLength(body)];
  for (const own of [localsOf(res).headers, headers]) for (const name in own) list.push(name, own[name] ?? "");
  if (connection) list.push("Connection", connection);
  res.writeHead(status, list);
}

function respondWhole(res: Response, answer: HttpAnswer): void {
  if (isAnswered(res)) return;
  writeHead(res, answer);
  res.end(answer.body);
}

export const hasNoBody = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";

/**
 * Answers before the request's body has arrived, and closes the connection. What the client still sends is discarded for a
 * moment: closing a connection with unread bytes resets it, and the reset may overtake the answer.
 */
function respondBeforeBody(res: Response, answer: HttpAnswer): void {
  if (isAnswered(res)) return;
  const end = () => {
    clearTimeout(timer);
    res.end();
  };
  const timer = setTimeout(end, LINGER_MS);
  writeHead(res, answer, "close");
  res.write(answer.body);
  res.req.once("end", end).once("close", end).resume();
}

const parameterRefusal = (name: string, problem: string) =>
  new ApiError("validation_failed", `${shortened(name)} ${problem}`, { param: shortened(name) });

function decodeQueryPart(text: string, name: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    throw parameterRefusal(name, "is not correctly percent-encoded.");
  }
}

export interface Query {
  /** The value of `dry_run`; undefined without one, and on a route that does not take it. */
  dryRun: string | undefined;
  parameters: Record<string, string>;
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
    if (name in parameters || (isDryRun && dryRun !== undefined))
      throw parameterRefusal(name, "is given more than once.");
    const value = decodeQueryPart(rawValue, name);
    if (isDryRun) dryRun = value;
    else parameters[name] = value;
  }
  return { dryRun, parameters };
}

/** Slow enough for 2 MiB over a mobile network; within the server's limit for a whole request. */
export const UPLOAD_LIMITS = { stalledMs: 10_000, totalMs: 50_000, mostBytes: MAX_BODY_BYTES };

const tooLarge = (mostBytes = MAX_BODY_BYTES) =>
  new ApiError("payload_too_large", `The body may be ${mostBytes} bytes at most.`);

/** Where an image is uploaded, the one body that may be longer than any other. */
const IMAGES_PATH = /^\/console\/images(\?|$)/;
const mostBytesOf = ({ url = "" }: IncomingMessage): number =>
  IMAGES_PATH.test(url) ? MAX_IMAGE_BYTES : MAX_BODY_BYTES;

/** Whether a request declares a body that is larger than its route accepts. */
export const declaresTooMuch = (req: IncomingMessage): boolean =>
  Number(req.headers["content-length"] ?? 0) > mostBytesOf(req);

/** Refuses a body by its declared length, before anything else is done for the request. */
export const refuseLargeBodies: RequestHandler = (req, _res, next) =>
  next(declaresTooMuch(req) ? tooLarge(mostBytesOf(req)) : undefined);

/** Refuses a request without one valid Host (RFC 9112, 3.2), which a proxy may have routed by another; HTTP/1.0 needs none. */
export const refuseHosts: RequestHandler = ({ headersDistinct, httpVersion }, _res, next) => {
  const [host, ...others] = headersDistinct["host"] ?? [];
  const isRight = others.length === 0 && (host === undefined ? httpVersion === "1.0" : HOST.test(host));
  next(isRight ? undefined : new ApiError("validation_failed", "Send one valid Host header.", { param: "Host" }));
};

/** Inflates a body, up to a number of bytes. */
type Inflate = (bytes: Buffer, limit: { maxOutputLength: number }) => Promise<Buffer>;

const ENCODINGS: Readonly<Record<string, Inflate>> = {
  identity: async (bytes) => bytes,
  gzip: promisify(gunzip),
  deflate: promisify(inflate),
};

/** The type of a body in UTF-8, with any other parameters; undefined for a body in another charset. */
function mediaTypeOf(headers: IncomingHttpHeaders): string | undefined {
  try {
    const { essence, params } = new MIMEType(headers["content-type"] ?? "");
    return CHARSET.test(params.get("charset") ?? "utf-8") ? essence : undefined;
  } catch {
    return undefined;
  }
}

/** The refusal of a body that is not JSON in UTF-8 in a known encoding, by its headers. */
function mediaTypeRefusal({ method, headers }: IncomingMessage): ApiError | undefined {
  const types = method === "PATCH" ? PATCH_TYPES.split(", ") : ["application/json"];
  if (types.includes(mediaTypeOf(headers) ?? "") && Object.hasOwn(ENCODINGS, encodingOf(headers))) return undefined;
  const encodings = "uncompressed or with Content-Encoding gzip or deflate";
  return new ApiError("unsupported_media_type", `Send the body as ${types.join(" or ")} in UTF-8, ${encodings}.`);
}

const encodingOf = (headers: IncomingHttpHeaders): string =>
  (headers["content-encoding"] ?? "identity").trim().toLowerCase();

/**
 * Reads a body as it was sent.
 * @throws {ApiError} `payload_too_large` as soon as it is, `request_timeout`, `invalid_json` when it ends early
 */
export async function receiveBody(req: IncomingMessage, limits: Partial<typeof UPLOAD_LIMITS> = {}): Promise<Buffer> {
  const { stalledMs, totalMs, mostBytes } = { ...UPLOAD_LIMITS, ...limits };
  let stalled: NodeJS.Timeout | undefined;
  let late: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    const give = (message: string) => () => reject(new ApiError("request_timeout", message));
    stalled = setTimeout(give(`No part of the body arrived for ${stalledMs} ms.`), stalledMs);
    late = setTimeout(give(`The body did not arrive within ${totalMs} ms.`), totalMs);
  });
  const postpone = () => void stalled?.refresh();
  try {
    const body = getRawBody(req, { length: req.headers["content-length"] ?? null, limit: mostBytes });
    req.on("data", postpone);
    return await Promise.race([body, timeout]);
  } catch (error) {
    if (!(error instanceof Error && "type" in error)) throw error;
    if (error.type === "entity.too.large") throw tooLarge(mostBytes);
    throw new ApiError("invalid_json", "The body is shorter than its Content-Length.", { cause: error });
  } finally {
    req.off("data", postpone);
    clearTimeout(stalled);
    clearTimeout(late);
  }
}

/** @throws {ApiError} `payload_too_large`, `invalid_json` for bytes that do not match their Content-Encoding */
async function inflated(bytes: Buffer, headers: IncomingHttpHeaders): Promise<Buffer> {
  try {
    return (await ENCODINGS[encodingOf(headers)]?.(bytes, { maxOutputLength: MAX_BODY_BYTES })) ?? bytes;
  } catch (error) {
    if (error instanceof RangeError) throw tooLarge();
    throw new ApiError("invalid_json", "The body cannot be inflated; it does not match its Content-Encoding.");
  }
}

/** @throws {ApiError} `invalid_json` */
function parseJson(bytes: Buffer): unknown {
  let text: string;
  try {
    // Bytes that are no UTF-8 must not be replaced: two different bodies would become the same.
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ApiError("invalid_json", "The body is not valid UTF-8.");
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("invalid_json");
  }
}

/** Longest body that counts as small, in bytes. */
export const SMALL_BODY_BYTES = 64 * 1024;

/** Whether a request's body may take some MiB of memory: it is long, compressed, or of a length that is not known. */
export const mayBeLarge = ({ headers }: IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined ||
  encodingOf(headers) !== "identity" ||
  Number(headers["content-length"] ?? 0) > SMALL_BODY_BYTES;

/**
 * The JSON body of a request; undefined when it has none, or an empty one.
 * @throws {ApiError} `unsupported_media_type`, `payload_too_large`, `invalid_json`, `request_timeout`
 */
export async function readBody(req: Request): Promise<unknown> {
  const { headers } = req;
  if (hasNoBody(req)) return undefined;
  const refusal = mediaTypeRefusal(req);
  // A body in chunks may turn out to be empty, and has no type then.
  if (refusal && headers["transfer-encoding"] === undefined) throw refusal;
  const bytes = await receiveBody(req);
  if (bytes.length === 0) return undefined;
  if (refusal) throw refusal;
  return parseJson(await inflated(bytes, headers));
}
