import { ActivityFailure, ApplicationFailure, TimeoutFailure } from "@temporalio/workflow";
import type { RefusalDetails } from "../domain/sends/refusal.ts";

/** Without a limit an activity would be tried for ever where no operator sees it. */
export const STEP_RETRY = {
  initialInterval: "500 milliseconds",
  backoffCoefficient: 4,
  maximumAttempts: 3,
} as const;

/** A step that failed three times, with its code and the time of its next try, in ms of the workflow's clock. */
export interface FailingStep {
  step: string;
  code: string;
  until: number;
}

/** A wait that doubles with each `count` from 1, in ms. */
const doublingMs = (firstMs: number, longestMs: number, count: number): number =>
  Math.min(firstMs * 2 ** (Math.max(1, count) - 1), longestMs);

/** How long a workflow waits after a step's `round`th three tries, at most. */
export const stepWaitMs = (round: number, longestMs = 60_000): number => doublingMs(5_000, longestMs, round);

/** How long a send waits after its account failed for the `count`th time in a row. */
export const accountFailureWaitMs = (count: number): number => doublingMs(5_000, 5 * 60_000, count);

/** The code of an activity's failure, e.g. `dependency_unavailable`; `worker_lost` when no worker answered. */
export function failureCodeOf(error: unknown): string {
  const failure = causeOf(error);
  if (failure instanceof ApplicationFailure) return failure.type ?? "internal_error";
  return failure instanceof TimeoutFailure ? "worker_lost" : "internal_error";
}

export const instantOf = (ms: number): string => new Date(ms).toISOString();

export function failingStep({ step, code, until }: FailingStep, updates: string): string {
  return `The step "${step}" failed three times (${code}); tries again at ${instantOf(until)}. Updates: ${updates}.`;
}

/** A local activity fails with its failure itself, any other with one around it. */
const causeOf = (error: unknown): unknown => (error instanceof ActivityFailure ? error.cause : error);

/** Whether an activity failed with a refusal of the domain, so that it changed nothing; else Postgres may have its effect. */
export const isRefusal = (error: unknown): boolean => refusalIn(error) !== undefined;

function refusalIn(error: unknown): ApplicationFailure | undefined {
  const failure = causeOf(error);
  return failure instanceof ApplicationFailure && failure.nonRetryable ? failure : undefined;
}

export function refusalText({ type, details }: ApplicationFailure): string {
  const [{ reason } = {}] = (details ?? []) as RefusalDetails[];
  return `${type ?? "internal_error"}${reason === undefined ? "" : ` (${reason})`}`;
}

/**
 * The code of a domain's refusal, else `service_unavailable`. An update fails with an ApplicationFailure only: another
 * error would block the workflow's task.
 */
export function refusalOf(error: unknown): ApplicationFailure {
  const failure = refusalIn(error);
  if (!failure) return ApplicationFailure.nonRetryable("service_unavailable", "service_unavailable");
  const type = failure.type ?? "internal_error";
  return ApplicationFailure.create({ message: type, type, nonRetryable: true, details: failure.details ?? [] });
}
