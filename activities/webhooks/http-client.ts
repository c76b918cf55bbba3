import { StringDecoder } from "node:string_decoder";
import type { Dispatcher } from "undici";
import { AddressRefused, NameNotResolved } from "../../domain/address-guard.ts";
import {
  type Answer,
  type Answered,
  type Blocked,
  type Failed,
  type FailureCode,
  MAX_BODY_MS,
  MAX_KEPT_BYTES,
} from "../../domain/webhooks/classify.ts";
import type { UrlGuard } from "../../domain/webhooks/url-guard.ts";
import { type Connection, Connections, NotConnected, type Phase } from "./connection.ts";

/** Bytes of an answer's body that are read at most. */
const MAX_READ_BYTES = 65_536;

export interface DeliveryRequest {
  url: string;
  headers: Record<string, string>;
  body: string | Buffer;
  /** Cuts the request off; whether it arrived is then unknown */
  signal?: AbortSignal | undefined;
}

export interface DeliveryClient {
  /**
   * Makes one request. Redirects are not followed. A request that fails on a kept connection before the first byte of an
   * answer is repeated once, at once, on a new one: the endpoint had closed it, and may get the request twice.
   * @throws the signal's reason when that cuts the request off
   * @throws {Error} when no connection was made because of a fault of this process
   */
  post(request: DeliveryRequest): Promise<Answer>;
  /** Closes idle connections and waits for the requests under way. */
  close(): Promise<void>;
}

export interface DeliveryClientOptions {
  guard: UrlGuard;
  /** Longest time of a whole request: look-up, connection, sending, and the answer with what is read of its body */
  timeoutMs: number;
  /** Sent with every request. */
  userAgent: string;
}

export function createDeliveryClient({ guard, timeoutMs, userAgent }: DeliveryClientOptions): DeliveryClient {
  const connections = new Connections(guard);
  const urls = new CheckedUrls(guard);
  const running = new Set<Promise<Answer>>();
  let closed = false;

  return {
    post(request) {
      if (closed) return Promise.reject(new Error("The delivery client is closed"));
      const exchange = new RequestExchange(request, { urls, connections, timeoutMs, userAgent }).run();
      running.add(exchange);
      const done = () => void running.delete(exchange);
      exchange.then(done, done);
      return exchange;
    },
    async close() {
      closed = true;
      connections.close();
      await Promise.allSettled(running);
    },
  };
}

/** URLs that are remembered at most. */
const MOST_URLS = 1_000;

/** URLs whose text the guard has let pass, parsed: hundreds of requests a second go to one. */
class CheckedUrls {
  readonly #guard: UrlGuard;
  readonly #passed = new Map<string, URL>();

  constructor(guard: UrlGuard) {
    this.#guard = guard;
  }

  /** @throws {AddressRefused} */
  check(text: string): URL {
    const passed = this.#passed.get(text);
    if (passed) return passed;
    const url = this.#guard.checkUrl(text);
    if (this.#passed.size >= MOST_URLS) this.#passed.clear();
    this.#passed.set(text, url);
    return url;
  }
}

interface ExchangeDeps {
  urls: CheckedUrls;
  connections: Connections;
  timeoutMs: number;
  userAgent: string;
}

/**
 * One POST from the look-up to the end of the answer's body. The first event that ends it decides the answer; after the
 * answer's head only how much of the body is known.
 */
class RequestExchange implements Dispatcher.DispatchHandler {
  readonly #request: DeliveryRequest;
  readonly #deps: ExchangeDeps;
  readonly #startedAt = performance.now();
  readonly #answer = Promise.withResolvers<Answer>();
  readonly #onAbort = () => this.#cutOff(() => this.#answer.reject(this.#request.signal?.reason));
  #ended = false;
  #timer: NodeJS.Timeout | undefined;
  #url: URL | undefined;
  #connection: Connection | undefined;
  /** The connection had carried a request before this one. */
  #reused = false;
  #repeated = false;
  #status: number | undefined;
  #retryAfter: string | undefined;
  /** The body's coding, which is not undone: no request asks for one. */
  #encoding: string | undefined;
  #body: BodyReader | undefined;

  constructor(request: DeliveryRequest, deps: ExchangeDeps) {
    this.#request = request;
    this.#deps = deps;
  }

  run(): Promise<Answer> {
    const { signal, url } = this.#request;
    if (signal?.aborted) return Promise.reject(signal.reason);
    try {
      this.#url = this.#deps.urls.check(url);
    } catch (error) {
      return error instanceof AddressRefused ? Promise.resolve(this.#blocked(error)) : Promise.reject(error);
    }
    this.#limit(this.#deps.timeoutMs);
    signal?.addEventListener("abort", this.#onAbort);
    this.#send(this.#url);
    return this.#answer.promise;
  }

  #send(url: URL, options?: { fresh: boolean }): void {
    const connection = this.#deps.connections.take(url, options);
    this.#connection = connection;
    const { body } = this.#request;
    const headers = { ...this.#request.headers, "User-Agent": this.#deps.userAgent };
    connection.client.dispatch({ method: "POST", path: url.pathname + url.search, headers, body }, this);
  }

  onRequestStart(): void {
    if (!this.#connection) return;
    this.#reused = this.#connection.beginRequest();
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: Record<string, unknown>): void {
    if (status < 200 || !this.#connection) return;
    this.#connection.phase = "reading";
    this.#status = status;
    const { "retry-after": retryAfter, "content-encoding": encoding } = headers;
    if (typeof retryAfter === "string") this.#retryAfter = retryAfter;
    if (typeof encoding === "string") this.#encoding = encoding.trim().toLowerCase();
    this.#limit(Math.min(MAX_BODY_MS, Math.max(0, this.#deps.timeoutMs - this.#durationMs)));
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#ended) return;
    this.#body ??= new BodyReader();
    this.#body.add(chunk);
    if (this.#body.bytes > MAX_READ_BYTES) this.#cutOff(() => this.#answer.resolve(this.#answered()));
  }

  onResponseEnd(): void {
    this.#end((connection) => {
      this.#deps.connections.giveBack(connection);
      this.#answer.resolve(this.#answered());
    });
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    if (this.#ended) return;
    const hasBegun = this.#connection?.hasBegunAnswer;
    if (this.#url && this.#reused && !hasBegun && !this.#repeated && isLost(error)) {
      this.#repeated = true;
      this.#connection?.destroy();
      this.#send(this.#url, { fresh: true });
      return;
    }
    this.#cutOff(() => {
      if (isOurs(error)) this.#answer.reject(error);
      else if (this.#status === undefined) this.#answer.resolve(this.#failed(error));
      else this.#answer.resolve(this.#answered(bodyProblem(error)));
    });
  }

  /** Ends the exchange after so many milliseconds from now, unless it ends before or gets another limit. */
  #limit(ms: number): void {
    clearTimeout(this.#timer);
    const timer = setTimeout(() => {
      // A busy process runs its timers before it reads: an answer that has already arrived counts.
      setImmediate(() => {
        if (this.#timer === timer) this.#timeOut();
      });
    }, ms);
    this.#timer = timer;
  }

  #timeOut(): void {
    const { timeoutMs } = this.#deps;
    const phase = this.#connection?.phase ?? "resolving";
    this.#cutOff(() => {
      if (phase === "reading") this.#answer.resolve(this.#answered(BODY_TOO_SLOW));
      else this.#answer.resolve(this.#failure("timeout", `${TIMEOUTS[phase]} within ${timeoutMs / 1_000} s.`));
    });
  }

  #end(settle: (connection: Connection) => void): void {
    if (this.#ended || !this.#connection) return;
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#request.signal?.removeEventListener("abort", this.#onAbort);
    settle(this.#connection);
  }

  /** Ends the exchange and its connection, on which bytes may still be under way. */
  #cutOff(settle: () => void): void {
    this.#end((connection) => {
      settle();
      connection.destroy();
    });
  }

  get #durationMs(): number {
    return Math.round(performance.now() - this.#startedAt);
  }

  /** @param problem why the body is incomplete */
  #answered(problem?: string): Answered {
    const retryAfterSeconds = this.#retryAfter === undefined ? undefined : parseRetryAfter(this.#retryAfter);
    const { text = "", isCut = false } = this.#body?.read() ?? {};
    const bodyProblems = [
      problem,
      isCut ? BODY_TOO_LONG : undefined,
      this.#body && encodingProblem(this.#encoding),
    ].filter((part) => part !== undefined);
    return {
      kind: "answered",
      status: this.#status ?? 0,
      body: text,
      ...(bodyProblems.length > 0 ? { bodyProblem: bodyProblems.join(" ") } : {}),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      durationMs: this.#durationMs,
    };
  }

  #failed(error: Error): Failed | Blocked {
    const cause = error instanceof NotConnected ? error.cause : error;
    if (cause instanceof AddressRefused) return this.#blocked(cause);
    if (cause instanceof NameNotResolved) return this.#failure("name_not_resolved", cause.message);
    const failure = error instanceof NotConnected ? connectFailure(error.phase, codeOf(cause)) : requestFailure(error);
    return this.#failure(...failure);
  }

  #failure(code: FailureCode, message: string): Failed {
    return { kind: "failed", code, message, durationMs: this.#durationMs };
  }

  #blocked({ reason, message }: AddressRefused): Blocked {
    return { kind: "blocked", reason, message, durationMs: this.#durationMs };
  }
}

const TIMEOUTS: Record<Exclude<Phase, "reading">, string> = {
  resolving: "The URL's host name could not be looked up",
  connecting: "No connection to the endpoint was made",
  securing: "The endpoint did not finish the TLS handshake",
  waiting: "The endpoint did not answer",
};

const BODY_TOO_SLOW = "The body of the answer did not end in time and is cut off.";
const BODY_TOO_LONG = `The body of the answer is too long: its first ${MAX_KEPT_BYTES} bytes are kept.`;

type Failure = [code: FailureCode, message: string];

function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === "string" ? code : "";
}

/** The other side closed the connection, or a host between. */
const isLost = (error: Error): boolean =>
  /^(ECONNRESET|EPIPE)$/.test(codeOf(error)) ||
  (codeOf(error) === "UND_ERR_SOCKET" && /^(other side )?closed$/.test(error.message));

/** The fault is of this process, not of the endpoint: it has no files, buffers or memory left, or a defect. */
function isOurs(error: Error): boolean {
  if (!(error instanceof NotConnected)) return false;
  const { cause, phase } = error;
  if (cause instanceof AddressRefused || cause instanceof NameNotResolved) return false;
  return phase === "resolving" || /^(EMFILE|ENFILE|ENOBUFS|ENOMEM)$/.test(codeOf(cause));
}

/** Codes of OpenSSL and Node, in plain words. */
const CERTIFICATES: Record<string, string> = {
  CERT_HAS_EXPIRED: "has expired",
  CERT_NOT_YET_VALID: "is not valid yet",
  DEPTH_ZERO_SELF_SIGNED_CERT: "is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "has a self-signed certificate in its chain",
  ERR_TLS_CERT_ALTNAME_INVALID: "is for another host name",
  UNABLE_TO_GET_ISSUER_CERT: "is from an unknown issuer",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "is from an unknown issuer, or an intermediate certificate is missing",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "cannot be verified; an intermediate certificate may be missing",
};

function connectFailure(phase: Phase, code: string): Failure {
  if (phase === "securing") {
    const fault = CERTIFICATES[code];
    if (fault) return ["tls", `The endpoint's TLS certificate ${fault}.`];
    return ["tls", `The TLS handshake with the endpoint failed${/^[A-Z_]+$/.test(code) ? ` (${code})` : ""}.`];
  }
  if (code === "ECONNREFUSED") return ["connect_refused", "The endpoint's host refused the connection."];
  if (code === "ECONNRESET") return ["reset", "The connection was reset while it was being made."];
  if (code === "ETIMEDOUT") return ["timeout", "The endpoint's host did not take the connection."];
  return ["unreachable", "The endpoint's host cannot be reached."];
}

function requestFailure(error: Error): Failure {
  const code = codeOf(error);
  if (isLost(error)) return ["reset", "The endpoint closed the connection before its answer was complete."];
  if (code === "ETIMEDOUT") return ["timeout", "The connection to the endpoint went dead."];
  if (code === "UND_ERR_INVALID_ARG" || code === "UND_ERR_NOT_SUPPORTED")
    return ["unsendable", "The request cannot be sent with the endpoint's custom headers; change them."];
  if (code === "UND_ERR_HEADERS_OVERFLOW") return ["protocol", "The headers of the endpoint's answer are too large."];
  return ["protocol", "The endpoint's answer is not valid HTTP/1.1."];
}

/** Why the body of an answer whose status is known is incomplete. */
function bodyProblem(error: Error): string {
  const code = codeOf(error);
  if (isLost(error)) return "The endpoint closed the connection before the body of its answer was complete.";
  if (code === "ETIMEDOUT")
    return "The connection to the endpoint went dead before the body of its answer was complete.";
  if (code === "UND_ERR_RES_CONTENT_LENGTH_MISMATCH")
    return "The body of the endpoint's answer was shorter or longer than announced.";
  return "The body of the endpoint's answer is not valid HTTP/1.1 and is cut off.";
}

/** That a body is shown without its coding undone. @param encoding Content-Encoding in lower case */
function encodingProblem(encoding: string | undefined): string | undefined {
  if (encoding === undefined || encoding === "" || encoding === "identity") return undefined;
  const name = /^[a-z0-9-]{1,20}$/.test(encoding) ? ` (${encoding})` : "";
  return `The body of the answer is compressed${name}, which was not asked for, and is kept as it came.`;
}

/** The beginning of a body as text: whole characters, U+FFFD for bytes that are no UTF-8 and for NUL. */
class BodyReader {
  /** Bytes read so far. */
  bytes = 0;
  readonly #decoder = new StringDecoder("utf8");
  #text = "";

  add(chunk: Buffer): void {
    const room = MAX_KEPT_BYTES - this.bytes;
    if (room > 0) this.#text += this.#decoder.write(chunk.length > room ? chunk.subarray(0, room) : chunk);
    this.bytes += chunk.length;
  }

  /** @returns the part that is kept, and whether more came */
  read(): { text: string; isCut: boolean } {
    const isTooLong = this.bytes > MAX_KEPT_BYTES;
    // A character cut in two by the limit is left out; one that the endpoint cut is shown as broken.
    const text = isTooLong ? this.#text : this.#text + this.#decoder.end();
    const clean = text.replaceAll("\0", "\uFFFD");
    if (clean.length * 3 <= MAX_KEPT_BYTES) return { text: clean, isCut: isTooLong };
    // U+FFFD takes more bytes than the byte it stands for.
    const { read } = new TextEncoder().encodeInto(clean, new Uint8Array(MAX_KEPT_BYTES));
    return { text: clean.slice(0, read), isCut: isTooLong || read < clean.length };
  }
}

/** Retry-After: seconds, or one of the three forms of an HTTP date (RFC 9110). */
export function parseRetryAfter(value: string, now = Date.now()): number | undefined {
  const text = value.trim();
  if (/^\d+$/.test(text)) return Math.min(Number(text), Number.MAX_SAFE_INTEGER);
  if (!/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? /.test(text)) return undefined;
  // The oldest form says no time zone and means GMT.
  const at = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now) / 1_000));
}
