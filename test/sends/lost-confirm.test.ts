import assert from "node:assert/strict";
import { NativeConnection, Worker } from "@temporalio/worker";
import type { SendActivities } from "../../activities/sends.ts";
import type { MikroORM } from "../../db/orm.ts";
import { type ConfirmRequest, confirmSend } from "../../domain/sends/confirm.ts";
import { previewIdOf } from "../../domain/sends/token.ts";
import { workflowBundle } from "../../workers/bundle.ts";
import { sendWorkflowId, TASK_QUEUES, WAKE_UP } from "../../workflows/ids.ts";
import { DETAILS } from "../../workflows/send-messages.ts";
import { eventually } from "../support/eventually.ts";
import { openStackVault } from "../support/factories.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { installQuietRuntime } from "../support/quiet-runtime.ts";
import { openSendSteps } from "../support/send-steps.ts";
import { confirm, freshKey, makeSender, setTomorrow, tokenOf } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { untilDetails } from "../support/temporal.ts";

/** A sends worker in the test's process whose activity of the confirm fails each time. */
interface FailingWorker {
  /** Whether the confirm commits before its activity fails. */
  commits: boolean;
  /** The confirms that were asked for, and how many reads of a send have been answered. */
  confirms: ConfirmRequest[];
  reads: number;
}

describe("A confirm whose activity fails", function () {
  this.timeout(60_000);
  let within: TestNamespace;
  let orm: MikroORM;
  let stop: () => Promise<void>;
  const failing: FailingWorker = { commits: true, confirms: [], reads: 0 };

  before(async () => {
    installQuietRuntime();
    within = await openNamespace();
    const opened = await openSendSteps(await openStackVault());
    orm = opened.orm;
    const { steps } = opened;
    const activities: SendActivities = {
      ...steps,
      confirmSend: async (request) => {
        failing.confirms.push(request);
        if (failing.commits) await steps.confirmSend(request);
        throw new Error("the connection to Postgres is gone");
      },
      readSend: (sendId) => steps.readSend(sendId).finally(() => failing.reads++),
    };
    const connection = await NativeConnection.connect({ address: (await stack()).temporal.address });
    const worker = await Worker.create({
      connection,
      namespace: within.namespace,
      taskQueue: TASK_QUEUES.sends,
      workflowBundle: await workflowBundle(),
      activities: { ...activities },
    });
    const running = worker.run();
    stop = async () => {
      worker.shutdown();
      await running;
      await connection.close();
    };
  });
  after(async () => {
    await stop();
    await orm.close(true);
    await within.close();
  });

  async function confirmed(commits: boolean) {
    const sender = within.within(await makeSender({ recipients: 2, credits: 2 }));
    await setTomorrow(sender);
    const token = await tokenOf(sender);
    const sendId = previewIdOf(token) ?? assert.fail("the token names no preview");
    const key = freshKey();
    Object.assign(failing, { commits, confirms: [], reads: 0 });
    const answer = await confirm(sender, token, key);
    const assertArmed = async () => {
      await untilDetails(within.client, sendId, DETAILS.scheduled(2));
      const again = await confirm(sender, token, key);
      assert.equal(again.status, 202, again.text);
      assert.equal(again.body.data.id, sendId);
    };
    return { answer, sendId, assertArmed };
  }

  it("but that was committed continues by itself, and its key gets the stored 202", async () => {
    const { assertArmed } = await confirmed(true);
    await assertArmed();
  });

  it("and that is committed later continues with the reconciler's wake-up", async () => {
    const { answer, sendId, assertArmed } = await confirmed(false);
    assert.equal(answer.status, 503, answer.text);
    await eventually(() => failing.reads > 0, { what: "the read after the failure" });
    const handle = within.client.workflow.getHandle(sendWorkflowId(sendId));
    await handle.signal(WAKE_UP);
    await eventually(() => failing.reads > 1, { what: "the read after a wake-up" });
    await untilDetails(within.client, sendId, DETAILS.previewed);
    const [request] = failing.confirms;
    assert.ok(request);
    await confirmSend(orm.em.fork(), request, 60_000);
    await handle.signal(WAKE_UP);
    await assertArmed();
  });
});
