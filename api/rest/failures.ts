import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { ApiError, UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";

/** The refusal while a dependency is away. */
export const unavailable = (cause: unknown, message?: string): ApiError =>
  new ApiError("service_unavailable", message, { retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS, cause });

/** What a handler threw, out of what tRPC wraps it in. */
export const thrownBy = (error: unknown): unknown =>
  error instanceof TRPCError && error.cause !== undefined ? error.cause : error;

/** Whatever was thrown, as the refusal the client sees. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // A transaction that lost against others every time it was tried may yet win.
  if (isUnreachable(error) || isConflict(error)) return unavailable(error);
  return new ApiError("internal_error", undefined, { cause: error });
}
