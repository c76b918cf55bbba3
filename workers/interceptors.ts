import type { Context } from "@temporalio/activity";
import { ApplicationFailure, CancelledFailure, defaultPayloadConverter } from "@temporalio/common";
import type { ActivityExecuteInput, ActivityInboundCallsInterceptor, Next } from "@temporalio/worker";
import type { Logger } from "pino";
import { toFailure } from "../activities/failures.ts";
import type { Progress } from "../config/progress.ts";
import { inSpan, markFailed, type SpanHeader, underSpan } from "../config/tracing.ts";
import { ApiError } from "../domain/errors.ts";
import { Refusal } from "../domain/sends/refusal.ts";
import { SPAN_HEADER } from "../temporal/ids.ts";

/**
 * Logs every failure of an activity, scrubbed, and passes a code on to Temporal: no address, text of a server or piece of
 * SQL reaches a workflow's history by a failure.
 */
export function failuresToCodes(log: Logger) {
  return ({ info }: Context) => ({
    inbound: {
      async execute(
        input: ActivityExecuteInput,
        next: Next<ActivityInboundCallsInterceptor, "execute">,
      ): Promise<unknown> {
        try {
          return await next(input);
        } catch (error) {
          const failure = toFailure(error);
          // One that only waits for its turn has not failed.
          const isWaiting = failure instanceof ApplicationFailure && failure.nextRetryDelay !== undefined;
          if (!(failure instanceof CancelledFailure) && !isWaiting) {
            const facts = {
              activity: info.activityType,
              activityId: info.activityId,
              workflowId: info.workflowExecution?.workflowId,
              runId: info.workflowExecution?.runId,
              attempt: info.attempt,
              code: failure.message,
            };
            if (error instanceof Refusal) log.info({ ...facts, reason: error.reason }, "refused");
            else if (error instanceof ApiError) log.info(facts, "refused");
            else {
              log.error({ ...facts, err: error }, "activity failed");
              markFailed(failure.message);
            }
          }
          throw failure;
        }
      },
    },
  });
}

/** Runs each activity in a span, below that of the request which its workflow carries out. */
export function traceActivities({ info }: Context) {
  return {
    inbound: {
      execute: (input: ActivityExecuteInput, next: Next<ActivityInboundCallsInterceptor, "execute">) => {
        const given = input.headers[SPAN_HEADER];
        const request = given && defaultPayloadConverter.fromPayload<SpanHeader>(given);
        const attributes = { workflow_id: info.workflowExecution?.workflowId, attempt: info.attempt };
        return underSpan(request, () =>
          inSpan({ name: `activity ${info.activityType}`, attributes }, () => next(input)),
        );
      },
    },
  };
}

/** How much longer than its time an activity may run. Temporal has timed it out; it still holds a slot of the process. */
const OVERTIME_MS = 30_000;

/** Watches each activity: one that runs on although its time has passed has hung. */
export function watchActivities(
  progress: Progress,
): (context: Context) => { inbound: ActivityInboundCallsInterceptor } {
  return ({ info }) => ({
    inbound: {
      execute: (input: ActivityExecuteInput, next: Next<ActivityInboundCallsInterceptor, "execute">) => {
        const limitMs = info.startToCloseTimeoutMs || info.scheduleToCloseTimeoutMs;
        return progress.during(`activity ${info.activityType}`, limitMs + OVERTIME_MS, () => next(input));
      },
    },
  });
}
