import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { status as grpc } from "@grpc/grpc-js";
import {
  type Client,
  isGrpcServiceError,
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowUpdateFailedError,
} from "@temporalio/client";
import { ApplicationFailure } from "@temporalio/common";
import type { Tenant } from "../../db/orm.ts";
import type { IdempotencyHandle } from "../../domain/access/idempotency.ts";
import { ApiError, isErrorCode } from "../../domain/errors.ts";
import { idOfBytes } from "../../domain/ids.ts";
import { TOKEN_LIFETIME_SECONDS } from "../../domain/sends/plan/token.ts";
import { isRefusalReason, Refusal, type RefusalDetails } from "../../domain/sends/refusal.ts";
import type { ResourceType, SendResource } from "../../domain/sends/resource.ts";
import { sendWorkflowId, WAKE_UP } from "../../temporal/ids.ts";
import { type SendStart, sendStart } from "../../temporal/starts.ts";
import type { sendWorkflow } from "../../workflows/send.ts";
import type { confirmUpdate, previewUpdate } from "../../workflows/send-messages.ts";
import type { RequestContext } from "../context.ts";
import type { TemporalGateway } from "../temporal-gateway.ts";

/** How long an update waits that Temporal would not take; by then the gateway has tried it ten times, at growing intervals. */
const BUSY_WAIT_MS = 1_000;

type UpdateName = (typeof previewUpdate | typeof confirmUpdate)["name"];

/**
 * The id of the preview that an attempt under an Idempotency-Key makes. It is derived, so that a retry after a timeout
 * finds the workflow that the first try started.
 */
export function previewIdFor({ teamId, environment, keyHash, attempt }: IdempotencyHandle): string {
  const digest = createHash("sha256")
    .update(JSON.stringify([teamId, environment, keyHash, attempt]))
    .digest();
  return idOfBytes("send", digest.subarray(0, 16));
}

interface UpdateRequest<Args> {
  name: UpdateName;
  waitMs: number;
  tenant: Tenant;
  resource: SendResource;
  previewId: string;
  /** Unique per attempt: Temporal answers a repeated one from memory. */
  updateId: string;
  args: Args;
  /** Called again before each try: refuses as soon as Postgres holds the reason. */
  recheck?: () => Promise<void>;
}

/**
 * Runs an update on a send's workflow, starting it where it does not run.
 * @throws {ApiError} the refusal of the workflow, or `service_unavailable` when no worker answered in time. What has begun
 * then continues: a retry under the same Idempotency-Key finds it
 */
export function runSendUpdate<Args>(temporal: TemporalGateway, request: UpdateRequest<Args>): Promise<void> {
  return temporal.call(request.waitMs, async (client) => {
    for (;;) {
      try {
        return await updateOnce(client, request);
      } catch (error) {
        if (error instanceof WorkflowUpdateFailedError) throw toRefusal(error.cause, request.resource.type);
        if (!isBusy(error)) throw error;
        await delay(BUSY_WAIT_MS);
        await request.recheck?.();
      }
    }
  });
}

const isBusy = (error: unknown): boolean =>
  isGrpcServiceError(error)
    ? error.code === grpc.RESOURCE_EXHAUSTED // as many updates in flight as the workflow takes
    : error instanceof Error && error.cause !== undefined && isBusy(error.cause);

async function updateOnce<Args>(client: Client, request: UpdateRequest<Args>): Promise<void> {
  const { tenant, resource, previewId, updateId, args } = request;
  const input: SendStart = { ...tenant, resource, previewId, expiresInMs: TOKEN_LIFETIME_SECONDS * 1000 };
  const start = new WithStartWorkflowOperation<typeof sendWorkflow>("sendWorkflow", {
    ...sendStart(input),
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
  });
  await client.workflow.executeUpdateWithStart(request.name, {
    updateId,
    args: [args],
    startWorkflowOperation: start,
  });
}

const WAKE_UP_MS = 10_000;

/** Makes the workflow of a send read its state in Postgres, beside the request. A signal that is lost the reconciler repeats. */
export function wakeUpSend({ temporal, log }: Pick<RequestContext, "temporal" | "log">, sendId: string): void {
  temporal
    .call(WAKE_UP_MS, (client) => client.workflow.getHandle(sendWorkflowId(sendId)).signal(WAKE_UP))
    .catch((err) => log.warn({ err, sendId }, "a send was not woken up; the reconciler does it"));
}

/** The one place where a workflow's failure becomes the API's answer. */
function toRefusal(cause: unknown, type: ResourceType): ApiError {
  if (!(cause instanceof ApplicationFailure) || !isErrorCode(cause.type)) {
    return new ApiError("internal_error", undefined, { cause });
  }
  const [details = {}] = (cause.details ?? []) as RefusalDetails[];
  const { reason, param, complaints, retryAfterSeconds } = details;
  if (isRefusalReason(reason)) return new Refusal(cause.type, reason, { type, complaints, retryAfterSeconds });
  return new ApiError(cause.type, undefined, { param, retryAfterSeconds });
}
