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

/** Messages of driver errors that carry no code. */
const DRIVER_SAYS =
  /connection terminated|timeout exceeded when trying to connect|connection timeout|not queryable|driver has already been destroyed|read timeout/i;

const MAX_CAUSES = 8;

/** An error with its causes and, for an aggregate, its errors. */
function causes(error: unknown, depth = 0): Error[] {
  if (!(error instanceof Error) || depth > MAX_CAUSES) return [];
  const gathered = error instanceof AggregateError ? error.errors : [];
  return [error, ...[error.cause, ...gathered].flatMap((inner) => causes(inner, depth + 1))];
}

/** A driver's or Node's error code; empty without one. */
export const codeOf = (error: Error): string => ("code" in error && typeof error.code === "string" ? error.code : "");

/** Whether Postgres could not be reached, or the connection ended during a statement. */
export function isUnreachable(error: unknown): boolean {
  return causes(error).some(
    (at) => UNREACHABLE.has(codeOf(at)) || DOWN.test(codeOf(at)) || DRIVER_SAYS.test(at.message),
  );
}

/** SQLSTATEs of values that no try can write: classes 22, data exceptions, and 23, violated constraints. */
const BAD_VALUES = /^2[23]...$/;

/** Whether Postgres refuses the values themselves, so that a further try would end alike. */
export const refusesValues = (error: unknown): boolean => causes(error).some((at) => BAD_VALUES.test(codeOf(at)));

/** SQLSTATE of a statement that Postgres ended: it took longer than it may, or an administrator cancelled it. */
const QUERY_CANCELED = "57014";

/** SQLSTATE of a statement that waited for a lock longer than it may. */
const LOCK_NOT_AVAILABLE = "55P03";

/** Whether Postgres ended a statement because it waited too long for a lock. */
export const isLockTimeout = (error: unknown): boolean => causes(error).some((at) => codeOf(at) === LOCK_NOT_AVAILABLE);

/** Whether Postgres ended a statement. */
export const isCancelled = (error: unknown): boolean => causes(error).some((at) => codeOf(at) === QUERY_CANCELED);
