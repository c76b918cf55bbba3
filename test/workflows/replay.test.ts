import assert from "node:assert/strict";
import { bundleWorkflowCode, DefaultLogger, Runtime, Worker, type WorkflowBundleOption } from "@temporalio/worker";
import { DeterminismViolationError } from "@temporalio/workflow";
import { workflowBundle } from "../../workers/bundle.ts";
import * as workflow from "../../workflows/send.ts";
import { type RecordedHistory, readHistories, textsIn } from "../histories/files.ts";

/** Replays histories one after the other. @returns what went wrong, by file */
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

/** The names of the updates that a history accepted. */
const updatesIn = ({ history }: RecordedHistory): string[] =>
  (history.events ?? []).flatMap(
    ({ workflowExecutionUpdateAcceptedEventAttributes: accepted }) => accepted?.acceptedRequest?.input?.name ?? [],
  );

describe("The recorded histories", () => {
  const recorded = readHistories();

  before(function () {
    this.timeout(60_000);
    // A replay that fails says so in its result; the SDK would say it once more on the terminal.
    Runtime.install({
      logger: new DefaultLogger("ERROR", () => {}),
      shutdownSignals: [],
      telemetryOptions: { logging: { filter: "OFF", console: {} } },
    });
  });

  it("replay on the workflows as they are", async () => {
    assert.ok(recorded.length > 0, "there are none: npm run histories");
    const broken = await replay(await workflowBundle(), recorded);
    const complaints = [...broken].map(
      ([file, error]) =>
        `${file} does not replay: sends that are under way would get stuck. Guard the change with patched(), see ` +
        `"Changing a workflow" in CONTRIBUTING.md.\n    ${error.message}`,
    );
    assert.deepEqual(complaints, []);
  }).timeout(120_000);

  it("show a change of order that is not guarded", async () => {
    const bundle = await bundleWorkflowCode({
      workflowsPath: `${import.meta.dirname}/reordered.ts`,
      logger: new DefaultLogger("ERROR", () => {}),
    });
    const broken = await replay(
      bundle,
      recorded.filter(({ file }) => /\/(sent|preview-expired)\.json$/.test(file)),
    );
    assert.equal(broken.size, 2);
    for (const error of broken.values()) assert.ok(error instanceof DeterminismViolationError, String(error));
  }).timeout(120_000);

  it("hold every update that the workflow takes", () => {
    const taken = Object.values(workflow).flatMap((exported) =>
      typeof exported === "object" && exported.type === "update" ? exported.name : [],
    );
    assert.ok(taken.length >= 6, "the updates are found");
    const seen = new Set(recorded.flatMap(updatesIn));
    const missing = taken.filter((name) => !seen.has(name));
    assert.deepEqual(missing, [], "give each a path in test/histories/record.ts, then: npm run histories");
  });

  it("hold every way a send ends, and a run that follows another", () => {
    const texts = recorded.flatMap(({ history }) =>
      (history.events ?? []).flatMap(({ workflowExecutionCompletedEventAttributes: end }) => textsIn(end?.result)),
    );
    for (const outcome of ["expired", "refused", "SENT", "CANCELLED", "FAILED"]) {
      assert.ok(
        texts.some((text) => text.includes(`"outcome":"${outcome}"`)),
        `no recorded send ends as ${outcome}`,
      );
    }
    const isContinued = ({ history }: RecordedHistory) =>
      Boolean(history.events?.[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId);
    assert.ok(recorded.some(isContinued), "no run follows another");
  });

  it("hold no address, token, key or name of a machine", () => {
    for (const { file, history } of recorded) {
      const texts = textsIn(history);
      assert.ok(
        texts.some((text) => text.includes("previewId")),
        `the payloads of ${file} are decoded`,
      );
      // Its own version is all the SDK may say with an @. A token is a send's id and a signature; a link ends in one too.
      const leaks = texts.filter((text) =>
        /@|mk_(live|test)_|send_[0-9a-z]{26}\.|\/u\/|https?:|node_modules/.test(
          text.replace(/^@temporalio\/worker@/, ""),
        ),
      );
      assert.deepEqual(leaks, [], file);
      const machines = texts.filter((text) => /-\d+-[0-9a-f]{8}(-[0-9a-f]{32})?$/.test(text));
      assert.deepEqual(machines, [], file);
    }
  });
});
