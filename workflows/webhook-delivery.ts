import { CancellationScope, continueAsNew, defineUpdate, setHandler } from "@temporalio/workflow";
import type { AttemptResult, DeliveryActivities } from "../activities/webhooks/deliveries.ts";
import { attemptFirst, deliveryStepsFor } from "./activities.ts";
import { answerAll, CommandLoop, isRunLong, type PendingCommand } from "./command-loop.ts";
import { jittered } from "./ladder.ts";
import { OperatorView } from "./operator-view.ts";
import { failingStep } from "./steps.ts";

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
    /** How many of those before it operators asked for: they use up none of the ladder. */
    extra?: number;
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
  /** Deliveries that wait in Postgres again, for another workflow; absent when there are none. */
  returned?: number;
}

interface Command {
  kind: "retryNow" | "cancel";
}

/** What operators may ask, as the UI explains it. */
export const OPERATOR_UPDATES: readonly [Command["kind"], string][] = [
  [
    "retryNow",
    "Attempt the remaining deliveries now instead of waiting for the next attempt. It uses up none of their attempts.",
  ],
  ["cancel", "Give up the remaining deliveries, once the attempt under way has ended. They can be replayed later."],
];

/** What the deliveries wait for, and until when, in ms of the workflow's clock. */
interface Wait {
  summary: string;
  details: string;
  needsOperator?: boolean;
  until: number;
}

/** Its run was terminated or failed: an operator decides how it continues. */
const HELD: Wait = {
  summary: "for an operator",
  details:
    "Its workflow was terminated or failed, so it waits. Updates: retryNow, or cancel to give up the remaining deliveries.",
  needsOperator: true,
  until: Number.POSITIVE_INFINITY,
};

const GIVE_UP = "give up the remaining deliveries";
const NOTHING_LEFT = "nothing to cancel: all deliveries have ended";

/**
 * Deliveries of one endpoint that are attempted together, and retried together where they failed.
 * ID: webhook-delivery/{first delivery}.
 */
export function webhookDeliveryWorkflow(input: DeliveryInput): Promise<DeliveryOutcome> {
  const delivery = new Delivery(input);
  // A cancel in the UI is the cancel update.
  CancellationScope.current()
    .cancelRequested.catch(() => delivery.loop.submit({ kind: "cancel" }))
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => delivery.run());
}

/** A serial loop: `run` alone takes commands, and it alone begins attempts. */
class Delivery {
  readonly loop = new CommandLoop<Command>();
  readonly #ui = new OperatorView();
  readonly #input: DeliveryInput;
  readonly #steps: DeliveryActivities;
  readonly #outcome: DeliveryOutcome = { succeeded: 0, failed: 0, blocked: 0 };
  /** The attempt under way, or the next; the first is 1. */
  #attempt: number;
  /** Attempts so far that operators asked for, before their time. */
  #extra: number;
  /** The next attempt is one of those. */
  #isExtra = false;
  #isAttemptUnderWay = false;
  /** The next attempt is made by a local activity. */
  #isLocal: boolean;
  #wait: Wait | undefined;
  /** Why the latest delivery that is tried again failed. */
  #reason = "the outcome is unknown";
  #isCancelled: boolean;
  /** Answered once the remaining deliveries are given up. */
  readonly #cancels: PendingCommand<Command>[] = [];
  #hasEnded = false;

  constructor(input: DeliveryInput) {
    const { teamId, resume, localFirstAttempt = false } = input;
    this.#input = input;
    this.#steps = deliveryStepsFor(teamId);
    this.#attempt = resume?.attempt ?? 1;
    this.#extra = resume?.extra ?? 0;
    this.#isLocal = localFirstAttempt && !resume;
    this.#isCancelled = resume?.cancelled ?? false;
    if (resume?.held) this.#wait = HELD;
    for (const [kind, description] of OPERATOR_UPDATES) {
      setHandler(defineUpdate<string>(kind), () => this.loop.submit({ kind }), { description });
    }
  }

  async run(): Promise<DeliveryOutcome> {
    for (;;) {
      const pending = this.loop.next();
      const wait = this.#currentWait();
      if (pending) this.#carryOut(pending);
      else if (wait) await this.#waitFor(wait);
      else if (this.#hasEnded) {
        const { succeeded, failed, blocked, returned } = this.#outcome;
        const waiting = returned
          ? ` ${returned} returned: they wait for their endpoint, and another workflow will carry them.`
          : "";
        this.#show({ details: `Ended: ${succeeded} succeeded, ${failed} failed, ${blocked} blocked.${waiting}` });
        if (await this.loop.areAllAnswered()) return this.#outcome;
      } else if (this.#mayLeave()) await this.#continueAsNew();
      else if (this.#isCancelled) await this.loop.tryStep(GIVE_UP, () => this.#giveUp());
      else this.#beginAttempt();
    }
  }

  /** What is waited for before the next step, unless a command comes. */
  #currentWait(): Wait | undefined {
    const now = Date.now();
    if (this.#isAttemptUnderWay) {
      const details = `Attempt ${this.#attempt} of ${this.#mostAttempts} is under way. Update: cancel.`;
      return { summary: "for the attempt", details, until: Number.POSITIVE_INFINITY };
    }
    const { failing } = this.loop;
    const isNextFailing = failing && this.#isCancelled === (failing.step === GIVE_UP);
    if (isNextFailing && failing.until > now) {
      const updates = this.#isCancelled ? "retryNow" : "retryNow, cancel";
      const details = failingStep(failing, updates);
      return { summary: "until the step is tried again", details, needsOperator: true, until: failing.until };
    }
    return this.#wait && this.#wait.until > now && !this.#isCancelled ? this.#wait : undefined;
  }

  async #waitFor(wait: Wait): Promise<void> {
    const isUnderWay = this.#isAttemptUnderWay;
    this.#show(wait);
    await this.loop.wait(() => this.#isAttemptUnderWay !== isUnderWay, wait.summary, wait.until - Date.now());
  }

  #carryOut(pending: PendingCommand<Command>): void {
    const { kind } = pending.command;
    if (kind === "cancel" && !this.#hasEnded) {
      this.#isCancelled = true;
      this.#cancels.push(pending.remove());
    } else if (kind === "cancel") pending.reply(this.#nothingToCancel);
    // A request kept for later would cost the wait after this attempt.
    else if (this.#isAttemptUnderWay) pending.reply("an attempt is under way");
    else {
      this.#isExtra ||= this.#wait !== undefined && this.#wait !== HELD;
      this.#wait = undefined;
      this.loop.makeAllDue();
      pending.reply("attempts the remaining deliveries now");
    }
  }

  /** Begins an attempt, whose end wakes the loop: commands that come meanwhile are answered. */
  #beginAttempt(): void {
    const extra = this.#extra;
    const isExtra = this.#isExtra;
    const next = this.#input.ladderMs[this.#attempt - extra - (isExtra ? 1 : 0)];
    const retryInMs = next === undefined ? null : jittered(next, Math.random());
    const keepForMs = this.#input.ladderMs.reduce((sum, waitMs) => sum + waitMs, 0);
    const { groupId, teamId } = this.#input;
    const request = { groupId, teamId, attempt: this.#attempt, extra, isExtra, retryInMs, keepForMs };
    const isLocal = this.#isLocal;
    this.#isLocal = false;
    this.#isAttemptUnderWay = true;
    const attempt = async () =>
      this.#apply(await (isLocal ? attemptFirst({ ...request, brief: true }) : this.#steps.attemptGroup(request)));
    void this.loop.tryStep("attempt", attempt).finally(() => {
      this.#isAttemptUnderWay = false;
    });
  }

  #apply(result: AttemptResult): void {
    this.#ui.show({ needsOperator: false });
    this.#outcome.succeeded += result.succeeded;
    this.#outcome.failed += result.failed;
    this.#outcome.blocked += result.blocked;
    if (result.next === "done") {
      if (result.returned) this.#outcome.returned = result.returned;
      this.#end(0);
    } else this.#reason = result.reason || this.#reason;
    if (result.next !== "retry") return;
    if (this.#isExtra) this.#extra++;
    this.#isExtra = false;
    const { left, waitMs, nextAttemptAt } = result;
    const details = `${left} left. Attempt ${this.#attempt} of ${this.#mostAttempts} failed: ${this.#reason}. Next attempt at ${nextAttemptAt}. Updates: retryNow, cancel.`;
    this.#wait = { summary: "until the next attempt", details, until: Date.now() + waitMs };
    this.#attempt++;
  }

  async #giveUp(): Promise<void> {
    const givenUp = await this.#steps.cancelGroup(this.#input.groupId);
    this.#ui.show({ needsOperator: false });
    this.#outcome.failed += givenUp;
    this.#end(givenUp);
  }

  #end(givenUp: number): void {
    this.#hasEnded = true;
    answerAll(this.#cancels, givenUp > 0 ? `${givenUp} given up` : this.#nothingToCancel);
  }

  /** Those of the ladder, and those that operators asked for. */
  get #mostAttempts(): number {
    return this.#input.ladderMs.length + this.#extra + (this.#isExtra ? 1 : 0);
  }

  get #nothingToCancel(): string {
    const { returned } = this.#outcome;
    return returned
      ? `nothing to cancel: ${returned} returned, which wait for their endpoint; webhook:give-up ends them`
      : NOTHING_LEFT;
  }

  /** A cancel is answered by the run that took it, unless giving up fails. */
  #mayLeave(): boolean {
    return isRunLong() && (!this.#isCancelled || this.loop.failing?.step === GIVE_UP);
  }

  async #continueAsNew(): Promise<void> {
    answerAll(this.#cancels, "gives up the remaining deliveries as soon as its step succeeds");
    if (!(await this.loop.areAllAnswered())) return;
    const resume = { attempt: this.#attempt, extra: this.#extra, cancelled: this.#isCancelled };
    await continueAsNew<typeof webhookDeliveryWorkflow>({ ...this.#input, resume });
  }

  #show(shown: { details: string; needsOperator?: boolean }): void {
    this.#ui.show({ ...shown, details: `Endpoint ${this.#input.webhookId}. ${shown.details}` });
  }
}
