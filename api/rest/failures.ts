import { TRPCError } from "@trpc/server";
import { isConflict } from "../../db/transaction.ts";
import { ApiError } from "../../domain/errors.ts";

const UNAVAILABLE_RETRY_SECONDS = 5;

/** Network failures on the way to Postgres. */
const UNREACHABLE: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ETIMEDOUT",
  "EPIPE",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);

/** SQLSTATEs of a server that is going down, starting, or full: connection exceptions, shutdowns, too many clients. */
const DOWN = /^(?:08...|57P0[123]|53300)$/;

/** What the driver says without any code. */
const DRIVER_SAYS =
  /connection terminated|timeout exceeded when trying to connect|connection timeout|not queryable|driver has already been destroyed|read timeout/i;

const MAX_CAUSES = 8;

/** An error with its causes, and with the errors it gathers. */
function causes(error: unknown, depth = 0): Error[] {
  if (!(error instanceof Error) || depth > MAX_CAUSES) return [];
  const gathered = error instanceof AggregateError ? error.errors : [];
  return [error, ...[error.cause, ...gathered].flatMap((inner) => causes(inner, depth + 1))];
}

const codeOf = (error: Error): string => ("code" in error && typeof error.code === "string" ? error.code : "");

/** Whether Postgres could not be reached, or went away under way. */
export function isUnreachable(error: unknown): boolean {
  return causes(error).some(
    (at) => UNREACHABLE.has(codeOf(at)) || DOWN.test(codeOf(at)) || DRIVER_SAYS.test(at.message),
  );
}

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
