import assert from "node:assert/strict";
import {
  bundleWorkflowCode,
  DefaultLogger,
  NativeConnection,
  Worker,
  type WorkflowBundleOption,
} from "@temporalio/worker";
import { DeterminismViolationError } from "@temporalio/workflow";
import type { WorkflowHistory } from "../histories/files.ts";
import { unique } from "../support/factories.ts";
import { installQuietRuntime } from "../support/quiet-runtime.ts";
import { stack } from "../support/stack.ts";
import { temporalClient } from "../support/temporal.ts";

type Version = "asItWas" | "knows" | "takes";

describe("A change of a workflow's commands", () => {
  let workflowBundle: WorkflowBundleOption;

  before(async () => {
    installQuietRuntime();
    workflowBundle = await bundleWorkflowCode({
      workflowsPath: `${import.meta.dirname}/changing.ts`,
      logger: new DefaultLogger("ERROR", () => {}),
    });
  });

  /** Runs the workflow of a version. @returns its result and its history */
  async function run(version: Version): Promise<{ result: string; history: WorkflowHistory }> {
    const { temporal } = await stack();
    const { client, close } = await temporalClient();
    const connection = await NativeConnection.connect({ address: temporal.address });
    const taskQueue = unique("changes");
    try {
      const worker = await Worker.create({ connection, namespace: temporal.namespace, taskQueue, workflowBundle });
      const handle = await client.workflow.start(version, { taskQueue, workflowId: taskQueue });
      const result: string = await worker.runUntil(handle.result());
      return { result, history: await handle.fetchHistory() };
    } finally {
      await connection.close();
      await close();
    }
  }

  /** Replays a history on another version. @returns the error */
  async function replayOn(version: Version, history: WorkflowHistory): Promise<Error | undefined> {
    const [started] = history.events ?? [];
    const attributes = started?.workflowExecutionStartedEventAttributes;
    assert.ok(attributes);
    attributes.workflowType = { name: version };
    for await (const { error } of Worker.runReplayHistories({ workflowBundle }, [{ workflowId: "w", history }]))
      return error ?? undefined;
    throw new Error("nothing was replayed");
  }

  it("is not given by the minor that only knows it, whose workflows replay on those before and after", async () => {
    const { result, history } = await run("knows");
    assert.equal(result, "false, false");
    for (const version of ["asItWas", "takes"] as const) assert.equal(await replayOn(version, history), undefined);
  });

  it("is given by the minor after, whose workflows replay on the minor that knows it, and on no other", async () => {
    const { result, history } = await run("takes");
    assert.equal(result, "true, true");
    assert.equal(await replayOn("knows", history), undefined);
    assert.ok((await replayOn("asItWas", history)) instanceof DeterminismViolationError);
  });
});
