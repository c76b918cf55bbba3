import assert from "node:assert/strict";
import { bundleWorkflowCode, DefaultLogger, Worker, type WorkflowBundleOption } from "@temporalio/worker";
import { DeterminismViolationError } from "@temporalio/workflow";
import { endpointWorkflowId, sendWorkflowId, sequenceWorkflowId } from "../../temporal/ids.ts";
import { workflowBundle } from "../../workers/bundle.ts";
import * as send from "../../workflows/send-messages.ts";
import * as sequence from "../../workflows/sequence.ts";
import * as endpoint from "../../workflows/webhook-endpoint.ts";
import { leaksOf, type RecordedHistory, readHistories, textsIn } from "../histories/files.ts";
import { installQuietRuntime } from "../support/quiet-runtime.ts";

/** Replays histories one after the other. @returns the errors, by file */
async function replay(bundle: WorkflowBundleOption, recorded: readonly RecordedHistory[]): Promise<Map<string, Error>> {
  const broken = new Map<string, Error>();
  const results = Worker.runReplayHistories({ workflowBundle: bundle }, recorded);
  let i = 0;
  for await (const { error } of results) {
    const { file } = recorded[i++] ?? { file: "" };
    if (error) broken.set(file, error);
  }
  assert.equal(i, recorded.length, "every history was replayed");
  return broken;
}

const updatesIn = ({ history }: RecordedHistory): string[] =>
  (history.events ?? []).flatMap(
    ({ workflowExecutionUpdateAcceptedEventAttributes: accepted }) => accepted?.acceptedRequest?.input?.name ?? [],
  );

interface WithUpdates {
  OPERATOR_UPDATES: readonly (readonly [name: string, description: string])[];
}

/** The recorded workflows, by the prefix of their ids. */
const RECORDED: [name: string, prefix: string, workflow: WithUpdates, updates: number][] = [
  ["send", sendWorkflowId(""), send, 7],
  ["sequence", sequenceWorkflowId(""), sequence, 4],
  ["delivery", endpointWorkflowId(""), endpoint, 4],
];

describe("The recorded histories", () => {
  const recorded = readHistories();

  before(() => {
    // A replay that fails says so in its result; the SDK would say it once more on the terminal.
    installQuietRuntime();
  });

  it("replay on the workflows as they are", async () => {
    assert.ok(recorded.length > 0, "there are none: npm run histories");
    const broken = await replay(await workflowBundle(10_000), recorded);
    const complaints = [...broken].map(
      ([file, error]) =>
        `${file} does not replay: what is under way would get stuck. Guard the change with patched(), see ` +
        `"Changing a workflow" in CONTRIBUTING.md.\n    ${error.message}`,
    );
    assert.deepEqual(complaints, []);
  });

  it("show a change of order that is not guarded", async () => {
    const bundle = await bundleWorkflowCode({
      workflowsPath: `${import.meta.dirname}/reordered.ts`,
      logger: new DefaultLogger("ERROR", () => {}),
    });
    const some = recorded.filter(({ file }) => /\/(sent|preview-expired)\.json$/.test(file));
    assert.ok(some.length >= 2);
    const broken = await replay(bundle, some);
    assert.equal(broken.size, some.length);
    for (const error of broken.values()) assert.ok(error instanceof DeterminismViolationError, String(error));
  });

  for (const [name, prefix, workflow, updates] of RECORDED) {
    const mine = recorded.filter(({ workflowId }) => workflowId.startsWith(prefix));

    it(`hold every update that a ${name} takes`, () => {
      const taken = Object.values(workflow).flatMap((exported) =>
        typeof exported === "object" && exported.type === "update" ? exported.name : [],
      );
      taken.push(...workflow.OPERATOR_UPDATES.map(([update]) => update));
      assert.ok(taken.length >= updates, "the updates are found");
      const seen = new Set(mine.flatMap(updatesIn));
      const missing = taken.filter((update) => !seen.has(update));
      assert.deepEqual(missing, [], "give each a path in test/histories, then: npm run histories");
    });

    it(`hold a run of a ${name} that follows another`, () => {
      const isContinued = ({ history }: RecordedHistory) =>
        Boolean(history.events?.[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId);
      assert.ok(mine.some(isContinued), "no run follows another");
    });
  }

  it("hold every way a send ends", () => {
    const texts = recorded.flatMap(({ history }) =>
      (history.events ?? []).flatMap(({ workflowExecutionCompletedEventAttributes: end }) => textsIn(end?.result)),
    );
    for (const outcome of ["expired", "refused", "SENT", "CANCELLED", "FAILED"]) {
      assert.ok(
        texts.some((text) => text.includes(`"outcome":"${outcome}"`)),
        `no recorded send ends as ${outcome}`,
      );
    }
  });

  it("hold every way a delivery ends", () => {
    const deliveries = recorded.filter(({ workflowId }) => workflowId.startsWith(endpointWorkflowId("")));
    const results = deliveries.flatMap(({ history }) =>
      (history.events ?? []).flatMap(({ activityTaskCompletedEventAttributes: end }) => textsIn(end?.result)),
    );
    for (const outcome of ["succeeded", "failed", "blocked"]) {
      assert.ok(
        results.some((text) => new RegExp(`"${outcome}":[1-9]`).test(text)),
        `no recorded delivery ${outcome}`,
      );
    }
  });

  it("hold no address, token, key or name of a machine", () => {
    for (const { file, history } of recorded) {
      const texts = textsIn(history);
      assert.ok(
        texts.some((text) => /"(previewId|campaignId|webhookId|id)"/.test(text)),
        `the payloads of ${file} are decoded`,
      );
      // Its own version is all the SDK may say with an @.
      const leaks = leaksOf(texts.map((text) => text.replace(/^@temporalio\/worker@/, "")));
      assert.deepEqual(leaks, [], file);
      const machines = texts.filter((text) => /-\d+-[0-9a-f]{8}(-[0-9a-f]{32})?$/.test(text));
      assert.deepEqual(machines, [], file);
    }
  });
});
