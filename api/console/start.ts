import { ApiError } from "../../domain/errors.ts";
import { type OrderedWork, orderedStart } from "../../temporal/starts.ts";
import type { RequestContext } from "../context.ts";

const START_MS = 5_000;

/** The order is committed: where its workflow cannot be started, the reconciler does so within a minute or two. */
export async function startOrdered(
  { temporal, tenant, log }: RequestContext,
  kind: OrderedWork["kind"],
  id: string,
): Promise<void> {
  const start = orderedStart({ kind, id, ...tenant });
  try {
    await temporal.call(START_MS, (client) => client.workflow.signalWithStart("orderedWorkflow", start));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    log.warn({ kind, id, code: error.code }, "the workflow of an order is started later");
  }
}
