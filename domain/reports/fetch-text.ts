import { Client } from "undici";
import type { AddressGuard } from "../address-guard.ts";
import { connectOptions } from "../connect-options.ts";
import { effectivePort } from "../webhooks/url-guard.ts";

/** The status and the body of the answer to a GET. @throws {Error} when there is no whole answer in time */
export type FetchText = (url: URL) => Promise<{ status: number; text: string }>;

const TIMEOUT_MS = 5_000;
/** A certificate has about 2 KiB. */
const MAX_BYTES = 65_536;

/**
 * Opens URLs over addresses that the guard has checked, and no others. Redirects are not followed.
 * @param ca certificates to trust instead of the well-known ones
 */
export const guardedFetch =
  (guard: Pick<AddressGuard, "resolve">, { ca }: { ca?: string } = {}): FetchText =>
  async (url) => {
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
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const { statusCode, body } = await client.request({ method: "GET", path: url.pathname + url.search, signal });
      return { status: statusCode, text: await body.text() };
    } finally {
      await client.destroy();
    }
  };
