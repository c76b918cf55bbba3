import { ApplicationFailure, CancelledFailure, type TemporalFailure } from "@temporalio/common";
import { ApiError } from "../domain/errors.ts";
import { Refusal } from "../domain/sends/refusal.ts";

/** What of a refusal may stand in a history: codes and numbers. */
export interface RefusalDetails {
  reason?: string;
  param?: string;
  retryAfterSeconds?: number;
}

/** SQLSTATE classes of a database that is away or starting, not of a wrong statement. */
const DATABASE_AWAY = /^(08|53|57)/;

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;

/** A word for what failed, safe to stand in a history. */
export function failureCode(error: unknown): string {
  const code = codeOf(error);
  if (code === undefined) return "internal_error";
  if (DATABASE_AWAY.test(code) || /^E[A-Z]+$/.test(code)) return "dependency_unavailable";
  return /^[0-9A-Z]{5}$/.test(code) ? `database_${code}` : "internal_error";
}

/**
 * What an activity's failure becomes before Temporal writes it down: a code, without message, cause or stack, since any
 * of them may quote an address. A refusal of the domain is final; anything else is retried by the activity's policy.
 */
export function toFailure(error: unknown): TemporalFailure {
  if (error instanceof CancelledFailure) return error;
  if (error instanceof ApplicationFailure && error.details?.length) return bare(error);
  if (error instanceof ApiError) {
    const details: RefusalDetails = {
      ...(error instanceof Refusal ? { reason: error.reason } : {}),
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
