import type { Client } from "@temporalio/client";
import { transaction } from "../../db/transaction.ts";
import { orderRequest } from "../../domain/erasure/requests.ts";
import { orderImport, readImport } from "../../domain/import/stored.ts";
import { orderedStart } from "../../temporal/starts.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, tenantOf, unique } from "../support/factories.ts";
import { storeImport } from "../support/imports.ts";

/** Each takes a workflow to its path and gives its id; the history is read once the workflow has ended. */
export function importPaths(temporal: Client): Record<string, () => Promise<string>> {
  return {
    "import-checked-then-run": async () => {
      const own = await makeTeam();
      const [{ em }, tenant] = [own, tenantOf(own)];
      const csv = `email\n${unique("reader")}@example.com\n`;
      const importId = await storeImport(own, csv, { kind: "subscribers", uses: ["email"] });
      const start = orderedStart({ kind: "import", id: importId, ...tenant });
      // The second order is found by the same run, or by another one.
      await temporal.workflow.signalWithStart("orderedWorkflow", start);
      await eventually(async () => (await readImport(em, tenant, importId)).state === "CHECKED", { what: "the check" });
      await orderImport(em, tenant, importId);
      await temporal.workflow.signalWithStart("orderedWorkflow", start);
      await eventually(async () => (await readImport(em, tenant, importId)).state === "DONE", { what: "the import" });
      return start.workflowId;
    },
    "person-erased": async () => {
      const own = await makeTeam();
      const tenant = tenantOf(own);
      const asked = { kind: "ERASURE", email: `${unique("reader")}@example.com`, memberId: own.owner.id } as const;
      const id = await transaction(own.em, (em) => orderRequest(em, own.vault, tenant, asked));
      const start = orderedStart({ kind: "person", id, ...tenant });
      await temporal.workflow.signalWithStart("orderedWorkflow", start);
      await temporal.workflow.getHandle(start.workflowId).result();
      return start.workflowId;
    },
  };
}
