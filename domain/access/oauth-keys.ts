import { createRemoteJWKSet, customFetch, errors, type FetchImplementation, type JWTVerifyGetKey } from "jose";
import { ApiError, UNAVAILABLE_RETRY_SECONDS } from "../errors.ts";

export interface KeySetTimes {
  /** How long a key set is used: a key that the issuer has withdrawn is accepted no longer than this. */
  lifetimeMs: number;
  /** How long after a load a token with an unknown key causes no other load. */
  cooldownMs: number;
  /** How long after a load that failed no other one is tried. */
  retryMs: number;
  timeoutMs: number;
}

export const KEY_SET_TIMES: KeySetTimes = {
  lifetimeMs: 600_000,
  cooldownMs: 10_000,
  retryMs: UNAVAILABLE_RETRY_SECONDS * 1_000,
  timeoutMs: 5_000,
};

/** A hundred RSA keys of 4,096 bits take a third of this. */
const MAX_KEY_SET_BYTES = 262_144;

/** A load that was not made, because the one before it failed a moment ago. */
class LoadPostponed extends Error {
  override name = "LoadPostponed";
}

const fetchBounded: FetchImplementation = async (url, options) => {
  const response = await fetch(url, options);
  const parts: Uint8Array[] = [];
  let bytes = 0;
  // Left early, the loop cancels the rest of the body.
  for await (const part of response.body ?? []) {
    bytes += part.byteLength;
    if (bytes > MAX_KEY_SET_BYTES) throw new Error(`The key set has more than ${MAX_KEY_SET_BYTES} bytes`);
    parts.push(part);
  }
  return new Response(Buffer.concat(parts), { status: response.status });
};

/** Whether the token is at fault, not the issuer: it names no key of the set, or none where several fit. */
const isTokensFault = (error: unknown): boolean =>
  error instanceof errors.JWKSNoMatchingKey ||
  error instanceof errors.JWKSMultipleMatchingKeys ||
  error instanceof errors.JOSENotSupported;

/**
 * Finds the public key of a token in the key set behind a URL, which is loaded when it is needed, too old, or lacks the key,
 * as often as `times` allow. The finder throws `service_unavailable`, or an error of jose for a key that is not there.
 */
export function openIssuerKeys(url: URL, times: KeySetTimes): JWTVerifyGetKey {
  let retryAt = 0;
  const find = createRemoteJWKSet(url, {
    cacheMaxAge: times.lifetimeMs,
    cooldownDuration: times.cooldownMs,
    timeoutDuration: times.timeoutMs,
    [customFetch]: async (...request) => {
      if (performance.now() < retryAt) throw new LoadPostponed("The last load of the key set has just failed");
      return fetchBounded(...request);
    },
  });
  return async (header, token) => {
    try {
      return await find(header, token);
    } catch (error) {
      if (isTokensFault(error)) throw error;
      if (!(error instanceof LoadPostponed)) retryAt = performance.now() + times.retryMs;
      throw new ApiError("service_unavailable", "The keys of the OAuth issuer cannot be read at the moment.", {
        retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS,
        cause: error,
      });
    }
  };
}
