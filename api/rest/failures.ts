import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { isCancelled, isUnreachable } from "../../db/unreachable.ts";
import { ApiError, ERRORS, UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import { shortened } from "./messages.ts";

/** The longest message, in characters. Twenty problems fit, each with a list of the values that a field may have. */
const MAX_MESSAGE = 8_000;

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

/** The facts of a refusal that every caller gets. The cause of a failure is in the log, under the request's id. */
export function refusalFacts(error: ApiError) {
  const { status, type, meaning } = ERRORS[error.code];
  const message = status === 500 ? meaning : shortened(error.message, MAX_MESSAGE);
  return { type, code: error.code, status, message, param: error.param };
}
