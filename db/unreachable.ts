import { NoPlaceError } from "../lib/fair-queue.ts";

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

/** SQLSTATEs of a server that is going down, starting, or takes no clients, no login or no writes: its disk is full, or it is read only. */
const DOWN = /^(?:08...|57P0[123]|53[13]00|28000|28P01|25006)$/;

const DRIVER_SAYS =
  /connection terminated|timeout exceeded when trying to connect|connection timeout|not queryable|driver has already been destroyed|read timeout/i;

const MAX_CAUSES = 8;

function causes(error: unknown, depth = 0): Error[] {
  if (!(error instanceof Error) || depth > MAX_CAUSES) return [];
  const gathered = error instanceof AggregateError ? error.errors : [];
  return [error, ...[error.cause, ...gathered].flatMap((inner) => causes(inner, depth + 1))];
}

export const codeOf = (error: Error): string => ("code" in error && typeof error.code === "string" ? error.code : "");

export function isUnreachable(error: unknown): boolean {
  return causes(error).some(
    (at) => UNREACHABLE.has(codeOf(at)) || DOWN.test(codeOf(at)) || DRIVER_SAYS.test(at.message),
  );
}

export const isReadOnly = (error: unknown): boolean => error instanceof Error && codeOf(error) === "25006";

/** SQLSTATEs of classes 22, data exceptions, and 23, violated constraints. */
const BAD_VALUES = /^2[23]...$/;

/** A further try would end alike. */
export const refusesValues = (error: unknown): boolean => causes(error).some((at) => BAD_VALUES.test(codeOf(at)));

const QUERY_CANCELED = "57014";

const LOCK_NOT_AVAILABLE = "55P03";

export const isLockTimeout = (error: unknown): boolean => causes(error).some((at) => codeOf(at) === LOCK_NOT_AVAILABLE);

export const isCancelled = (error: unknown): boolean => causes(error).some((at) => codeOf(at) === QUERY_CANCELED);

/** The caller had gone, or got its answer, before the work began: it reads no reason. */
export const isUnawaited = (error: unknown): boolean =>
  causes(error).some((at) => at instanceof NoPlaceError && !at.isAwaited);
