import {
  type ActivityOptions,
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { AttemptResult, DeliveryActivities } from "../activities/webhooks/deliveries.ts";
import { TASK_QUEUES } from "./ids.ts";
import { busyWaitMs, jittered } from "./ladder.ts";
import { NEEDS_OPERATOR } from "./search-attributes.ts";
import { failingStep, persist, STEP_RETRY } from "./steps.ts";

export interface DeliveryInput {
  groupId: string;
  webhookId: string;
  teamId: string;
  /** Waits before each attempt, in ms; the first is 0. */
  ladderMs: readonly number[];
  /** The first attempt is made with the workflow's first task: its endpoint succeeded lately and has not failed since. */
  localFirstAttempt?: boolean;
  /** Where a run that follows another continues; absent in the first. */
  resume?: {
    /** The attempt to make next; the first is 1. */
    attempt: number;
    /** Its workflow was ended from outside: it waits for an operator. */
    held?: boolean;
    /** An operator cancelled it. */
    cancelled?: boolean;
  };
}

export interface DeliveryOutcome {
  succeeded: number;
  failed: number;
  blocked: number;
}

/** Attempts the remaining deliveries now instead of waiting. */
export const retryNowUpdate = defineUpdate<string>("retryNow");
/** Gives up the remaining deliveries; they can be replayed. */
export const cancelDeliveryUpdate = defineUpdate<string>("cancel");

const HISTORY_EVENTS = 3_000;

/**
 * Deliveries of one endpoint that are attempted together, and retried together where they failed.
 * ID: webhook-delivery/{first delivery}.
 */
export function webhookDeliveryWorkflow(input: DeliveryInput): Promise<DeliveryOutcome> {
  const delivery = new Delivery(input);
  // A cancel in the UI is the cancel update.
  CancellationScope.current()
    .cancelRequested.catch(() => delivery.cancel())
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => delivery.run());
}

class Delivery {
  readonly #input: DeliveryInput;
  readonly #activities: DeliveryActivities;
  /**
   * A local activity, which saves most of the cost of a group that succeeds at once. Not for every group: a request that
   * hangs would hold up the workflow tasks of others.
   */
  readonly #firstAttempt: DeliveryActivities["attemptGroup"] | undefined;
  readonly #outcome: DeliveryOutcome = { succeeded: 0, failed: 0, blocked: 0 };
  /** The attempt under way, or the next; the first is 1. */
  #attempt: number;
  #retryRequested = false;
  #cancelled: boolean;
  #attempting = false;
  #begun = false;
  /** Why the latest delivery that is tried again failed. */
  #reason = "the outcome is unknown";
  #givenUp = 0;
  #ended = false;
  /** This run ends for another one, which continues the cancel. */
  #handsCancelOver = false;
  #details = "";
  #needsOperator: boolean;

  constructor(input: DeliveryInput) {
    this.#input = input;
    this.#attempt = input.resume?.attempt ?? 1;
    this.#cancelled = input.resume?.cancelled ?? false;
    // A run that follows another keeps its search attributes.
    this.#needsOperator = workflowInfo().typedSearchAttributes.get(NEEDS_OPERATOR) === true;
    const activity = (summary: string): ActivityOptions => ({
      taskQueue: TASK_QUEUES.webhooks,
      startToCloseTimeout: "60 seconds",
      // Soon enough that deliveries a lost worker had in flight are sent again within seconds.
      heartbeatTimeout: "10 seconds",
      retry: STEP_RETRY,
      priority: { fairnessKey: input.teamId },
      summary,
    });
    this.#activities = {
      attemptGroup: proxyActivities<DeliveryActivities>(activity("attempt")).attemptGroup,
      cancelGroup: proxyActivities<DeliveryActivities>(activity("give up the remaining deliveries")).cancelGroup,
    };
    if (input.localFirstAttempt && !input.resume) {
      this.#firstAttempt = proxyLocalActivities<DeliveryActivities>({
        startToCloseTimeout: "40 seconds",
        retry: STEP_RETRY,
        summary: "first attempt",
      }).attemptGroup;
    }
    setHandler(retryNowUpdate, () => this.#retryNow(), {
      description: "Attempt the remaining deliveries now instead of waiting for the next attempt.",
    });
    setHandler(cancelDeliveryUpdate, () => this.cancel(), {
      description:
        "Give up the remaining deliveries, once the attempt under way has ended. They can be replayed later.",
    });
  }

  async run(): Promise<DeliveryOutcome> {
    this.#report(`Attempt ${this.#attempt} of ${this.#input.ladderMs.length} is under way. Update: cancel.`);
    if (this.#input.resume?.held) await this.#hold();
    let busy = 0;
    while (!this.#cancelled) {
      const result = await this.#makeAttempt();
      if (!result) break;
      if (result.next === "busy") {
        busy++;
        await this.#waitForSlot(busyWaitMs(busy, Math.random()));
      } else {
        busy = 0;
        this.#outcome.succeeded += result.succeeded;
        this.#outcome.failed += result.failed;
        this.#outcome.blocked += result.blocked;
        if (result.next === "done") break;
        this.#reason = result.reason || this.#reason;
        if (result.next === "retry") await this.#waitForRetry(result);
      }
      await this.#continueAsNewWhenLong();
    }
    if (this.#cancelled) await this.#giveUp();
    this.#ended = true;
    await condition(allHandlersFinished);
    const { succeeded, failed, blocked } = this.#outcome;
    this.#report(`Ended: ${succeeded} succeeded, ${failed} failed, ${blocked} blocked.`);
    return this.#outcome;
  }

  /** @returns undefined when it was cancelled while the attempt kept failing */
  #makeAttempt(): Promise<AttemptResult | undefined> {
    const next = this.#input.ladderMs[this.#attempt];
    const retryInMs = next === undefined ? null : jittered(next, Math.random());
    const request = { groupId: this.#input.groupId, attempt: this.#attempt, retryInMs };
    const attempt = async () => {
      if (this.#cancelled) return undefined;
      const first = this.#begun ? undefined : this.#firstAttempt;
      this.#begun = true;
      this.#attempting = true;
      try {
        return await (first ? first({ ...request, brief: true }) : this.#activities.attemptGroup(request));
      } finally {
        this.#attempting = false;
      }
    };
    return this.#persist("attempt", "retryNow, cancel", attempt);
  }

  async #giveUp(): Promise<void> {
    const cancel = () => this.#activities.cancelGroup(this.#input.groupId);
    this.#givenUp = await this.#persist("give up the remaining deliveries", "retryNow", cancel);
    this.#outcome.failed += this.#givenUp;
  }

  /** Runs a step until it succeeds. After three tries operators see that it fails, and can shorten the wait. */
  async #persist<T>(step: string, updates: string, work: () => Promise<T>): Promise<T> {
    const details = this.#details;
    const wasCancelled = this.#cancelled;
    const tryOnce = () => {
      this.#retryRequested = false;
      return work();
    };
    const result = await persist(tryOnce, {
      show: (failure) => {
        if (failure) this.#setNeedsOperator(true);
        this.#report(failure ? failingStep(step, failure.code, failure.waitMs, updates) : details);
      },
      wait: async (ms) => {
        const isCutShort = () => this.#retryRequested || this.#cancelled !== wasCancelled;
        await condition(isCutShort, ms, { summary: "until the step is tried again" });
        await this.#continueAsNewWhenLong(wasCancelled);
      },
    });
    this.#setNeedsOperator(false);
    return result;
  }

  async #waitForRetry({ left, waitMs, nextAttemptAt }: Extract<AttemptResult, { next: "retry" }>): Promise<void> {
    this.#report(
      `${left} left. Attempt ${this.#attempt} of ${this.#input.ladderMs.length} failed: ${this.#reason}. Next attempt at ${nextAttemptAt}. Updates: retryNow, cancel.`,
    );
    this.#attempt++;
    await this.#wait(waitMs, "until the next attempt");
  }

  async #waitForSlot(waitMs: number): Promise<void> {
    this.#report(
      `Its endpoint's slots for retries are taken; asks again in ${Math.round(waitMs / 1000)} s. Updates: retryNow, cancel.`,
    );
    await this.#wait(waitMs, "for a slot");
  }

  async #wait(ms: number, summary: string): Promise<void> {
    if (ms <= 0) return;
    await condition(() => this.#retryRequested || this.#cancelled, ms, { summary });
  }

  /** Its run was terminated or failed: an operator decides how it continues. */
  async #hold(): Promise<void> {
    this.#setNeedsOperator(true);
    this.#report(
      "Its workflow was terminated or failed, so it waits. Updates: retryNow, or cancel to give up the remaining deliveries.",
    );
    await condition(() => this.#retryRequested || this.#cancelled);
    this.#setNeedsOperator(false);
  }

  /** @param givingUp a cancel is being carried out; otherwise a cancel is answered by this run, not by another */
  async #continueAsNewWhenLong(givingUp = false): Promise<void> {
    const isOvertaken = () => this.#cancelled !== givingUp;
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    if (isOvertaken() || (historyLength < HISTORY_EVENTS && !continueAsNewSuggested)) return;
    this.#handsCancelOver = givingUp;
    await condition(() => isOvertaken() || allHandlersFinished());
    if (isOvertaken()) return;
    const resume = { attempt: this.#attempt, cancelled: givingUp };
    await continueAsNew<typeof webhookDeliveryWorkflow>({ ...this.#input, resume });
  }

  async #retryNow(): Promise<string> {
    // A request kept for later would cost the wait after this attempt.
    if (this.#attempting) return "an attempt is under way";
    this.#retryRequested = true;
    return "attempts the remaining deliveries now";
  }

  async cancel(): Promise<string> {
    this.#cancelled = true;
    await condition(() => this.#ended || this.#handsCancelOver);
    if (!this.#ended) return "gives up the remaining deliveries as soon as its step succeeds";
    return this.#givenUp > 0 ? `${this.#givenUp} given up` : "nothing to cancel: all deliveries have ended";
  }

  #setNeedsOperator(value: boolean): void {
    if (this.#needsOperator === value) return;
    this.#needsOperator = value;
    upsertSearchAttributes([{ key: NEEDS_OPERATOR, value }]);
  }

  #report(details: string): void {
    this.#details = details;
    setCurrentDetails(`Endpoint ${this.#input.webhookId}. ${details}`);
  }
}
