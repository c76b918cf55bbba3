import { apiErrorOf, ConnectionError, type ErrorType, MailkeelError, TimeoutError } from "./errors.ts";
import { isInFlight, mayRetry, retryDelayMs } from "./retry.ts";

/** Longer than the service's own deadline for a call, 75 s for a send: it then says itself that it was too long. */
export const TIMEOUT_MS = 80_000;
/** The Idempotency-Key of a try that was cut off is free again after 90 s. */
const TOTAL_TIMEOUT_MS = 240_000;
/** Without tries that find an earlier one in flight: only the time for all tries ends those. */
const MAX_RETRIES = 4;
/** The rate limit's window: no shorter wait would do. */
const MAX_RETRY_AFTER_MS = 60_000;
/** A timer that is set to more ends at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface ClientOptions extends RequestOptions {
  /** `mk_live_…` or `mk_test_…`. */
  apiKey?: string | undefined;
  /** An OAuth access token, in place of an API key. */
  accessToken?: string | undefined;
  /** With the version: `https://mail.example.com/api/v2`. */
  baseUrl: string;
  /** In place of the global `fetch`, for example to log requests. */
  fetch?: typeof fetch | undefined;
}

export interface RequestOptions {
  /** Ends the request, its retries and the waits between them; the signal's reason is thrown. */
  signal?: AbortSignal | undefined;
  /** The longest time of one try, in ms; 80,000 unless given. No timer is longer than 2^31 − 1 ms. */
  timeoutMs?: number | undefined;
  /** The longest time of all tries and the waits between them, in ms; 240,000 unless given. */
  totalTimeoutMs?: number | undefined;
  /** Tries after the first one; 4 unless given, 0 for none. */
  maxRetries?: number | undefined;
  /** The longest Retry-After that is waited for, in ms; 60,000 unless given. After a longer one the refusal is thrown at once. */
  maxRetryAfterMs?: number | undefined;
  /** Dated version of the API, in place of the one that this client was made for. */
  serviceVersion?: string | undefined;
}

export interface WriteOptions extends RequestOptions {
  /** At most 255 printable ASCII characters. A random one is made for each call unless given. */
  idempotencyKey?: string | undefined;
}

export interface DryRunOption {
  /** Checks and resolves the request, changes nothing and answers the impact that it would have. */
  dryRun?: true | undefined;
}

export interface Meta {
  requestId: string;
  /** The answer is that of an earlier request under the same Idempotency-Key; this one wrote nothing. */
  replayed: boolean;
}

export interface Answer<Data, More = unknown> {
  data: Data;
  meta: Meta & More;
}

export interface PageMeta {
  hasMore: boolean;
  nextCursor: string | null;
  /** On lists that can be sorted by `updated_at`: `updated_since` of the next incremental run. */
  syncedThrough?: string;
}

export type Page<Item> = Answer<Item[], PageMeta>;

export type DryRun<Impact> = Answer<null, { dryRun: true; impact: Impact }>;

export type Outcome<Data, Impact, Options> = Options extends { dryRun: true } ? DryRun<Impact> : Answer<Data>;

export interface Call {
  method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** Parameters in braces: `/lists/{listId}`. */
  path: string;
  ids?: Readonly<Record<string, string>>;
  query?: object | undefined;
  body?: unknown;
  takesKey?: boolean;
}

interface Envelope {
  data?: unknown;
  meta?: Record<string, unknown>;
  error?: {
    type: ErrorType;
    code: string;
    message: string;
    param?: string;
    resource_id?: string;
    doc_url?: string;
    request_id?: string;
  };
}

export class Transport {
  readonly #options: ClientOptions;

  /** @throws {MailkeelError} for options that no request can be made with */
  constructor(options: ClientOptions) {
    const { apiKey, accessToken, baseUrl } = options;
    if (Boolean(apiKey) === Boolean(accessToken)) throw new MailkeelError("Give either apiKey or accessToken.");
    // A header would refuse it with a message that holds it.
    if (!/^[\x21-\x7e]+$/.test(apiKey || accessToken || "")) {
      throw new MailkeelError("apiKey and accessToken have printable ASCII characters alone, and no spaces.");
    }
    const problem = problemOfAddress(baseUrl);
    if (problem !== undefined) throw new MailkeelError(`baseUrl ${problem}.`);
    refuseLimits(options);
    this.#options = { ...options, baseUrl: baseUrl.replace(/\/+$/, "") };
  }

  /** Makes a request, again where it may be made again. @throws {ApiError | ConnectionError} the last one */
  async request<Result extends Answer<unknown>>(call: Call, given: WriteOptions & DryRunOption = {}): Promise<Result> {
    const options = { ...this.#options, ...withoutUndefined(given) };
    refuseLimits(options);
    const { maxRetries = MAX_RETRIES, maxRetryAfterMs = MAX_RETRY_AFTER_MS, signal } = options;
    const totalMs = options.totalTimeoutMs ?? TOTAL_TIMEOUT_MS;
    const until = performance.now() + totalMs;
    const ended = anyOf([signal, AbortSignal.timeout(timerMs(totalMs))]);
    const request = requestOf(call, options, call.takesKey ? (given.idempotencyKey ?? crypto.randomUUID()) : undefined);
    const isRepeatable = call.method === "GET" || given.dryRun === true || request.idempotencyKey !== undefined;
    let failures = 0;
    for (let retry = 1; ; retry++) {
      try {
        return await exchange<Result>(request, options, ended);
      } catch (error) {
        if (!isInFlight(error)) failures++;
        const hasRetries = maxRetries > 0 && failures <= maxRetries;
        if (!hasRetries || ended.aborted || !mayRetry(error, isRepeatable)) throw error;
        const waitMs = retryDelayMs(error, retry);
        const isTooLong = waitMs > maxRetryAfterMs || performance.now() + waitMs > until;
        if (isTooLong) throw error;
        await delay(waitMs, signal);
        signal?.throwIfAborted();
      }
    }
  }
}

/** @returns how an address of the API is wrong, as the rest of a sentence, without the address: it may hold a password */
export function problemOfAddress(address: string): string | undefined {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || /[?#]/.test(address))
    return "must be the address of the API, such as https://mail.example.com/api/v2";
  return url.username + url.password === "" ? undefined : "must hold no user name and no password";
}

/** @throws {MailkeelError} for a time in which no request can be made, and a number of retries that is none */
function refuseLimits(options: RequestOptions): void {
  const { timeoutMs = TIMEOUT_MS, totalTimeoutMs = TOTAL_TIMEOUT_MS, maxRetries = MAX_RETRIES } = options;
  if (!Number.isInteger(maxRetries) || maxRetries < 0) throw new MailkeelError("maxRetries must be a whole number.");
  for (const [name, ms] of Object.entries({ timeoutMs, totalTimeoutMs }))
    if (!(ms > 0)) throw new MailkeelError(`${name} must be a number of milliseconds above 0.`);
}

/** To a caller, an option that is undefined is one that is not given. */
const withoutUndefined = <Options extends object>(options: Options): Partial<Options> =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<Options>;

const timerMs = (ms: number): number => Math.min(Math.ceil(ms), LONGEST_TIMER_MS);

/** Ends early when the signal does. It leaves no listener behind: the signal may outlive many calls. */
const delay = (ms: number, signal: AbortSignal | undefined): Promise<void> =>
  new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, timerMs(ms));
    signal?.addEventListener("abort", end);
  });

interface PreparedRequest {
  /** For errors. It shows no id: that of a suppression is an address. */
  name: string;
  idempotencyKey: string | undefined;
  url: URL;
  init: RequestInit;
}

function requestOf(
  { method, path, ids = {}, query, body }: Call,
  { baseUrl, apiKey, accessToken, serviceVersion, dryRun }: ClientOptions & DryRunOption,
  idempotencyKey: string | undefined,
): PreparedRequest {
  const url = new URL(`${baseUrl}${pathOf(path, ids)}`);
  const parameters = { ...query, ...(dryRun ? { dry_run: true } : {}) };
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  const headers = new Headers({ accept: "application/json" });
  if (apiKey) headers.set("x-api-key", apiKey);
  if (accessToken) headers.set("authorization", `Bearer ${accessToken}`);
  if (serviceVersion) headers.set("service-version", serviceVersion);
  if (idempotencyKey !== undefined) headers.set("idempotency-key", idempotencyKey);
  if (body !== undefined) headers.set("content-type", "application/json");
  // No redirect is followed: another host must not get the credential.
  const init: RequestInit = { method, headers, redirect: "manual" };
  if (body !== undefined) init.body = JSON.stringify(body);
  return { name: `${method} ${path}`, idempotencyKey, url, init };
}

/** @param ended cuts it off when the caller's signal or the time for all tries does */
async function exchange<Result extends Answer<unknown>>(
  { name, idempotencyKey, url, init }: PreparedRequest,
  { fetch: doFetch = fetch, timeoutMs = TIMEOUT_MS, signal }: ClientOptions,
  ended: AbortSignal,
): Promise<Result> {
  const timeout = AbortSignal.timeout(timerMs(timeoutMs));
  let response: Response;
  let text: string;
  try {
    response = await doFetch(url, { ...init, signal: anyOf([ended, timeout]) });
    text = await response.text();
  } catch (cause) {
    signal?.throwIfAborted();
    if (ended.aborted || timeout.aborted) {
      throw new TimeoutError(`${name}: no answer in time`, { idempotencyKey, cause });
    }
    throw new ConnectionError(`${name}: ${reasonOf(cause)}`, { idempotencyKey, cause });
  }
  return answerOf<Result>(name, idempotencyKey, response, text);
}

const anyOf = (signals: readonly (AbortSignal | undefined)[]): AbortSignal =>
  AbortSignal.any(signals.filter((signal) => signal !== undefined));

export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  // A DOMException has a number, which says nothing.
  const code = cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "";
  return [error.message, code].filter((part) => part !== "").join(": ");
}

/** @returns undefined for a text that is not JSON */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function answerOf<Result extends Answer<unknown>>(
  name: string,
  idempotencyKey: string | undefined,
  { ok, status, headers }: Response,
  text: string,
): Result {
  const envelope = parsed(text) as Envelope | null | undefined;
  const retryAfter = retryAfterOf(headers);
  if (ok && envelope?.meta && "data" in envelope) {
    const replayed = headers.get("idempotent-replayed") === "true";
    // The one place that takes the document's word for the shape of an answer.
    return { data: envelope.data, meta: { ...inCamelCase(envelope.meta), replayed } } as Result;
  }
  if (!ok && typeof envelope?.error?.code === "string") {
    const { type, code, message, param } = envelope.error;
    const { resource_id: resourceId, doc_url: docUrl, request_id: requestId } = envelope.error;
    throw apiErrorOf({ status, type, code, message, param, resourceId, docUrl, requestId, retryAfter, idempotencyKey });
  }
  const message = `${name}: the answer with status ${status} is not one of the API's`;
  // A proxy's refusal while the service behind it is away or busy; anything else would come again.
  throw status >= 500 || status === 429
    ? new ConnectionError(message, { idempotencyKey, status, retryAfter })
    : new MailkeelError(`${message}; is baseUrl right?`, { idempotencyKey });
}

function retryAfterOf(headers: Headers): number | undefined {
  const text = headers.get("retry-after") ?? "";
  if (/^\d+$/.test(text)) return Number(text);
  const at = text.endsWith(" GMT") ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - Date.now()) / 1_000));
}

const inCamelCase = (meta: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(meta).map(([name, value]) => [
      name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
      value,
    ]),
  );

/** @throws {MailkeelError} for an id that would make another path */
function pathOf(template: string, ids: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = ids[name];
    // A URL drops such segments.
    if (value === undefined || /^\.{0,2}$/.test(value)) throw new MailkeelError(`${name} is not an id: "${value}"`);
    return encodeURIComponent(value);
  });
}
