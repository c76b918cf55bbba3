import { status as grpc } from "@grpc/grpc-js";
import {
  Client,
  Connection,
  type ConnectionOptions,
  defaultGrpcRetryOptions,
  isGrpcServiceError,
  makeGrpcRetryInterceptor,
  type WorkflowClientInterceptor,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from "@temporalio/client";
import { defaultPayloadConverter, type Headers } from "@temporalio/common";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { Env } from "../config/env.ts";
import { inSpan, markFailed, spanHeader } from "../config/tracing.ts";
import { ApiError } from "../domain/errors.ts";
import { SPAN_HEADER } from "../temporal/ids.ts";

/** Calls the Temporal cluster. The cluster may not be reachable, so every call has a deadline. */
export interface TemporalGateway {
  /**
   * Runs calls to Temporal that must be answered within `deadlineMs`.
   * @throws {ApiError} `service_unavailable` when the cluster or its workers do not answer in time
   */
  call<T>(deadlineMs: number, work: (client: Client) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Codes of calls that fail while the cluster or its workers do not answer. */
const UNREACHABLE_CODES: ReadonlySet<number> = new Set([
  grpc.CANCELLED,
  grpc.DEADLINE_EXCEEDED,
  grpc.RESOURCE_EXHAUSTED,
  grpc.UNAVAILABLE,
]);

/** A frontend that restarts answers by the third try; a longer outage is reported to the client. */
const MAX_TRIES_UNAVAILABLE = 3;

/** The SDK's own retries, except that they end early while the cluster refuses connections. */
function retries() {
  const standard = defaultGrpcRetryOptions();
  return makeGrpcRetryInterceptor({
    ...standard,
    retryableDecider: (attempt, status) =>
      (status.code !== grpc.UNAVAILABLE || attempt < MAX_TRIES_UNAVAILABLE) &&
      standard.retryableDecider(attempt, status),
  });
}

/** The cluster has taken an update, and its answer has not come. */
const isLate = (error: unknown): boolean => error instanceof WorkflowUpdateRPCTimeoutOrCancelledError;

function isAway(error: unknown): boolean {
  if (isLate(error)) return true;
  if (isGrpcServiceError(error)) return UNREACHABLE_CODES.has(error.code);
  return error instanceof Error && error.cause !== undefined && isAway(error.cause);
}

function withSpan(headers: Headers): Headers {
  const span = spanHeader();
  return span === undefined ? headers : { ...headers, [SPAN_HEADER]: defaultPayloadConverter.toPayload(span) };
}

const inCallSpan = <T>(name: string, workflowId: string | undefined, call: () => Promise<T>): Promise<T> =>
  inSpan({ name, kind: "CLIENT", isPart: true, attributes: { workflow_id: workflowId } }, () =>
    call().catch((error) => {
      if (isAway(error)) markFailed("temporal_away");
      throw error;
    }),
  );

/** Gives a workflow the span of the request that starts or updates it. */
const handSpanOn: WorkflowClientInterceptor = {
  startWithDetails: (input, next) =>
    inCallSpan(`start ${input.workflowType}`, input.options.workflowId, () =>
      next({ ...input, headers: withSpan(input.headers) }),
    ),
  signalWithStart: (input, next) =>
    inCallSpan(`signal ${input.workflowType} ${input.signalName}`, input.options.workflowId, () =>
      next({ ...input, headers: withSpan(input.headers) }),
    ),
  startUpdateWithStart: (input, next) =>
    inCallSpan(`update ${input.workflowType} ${input.updateName}`, input.workflowStartOptions.workflowId, () =>
      next({
        ...input,
        workflowStartHeaders: withSpan(input.workflowStartHeaders),
        updateHeaders: withSpan(input.updateHeaders),
      }),
    ),
};

/** A gateway that connects when it is first used, so that the API starts and reads while Temporal is not reachable. */
export function openTemporal(env: Env): TemporalGateway {
  const { connectionOptions } = loadClientConnectConfig();
  const options: ConnectionOptions = {
    ...connectionOptions,
    address: env.TEMPORAL_ADDRESS,
    interceptors: [retries()],
  };
  const connection = Connection.lazy(options);
  const interceptors = { workflow: [handSpanOn] };
  const client = new Client({ connection, namespace: env.TEMPORAL_NAMESPACE, interceptors });

  const underWay = new Set<Promise<unknown>>();

  const within = async <T>(deadlineMs: number, work: (client: Client) => Promise<T>): Promise<T> => {
    const call = connection.withDeadline(Date.now() + deadlineMs, () => work(client));
    underWay.add(call);
    try {
      return await call;
    } catch (error) {
      if (!isAway(error)) throw error;
      const message = isLate(error)
        ? "There was no answer in time. What the request has begun continues: repeat it with the same Idempotency-Key."
        : "Temporal is not reachable.";
      throw new ApiError("service_unavailable", message, { cause: error });
    } finally {
      underWay.delete(call);
    }
  };
  return {
    call: within,
    close: async () => {
      // A retry on a closed channel would throw outside of any caller's reach.
      await Promise.allSettled(underWay);
      await connection.close();
    },
  };
}
