import { Context } from "@temporalio/activity";
import { ApplicationFailure } from "@temporalio/common";
import { forTenant } from "../db/orm.ts";
import { isConflict } from "../db/transaction.ts";
import { isLockTimeout, isUnreachable } from "../db/unreachable.ts";
import { carryOutRequest, failRequest, readUnfinishedRequests } from "../domain/erasure/requests.ts";
import { carryOutImport, failImport, readUnfinishedImports } from "../domain/import/stored.ts";
import { type OrderedWork, orderedStart } from "../temporal/starts.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { placesForLongWork, tryAgain } from "./long-work.ts";
import { forEachAlone, readLatestRun } from "./starts.ts";

/** A failure of the service that lasts so long is shown to the member, who may try again. */
const MOST_FAILURES = 5;
/** Work that is RUNNING still leaves its place: it waits for transactions of others, or another process does it. */
const LOOK_LATER_MS = 60_000;

const KINDS = {
  import: { carryOut: carryOutImport, fail: failImport, readUnfinished: readUnfinishedImports },
  person: { carryOut: carryOutRequest, fail: failRequest, readUnfinished: readUnfinishedRequests },
};
/** Of all kinds together: a process has ten connections, and each work holds two. */
const runInPlace = placesForLongWork();

export type OrderedWorkActivities = ReturnType<typeof createOrderedWorkActivities>;

export function createOrderedWorkActivities({ orm, vault, log, stopping }: ActivityDeps) {
  /** Of each row in this process. An attempt that finds no place is none. */
  const failures = new Map<string, number>();
  return {
    /** Does what the state of the row orders, and continues where an attempt before was cut off. @returns its state at the end */
    runOrdered: ({ kind, id, ...tenant }: OrderedWork): Promise<{ state: string }> =>
      whileBeating(async (report) => {
        const em = forTenant(orm.em, tenant);
        const signal = AbortSignal.any([stopping, Context.current().cancellationSignal]);
        const carryOut = async () => {
          try {
            const state = await KINDS[kind].carryOut(em, vault, tenant, id, signal, (step) => report({ step }));
            failures.delete(id);
            return state === "RUNNING" ? tryAgain("running", LOOK_LATER_MS) : { state };
          } catch (error) {
            const isPassing = isConflict(error) || isLockTimeout(error) || isUnreachable(error);
            if (signal.aborted || isPassing || error instanceof ApplicationFailure) throw error;
            const failed = (failures.get(id) ?? 0) + 1;
            failures.set(id, failed);
            if (failed < MOST_FAILURES) throw error;
            failures.delete(id);
            log.error({ kind, id, teamId: tenant.teamId, err: error }, "ordered work failed for good");
            await KINDS[kind].fail(em, tenant, id, "The service failed. Try again, or ask its operator.");
            return { state: "FAILED" };
          }
        };
        return runInPlace(tenant.teamId, carryOut, tryAgain);
      }),
  };
}

/** Starts the workflows that are missing. Where an operator has ended one, its work fails. */
export async function reconcileOrderedWork({ orm, log }: ActivityDeps): Promise<void> {
  const { client } = Context.current();
  for (const kind of ["import", "person"] as const) {
    const { readUnfinished, fail } = KINDS[kind];
    await forEachAlone(client, log, kind, await readUnfinished(orm.em.fork()), async ({ id, ...tenant }) => {
      const start = orderedStart({ kind, id, ...tenant });
      const { end } = await readLatestRun(client, start.workflowId);
      if (end === "cut_off") await fail(orm.em.fork(), tenant, id, "An operator of the service has ended it.");
      else if (end !== "running") {
        await client.workflow.signalWithStart("orderedWorkflow", start);
        log.warn({ kind, id, end }, "ordered work had no workflow; it has one");
      }
    });
  }
}
