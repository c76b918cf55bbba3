import { defaultPayloadConverter, type Payload } from "@temporalio/common";
import type { Headers, WorkflowInterceptorsFactory } from "@temporalio/workflow";
import { SPAN_HEADER } from "../temporal/ids.ts";

const isSampled = (span: Payload) =>
  defaultPayloadConverter.fromPayload<{ traceparent?: string }>(span).traceparent !== undefined;

/**
 * Hands the span of the request that started or updated a workflow on to its activities; a later one that is sampled
 * replaces it. `@temporalio/interceptors-opentelemetry` knows the start alone, so that slices would belong to the preview
 * of their send; it records messages of errors and brings OpenTelemetry 1.x into each workflow.
 */
export const interceptors: WorkflowInterceptorsFactory = () => {
  let span: Payload | undefined;
  const take = ({ [SPAN_HEADER]: given }: Headers) => {
    if (given && (span === undefined || isSampled(given))) span = given;
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
