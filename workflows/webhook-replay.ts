import { continueAsNew, defineUpdate, proxyActivities, setHandler, sleep } from "@temporalio/workflow";
import type { DeliveryActivities } from "../activities/webhooks/deliver-due.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import type { ReplayInput } from "../temporal/starts.ts";
import { CommandLoop, isRunLong } from "./command-loop.ts";
import { OperatorView } from "./operator-view.ts";
import { failingStep, STEP_RETRY } from "./steps.ts";

type CommandKind = "pause" | "resume" | "retryNow";

/** Operators' updates, as the UI explains them. */
export const OPERATOR_UPDATES: readonly [CommandKind, string][] = [
  ["pause", "Hold the replay. Deliveries that are queued already are sent."],
  ["resume", "Continue a paused replay."],
  ["retryNow", "Try again now instead of waiting, when a step keeps failing."],
];

const { replayNext } = proxyActivities<DeliveryActivities>({
  taskQueue: TASK_QUEUES.webhooks,
  startToCloseTimeout: "60 seconds",
  retry: STEP_RETRY,
  summary: "queue a second's worth",
});

const SECOND_MS = 1_000;

/** Replays many deliveries, at a fixed rate. Its progress stands in Postgres. ID: webhook-replay/{replayId}. */
export async function webhookReplayWorkflow({ replayId }: ReplayInput): Promise<{ replayed: number }> {
  const loop = new CommandLoop<{ kind: CommandKind }>();
  const ui = new OperatorView();
  const state = { replayed: 0, total: 0, done: false, isResting: false, isPaused: false };
  for (const [kind, description] of OPERATOR_UPDATES) {
    setHandler(defineUpdate<string>(kind), () => loop.submit({ kind }), { description });
  }

  const carryOut = (command: CommandKind): string => {
    if (command === "retryNow" && !loop.failing) return "nothing to retry: no step is failing";
    if (command !== "pause") loop.makeAllDue();
    if (command === "retryNow") return "tries again now";
    state.isPaused = command === "pause";
    return state.isPaused ? "PAUSED" : "continues";
  };
  const queueNext = () =>
    loop.tryStep("queue a second's worth", async () => {
      Object.assign(state, await replayNext(replayId));
      ui.show({ needsOperator: false });
      if (state.done) return;
      state.isResting = true;
      const rest = sleep(SECOND_MS, { summary: "the rate limit" });
      rest.then(() => Object.assign(state, { isResting: false })).catch(() => undefined);
    });
  const wait = (details: string, summary: string, ms?: number) => {
    const { isResting } = state;
    ui.show({ details });
    return loop.wait(() => state.isResting !== isResting, summary, ms);
  };

  // Before any command, so that a replay which is paused can say where.
  await queueNext();
  for (;;) {
    const pending = loop.next();
    const { failing } = loop;
    const failingMs = failing ? failing.until - Date.now() : 0;
    const at = `${state.replayed} of about ${state.total}`;
    if (pending) pending.reply(carryOut(pending.command.kind));
    else if (state.done) {
      ui.show({ details: `Ended: ${state.replayed} replayed.` });
      if (await loop.areAllAnswered()) return { replayed: state.replayed };
    } else if (state.isPaused) {
      await wait(`Paused ${failing ? "while its step was failing" : `at ${at}`}. Update: resume.`, "paused");
    } else if (failing && failingMs > 0) {
      ui.show({ needsOperator: true });
      const details = failingStep(failing, "retryNow, pause");
      await wait(details, "until the step is tried again", failingMs);
    } else if (state.isResting) await wait(`${at} queued. Update: pause.`, "the rate limit");
    else if (!isRunLong()) await queueNext();
    else if (await loop.areAllAnswered()) await continueAsNew<typeof webhookReplayWorkflow>({ replayId });
  }
}
