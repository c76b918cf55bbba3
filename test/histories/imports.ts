import type { Client } from "@temporalio/client";
import { beginUpload, orderCheck, orderImport, readImport, storePart } from "../../domain/import/stored.ts";
import { importStart } from "../../workflows/start.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, unique } from "../support/factories.ts";

/** Each takes a workflow to its path and gives its id; the history is read once the workflow has ended. */
export function importPaths(temporal: Client): Record<string, () => Promise<string>> {
  return {
    "import-checked-then-run": async () => {
      const { em, team, owner } = await makeTeam();
      const tenant = { teamId: team.id, environment: "LIVE" } as const;
      const bytes = Buffer.from(`email\n${unique("reader")}@example.com\n`);
      const importId = await beginUpload(em, tenant, owner.id, { name: "people.csv", size: bytes.length });
      await storePart(em, tenant, importId, 0, bytes);
      await orderCheck(em, tenant, importId, { kind: "subscribers", uses: ["email"] });
      const start = importStart({ importId, ...tenant });
      // The second order is found by the same run, or by another one.
      await temporal.workflow.signalWithStart("importWorkflow", start);
      await eventually(async () => (await readImport(em, tenant, importId)).state === "CHECKED", { what: "the check" });
      await orderImport(em, tenant, importId);
      await temporal.workflow.signalWithStart("importWorkflow", start);
      await eventually(async () => (await readImport(em, tenant, importId)).state === "DONE", { what: "the import" });
      return start.workflowId;
    },
  };
}
