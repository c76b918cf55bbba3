import assert from "node:assert/strict";
import { NativeConnection, Worker } from "@temporalio/worker";
import { pino } from "pino";
import { createSendActivities, type SendActivities } from "../../activities/sends.ts";
import { Progress } from "../../config/progress.ts";
import { type MikroORM, openDatabase } from "../../db/orm.ts";
import { type ConfirmRequest, confirmSend } from "../../domain/sends/plan/confirm.ts";
import { previewIdOf } from "../../domain/sends/plan/token.ts";
import { sendWorkflowId, TASK_QUEUES, WAKE_UP } from "../../temporal/ids.ts";
import { workflowBundle } from "../../workers/bundle.ts";
import { DETAILS } from "../../workflows/send-messages.ts";
import { eventually } from "../support/eventually.ts";
import { openStackVault } from "../support/factories.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { installQuietRuntime } from "../support/quiet-runtime.ts";
import { confirm, freshKey, makeSender, setTomorrow, tokenOf } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { untilDetails } from "../support/temporal.ts";
import { together } from "../support/together.ts";

interface LostConfirm {
  /** It fails each time: before it has begun, or after it has committed. */
  fails: "before" | "after";
  request?: ConfirmRequest;
  /** Reads of the send that were answered. */
  reads: number;
}

describe("A confirm", () => {
  const it = together();
  let within: TestNamespace;
  let orm: MikroORM;
  let stop: () => Promise<void>;
  /** By the ids of their sends. */
  const lost = new Map<string, LostConfirm>();

  before(async () => {
    installQuietRuntime();
    within = await openNamespace();
    const { env, temporal } = await stack();
    orm = await openDatabase(env.DATABASE_URL, { poolMax: 2 });
    const steps = createSendActivities({
      ...{ env, orm, vault: await openStackVault(), log: pino({ level: "silent" }), workerId: "test" },
      ...{ progress: new Progress(), stopping: new AbortController().signal, countMails: () => {} },
      ...{ countAttempts: () => {}, countRelayFailure: () => {}, countFailedPruning: () => {} },
    });
    const activities: SendActivities = {
      ...steps,
      confirmSend: async (request) => {
        const own = lost.get(request.previewId);
        if (own) own.request = request;
        if (own?.fails !== "before") await steps.confirmSend(request);
        if (own) throw new Error("the connection to Postgres is gone");
      },
      readSend: async (sendId) => {
        const read = await steps.readSend(sendId);
        const own = lost.get(sendId);
        if (own) own.reads++;
        return read;
      },
    };
    const connection = await NativeConnection.connect({ address: temporal.address });
    const worker = await Worker.create({
      connection,
      namespace: within.namespace,
      taskQueue: TASK_QUEUES.sends,
      workflowBundle: await workflowBundle(10_000),
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

  async function confirmed(fails: LostConfirm["fails"]) {
    const sender = within.within(await makeSender({ recipients: 2 }));
    // No mail of it leaves in the test.
    await setTomorrow(sender);
    const token = await tokenOf(sender);
    const sendId = previewIdOf(token) ?? assert.fail("the token names no preview");
    const key = freshKey();
    const own: LostConfirm = { fails, reads: 0 };
    lost.set(sendId, own);
    const answer = await confirm(sender, token, key);
    const assertArmed = async () => {
      await untilDetails(within.client.workflow.getHandle(sendWorkflowId(sendId)), DETAILS.scheduled(2));
      const again = await confirm(sender, token, key);
      assert.equal(again.status, 202, again.text);
      assert.equal(again.body.data.id, sendId);
    };
    return { own, answer, sendId, assertArmed };
  }

  it("that was committed although its activity failed continues by itself, and its key gets the stored 202", async () => {
    const { assertArmed } = await confirmed("after");
    await assertArmed();
  });

  it("that is committed after its activity failed continues with the reconciler's wake-up", async () => {
    const { own, answer, sendId, assertArmed } = await confirmed("before");
    assert.equal(answer.status, 503, answer.text);
    await eventually(() => own.reads > 0, { what: "the read after the failure" });
    const handle = within.client.workflow.getHandle(sendWorkflowId(sendId));
    await handle.signal(WAKE_UP);
    await eventually(() => own.reads > 1, { what: "the read after a wake-up" });
    await untilDetails(handle, DETAILS.previewed);
    assert.ok(own.request);
    await confirmSend(orm.em.fork(), own.request, 60_000);
    await handle.signal(WAKE_UP);
    await assertArmed();
  });
});
