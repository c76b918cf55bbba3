import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { isCancelled, isLockTimeout, isUnreachable } from "../../db/unreachable.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../domain/errors.ts";
import { shortened } from "./messages.ts";

/** The longest message, in characters. Twenty problems fit, each with a list of the values that a field may have. */
const MAX_MESSAGE = 8_000;

/** The refusal while a dependency is not reachable, or takes too long. */
export const unavailable = (cause: unknown): ApiError => new ApiError("service_unavailable", undefined, { cause });

/** The error that a middleware or handler threw, without tRPC's wrapper. */
export const thrownBy = (error: unknown): unknown =>
  error instanceof TRPCError && (error.cause instanceof ApiError || error.code === "INTERNAL_SERVER_ERROR")
    ? (error.cause ?? error)
    : error;

const CALL_REFUSALS: Partial<Record<TRPCError["code"], ErrorCode>> = {
  NOT_FOUND: "not_found",
  METHOD_NOT_SUPPORTED: "method_not_allowed",
  BAD_REQUEST: "validation_failed",
  PARSE_ERROR: "invalid_json",
  UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
  PAYLOAD_TOO_LARGE: "payload_too_large",
};

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // A call that tRPC itself refused, such as one of a procedure that does not exist.
  const code = error instanceof TRPCError && CALL_REFUSALS[error.code];
  if (code) return new ApiError(code, "The console does not know this call; reload the page.", { cause: error });
  // Express gives a status to the error of a path that it cannot decode.
  if (error instanceof URIError && "status" in error) {
    return new ApiError("validation_failed", "The path is not correctly percent-encoded.", { cause: error });
  }
  // A transaction that met a conflict at each of its tries, or waited too long for a lock, may still succeed later.
  const isForNow = isUnreachable(error) || isConflict(error) || isCancelled(error) || isLockTimeout(error);
  if (isForNow) return unavailable(error);
  return new ApiError("internal_error", undefined, { cause: error });
}

/** The facts of a refusal that every caller gets. The cause of a failure is in the log, under the request's id. */
export function refusalFacts(error: ApiError) {
  const { status, type, meaning } = ERRORS[error.code];
  const message = status === 500 ? meaning : shortened(error.message, MAX_MESSAGE);
  return { type, code: error.code, status, message, param: error.param };
}
