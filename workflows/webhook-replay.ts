import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { ReplayActivities } from "../activities/webhooks/bulk-replay.ts";
import { TASK_QUEUES } from "./ids.ts";
import { NEEDS_OPERATOR } from "./search-attributes.ts";
import { failingStep, persist, STEP_RETRY } from "./steps.ts";

export interface ReplayInput {
  replayId: string;
}

/** Holds a bulk replay; deliveries that are queued already are sent. */
export const pauseReplayUpdate = defineUpdate<string>("pause");
export const resumeReplayUpdate = defineUpdate<string>("resume");
/** Tries a step that keeps failing again now. */
export const retryReplayNowUpdate = defineUpdate<string>("retryNow");

const HISTORY_EVENTS = 2_000;
const SECOND_MS = 1_000;

const STEP = "queue a second's worth";
const { replayNext } = proxyActivities<ReplayActivities>({
  taskQueue: TASK_QUEUES.webhooks,
  startToCloseTimeout: "60 seconds",
  retry: STEP_RETRY,
  summary: STEP,
});

/** Replays many deliveries, at a fixed rate. Its progress stands in Postgres. ID: webhook-replay/{replayId}. */
export async function webhookReplayWorkflow({ replayId }: ReplayInput): Promise<{ replayed: number }> {
  let paused = false;
  let failing = false;
  let retryRequested = false;
  let details = "";
  // A run that follows another keeps its search attributes.
  let needsOperator = workflowInfo().typedSearchAttributes.get(NEEDS_OPERATOR) === true;

  setHandler(
    pauseReplayUpdate,
    () => {
      paused = true;
      return "PAUSED";
    },
    { description: "Hold the replay. Deliveries that are queued already are sent." },
  );
  setHandler(
    resumeReplayUpdate,
    () => {
      paused = false;
      return "continues";
    },
    { description: "Continue a paused replay." },
  );
  setHandler(
    retryReplayNowUpdate,
    () => {
      if (!failing) return "nothing to retry: no step is failing";
      retryRequested = true;
      return "tries again now";
    },
    { description: "Try again now instead of waiting, when a step keeps failing." },
  );

  const report = (text: string) => {
    details = text;
    setCurrentDetails(text);
  };
  const setNeedsOperator = (value: boolean) => {
    if (needsOperator === value) return;
    needsOperator = value;
    upsertSearchAttributes([{ key: NEEDS_OPERATOR, value }]);
  };
  const holdWhilePaused = async (where: string) => {
    if (paused) report(`Paused ${where}. Update: resume.`);
    await condition(() => !paused);
  };
  const continueAsNewWhenLong = async () => {
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    if (historyLength < HISTORY_EVENTS && !continueAsNewSuggested) return;
    await condition(allHandlersFinished);
    await continueAsNew<typeof webhookReplayWorkflow>({ replayId });
  };
  /** Runs the step until it succeeds. After three tries operators see that it fails, and can shorten the wait. */
  const queueNext = async () => {
    const before = details;
    const progress = await persist(() => replayNext(replayId), {
      show: (failure) => {
        // A cancel in the UI is no failure.
        if (CancellationScope.current().consideredCancelled) return;
        failing = failure !== null;
        if (failure) setNeedsOperator(true);
        report(failure ? failingStep(STEP, failure.code, failure.waitMs, "retryNow, pause") : before);
      },
      wait: async (ms) => {
        await condition(() => retryRequested || paused, ms, { summary: "until the step is tried again" });
        retryRequested = false;
        await holdWhilePaused("while its step was failing");
        await continueAsNewWhenLong();
      },
    });
    setNeedsOperator(false);
    return progress;
  };

  for (;;) {
    const { replayed, total, done } = await queueNext();
    if (done) {
      report(`Ended: ${replayed} replayed.`);
      return { replayed };
    }
    report(`${replayed} of about ${total} queued. Update: pause.`);
    await sleep(SECOND_MS, { summary: "the rate limit" });
    await holdWhilePaused(`at ${replayed} of about ${total}`);
    await continueAsNewWhenLong();
  }
}
