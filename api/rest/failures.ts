import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { isUnreachable } from "../../db/unreachable.ts";
import { ApiError } from "../../domain/errors.ts";

const UNAVAILABLE_RETRY_SECONDS = 5;

/** The refusal while a dependency is not reachable. */
export const unavailable = (cause: unknown): ApiError =>
  new ApiError("service_unavailable", undefined, { retryAfterSeconds: UNAVAILABLE_RETRY_SECONDS, cause });

/** The error that a middleware or handler threw, without tRPC's wrapper. */
export const thrownBy = (error: unknown): unknown =>
  error instanceof TRPCError && error.cause !== undefined ? error.cause : error;

/** Any error as the refusal the client sees. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // A transaction that met a conflict at each of its tries may still succeed later.
  if (isUnreachable(error) || isConflict(error)) return unavailable(error);
  return new ApiError("internal_error", undefined, { cause: error });
}
