import { ApplicationFailure, CancelledFailure, type TemporalFailure } from "@temporalio/common";
import { codeOf, isUnreachable } from "../db/unreachable.ts";
import { ApiError } from "../domain/errors.ts";
import { Refusal, type RefusalDetails } from "../domain/sends/refusal.ts";

/** A code for a failure, safe for a history. */
function failureCode(error: unknown): string {
  if (isUnreachable(error)) return "dependency_unavailable";
  const code = error instanceof Error ? codeOf(error) : "";
  return /^[0-9A-Z]{5}$/.test(code) ? `database_${code}` : "internal_error";
}

/**
 * Turns a failure into a code before Temporal records it: message, cause and stack may quote an address. A refusal of
 * the domain is final; anything else is retried.
 */
export function toFailure(error: unknown): TemporalFailure {
  if (error instanceof CancelledFailure) return error;
  // One of ours: its message is a code.
  if (error instanceof ApplicationFailure && (error.details?.length || error.nextRetryDelay)) return bare(error);
  if (error instanceof ApiError) {
    const details: RefusalDetails = {
      ...(error instanceof Refusal && { reason: error.reason, complaints: error.complaints }),
      ...(error.param === undefined ? {} : { param: error.param }),
      ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
    };
    return bare(
      ApplicationFailure.create({ message: error.code, type: error.code, nonRetryable: true, details: [details] }),
    );
  }
  const code = failureCode(error);
  return bare(ApplicationFailure.create({ message: code, type: code }));
}

function bare<T extends Error>(failure: T): T {
  failure.stack = "";
  return failure;
}
