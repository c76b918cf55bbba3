import { once } from "node:events";
import http, { type IncomingMessage, type RequestOptions } from "node:http";
import https from "node:https";
import type { AddressGuard } from "./address-guard.ts";
import { connectOptions } from "./connect-options.ts";
import { effectivePort } from "./url-guard.ts";

export interface FetchedText {
  status: number;
  text: string;
}

/** @throws {Error} when no complete answer comes in time */
export type FetchText = (url: URL) => Promise<FetchedText>;

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

async function exchange(
  guard: Guard,
  url: URL,
  request: Pick<RequestOptions, "method" | "headers">,
  body: string,
  { ca, timeoutMs = TIMEOUT_MS }: FetchOptions,
): Promise<FetchedText> {
  const port = effectivePort(url);
  const {
    host: _,
    port: __,
    ...connection
  } = connectOptions(url.hostname, port, await guard.resolve(url.hostname, port));
  const signal = AbortSignal.timeout(timeoutMs);
  const { request: open } = url.protocol === "https:" ? https : http;
  const sent = open(url, { ...request, ...connection, ...(ca && { ca }), agent: false, signal });
  try {
    sent.end(body);
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new Error(`The answer has more than ${MAX_BYTES} bytes`);
      chunks.push(chunk);
    }
    return { status: answer.statusCode ?? 0, text: Buffer.concat(chunks).toString() };
  } finally {
    sent.on("error", () => {}).destroy();
  }
}
