import type { Context } from "@temporalio/activity";
import { CancelledFailure } from "@temporalio/common";
import type { ActivityExecuteInput, ActivityInboundCallsInterceptor, Next } from "@temporalio/worker";
import type { Logger } from "pino";
import { toFailure } from "../activities/failures.ts";
import { ApiError } from "../domain/errors.ts";

/**
 * Logs every failure of an activity, scrubbed, and passes a code on to Temporal: no address, text of a server or piece of
 * SQL reaches a workflow's history.
 */
export function failuresToCodes(log: Logger): (context: Context) => { inbound: ActivityInboundCallsInterceptor } {
  return ({ info }) => ({
    inbound: {
      async execute(
        input: ActivityExecuteInput,
        next: Next<ActivityInboundCallsInterceptor, "execute">,
      ): Promise<unknown> {
        try {
          return await next(input);
        } catch (error) {
          const failure = toFailure(error);
          if (!(failure instanceof CancelledFailure)) {
            const facts = {
              activity: info.activityType,
              workflowId: info.workflowExecution?.workflowId,
              attempt: info.attempt,
              code: failure.message,
            };
            if (error instanceof ApiError) log.info(facts, "refused");
            else log.error({ ...facts, err: error }, "activity failed");
          }
          throw failure;
        }
      },
    },
  });
}
