import { once } from "node:events";
import http, { type IncomingMessage, type RequestOptions } from "node:http";
import https from "node:https";
import type { AddressGuard } from "./address-guard.ts";
import { connectOptions } from "./connect-options.ts";
import { effectivePort, type UrlGuard } from "./url-guard.ts";

export interface FetchedText {
  status: number;
  text: string;
}

/** @throws {Error} when no complete answer comes in time */
export type FetchText = (url: URL) => Promise<FetchedText>;

/**
 * Asks for the status of an answer, and reads no more of it. @param url of any text @param signal ends the wait
 * @throws {AddressRefused | NameNotResolved | Error}
 */
export type ProbeUrl = (url: string, signal: AbortSignal) => Promise<{ status: number; location: string | undefined }>;

const TIMEOUT_MS = 5_000;
/** A certificate has about 2 KiB. */
const MAX_BYTES = 65_536;

interface FetchOptions {
  ca?: string;
  timeoutMs?: number;
}

type Guard = Pick<AddressGuard, "resolve">;

/** From addresses that the guard has checked, and from no others. Redirects are not followed. */
export const guardedFetch =
  (guard: Guard, options: FetchOptions = {}): FetchText =>
  (url) =>
    exchange(guard, url, { method: "GET" }, "", options);

export const guardedPost =
  (guard: Guard, options: FetchOptions = {}) =>
  (url: URL, form: Record<string, string>): Promise<FetchedText> => {
    const headers = { "content-type": "application/x-www-form-urlencoded", accept: "application/json" };
    return exchange(guard, url, { method: "POST", headers }, new URLSearchParams(form).toString(), options);
  };

/** Redirects are not followed. @param guard checks the text of each URL, and the addresses of its host */
export const guardedProbe =
  (guard: UrlGuard, userAgent: string, ca?: string): ProbeUrl =>
  (text, signal) => {
    const request = { method: "GET", headers: { "user-agent": userAgent } };
    const read = ({ statusCode: status = 0, headers: { location } }: IncomingMessage) => ({ status, location });
    return open(guard, guard.checkUrl(text), request, "", { ca, signal }, read);
  };

const exchange = (
  guard: Guard,
  url: URL,
  request: Asked,
  body: string,
  { ca, timeoutMs = TIMEOUT_MS }: FetchOptions,
): Promise<FetchedText> =>
  open(guard, url, request, body, { ca, signal: AbortSignal.timeout(timeoutMs) }, async (answer) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new Error(`The answer has more than ${MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
    return { status: answer.statusCode ?? 0, text: Buffer.concat(chunks).toString() };
  });

type Asked = Pick<RequestOptions, "method" | "headers">;

/** @param signal ends the look-up, too */
async function open<T>(
  guard: Guard,
  url: URL,
  request: Asked,
  body: string,
  { ca, signal }: { ca: string | undefined; signal: AbortSignal },
  read: (answer: IncomingMessage) => T | Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const port = effectivePort(url);
  const late = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  const addresses = await Promise.race([guard.resolve(url.hostname, port), late]);
  const { host: _, port: __, ...connection } = connectOptions(url.hostname, port, addresses);
  const { request: send } = url.protocol === "https:" ? https : http;
  const sent = send(url, { ...request, ...connection, ...(ca && { ca }), agent: false, signal });
  try {
    sent.end(body);
    // An answer of 101 ends the connection without a response.
    const [answer] = (await Promise.race([once(sent, "response"), late])) as [IncomingMessage];
    return await read(answer);
  } finally {
    sent.on("error", () => {}).destroy();
  }
}
