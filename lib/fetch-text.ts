import { Client, type Dispatcher } from "undici";
import type { AddressGuard } from "./address-guard.ts";
import { connectOptions } from "./connect-options.ts";
import { effectivePort } from "./url-guard.ts";

/** An answer to a request. */
export interface FetchedText {
  status: number;
  /** The body */
  text: string;
}

/** Gets a URL. @throws {Error} when no complete answer comes in time */
export type FetchText = (url: URL) => Promise<FetchedText>;

const TIMEOUT_MS = 5_000;
/** A certificate has about 2 KiB. */
const MAX_BYTES = 65_536;

interface FetchOptions {
  /** Certificates to trust instead of the well-known ones. */
  ca?: string;
  timeoutMs?: number;
}

type Guard = Pick<AddressGuard, "resolve">;

/** Gets URLs from addresses that the guard has checked, and from no others. Redirects are not followed. */
export const guardedFetch =
  (guard: Guard, options: FetchOptions = {}): FetchText =>
  (url) =>
    exchange(guard, url, { method: "GET" }, options);

/** Posts forms under the same rules. */
export const guardedPost =
  (guard: Guard, options: FetchOptions = {}) =>
  (url: URL, form: Record<string, string>): Promise<FetchedText> => {
    const headers = { "content-type": "application/x-www-form-urlencoded", accept: "application/json" };
    return exchange(guard, url, { method: "POST", headers, body: new URLSearchParams(form).toString() }, options);
  };

async function exchange(
  guard: Guard,
  url: URL,
  request: Pick<Dispatcher.RequestOptions, "method" | "headers" | "body">,
  { ca, timeoutMs = TIMEOUT_MS }: FetchOptions,
): Promise<FetchedText> {
  const addresses = await guard.resolve(url.hostname, effectivePort(url));
  const { lookup, autoSelectFamily, autoSelectFamilyAttemptTimeout } = connectOptions(
    url.hostname,
    effectivePort(url),
    addresses,
  );
  const client = new Client(url.origin, {
    connect: { lookup, autoSelectFamily, autoSelectFamilyAttemptTimeout, ...(ca === undefined ? {} : { ca }) },
    maxResponseSize: MAX_BYTES,
  });
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    const { statusCode, body } = await client.request({ ...request, path: url.pathname + url.search, signal });
    return { status: statusCode, text: await body.text() };
  } finally {
    await client.destroy();
  }
}
