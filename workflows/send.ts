import {
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { DispatchActivities, SliceResult } from "../activities/dispatch.ts";
import type { SendActivities } from "../activities/sends.ts";
import type { IdempotencyHandle } from "../domain/idempotency.ts";
import type { UnknownRequeued } from "../domain/sends/ledger.ts";
import { TASK_QUEUES } from "./ids.ts";
import { NEEDS_OPERATOR, SEND_STATUS } from "./search-attributes.ts";
import { troubleWaitMs, WORKFLOW_ENDED } from "./trouble.ts";

export interface SendInput {
  previewId: string;
  teamId: string;
  environment: "LIVE" | "TEST";
  newsletterId: string;
  /** How long the preview's token is good for. */
  expiresInMs: number;
  /** Where a run that follows another goes on; absent in the first. */
  resume?: { afterSeq: number };
}

export interface SendOutcome {
  outcome: "expired" | "refused" | "SENT" | "CANCELLED" | "FAILED";
  sent?: number;
  unknown?: number;
}

/** Resolves the plan and writes the preview's row. */
export const previewUpdate = defineUpdate<void, [{ apiKeyId: string }]>("preview");
/** Arms the send. */
export const confirmUpdate = defineUpdate<void, [{ apiKeyId: string; idempotency: IdempotencyHandle }]>("confirm");
/** Holds the send; answers when nothing is in hand any more. */
export const pauseUpdate = defineUpdate<string>("pause");
export const resumeUpdate = defineUpdate<string>("resume");
/** Ends the send for good; answers when nothing is in hand any more and the credits are settled. */
export const cancelUpdate = defineUpdate<string>("cancel");
/** Tries again at once instead of waiting for the account. */
export const retryUpdate = defineUpdate<string>("retry");
/** Mails those whose outcome is unknown once more; answers when they are queued. */
export const resendUnknownUpdate = defineUpdate<string>("resendUnknown");

/** A token is dead at its expiry; the minute is for confirms that came just before it. */
const GRACE_MS = 60_000;
/** Longest single timer while a send waits for its day: then the database clock is asked again. */
const LONGEST_WAIT_MS = 6 * 3600 * 1000;
/** A run goes on as a new one before its history gets long. */
const HISTORY_EVENTS = 3_000;
/** How long a send that ended with unknown outcomes waits for somebody to decide about them. */
const REVIEW_MS = 7 * 24 * 3600 * 1000;
/** Account trouble that comes back this often is shown to operators. */
const TROUBLE_TO_OPERATOR = 3;

const RETRY = { initialInterval: "200 milliseconds", maximumInterval: "10 seconds" } as const;

/** One activity of the sends pool, with the words the UI shows for it. */
const step = <K extends keyof SendActivities>(
  name: K,
  summary: string,
  options: ActivityOptions = {},
): SendActivities[K] =>
  proxyActivities<SendActivities>({
    taskQueue: TASK_QUEUES.sends,
    startToCloseTimeout: "30 seconds",
    retry: RETRY,
    ...options,
    summary,
  })[name];

/** For what may take minutes: a worker that is lost meanwhile is noticed by its heartbeat. */
const LONG = { startToCloseTimeout: "5 minutes", heartbeatTimeout: "10 seconds" } as const;

const steps = {
  // A local activity: it runs with the workflow's task, which saves the round trip that was most of a preview's time.
  // The API waits 10 s for it; nobody reads what comes much later.
  writePreview: proxyLocalActivities<SendActivities>({
    scheduleToCloseTimeout: "30 seconds",
    retry: RETRY,
    summary: "resolve the plan",
  }).writePreview,
  // The API waits 60 s for this one.
  confirmSend: step("confirmSend", "arm the send", { ...LONG, scheduleToCloseTimeout: "5 minutes" }),
  voidPreview: step("voidPreview", "void the token"),
  readSend: step("readSend", "see where it stands"),
  beginSend: step("beginSend", "begin"),
  pauseSend: step("pauseSend", "pause"),
  resumeSend: step("resumeSend", "resume"),
  cancelSend: step("cancelSend", "cancel"),
  closeLost: step("closeLost", "list what a lost worker had in hand", LONG),
  requeueUnknown: step("requeueUnknown", "queue the unknown again", LONG),
  finishSend: step("finishSend", "settle the credits", LONG),
};

/** One broadcast, from preview to settled credits. ID: send/{previewId}. */
export function sendWorkflow(input: SendInput): Promise<SendOutcome> {
  const story = new Send(input);
  // A cancel in the UI is the cancel update: what is in hand is finished and settled, not cut off.
  CancellationScope.current()
    .cancelRequested.catch(() => CancellationScope.nonCancellable(() => story.cancel()))
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => story.run());
}

class Send {
  readonly #input: SendInput;
  readonly #id: string;
  readonly #dispatch: DispatchActivities;

  #confirmed = false;
  #refused = false;
  #previewed = false;
  #dispatching = false;
  /** Nothing is left to mail. */
  #finished = false;
  /** The credits are settled and the status is final. */
  #settled = false;
  /** Requeues of the unknown under way: the send is not settled meanwhile. */
  #requeueing = 0;
  /** Unknown recipients were queued again: there is something to mail. */
  #requeued = false;
  /** An operator leaves the unknown as they are. */
  #dismissed = false;
  /** As the UI shows it. */
  #status: string | undefined;
  /** Raised by every update: a wait that it should cut short ends. */
  #nudges = 0;
  #needsOperator = false;
  #afterSeq: number;

  constructor(input: SendInput) {
    this.#input = input;
    this.#id = input.previewId;
    this.#afterSeq = input.resume?.afterSeq ?? 0;
    this.#confirmed = input.resume !== undefined;
    this.#dispatch = proxyActivities<DispatchActivities>({
      taskQueue: TASK_QUEUES.dispatch,
      startToCloseTimeout: "10 minutes",
      heartbeatTimeout: "10 seconds",
      // What fails again and again becomes trouble that operators see, instead of a retry they do not.
      retry: { initialInterval: "500 milliseconds", maximumAttempts: 3 },
      // Between tasks only, which is why a slice gives way: one large team does not hold up the others.
      priority: { fairnessKey: input.teamId },
      summary: "mail a slice",
    });
    this.#setHandlers();
  }

  #setHandlers(): void {
    setHandler(previewUpdate, (request) => this.#preview(request), {
      description: "Used by the API: resolve the plan",
    });
    setHandler(confirmUpdate, (request) => this.#confirm(request), {
      description: "Used by the API: arm the send with the token of its preview",
    });
    setHandler(pauseUpdate, () => this.#pause(), {
      description: "Hold the send. Answers when no mail is in hand any more. Credits stay reserved.",
    });
    setHandler(resumeUpdate, () => this.#resume(), { description: "Go on with a paused send." });
    setHandler(cancelUpdate, () => this.cancel(), {
      description:
        "End the send for good. Answers when no mail is in hand and the credits of what was not sent are back.",
    });
    setHandler(retryUpdate, () => this.#retry(), {
      description: "Try again now instead of waiting, e.g. after the sending account was repaired.",
    });
    setHandler(resendUnknownUpdate, () => this.#resendUnknown(), {
      description:
        "Mail those whose outcome is unknown once more: some of them may get the mail twice. Answers when they are queued.",
    });
  }

  async run(): Promise<SendOutcome> {
    if (!this.#confirmed) {
      this.#tell("PREVIEW", "Previewed; waits for the confirm until the token expires.");
      await condition(() => this.#confirmed || this.#refused, this.#input.expiresInMs + GRACE_MS, {
        summary: "until the token expires",
      });
      // A confirm may have been under way when the timer fired.
      await condition(allHandlersFinished);
    }
    if (!this.#confirmed) {
      this.#tell(this.#refused ? "REFUSED" : "EXPIRED", "Never confirmed; nothing was sent.");
      return { outcome: this.#refused ? "refused" : "expired" };
    }
    for (;;) {
      this.#requeued = false;
      await this.#carryOut();
      while (this.#requeueing > 0) await condition(() => this.#requeueing === 0);
      if (this.#requeued) continue;
      this.#finished = true;
      const { status, sent, unknown } = await steps.finishSend(this.#id);
      this.#settled = true;
      this.#tell(status, `${sent} mails sent, ${unknown} with an unknown outcome. Credits are settled.`);
      if (status === "SENT" && unknown > 0) await this.#reviewUnknown(sent, unknown);
      await condition(allHandlersFinished);
      if (this.#requeued) {
        this.#finished = false;
        this.#settled = false;
        continue;
      }
      return { outcome: status === "CANCELLED" || status === "FAILED" ? status : "SENT", sent, unknown };
    }
  }

  /** Everybody else has their mail and the credits are settled: it stays open for a decision, and ends without one. */
  async #reviewUnknown(sent: number, unknown: number): Promise<void> {
    this.#operator(true);
    this.#tell(
      "SENT",
      `${sent} mails sent, ${unknown} with an unknown outcome. Credits are settled. Updates: resendUnknown (some may get the mail twice), or cancel to leave them unknown; closes by itself in 7 days.`,
    );
    await condition(() => this.#requeued || this.#dismissed, REVIEW_MS, {
      summary: "for a decision about the unknown",
    });
    this.#operator(false);
  }

  /** Until nothing is left to mail: looks where the send stands, then waits or mails a slice. */
  async #carryOut(): Promise<void> {
    let troubles = 0;
    for (;;) {
      const nudges = this.#nudges;
      const state = await steps.readSend(this.#id);
      if (state === undefined || state.status === "SENT" || state.status === "CANCELLED" || state.status === "FAILED")
        return;
      if (state.status === "PAUSED") {
        if (state.trouble !== null) this.#tellTrouble(state.trouble);
        else {
          // A slice that ended in trouble just after their pause may have called for them once more.
          this.#operator(false);
          this.#tell("PAUSED", "Paused by an operator. Updates: resume, cancel.");
        }
        await this.#waitFor(nudges, "paused");
        continue;
      }
      if (state.status === "SCHEDULED") {
        if (state.startsInMs > 0) {
          this.#tell("SCHEDULED", `${state.recipients} recipients; starts at its send_at. Updates: pause, cancel.`);
          await this.#waitFor(nudges, "until send_at", Math.min(state.startsInMs, LONGEST_WAIT_MS));
          continue;
        }
        if (!(await steps.beginSend(this.#id))) continue;
      }
      this.#tell("SENDING", `Mailing ${state.recipients} recipients. Updates: pause, cancel.`);
      let result = await this.#slice();
      // A slice that stages nothing says so: only then is it worth asking where the send stands.
      while (result.next === "continue" && !this.#isLong()) result = await this.#slice();
      if (result.next === "done") return;
      if (result.next === "trouble") {
        troubles++;
        await this.#trouble(result, troubles, nudges);
      } else {
        if (result.mailed > 0 && this.#needsOperator) this.#operator(false);
        if (result.mailed > 0) troubles = 0;
        if (result.next === "deferred") {
          this.#tell("SENDING", "Only deferred recipients are left; waits for the next retry. Updates: retry, cancel.");
          await this.#waitFor(nudges, "until a deferred recipient is due", Math.max(result.waitMs, 100));
        } else if (result.next === "account_full") {
          this.#tell(
            "SENDING",
            "Its account has no connection or no mail of its limits left; goes on when it has. Updates: pause, cancel.",
          );
          await this.#waitFor(nudges, "until the account has room", Math.max(result.waitMs, 100));
        }
      }
      await this.#startAfreshWhenLong();
    }
  }

  async #slice(): Promise<SliceResult> {
    this.#dispatching = true;
    try {
      const result = await this.#dispatch.dispatchSlice({ sendId: this.#id, afterSeq: this.#afterSeq });
      this.#afterSeq = result.afterSeq;
      return result;
    } catch (error) {
      const cause = error instanceof ActivityFailure ? error.cause : undefined;
      const reason = cause instanceof ApplicationFailure ? (cause.type ?? "internal_error") : "worker_lost";
      return { next: "trouble", reason, temporary: true, afterSeq: this.#afterSeq, mailed: 0, unknown: 0 };
    } finally {
      this.#dispatching = false;
    }
  }

  /** Temporary trouble is tried again by itself, ever more slowly; the rest pauses the send until somebody helps. */
  async #trouble(trouble: Extract<SliceResult, { next: "trouble" }>, count: number, nudges: number): Promise<void> {
    if (trouble.temporary) {
      if (count >= TROUBLE_TO_OPERATOR) this.#operator(true);
      const waitMs = troubleWaitMs(count);
      this.#tell(
        "SENDING",
        `Cannot be mailed at present (${trouble.reason}); tries again in ${Math.round(waitMs / 1000)} s. Updates: retry, pause, cancel.`,
      );
      await this.#waitFor(nudges, "until the next try", waitMs);
      return;
    }
    await steps.pauseSend(this.#id, trouble.reason);
    this.#tellTrouble(trouble.reason);
  }

  #tellTrouble(trouble: string): void {
    this.#operator(true);
    this.#tell(
      "PAUSED",
      trouble === WORKFLOW_ENDED
        ? "Its workflow was terminated or failed, so it came back paused. Updates: resume, or cancel to end it for good."
        : `Paused: ${trouble}. Repair the sending account, then update: resume. Or: cancel.`,
    );
  }

  #isLong(): boolean {
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    return historyLength >= HISTORY_EVENTS || continueAsNewSuggested;
  }

  async #startAfreshWhenLong(): Promise<void> {
    if (!this.#isLong()) return;
    await condition(allHandlersFinished);
    await continueAsNew<typeof sendWorkflow>({ ...this.#input, resume: { afterSeq: this.#afterSeq } });
  }

  async #waitFor(nudges: number, summary: string, ms?: number): Promise<void> {
    const nudged = () => this.#nudges !== nudges;
    if (ms === undefined) await condition(nudged);
    else await condition(nudged, ms, { summary });
  }

  async #preview({ apiKeyId }: { apiKeyId: string }): Promise<void> {
    try {
      const { previewId, teamId, environment, newsletterId } = this.#input;
      await steps.writePreview({ previewId, teamId, environment, newsletterId, apiKeyId });
      this.#previewed = true;
    } catch (error) {
      // Nobody holds a token of a preview that was refused, so there is nothing to wait for.
      if (!this.#previewed) this.#refused = true;
      throw refusal(error);
    }
  }

  async #confirm({ apiKeyId, idempotency }: { apiKeyId: string; idempotency: IdempotencyHandle }): Promise<void> {
    try {
      const { previewId, teamId, environment, newsletterId } = this.#input;
      await steps.confirmSend({ previewId, teamId, environment, newsletterId, apiKeyId, idempotency });
      this.#confirmed = true;
    } catch (error) {
      throw refusal(error);
    }
  }

  async #pause(): Promise<string> {
    this.#assertConfirmed();
    const paused = await steps.pauseSend(this.#id);
    // An operator is at it.
    if (paused) this.#operator(false);
    this.#nudges++;
    await condition(() => !this.#dispatching);
    // A slice that was lost with its worker has left rows in hand that no other slice will come for.
    await steps.closeLost(this.#id);
    return paused ? "PAUSED" : "nothing to pause: the send has ended";
  }

  async #resume(): Promise<string> {
    this.#assertConfirmed();
    const resumed = await steps.resumeSend(this.#id);
    if (resumed) this.#operator(false);
    this.#nudges++;
    return resumed ? "goes on" : "nothing to resume: the send is not paused";
  }

  async cancel(): Promise<string> {
    // A confirm that is under way decides first whether there is anything to void.
    if (!this.#confirmed && (await steps.voidPreview(this.#id))) {
      this.#refused = true;
      return "CANCELLED: its token is void";
    }
    const cancelled = await steps.cancelSend(this.#id);
    this.#operator(false);
    this.#nudges++;
    this.#dismissed = true;
    if (this.#finished) return "nothing to cancel: the send has ended";
    await condition(() => this.#settled);
    return cancelled ? "CANCELLED" : "nothing to cancel: the send has ended";
  }

  async #retry(): Promise<string> {
    this.#assertConfirmed();
    this.#nudges++;
    return "tries again now";
  }

  async #resendUnknown(): Promise<string> {
    this.#assertConfirmed();
    for (;;) {
      while (this.#finished && !this.#settled) await condition(() => this.#settled);
      const { requeued, waitMs } = await this.#requeueUnknown();
      if (waitMs <= 0) return requeued > 0 ? `${requeued} queued again` : "nothing to resend: no outcome is unknown";
      setCurrentDetails(
        `Waits ${Math.ceil(waitMs / 1000)} s to resend the unknown: until then a lost worker may still have them in hand.`,
      );
      await sleep(waitMs, { summary: "until no lost worker can have them in hand" });
    }
  }

  async #requeueUnknown(): Promise<UnknownRequeued> {
    this.#requeueing++;
    try {
      const result = await steps.requeueUnknown(this.#id);
      if (result.firstSeq !== null) {
        this.#afterSeq = Math.min(this.#afterSeq, result.firstSeq - 1);
        this.#requeued = true;
        this.#dismissed = false;
        this.#nudges++;
      }
      return result;
    } finally {
      this.#requeueing--;
    }
  }

  #assertConfirmed(): void {
    if (!this.#confirmed) {
      throw ApplicationFailure.nonRetryable("This send was never confirmed.", "resource_state_invalid");
    }
  }

  #operator(needed: boolean): void {
    if (this.#needsOperator === needed) return;
    this.#needsOperator = needed;
    upsertSearchAttributes([{ key: NEEDS_OPERATOR, value: needed }]);
  }

  /** What the operator sees in the UI: the state to search by, and a sentence. */
  #tell(status: string, details: string): void {
    setCurrentDetails(details);
    if (this.#status === status) return;
    this.#status = status;
    upsertSearchAttributes([{ key: SEND_STATUS, value: status }]);
  }
}

/** An update fails only with an ApplicationFailure: any other error would block the workflow task for ever. */
function refusal(error: unknown): ApplicationFailure {
  // A local activity fails with its failure itself, any other with one around it.
  const failure = error instanceof ActivityFailure ? error.cause : error;
  if (failure instanceof ApplicationFailure && failure.nonRetryable) {
    const type = failure.type ?? "internal_error";
    return ApplicationFailure.create({ message: type, type, nonRetryable: true, details: failure.details ?? [] });
  }
  // It ran out of time or tries.
  return ApplicationFailure.nonRetryable("service_unavailable", "service_unavailable");
}
