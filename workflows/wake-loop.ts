import {
  allHandlersFinished,
  CancellationScope,
  condition,
  defineSignal,
  defineUpdate,
  setHandler,
  TemporalFailure,
} from "@temporalio/workflow";
import { WAKE_UP } from "../temporal/ids.ts";
import { isRunLong, SHORTEST_WAIT_MS } from "./command-loop.ts";
import { type FailingStep, failureCodeOf, refusalOf, stepWaitMs } from "./steps.ts";

/** A failing step is tried again after so long at most: until then no wake-up, and so no new event, is heeded. */
const LONGEST_FAILING_MS = 10_000;

interface WakeLoop<Command extends string> {
  /** Operators' updates, as the UI explains them. */
  updates: readonly [Command, string][];
  /** What a cancel in the UI does. */
  onCancel: Command;
  command(kind: Command, input?: unknown): Promise<string>;
  /** @returns how long to wait for the next run, in ms, infinite for a wake-up; undefined when nothing is left to wait for */
  run(): Promise<number | undefined>;
  /** Names `run`, and a wait, in the UI. */
  step: string;
  waitSummary: string;
  /** Shows it, and never throws. */
  onFailing(failing: FailingStep): void | Promise<void>;
  continueAsNew(): Promise<never>;
}

/** Begins runs, and sleeps between them until a time, a wake-up or a command. For workflows whose state is all in Postgres. */
export function runWhenWoken<Command extends string>(loop: WakeLoop<Command>): Promise<void> {
  /** Something may be due that the latest run did not see. */
  let isWoken = true;
  /** An operator asked for something since the latest run began. */
  let isCommanded = false;
  let failedRounds = 0;

  async function command(kind: Command, input?: unknown): Promise<string> {
    try {
      // Also after a cancel in the UI.
      return await CancellationScope.nonCancellable(() => loop.command(kind, input));
    } catch (error) {
      throw refusalOf(error);
    } finally {
      isWoken = true;
      isCommanded = true;
    }
  }

  async function run(): Promise<number | undefined> {
    try {
      const waitMs = await loop.run();
      failedRounds = 0;
      return waitMs;
    } catch (error) {
      if (!(error instanceof TemporalFailure)) throw error;
      const waitMs = stepWaitMs(++failedRounds, LONGEST_FAILING_MS);
      const code = failureCodeOf(error);
      // What it works for was deleted.
      if (code === "not_found") return undefined;
      await loop.onFailing({ step: loop.step, code, until: Date.now() + waitMs });
      return waitMs;
    }
  }

  async function repeat(): Promise<void> {
    for (;;) {
      isWoken = false;
      isCommanded = false;
      const waitMs = await run();
      // A signal that comes before Temporal has taken this end refuses it, and the task runs again with the signal.
      if (waitMs === undefined && !isWoken && allHandlersFinished()) return;
      if (isRunLong() && allHandlersFinished()) await loop.continueAsNew();
      // A wake-up is no reason to try a failing step sooner.
      const isDue = () => (failedRounds > 0 ? isCommanded : isWoken);
      if (waitMs === undefined) await condition(() => isDue() || allHandlersFinished());
      else if (waitMs === Number.POSITIVE_INFINITY) await condition(isDue);
      else await condition(isDue, Math.max(waitMs, SHORTEST_WAIT_MS), { summary: loop.waitSummary });
    }
  }

  setHandler(defineSignal(WAKE_UP), () => {
    isWoken = true;
  });
  for (const [kind, description] of loop.updates) {
    setHandler(defineUpdate<string, [unknown?]>(kind), (input) => command(kind, input), { description });
  }
  CancellationScope.current()
    .cancelRequested.catch(() => command(loop.onCancel))
    .catch(() => undefined);
  return CancellationScope.nonCancellable(repeat);
}
