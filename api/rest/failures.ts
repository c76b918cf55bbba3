import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { isCancelled, isUnreachable } from "../../db/unreachable.ts";
import { ApiError, UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";

/** The refusal while a dependency is not reachable, or takes too long. */
export const unavailable = (cause: unknown): ApiError =>
  new ApiError("service_unavailable", undefined, { retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS, cause });

/** The error that a middleware or handler threw, without tRPC's wrapper. */
export const thrownBy = (error: unknown): unknown =>
  error instanceof TRPCError && error.cause !== undefined ? error.cause : error;

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // A transaction that met a conflict at each of its tries, or waited too long for a lock, may still succeed later.
  if (isUnreachable(error) || isConflict(error) || isCancelled(error)) return unavailable(error);
  return new ApiError("internal_error", undefined, { cause: error });
}
