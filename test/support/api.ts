import assert from "node:assert/strict";
import { BASE_PATH } from "../../api/base-path.ts";
import { assertDocumented } from "./document.ts";
import { stack } from "./stack.ts";

/** A JSON body as the tests read it: a missing field is undefined. */
// biome-ignore lint/suspicious/noExplicitAny: a test reads an answer whose shape is what it checks
export type Json = any;

export interface ApiAnswer {
  status: number;
  headers: Headers;
  body: Json;
  /** The body to the byte. */
  text: string;
}

/** The code of a refusal, or the status of any other answer. */
export const codeOf = ({ status, body }: ApiAnswer): string => body.error?.code ?? `${status}`;

export const tally = (texts: readonly string[]): Record<string, number> =>
  Object.fromEntries([...Map.groupBy(texts, (text) => text)].map(([text, all]) => [text, all.length]));

export interface CallOptions {
  idempotencyKey?: string | undefined;
  query?: Record<string, string | number | boolean> | undefined;
  headers?: Record<string, string> | undefined;
}

export interface ApiClient {
  get(path: string, options?: CallOptions): Promise<ApiAnswer>;
  post(path: string, body?: unknown, options?: CallOptions): Promise<ApiAnswer>;
  patch(path: string, body?: unknown, options?: CallOptions): Promise<ApiAnswer>;
  put(path: string, body?: unknown, options?: CallOptions): Promise<ApiAnswer>;
  delete(path: string, options?: CallOptions): Promise<ApiAnswer>;
  /** Any method; a string body is sent as it is. */
  call(method: string, path: string, body?: unknown, options?: CallOptions): Promise<ApiAnswer>;
}

/** Base URLs of apps with routes of a test's own, which the document does not describe. */
const undocumented = new Set<string>();

export const leaveUndocumented = (base: string): void => void undocumented.add(base);

/** Compares an answer of the API with the document. @returns its body, null where that is no JSON */
function compared(method: string, url: URL, { status, headers }: Response, text: string): Json {
  const isJson = headers.get("content-type")?.startsWith("application/json") && text !== "";
  const body = isJson ? JSON.parse(text) : null;
  if (!undocumented.has(`${url.origin}${BASE_PATH}`)) assertDocumented({ method, url, status, headers, body });
  return body;
}

/** `fetch` for a request to the API that `api` cannot make. Its answer is compared with the document. */
export const documentedFetch: typeof fetch = async (...given) => {
  const { method, url } = new Request(...given);
  const response = await fetch(...given);
  compared(method, new URL(url), response, await response.clone().text());
  return response;
};

export function assertFieldRefused({ status, body, text }: ApiAnswer, param: string): void {
  assert.deepEqual([status, body.error?.code, body.error?.param], [400, "validation_failed", param], text);
}

/** Every answer is compared with the document. Without a key it sends no credential; `base` is that of another API. */
export function api(key?: string, base?: string): ApiClient {
  const call: ApiClient["call"] = async (method, path, body, options = {}) => {
    const url = new URL(`${base ?? (await stack()).api}${path}`);
    for (const [name, value] of Object.entries(options.query ?? {})) url.searchParams.set(name, String(value));
    const headers = new Headers(key === undefined ? {} : { "x-api-key": key });
    if (body !== undefined) headers.set("content-type", "application/json");
    if (options.idempotencyKey !== undefined) headers.set("idempotency-key", options.idempotencyKey);
    for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const response = await fetch(url, { method, headers, ...(body === undefined ? {} : { body: text }) });
    const answer = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: compared(method, url, response, answer),
      text: answer,
    };
  };
  return {
    call,
    get: (path, options) => call("GET", path, undefined, options),
    post: (path, body, options) => call("POST", path, body, options),
    patch: (path, body, options) => call("PATCH", path, body, options),
    put: (path, body, options) => call("PUT", path, body, options),
    delete: (path, options) => call("DELETE", path, undefined, options),
  };
}
