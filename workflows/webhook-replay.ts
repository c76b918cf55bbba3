import {
  condition,
  continueAsNew,
  defineUpdate,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  workflowInfo,
} from "@temporalio/workflow";
import type { ReplayActivities } from "../activities/webhooks/replays.ts";
import { TASK_QUEUES } from "./ids.ts";

export interface ReplayInput {
  replayId: string;
}

/** Holds a bulk replay; what it queued already is delivered. */
export const pauseReplayUpdate = defineUpdate<string>("pause");
export const resumeReplayUpdate = defineUpdate<string>("resume");

const HISTORY_EVENTS = 2_000;
const SECOND_MS = 1_000;

const { replayNext } = proxyActivities<ReplayActivities>({
  taskQueue: TASK_QUEUES.webhooks,
  startToCloseTimeout: "60 seconds",
  retry: { initialInterval: "200 milliseconds", maximumInterval: "10 seconds" },
  summary: "queue a second's worth",
});

/** Replays many deliveries, so many a second. Where it is stands in Postgres. ID: webhook-replay/{replayId}. */
export async function webhookReplayWorkflow({ replayId }: ReplayInput): Promise<{ replayed: number }> {
  let paused = false;
  setHandler(
    pauseReplayUpdate,
    () => {
      paused = true;
      return "PAUSED";
    },
    { description: "Hold the replay. What is queued already is delivered." },
  );
  setHandler(
    resumeReplayUpdate,
    () => {
      paused = false;
      return "goes on";
    },
    { description: "Go on with a paused replay." },
  );
  for (;;) {
    const { replayed, total, done } = await replayNext(replayId);
    if (done) {
      setCurrentDetails(`Over: ${replayed} replayed.`);
      return { replayed };
    }
    setCurrentDetails(`${replayed} of about ${total} queued. Update: pause.`);
    await sleep(SECOND_MS, { summary: "the rate limit" });
    if (paused) setCurrentDetails(`Paused at ${replayed} of about ${total}. Update: resume.`);
    await condition(() => !paused);
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    if (historyLength >= HISTORY_EVENTS || continueAsNewSuggested) {
      await continueAsNew<typeof webhookReplayWorkflow>({ replayId });
    }
  }
}
