import { ApiError, ConnectionError } from "./errors.ts";

/** Not `send_cap_exceeded`: its Retry-After is the next midnight. */
export const REPEATABLE_CODES: ReadonlySet<string> = new Set([
  "rate_limit_exceeded",
  "service_unavailable",
  "internal_error",
  "request_in_flight",
  "request_timeout",
]);
/** Answered before the request begins: even a write without an Idempotency-Key had no effect. */
const REPEATABLE_WITHOUT_KEY: ReadonlySet<string> = new Set(["rate_limit_exceeded", "request_timeout"]);

const FIRST_BOUND_MS = 500;
const LARGEST_BOUND_MS = 8_000;

/**
 * @param isRepeatable a read, a dry run, or a write under an Idempotency-Key. Not a DELETE: repeated, it would answer 404.
 */
export function mayRetry(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof ApiError) return (isRepeatable ? REPEATABLE_CODES : REPEATABLE_WITHOUT_KEY).has(error.code);
  // A proxy counts requests before it passes them on.
  return error instanceof ConnectionError && (isRepeatable || error.status === 429);
}

/** How long the earlier try takes says nothing about the chances of this one. */
export const isInFlight = (error: unknown): boolean => error instanceof ApiError && error.code === "request_in_flight";

/**
 * The whole of Retry-After, else exponential backoff with full jitter. @param retry 1 for the first @param random from 0 to 1
 */
export function retryDelayMs(error: unknown, retry: number, random: number = Math.random()): number {
  const retryAfter = error instanceof ApiError || error instanceof ConnectionError ? error.retryAfter : undefined;
  if (retryAfter !== undefined) return retryAfter * 1_000;
  return Math.round(random * Math.min(FIRST_BOUND_MS * 2 ** (retry - 1), LARGEST_BOUND_MS));
}
