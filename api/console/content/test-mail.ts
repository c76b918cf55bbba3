import { WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import { ApiError } from "../../../domain/errors.ts";
import type { TestMail, TestOutcome } from "../../../domain/sends/plan/test-mail.ts";
import { testMailStart } from "../../../temporal/starts.ts";
import type { testMailWorkflow } from "../../../workflows/test-mail.ts";
import type { TemporalGateway } from "../../temporal-gateway.ts";

const START_MS = 5_000;
const WAIT_MS = 30_000;

/** Sends a test mail, and waits for its end: outcomes are unknown when it takes longer. One with the same id is sent once. */
export async function runTestMail(temporal: TemporalGateway, test: TestMail): Promise<TestOutcome[]> {
  const start = testMailStart(test);
  await temporal.call(START_MS, ({ workflow }) =>
    workflow
      .start<typeof testMailWorkflow>("testMailWorkflow", { ...start, workflowIdReusePolicy: "REJECT_DUPLICATE" })
      .catch((error) => {
        if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      }),
  );
  try {
    const handle = ({ workflow }: Parameters<Parameters<TemporalGateway["call"]>[1]>[0]) =>
      workflow.getHandle<typeof testMailWorkflow>(start.workflowId).result();
    return await temporal.call(WAIT_MS, handle);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return test.memberIds.map((memberId) => ({ memberId, outcome: "unknown", reason: "under_way" }));
  }
}
