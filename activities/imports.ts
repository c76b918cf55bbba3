import { Context } from "@temporalio/activity";
import { forTenant } from "../db/orm.ts";
import { isConflict } from "../db/transaction.ts";
import { isLockTimeout, isUnreachable } from "../db/unreachable.ts";
import { carryOutImport, failImport, readUnfinishedImports } from "../domain/import/stored.ts";
import { importWorkflowId } from "../temporal/ids.ts";
import { type ImportInput, importStart } from "../temporal/starts.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { placesForLongWork, tryAgain } from "./long-work.ts";
import { forEachAlone, readLatestRun } from "./starts.ts";

/** A failure of the service that lasts so long is shown to the member, who may try again. */
const MOST_FAILURES = 5;

const runInPlace = placesForLongWork();

export type ImportActivities = ReturnType<typeof createImportActivities>;

export function createImportActivities({ orm, vault, log, stopping }: ActivityDeps) {
  /** Of each import in this process. An attempt that finds no place is none. */
  const failures = new Map<string, number>();
  return {
    /** Checks, imports or undoes a file, as the import's state orders. @returns its state at the end */
    runImport: ({ importId, teamId, environment }: ImportInput): Promise<{ state: string }> =>
      whileBeating(async () => {
        const { cancellationSignal } = Context.current();
        const tenant = { teamId, environment };
        const em = forTenant(orm.em, tenant);
        const signal = AbortSignal.any([stopping, cancellationSignal]);
        const carryOut = async () => {
          try {
            const state = await carryOutImport(em, vault, tenant, importId, signal);
            failures.delete(importId);
            return { state };
          } catch (error) {
            if (signal.aborted || isConflict(error) || isLockTimeout(error) || isUnreachable(error)) throw error;
            const failed = (failures.get(importId) ?? 0) + 1;
            failures.set(importId, failed);
            if (failed < MOST_FAILURES) throw error;
            failures.delete(importId);
            log.error({ importId, teamId, err: error }, "an import failed for good");
            await failImport(em, tenant, importId, "The service failed. Try again, or ask its operator.");
            return { state: "FAILED" };
          }
        };
        return runInPlace(teamId, carryOut, tryAgain);
      }),
  };
}

/** Starts the workflows of imports that are missing. One that an operator has ended fails its import. */
export async function reconcileImports({ orm, log }: ActivityDeps): Promise<void> {
  const { client } = Context.current();
  await forEachAlone(client, log, "imports", await readUnfinishedImports(orm.em.fork()), async (unfinished) => {
    const { id: importId, ...tenant } = unfinished;
    const { end } = await readLatestRun(client, importWorkflowId(importId));
    if (end === "cut_off")
      await failImport(orm.em.fork(), tenant, importId, "An operator of the service has ended it.");
    else if (end !== "running") {
      await client.workflow.signalWithStart("importWorkflow", importStart({ importId, ...tenant }));
      log.warn({ importId, end }, "an import had no workflow; it has one");
    }
  });
}
