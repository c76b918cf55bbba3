import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, createSecureContext, type SecureContext } from "node:tls";
import {
  type Answer,
  type Answered,
  type Blocked,
  type Failed,
  type FailureCode,
  MAX_BODY_MS,
  MAX_KEPT_BYTES,
} from "../../domain/webhooks/classify.ts";
import { AddressRefused, NameNotResolved } from "../../lib/address-guard.ts";
import { connectOptions } from "../../lib/connect-options.ts";
import { effectivePort, type UrlGuard } from "../../lib/url-guard.ts";
import { AnswerReader } from "./answer-reader.ts";

export interface DeliveryRequest {
  url: string;
  headers: Record<string, string>;
  body: Buffer;
}

export interface DeliveryClient {
  /**
   * Makes one request. One that fails on a kept connection before the first byte of an answer is repeated once, on a new one: the
   * endpoint had closed it, and may get the request twice.
   * @throws {Error} when no connection was made because of a fault of this process
   */
  post(request: DeliveryRequest): Promise<Answer>;
  /** Closes idle connections; those in use are closed after their requests. */
  close(): void;
}

export interface DeliveryClientOptions {
  guard: UrlGuard;
  /** For a whole request, from the look-up to the end of the answer's body. */
  timeoutMs: number;
  userAgent: string;
}

/** Checked URLs that are remembered at most. */
const MOST_URLS = 1_000;

export function createDeliveryClient({ guard, timeoutMs, userAgent }: DeliveryClientOptions): DeliveryClient {
  const connections = new Connections(guard);
  // A check takes as long as the rest of a request.
  const checked = new Map<string, URL>();
  return {
    async post(request) {
      try {
        const url = checked.get(request.url) ?? guard.checkUrl(request.url);
        if (!checked.has(request.url) && checked.size >= MOST_URLS) checked.clear();
        checked.set(request.url, url);
        return await new Exchange(url, encode(request, url, userAgent), connections, timeoutMs).answer;
      } catch (error) {
        if (error instanceof AddressRefused) return { ...blocked(error), durationMs: 0 };
        throw error;
      }
    },
    close: () => connections.close(),
  };
}

function encode({ headers, body }: DeliveryRequest, { host, pathname, search }: URL, userAgent: string): Buffer {
  let head = `POST ${pathname}${search} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\nuser-agent: ${userAgent}\r\n`;
  for (const [name, value] of Object.entries(headers)) head += `${name}: ${value}\r\n`;
  return Buffer.concat([Buffer.from(`${head}content-length: ${body.length}\r\n\r\n`, "latin1"), body]);
}

type Untimed = Omit<Answered, "durationMs"> | Omit<Failed, "durationMs"> | Omit<Blocked, "durationMs">;

/** One POST from the look-up to the end of the answer's body. The first event that ends it decides the answer. */
class Exchange implements Carried {
  readonly #settle = Promise.withResolvers<Answer>();
  readonly answer = this.#settle.promise;
  readonly #startedAt = performance.now();
  readonly #reader = new AnswerReader();
  readonly #url: URL;
  readonly #request: Buffer;
  readonly #connections: Connections;
  readonly #timeoutMs: number;
  #connection: Connection;
  #timer: NodeJS.Timeout | undefined;

  constructor(url: URL, request: Buffer, connections: Connections, timeoutMs: number) {
    this.#url = url;
    this.#request = request;
    this.#connections = connections;
    this.#timeoutMs = timeoutMs;
    this.#limit(timeoutMs);
    this.#connection = this.#connections.take(url);
    this.#connection.send(request, this);
  }

  receive(chunk: Buffer): void {
    const hadStatus = this.#reader.status !== undefined;
    const hasEnded = this.#reader.add(chunk);
    const { status, isBroken, keepAliveMs } = this.#reader;
    if (!hasEnded && !hadStatus && status !== undefined)
      this.#limit(Math.min(MAX_BODY_MS, Math.max(0, this.#timeoutMs - this.#durationMs)));
    if (hasEnded && status === undefined) this.#resolve(failure("protocol", NOT_HTTP));
    else if (hasEnded) this.#resolve(answered(this.#reader, isBroken ? BODY_BROKEN : undefined), keepAliveMs);
  }

  lose(error: unknown): void {
    const { bytes, status, endsWithConnection } = this.#reader;
    const { isReused, phase } = this.#connection;
    if (isReused && bytes === 0) {
      this.#connection = new Connection(this.#url, this.#connections);
      this.#connection.send(this.#request, this);
    } else if (isOurs(error, phase)) this.#end(() => this.#settle.reject(error));
    else if (status === undefined) this.#resolve(failed(error, phase));
    else this.#resolve(answered(this.#reader, endsWithConnection && !error ? undefined : LOST));
  }

  #limit(ms: number): void {
    clearTimeout(this.#timer);
    const timer = setTimeout(() => {
      // A busy process runs its timers before it reads: an answer that has already arrived counts.
      setImmediate(() => {
        const message = `${TIMEOUTS[this.#connection.phase]} within ${this.#timeoutMs / 1_000} s.`;
        if (this.#timer !== timer) return;
        if (this.#reader.status === undefined) this.#resolve(failure("timeout", message));
        else this.#resolve(answered(this.#reader, BODY_TOO_SLOW));
      });
    }, ms);
    this.#timer = timer;
  }

  #resolve(answer: Untimed, keepAliveMs = 0): void {
    this.#end(() => this.#settle.resolve({ ...answer, durationMs: this.#durationMs }), keepAliveMs);
  }

  /** @param keepAliveMs how long the connection can carry another request; 0: bytes may be under way on it */
  #end(settle: () => void, keepAliveMs = 0): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#connections.giveBack(this.#connection, keepAliveMs);
    settle();
  }

  get #durationMs(): number {
    return Math.round(performance.now() - this.#startedAt);
  }
}

/** @param problem why the body is incomplete */
function answered(reader: AnswerReader, problem: string | undefined): Omit<Answered, "durationMs"> {
  const { status = 0, headers } = reader;
  const { text, isCut } = reader.body();
  const retryAfterSeconds = parseRetryAfter(headers.get("retry-after") ?? "");
  const isCoded = text !== "" && !/^(identity)?$/i.test(headers.get("content-encoding") ?? "");
  const bodyProblem = [problem, isCut && BODY_TOO_LONG, isCoded && BODY_CODED].filter(Boolean).join(" ");
  return {
    kind: "answered",
    status,
    body: text,
    ...(bodyProblem === "" ? {} : { bodyProblem }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  };
}

const blocked = ({ reason, message }: AddressRefused): Untimed => ({ kind: "blocked", reason, message });
const failure = (code: FailureCode, message: string): Untimed => ({ kind: "failed", code, message });

const TIMEOUTS: Record<Phase, string> = {
  resolving: "The URL's host name could not be looked up",
  connecting: "No connection to the endpoint was made",
  securing: "The endpoint did not finish the TLS handshake",
  waiting: "The endpoint did not answer",
};

const BODY_TOO_SLOW = "The body of the answer did not end in time and is cut off.";
const BODY_TOO_LONG = `The body of the answer is too long: its first ${MAX_KEPT_BYTES} bytes are kept.`;
const BODY_BROKEN = "The body of the endpoint's answer is not valid HTTP/1.1 and is cut off.";
const BODY_CODED = "The body of the answer is compressed, which was not asked for, and is kept as it came.";
const LOST = "The endpoint closed the connection before its answer was complete.";
const NOT_HTTP = "The endpoint's answer is not valid HTTP/1.1.";

function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === "string" ? code : "";
}

/** The fault is of this process, not of the endpoint: it has no files, buffers or memory left, or a defect. */
const isOurs = (error: unknown, phase: Phase): boolean =>
  phase === "resolving"
    ? !(error instanceof AddressRefused || error instanceof NameNotResolved)
    : phase !== "waiting" && /^(EMFILE|ENFILE|ENOBUFS|ENOMEM)$/.test(codeOf(error));

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

function failed(error: unknown, phase: Phase): Untimed {
  if (error instanceof AddressRefused) return blocked(error);
  if (error instanceof NameNotResolved) return failure("name_not_resolved", error.message);
  if (phase === "waiting") return failure("reset", LOST);
  const code = codeOf(error);
  if (phase === "securing") {
    const fault = CERTIFICATES[code];
    if (fault) return failure("tls", `The endpoint's TLS certificate ${fault}.`);
    return failure("tls", `The TLS handshake with the endpoint failed${/^[A-Z_]+$/.test(code) ? ` (${code})` : ""}.`);
  }
  if (code === "ECONNREFUSED") return failure("connect_refused", "The endpoint's host refused the connection.");
  if (code === "ECONNRESET") return failure("reset", "The connection was reset while it was being made.");
  if (code === "ETIMEDOUT") return failure("timeout", "The endpoint's host did not take the connection.");
  return failure("unreachable", "The endpoint's host cannot be reached.");
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

/** How far a request has come; "waiting" for its answer, or for the next request. */
type Phase = "resolving" | "connecting" | "securing" | "waiting";

interface Carried {
  receive(chunk: Buffer): void;
  /** The connection has ended or was not made. @param error undefined if the other side closed it */
  lose(error: unknown): void;
}

/** A connection to one origin for one request at a time. Its socket goes to an address that the guard has just checked. */
class Connection {
  phase: Phase = "resolving";
  isReused = false;
  readonly origin: string;
  readonly #url: URL;
  readonly #pool: Connections;
  #socket: Socket | undefined;
  #carried: Carried | undefined;

  constructor(url: URL, pool: Connections) {
    this.origin = url.origin;
    this.#url = url;
    this.#pool = pool;
  }

  send(request: Buffer, carried: Carried): void {
    this.#carried = carried;
    if (this.#socket) this.#socket.write(request);
    else void this.#open(request);
  }

  rest(idleMs: number): void {
    this.isReused = true;
    this.#carried = undefined;
    this.#socket?.setTimeout(idleMs);
  }

  /** Cuts it off, also while it is being made. */
  destroy(): void {
    this.#carried = undefined;
    this.#pool.forget(this);
    this.#socket?.destroy();
  }

  async #open(request: Buffer): Promise<void> {
    try {
      const { hostname, protocol } = this.#url;
      const { guard, secureContext } = this.#pool;
      const port = effectivePort(this.#url);
      const options = connectOptions(hostname, port, await guard.resolve(hostname, port));
      if (!this.#carried) return;
      this.phase = "connecting";
      const isSecure = protocol === "https:";
      const servername = isIP(options.host ?? "") ? {} : { servername: hostname };
      const tls = { ...servername, secureContext, rejectUnauthorized: true, ALPNProtocols: ["http/1.1"] };
      const socket = isSecure ? connectTls({ ...options, ...tls }) : connectTcp(options);
      this.#socket = socket.setNoDelay(true);
      socket.on("connect", () => {
        this.phase = isSecure ? "securing" : "waiting";
      });
      socket.on(isSecure ? "secureConnect" : "connect", () => {
        this.phase = "waiting";
        socket.write(request);
      });
      socket.on("data", (chunk) => (this.#carried ? this.#carried.receive(chunk) : this.destroy()));
      socket.on("timeout", () => {
        if (!this.#carried) this.destroy();
      });
      socket.on("error", (error) => this.#lose(error));
      for (const end of ["end", "close"]) socket.on(end, () => this.#lose());
    } catch (error) {
      this.#lose(error);
    }
  }

  #lose(error?: unknown): void {
    const carried = this.#carried;
    this.destroy();
    carried?.lose(error);
  }
}

/** Idle connections are closed after this long, and so long before the server would close them. */
const IDLE_MS = 4_000;
const MARGIN_MS = 1_000;
/** In total: a process may open only so many files. */
const MAX_IDLE = 1_000;

/** The idle connections. Those in use have no limit, so that an endpoint that hangs holds up no other on its host. */
class Connections {
  readonly guard: UrlGuard;
  readonly secureContext: SecureContext = createSecureContext();
  readonly #idle: Connection[] = [];
  #isClosed = false;

  constructor(guard: UrlGuard) {
    this.guard = guard;
  }

  /** The idle connection to the URL's origin that was used last, or a new one. */
  take(url: URL): Connection {
    const { origin } = url;
    const index = this.#idle.findLastIndex((idle) => idle.origin === origin);
    return this.#idle.splice(index, index < 0 ? 0 : 1)[0] ?? new Connection(url, this);
  }

  /** Keeps a connection for the next request, unless the server keeps it for too short a time. */
  giveBack(connection: Connection, keepAliveMs: number): void {
    const idleMs = Math.min(IDLE_MS, keepAliveMs - MARGIN_MS);
    if (this.#isClosed || idleMs <= 0 || this.#idle.length >= MAX_IDLE) connection.destroy();
    else {
      connection.rest(idleMs);
      this.#idle.push(connection);
    }
  }

  forget(connection: Connection): void {
    const index = this.#idle.indexOf(connection);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  /** Closes idle connections; those in use are closed when they are given back. */
  close(): void {
    this.#isClosed = true;
    for (const connection of [...this.#idle]) connection.destroy();
  }
}
