import { randomUUID } from "node:crypto";
import { type Client, WithStartWorkflowOperation, WorkflowIdConflictPolicy } from "@temporalio/client";
import { DefaultLogger, NativeConnection, Runtime, Worker } from "@temporalio/worker";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { preview } from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { makeAudience } from "./audience.ts";
import { type BenchReport, median, round, timed } from "./report.ts";
import { type TrivialActivities, touchUpdate, type trivialWorkflow } from "./trivial-workflow.ts";

export interface PreviewOptions extends StackChoice {
  recipients: number;
  times: number;
}

/** Calls before those that count: connections are made, caches filled. */
const WARM_UP = 5;

/**
 * Times previews over HTTP, in turns with updates-with-start of a workflow that does nothing: the difference is what the
 * API and the plan cost, the rest is Temporal's.
 */
export function benchPreview(options: PreviewOptions): Promise<BenchReport> {
  const { recipients, times } = options;
  return withStack(options, async () => {
    const { temporal, mail } = await stack();
    const { hostname, port } = new URL(mail.smtp);
    const sender = await makeAudience({ recipients, connections: 1, smtp: { host: hostname, port: Number(port) } });
    Runtime.install({ logger: new DefaultLogger("ERROR") });
    const connection = await NativeConnection.connect({ address: temporal.address });
    const { client, close } = await temporalClient();
    const taskQueue = `bench-${randomUUID()}`;
    const activities: TrivialActivities = { nothing: async () => {} };
    const worker = await Worker.create({
      connection,
      namespace: temporal.namespace,
      taskQueue,
      workflowsPath: `${import.meta.dirname}/trivial-workflow.ts`,
      activities: { ...activities },
    });
    const kinds = {
      preview: async () => {
        const { status, text } = await preview(sender);
        if (status !== 200) throw new Error(`a preview was answered with ${status}: ${text}`);
      },
      bare: () => touch(client, taskQueue, false),
      activity: () => touch(client, taskQueue, true),
    };
    const latencies: Record<keyof typeof kinds, number[]> = { preview: [], bare: [], activity: [] };
    try {
      await worker.runUntil(async () => {
        for (let i = -WARM_UP; i < times; i++) {
          for (const kind of ["preview", "bare", "activity"] as const) {
            const { ms } = await timed(kinds[kind]);
            if (i >= 0) latencies[kind].push(ms);
          }
        }
      });
    } finally {
      await close();
      await connection.close();
    }
    const bare = median(latencies.bare);
    const row = (what: string, values: readonly number[]) => ({
      what,
      "median ms": round(median(values), 1),
      "fastest ms": round(Math.min(...values), 1),
      "over bare, ms": round(median(values) - bare, 1),
      "times bare": round(median(values) / bare, 2),
    });
    return {
      bench: "preview",
      options: { recipients, times },
      tables: {
        Latency: [
          row(`preview of ${recipients} over HTTP`, latencies.preview),
          row("update-with-start with an empty activity", latencies.activity),
          row("update-with-start, bare", latencies.bare),
        ],
      },
      problems: [],
    };
  });
}

async function touch(client: Client, taskQueue: string, activity: boolean): Promise<void> {
  const startWorkflowOperation = new WithStartWorkflowOperation<typeof trivialWorkflow>("trivialWorkflow", {
    workflowId: `bench/${randomUUID()}`,
    taskQueue,
    args: [],
    workflowIdConflictPolicy: WorkflowIdConflictPolicy.FAIL,
  });
  await client.workflow.executeUpdateWithStart(touchUpdate, { args: [{ activity }], startWorkflowOperation });
}
