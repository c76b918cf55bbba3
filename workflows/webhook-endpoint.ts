import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineSignal,
  defineUpdate,
  setHandler,
  TemporalFailure,
} from "@temporalio/workflow";
import type { Delivered } from "../activities/webhooks/deliver-due.ts";
import type { EndpointCommand } from "../domain/webhooks/commands.ts";
import { deliveryStepsFor } from "./activities.ts";
import { isRunLong, SHORTEST_WAIT_MS } from "./command-loop.ts";
import { WAKE_UP } from "./ids.ts";
import { OperatorView } from "./operator-view.ts";
import { failingStep, failureCodeOf, refusalOf, stepWaitMs } from "./steps.ts";

export interface EndpointInput {
  webhookId: string;
  teamId: string;
}

/** Operators' updates, as the UI explains them. */
export const OPERATOR_UPDATES: readonly [EndpointCommand, string][] = [
  [
    "retryNow",
    "Attempt what waits for its next attempt now, and probe an endpoint that is failing. It uses up none of the attempts.",
  ],
  ["pause", "Hold the deliveries to this endpoint. Requests in flight end by themselves."],
  ["resume", "Send the held deliveries."],
  ["cancelWaiting", "Give up the deliveries that wait. They can be replayed later."],
];

/**
 * Begins the runs of one endpoint, and sleeps between them, for as long as something waits for it. All state is in Postgres.
 * ID: webhook-endpoint/{endpoint}.
 */
export function webhookEndpointWorkflow(input: EndpointInput): Promise<void> {
  const delivering = new EndpointDelivery(input);
  // A cancel in the UI gives up the deliveries that wait.
  CancellationScope.current()
    .cancelRequested.catch(() => CancellationScope.nonCancellable(() => delivering.command("cancelWaiting")))
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => delivering.run());
}

class EndpointDelivery {
  readonly #input: EndpointInput;
  readonly #steps: ReturnType<typeof deliveryStepsFor>;
  readonly #ui = new OperatorView();
  /** Something may be due that the latest run did not see. */
  #isWoken = true;
  /** An operator asked for something since the latest run began. */
  #isCommanded = false;
  #failedRounds = 0;
  /** Why the latest delivery failed, until one succeeds. */
  #reason: string | null = null;
  /** After the latest run, as operators read it. */
  #state = "Updates: retryNow, pause, cancelWaiting.";

  constructor(input: EndpointInput) {
    this.#input = input;
    this.#steps = deliveryStepsFor(input.teamId);
    setHandler(defineSignal(WAKE_UP), () => {
      this.#isWoken = true;
    });
    for (const [kind, description] of OPERATOR_UPDATES) {
      setHandler(defineUpdate<string>(kind), () => this.command(kind), { description });
    }
  }

  async command(kind: EndpointCommand): Promise<string> {
    try {
      return await this.#steps.commandEndpoint(this.#input.webhookId, kind);
    } catch (error) {
      throw refusalOf(error);
    } finally {
      this.#isWoken = true;
      this.#isCommanded = true;
    }
  }

  async run(): Promise<void> {
    for (;;) {
      this.#isWoken = false;
      this.#isCommanded = false;
      const waitMs = await this.#deliver();
      // A signal that comes before Temporal has taken this end refuses it, and the task runs again with the signal.
      if (waitMs === undefined && !this.#isWoken && allHandlersFinished()) return;
      if (isRunLong() && allHandlersFinished()) await continueAsNew<typeof webhookEndpointWorkflow>(this.#input);
      // Further deliveries are no reason to try a failing step sooner.
      const isDue = () => (this.#failedRounds > 0 ? this.#isCommanded : this.#isWoken);
      if (waitMs === undefined) await condition(() => isDue() || allHandlersFinished());
      else if (waitMs === Number.POSITIVE_INFINITY) await condition(isDue);
      else await condition(isDue, Math.max(waitMs, SHORTEST_WAIT_MS), { summary: "until the next delivery is due" });
    }
  }

  /** @returns how long to wait for the next run, in ms, infinite for a command; undefined when nothing waits */
  async #deliver(): Promise<number | undefined> {
    this.#show(`Delivering. ${this.#state}`);
    try {
      const delivered = await this.#steps.deliverDue(this.#input.webhookId);
      this.#failedRounds = 0;
      if (delivered.reason !== undefined) this.#reason = delivered.reason;
      this.#state = restText(delivered.rest, this.#reason);
      this.#show(this.#state, false);
      const { rest } = delivered;
      if (!rest || rest.waiting === 0) return undefined;
      if (rest.paused) return Number.POSITIVE_INFINITY;
      return rest.nextInMs ?? undefined;
    } catch (error) {
      if (!(error instanceof TemporalFailure)) throw error;
      const waitMs = stepWaitMs(++this.#failedRounds);
      const failing = { step: "deliver", code: failureCodeOf(error), until: Date.now() + waitMs };
      this.#show(failingStep(failing, "retryNow, cancelWaiting"), true);
      return waitMs;
    }
  }

  #show(details: string, needsOperator?: boolean): void {
    const shown = { details: `Endpoint ${this.#input.webhookId}. ${details}` };
    this.#ui.show(needsOperator === undefined ? shown : { ...shown, needsOperator });
  }
}

function restText(rest: Delivered["rest"], reason: string | null): string {
  const error = reason === null ? "" : ` Last error: ${reason}.`;
  if (!rest) return "Deleted.";
  const { active, health, failures, paused, waiting, nextAt } = rest;
  if (!active) return `Off.${error}`;
  const state = `${health}, ${failures} failures in a row, ${waiting} waiting`;
  if (paused) return `PAUSED: ${state}.${error} Updates: resume, cancelWaiting.`;
  const next = nextAt === null ? "" : ` Next attempt at ${nextAt}.`;
  return `${state}.${next}${error} Updates: retryNow, pause, cancelWaiting.`;
}
