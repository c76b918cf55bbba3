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
import type { DeliveryActivities } from "../activities/webhooks/deliveries.ts";
import { TASK_QUEUES } from "./ids.ts";
import { busyWaitMs, jittered } from "./ladder.ts";
import { NEEDS_OPERATOR } from "./search-attributes.ts";

export interface DeliveryInput {
  groupId: string;
  webhookId: string;
  teamId: string;
  /** Waits before each attempt, in ms; the first is 0. */
  ladderMs: readonly number[];
  /** Its endpoint takes what it is sent: the first attempt is made with the workflow's first task. */
  healthy?: boolean;
  /** Where a run that follows another goes on; absent in the first. */
  resume?: {
    rung: number;
    /** Until that rung's attempt, in ms. */
    waitMs: number;
    /** Its workflow had been ended from outside: it waits for an operator. */
    held?: boolean;
  };
}

export interface DeliveryOutcome {
  succeeded: number;
  failed: number;
  blocked: number;
}

/** Attempts what is left now instead of waiting. */
export const retryNowUpdate = defineUpdate<string>("retryNow");
/** Gives up what is left; it can be replayed. */
export const cancelDeliveryUpdate = defineUpdate<string>("cancel");

const HISTORY_EVENTS = 3_000;

/**
 * Deliveries of one endpoint that go together: attempts all, and those that fail climb the ladder together.
 * ID: webhook-delivery/{first delivery}.
 */
export function webhookDeliveryWorkflow(input: DeliveryInput): Promise<DeliveryOutcome> {
  const story = new Delivery(input);
  // A cancel in the UI is the cancel update.
  CancellationScope.current()
    .cancelRequested.catch(() => story.cancel())
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => story.run());
}

class Delivery {
  readonly #input: DeliveryInput;
  readonly #activities: DeliveryActivities;
  /** Saves most of what a group costs that succeeds at once; one that hangs would hold up the tasks of others. */
  readonly #firstAttempt: DeliveryActivities["attemptGroup"] | undefined;
  readonly #outcome: DeliveryOutcome = { succeeded: 0, failed: 0, blocked: 0 };
  #rung: number;
  #nudged = false;
  #cancelled = false;
  #attempting = false;
  #begun = false;
  /** Why the latest of those that are tried again failed. */
  #reason = "the outcome is unknown";
  #givenUp = 0;
  #over = false;

  constructor(input: DeliveryInput) {
    this.#input = input;
    this.#rung = input.resume?.rung ?? 0;
    const activity = (summary: string): ActivityOptions => ({
      taskQueue: TASK_QUEUES.webhooks,
      startToCloseTimeout: "60 seconds",
      // Soon enough that what a lost worker had in hand goes out again within seconds.
      heartbeatTimeout: "10 seconds",
      retry: { initialInterval: "200 milliseconds", maximumInterval: "10 seconds" },
      priority: { fairnessKey: input.teamId },
      summary,
    });
    this.#activities = {
      attemptGroup: proxyActivities<DeliveryActivities>(activity("attempt")).attemptGroup,
      cancelGroup: proxyActivities<DeliveryActivities>(activity("give up what is left")).cancelGroup,
    };
    if (input.healthy && !input.resume) {
      this.#firstAttempt = proxyLocalActivities<DeliveryActivities>({
        startToCloseTimeout: "40 seconds",
        retry: { initialInterval: "200 milliseconds", maximumInterval: "10 seconds" },
        summary: "first attempt",
      }).attemptGroup;
    }
    setHandler(retryNowUpdate, () => this.#retryNow(), {
      description: "Attempt what is left now instead of waiting for the next attempt.",
    });
    setHandler(cancelDeliveryUpdate, () => this.cancel(), {
      description: "Give up what is left, once the attempt under way is over. It can be replayed later.",
    });
  }

  async run(): Promise<DeliveryOutcome> {
    const { ladderMs, resume } = this.#input;
    if (!resume) this.#tell(`Attempt 1 of ${ladderMs.length} is under way. Update: cancel.`);
    if (resume?.held) await this.#hold();
    else if (resume && resume.waitMs > 0) await this.#wait(resume.waitMs, "until the next attempt");
    let busy = 0;
    while (!this.#cancelled) {
      this.#nudged = false;
      const next = ladderMs[this.#rung + 1];
      const result = await this.#attempt(next === undefined ? null : jittered(next, Math.random()));
      if (result.next === "busy") {
        busy++;
        const waitMs = busyWaitMs(busy, Math.random());
        this.#tell(
          `Its endpoint's slots for retries are taken; asks again in ${seconds(waitMs)}. Updates: retryNow, cancel.`,
        );
        await this.#wait(waitMs, "for a slot");
      } else {
        busy = 0;
        this.#outcome.succeeded += result.succeeded;
        this.#outcome.failed += result.failed;
        this.#outcome.blocked += result.blocked;
        if (result.next === "done") break;
        this.#reason = result.reason || this.#reason;
        if (result.next === "retry") {
          this.#rung++;
          this.#tell(
            `${result.left} left. Attempt ${this.#rung} of ${ladderMs.length} failed: ${this.#reason}. Next attempt at ${result.nextAttemptAt}. Updates: retryNow, cancel.`,
          );
          await this.#wait(result.waitMs, "until the next attempt");
        }
      }
      await this.#startAfreshWhenLong();
    }
    if (this.#cancelled) {
      this.#givenUp = await this.#activities.cancelGroup(this.#input.groupId);
      this.#outcome.failed += this.#givenUp;
    }
    this.#over = true;
    await condition(allHandlersFinished);
    const { succeeded, failed, blocked } = this.#outcome;
    this.#tell(`Over: ${succeeded} succeeded, ${failed} failed, ${blocked} blocked.`);
    return this.#outcome;
  }

  async #attempt(retryInMs: number | null) {
    const request = { groupId: this.#input.groupId, rung: this.#rung, retryInMs };
    const first = this.#begun ? undefined : this.#firstAttempt;
    this.#begun = true;
    this.#attempting = true;
    try {
      return await (first ? first({ ...request, brief: true }) : this.#activities.attemptGroup(request));
    } finally {
      this.#attempting = false;
    }
  }

  /** Its run was terminated or failed: whoever did that decides how it goes on. */
  async #hold(): Promise<void> {
    upsertSearchAttributes([{ key: NEEDS_OPERATOR, value: true }]);
    this.#tell(
      "Its workflow was terminated or failed, so it waits. Updates: retryNow, or cancel to give up what is left.",
    );
    await condition(() => this.#nudged || this.#cancelled);
    upsertSearchAttributes([{ key: NEEDS_OPERATOR, value: false }]);
  }

  async #wait(ms: number, summary: string): Promise<void> {
    if (ms <= 0) return;
    await condition(() => this.#nudged || this.#cancelled, ms, { summary });
  }

  async #startAfreshWhenLong(): Promise<void> {
    if (this.#cancelled) return;
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    if (historyLength < HISTORY_EVENTS && !continueAsNewSuggested) return;
    // A cancel waits for this run's end: it is given that, not another run.
    await condition(() => this.#cancelled || allHandlersFinished());
    if (this.#cancelled) return;
    await continueAsNew<typeof webhookDeliveryWorkflow>({ ...this.#input, resume: { rung: this.#rung, waitMs: 0 } });
  }

  async #retryNow(): Promise<string> {
    // Kept for later it would cost the wait after this attempt.
    if (this.#attempting) return "an attempt is under way";
    this.#nudged = true;
    return "attempts what is left now";
  }

  async cancel(): Promise<string> {
    this.#cancelled = true;
    await condition(() => this.#over);
    return this.#givenUp > 0 ? `${this.#givenUp} given up` : "nothing to cancel: all are delivered or over";
  }

  #tell(details: string): void {
    setCurrentDetails(`Endpoint ${this.#input.webhookId}. ${details}`);
  }
}

const seconds = (ms: number): string => `${Math.round(ms / 1000)} s`;
