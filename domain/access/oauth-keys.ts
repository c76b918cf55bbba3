import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from "jose";
import { ApiError } from "../errors.ts";

export const KEY_SET_TIMES = {
  /** How long a key set is used: a key that the issuer has withdrawn is accepted no longer than this. */
  lifetimeMs: 600_000,
  /** From one load to the next, also after one that failed, and for a token with an unknown key. */
  intervalMs: 10_000,
  timeoutMs: 5_000,
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
export function openIssuerKeys(url: URL, times: typeof KEY_SET_TIMES): JWTVerifyGetKey {
  let nextLoadAt = 0;
  const find = createRemoteJWKSet(url, {
    cacheMaxAge: times.lifetimeMs,
    cooldownDuration: times.intervalMs,
    timeoutDuration: times.timeoutMs,
    // The cooldown of jose begins with a load that worked.
    [customFetch]: async (...request) => {
      if (performance.now() < nextLoadAt) throw new Error("The last load of the key set has just failed");
      nextLoadAt = performance.now() + times.intervalMs;
      return fetch(...request);
    },
  });
  return async (header, token) => {
    try {
      return await find(header, token);
    } catch (error) {
      if (isTokensFault(error)) throw error;
      throw new ApiError("service_unavailable", "The keys of the OAuth issuer cannot be read at the moment.", {
        cause: error,
      });
    }
  };
}
