import assert from "node:assert/strict";
import { type PoolName, TASK_QUEUES } from "../../temporal/ids.ts";
import { eventually } from "../support/eventually.ts";
import { openNamespace, type TestNamespace } from "../support/namespace.ts";
import { confirm, ledgerStates, makeSender, preview, type Sender, untilStatus } from "../support/sending.ts";

const DEPLOYMENT = "mailkeel";

/** In its own namespace, because the stack's unversioned workers poll the same queues. */
describe("Workers of a deployment", () => {
  let own: TestNamespace;

  async function startBuild(buildId: string): Promise<void> {
    const pools: PoolName[] = Object.values(TASK_QUEUES);
    const { connection, namespace } = own;
    const version = { WORKER_DEPLOYMENT_NAME: DEPLOYMENT, WORKER_BUILD_ID: buildId };
    await Promise.all(pools.map((pool) => own.startWorker(pool, version)));
    // The server knows a version and its queues from its first polls on.
    await eventually(
      async () => {
        const { workerDeploymentVersionInfo: info } = await connection.workflowService.describeWorkerDeploymentVersion({
          namespace,
          deploymentVersion: { deploymentName: DEPLOYMENT, buildId },
        });
        const queues = new Set(info?.taskQueueInfos?.map(({ name }) => name));
        return pools.every((pool) => queues.has(pool));
      },
      { what: `build ${buildId} to be known` },
    );
  }

  const makeCurrent = (buildId: string) =>
    eventually(
      () =>
        own.connection.workflowService.setWorkerDeploymentCurrentVersion({
          namespace: own.namespace,
          deploymentName: DEPLOYMENT,
          buildId,
        }),
      { what: `build ${buildId} to be current` },
    );
  interface Previewed {
    sender: Sender;
    token: string;
    workflowId: string;
  }

  async function previewed(): Promise<Previewed> {
    const sender = own.within(await makeSender());
    const answer = await preview(sender);
    assert.equal(answer.status, 200, answer.text);
    const workflowId = await eventually(async () => {
      const found = own.client.workflow.list({ query: `ResourceId = '${sender.newsletterId}'` });
      const { value } = await found[Symbol.asyncIterator]().next();
      return value?.workflowId as string | undefined;
    });
    assert.ok(workflowId);
    return { sender, token: answer.body.data.confirmation.token, workflowId };
  }

  async function finish({ sender, token }: Previewed): Promise<void> {
    const armed = await confirm(sender, token);
    assert.equal(armed.status, 202, armed.text);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 3 });
  }

  async function buildsOf({ workflowId }: Previewed): Promise<string[]> {
    const { events } = await own.client.workflow.getHandle(workflowId).fetchHistory();
    const builds = (events ?? []).flatMap(({ workflowTaskCompletedEventAttributes: task }) =>
      task?.deploymentVersion?.buildId ? [task.deploymentVersion.buildId] : [],
    );
    return builds.filter((build, i) => build !== builds[i - 1]);
  }

  before(async () => {
    own = await openNamespace();
    await startBuild("1");
    await makeCurrent("1");
  });
  after(() => own?.close());

  it("take over running sends when their build becomes current, and return them at a rollback", async () => {
    const [first, onward, back] = [await previewed(), await previewed(), await previewed()];
    await finish(first);
    assert.deepEqual(await buildsOf(first), ["1"]);

    await startBuild("2");
    await makeCurrent("2");
    await finish(onward);
    assert.deepEqual(await buildsOf(onward), ["1", "2"]);
    const started = await previewed();

    await makeCurrent("1");
    await finish(back);
    assert.equal((await buildsOf(back)).at(-1), "1");
    await finish(started);
    assert.deepEqual(await buildsOf(started), ["2", "1"]);
  });
});
