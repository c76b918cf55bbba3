import { ApiError, ConnectionError } from "./errors.ts";

/** Refusals after which the same request may succeed. Not `send_cap_exceeded`: its Retry-After is the next midnight. */
export const REPEATABLE_CODES: ReadonlySet<string> = new Set([
  "rate_limit_exceeded",
  "service_unavailable",
  "internal_error",
  "request_in_flight",
  "request_timeout",
]);
/** Those of them that are answered before the request begins: even a write without an Idempotency-Key had no effect. */
const REPEATABLE_WITHOUT_KEY: ReadonlySet<string> = new Set(["rate_limit_exceeded", "request_timeout"]);

/** The backoff's first bound and its largest, in ms. */
const FIRST_BOUND_MS = 500;
const LARGEST_BOUND_MS = 8_000;

/**
 * Whether the same request may be sent again after an error.
 * @param isRepeatable a second copy of the request has no second effect: a read, a dry run, or a write under an
 *   Idempotency-Key. A DELETE has none: repeated, it would answer 404 although the first one deleted the record.
 */
export function mayRetry(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof ApiError) return (isRepeatable ? REPEATABLE_CODES : REPEATABLE_WITHOUT_KEY).has(error.code);
  // A proxy counts requests before it passes them on.
  return error instanceof ConnectionError && (isRepeatable || error.status === 429);
}

/** Whether an earlier try of the same write still runs: how long it takes says nothing about the chances of this one. */
export const isInFlight = (error: unknown): boolean => error instanceof ApiError && error.code === "request_in_flight";

/**
 * Milliseconds to wait before another try: the whole of Retry-After, else exponential backoff with full jitter, anything
 * from 0 to a bound that doubles.
 * @param retry 1 for the first retry
 * @param random from 0 to 1
 */
export function retryDelayMs(error: unknown, retry: number, random: number = Math.random()): number {
  const retryAfter = error instanceof ApiError || error instanceof ConnectionError ? error.retryAfter : undefined;
  if (retryAfter !== undefined) return retryAfter * 1_000;
  return Math.round(random * Math.min(FIRST_BOUND_MS * 2 ** (retry - 1), LARGEST_BOUND_MS));
}
