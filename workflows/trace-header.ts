import type { Payload } from "@temporalio/common";
import type { Headers, WorkflowInterceptorsFactory } from "@temporalio/workflow";
import { SPAN_HEADER } from "./ids.ts";

/**
 * Hands the span of the request that started or updated a workflow on to its activities. A later request replaces it:
 * the slices of a send belong to its confirm, not to its preview. The SDK's own interceptors know the start alone.
 */
export const interceptors: WorkflowInterceptorsFactory = () => {
  let span: Payload | undefined;
  const take = (headers: Headers) => {
    span = headers[SPAN_HEADER] ?? span;
  };
  const give = <Input extends { headers: Headers }>(input: Input): Input =>
    span === undefined ? input : { ...input, headers: { ...input.headers, [SPAN_HEADER]: span } };
  return {
    inbound: [
      {
        execute: (input, next) => {
          take(input.headers);
          return next(input);
        },
        handleUpdate: (input, next) => {
          take(input.headers);
          return next(input);
        },
        handleSignal: (input, next) => {
          take(input.headers);
          return next(input);
        },
      },
    ],
    outbound: [
      {
        scheduleActivity: (input, next) => next(give(input)),
        scheduleLocalActivity: (input, next) => next(give(input)),
        continueAsNew: (input, next) => next(give(input)),
      },
    ],
  };
};
