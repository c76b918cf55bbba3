import {
  ActivityCancellationType,
  ActivityFailure,
  type ActivityOptions,
  ApplicationFailure,
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  defineUpdate,
  patched,
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
import type { SendResource } from "../domain/sends/resource.ts";
import type { UnknownRequeued } from "../domain/sends/unknown.ts";
import { TASK_QUEUES } from "./ids.ts";
import { NEEDS_OPERATOR, SEND_STATUS } from "./search-attributes.ts";
import { troubleWaitMs, WORKFLOW_ENDED } from "./trouble.ts";

export interface SendInput {
  previewId: string;
  teamId: string;
  environment: "LIVE" | "TEST";
  /** What is mailed. */
  resource: SendResource;
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
/** What a wish that another one overtook is answered. */
const MEANWHILE = { resume: "resumed meanwhile", cancel: "cancelled meanwhile" } as const;
/** Longest single timer while a send waits for its day: then the database clock is asked again. */
const LONGEST_WAIT_MS = 6 * 3600 * 1000;
/** A run goes on as a new one before its history gets long. */
const HISTORY_EVENTS = 3_000;
/** The same for runs whose `finishSend` did not tell. */
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
  closeReview: step("closeReview", "call nobody any more"),
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
  /** The slice in hand; cancelled when a pause or a cancel wants it back. */
  #sliceScope: CancellationScope | undefined;
  /** What operators wanted last, in the order in which Postgres took it down. */
  #wish: "pause" | "resume" | "cancel" | undefined;
  /** Wishes on their way to Postgres. */
  #writing = 0;
  /** Cancels that are not answered yet, and how many there ever were. */
  #cancelling = 0;
  #cancels = 0;
  /** It goes on as a new run as soon as nobody waits for an answer: who would wait long gives way. */
  #leaving = false;
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
  /** The unknown are to be counted anew: late outcomes may have come in. */
  #recount = false;
  /** As the UI shows it. */
  #status: string | undefined;
  #details = "";
  /** Raised by every update: a wait that it should cut short ends. */
  #nudges = 0;
  /** Raised by every update that may have changed where Postgres says the send stands. */
  #wishes = 0;
  #needsOperator = false;

  constructor(input: SendInput) {
    this.#input = input;
    this.#id = input.previewId;
    this.#confirmed = input.resume !== undefined;
    // A run that follows another takes over what that one showed.
    this.#needsOperator =
      workflowInfo().typedSearchAttributes.get(NEEDS_OPERATOR) === true && patched("operator-taken-over");
    this.#dispatch = proxyActivities<DispatchActivities>({
      taskQueue: TASK_QUEUES.dispatch,
      startToCloseTimeout: "10 minutes",
      heartbeatTimeout: "10 seconds",
      // What fails again and again becomes trouble that operators see, instead of a retry they do not.
      retry: { initialInterval: "500 milliseconds", maximumAttempts: 3 },
      // A worker that lives finishes the mails in hand. One that is lost is not tried again, and nobody waits for another.
      cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
      // Between tasks only, which is why a slice gives way: one large team does not hold up the others.
      priority: { fairnessKey: input.teamId },
      summary: "mail a slice",
    });
    this.#setHandlers();
  }

  #setHandlers(): void {
    setHandler(previewUpdate, (request) => this.#preview(request), {
      description: "Used by the API: resolve the plan",
      validator: assertPreviewRequest,
    });
    setHandler(confirmUpdate, (request) => this.#confirm(request), {
      description: "Used by the API: arm the send with the token of its preview",
      validator: assertConfirmRequest,
    });
    setHandler(pauseUpdate, () => this.#pause(), {
      description:
        "Hold the send. Answers when no mail is in hand any more, or a resume or cancel came. Credits stay reserved.",
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
        "Mail those whose outcome is unknown once more: some of them may get the mail twice. Answers when they are queued, or a cancel came.",
    });
  }

  async run(): Promise<SendOutcome> {
    if (!this.#confirmed) {
      this.#tell("PREVIEW", "Previewed; waits for the confirm until the token expires.");
      await condition(() => this.#confirmed || this.#refused, this.#input.expiresInMs + GRACE_MS, {
        summary: "until the token expires",
      });
      // A confirm may have been under way when the timer fired.
      await condition(() => this.#confirmed || allHandlersFinished());
      // Who waits for the end of a confirmed send must not be waited for.
      if (!allHandlersFinished() && !patched("confirmed-goes-on")) await condition(allHandlersFinished);
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
      const { status, sent, unknown, reviewMs } = await steps.finishSend(this.#id);
      this.#settled = true;
      this.#recount = false;
      this.#tell(status, `${sent} mails sent, ${unknown} with an unknown outcome. Credits are settled.`);
      if (status === "SENT" && unknown > 0) await this.#reviewUnknown(sent, unknown, reviewMs ?? REVIEW_MS);
      // Whatever they were called for is over.
      else if (this.#needsOperator && patched("nobody-needed-at-the-end")) this.#operator(false);
      const goesOn = () => this.#requeued || this.#recount;
      if (!allHandlersFinished() && !(goesOn() && patched("goes-on-at-once"))) await condition(allHandlersFinished);
      if (goesOn()) {
        this.#finished = false;
        this.#settled = false;
        continue;
      }
      return { outcome: status === "CANCELLED" || status === "FAILED" ? status : "SENT", sent, unknown };
    }
  }

  /** Everybody else has their mail and the credits are settled: it stays open for a decision, and ends without one. */
  async #reviewUnknown(sent: number, unknown: number, ms: number): Promise<void> {
    this.#operator(true);
    this.#tell(
      "SENT",
      `${sent} mails sent, ${unknown} with an unknown outcome. Credits are settled. Updates: resendUnknown (some may get the mail twice), cancel to leave them unknown, or retry to count them anew; closes by itself 7 days after the send's end.`,
    );
    await condition(() => this.#requeued || this.#dismissed || this.#recount, ms, {
      summary: "for a decision about the unknown",
    });
    if (this.#recount && !this.#requeued && !this.#dismissed) return;
    this.#operator(false);
    // Without it the reconciler would bring the review back.
    if (!this.#requeued && patched("review-closed-in-postgres")) await steps.closeReview(this.#id);
  }

  /** Until nothing is left to mail: looks where the send stands, then waits or mails a slice. */
  async #carryOut(): Promise<void> {
    let troubles = 0;
    for (;;) {
      // However long it is paused or scheduled, and whatever it is told meanwhile: a run takes 2,000 updates.
      if (this.#isLong() && patched("afresh-wherever-it-waits")) await this.#startAfreshWhenLong();
      const nudges = this.#nudges;
      const wishes = this.#wishes;
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
      // What was read may be out of date: a slice that begins now would have nobody to end it, should no worker take it.
      if (this.#wishes !== wishes && patched("wishes-before-slices")) continue;
      this.#tell("SENDING", `Mailing ${state.recipients} recipients. Updates: pause, cancel.`);
      const [accountId = ""] = state.accountIds;
      let result = await this.#slice(accountId);
      // A slice that stages nothing says so: only then, or after a wish, is it worth asking where the send stands.
      while (result.next === "continue" && !this.#isLong()) {
        if (this.#wishes !== wishes && patched("wishes-before-slices")) break;
        result = await this.#slice(accountId);
      }
      if (result.next === "done") return;
      if (result.next === "failure") {
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

  async #slice(accountId: string): Promise<SliceResult> {
    this.#dispatching = true;
    const scope = new CancellationScope();
    this.#sliceScope = scope;
    try {
      const result = await scope.run(() => this.#dispatch.dispatchSlice({ sendId: this.#id, accountId }));
      // It mails again: whatever they were called for is over.
      const mails = result.mailed > 0 && result.next !== "failure";
      if (mails && this.#needsOperator && patched("mail-frees-operators")) this.#operator(false);
      return result;
    } catch (error) {
      // Taken back, and either no worker had it or the one that had it is lost.
      if (scope.consideredCancelled) return { next: "stopped", mailed: 0, unknown: 0 };
      const cause = error instanceof ActivityFailure ? error.cause : undefined;
      const reason = cause instanceof ApplicationFailure ? (cause.type ?? "internal_error") : "worker_lost";
      return { next: "failure", reason, temporary: true, mailed: 0, unknown: 0 };
    } finally {
      this.#dispatching = false;
    }
  }

  /**
   * Takes the slice in hand back. A worker that lives finishes the mails it has in hand, and most often is done before it
   * hears of this: it can stage nothing more. One that is lost is given up when its heartbeat is overdue.
   */
  #endSlice(details: string): void {
    if (!this.#dispatching) return;
    setCurrentDetails(details);
    if (patched("slices-are-taken-back")) this.#sliceScope?.cancel();
  }

  /** Temporary trouble is tried again by itself, ever more slowly; the rest pauses the send until somebody helps. */
  async #trouble(trouble: Extract<SliceResult, { next: "failure" }>, count: number, nudges: number): Promise<void> {
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
    if (this.#writing > 0 && patched("one-wish-at-a-time")) await this.#turn();
    this.#writing++;
    let paused: boolean;
    try {
      paused = await steps.pauseSend(this.#id, trouble.reason);
    } finally {
      this.#writing--;
    }
    // It ended meanwhile: there is nothing to repair for it.
    if (!paused && patched("trouble-of-the-living")) return;
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
    // A cancel waits for the end of the send, and the end is near: this run sees to it.
    const isEnding = () => this.#cancelling > 0 && patched("cancel-before-afresh");
    if (isEnding()) return;
    this.#leaving = true;
    while (!allHandlersFinished()) {
      const cancels = this.#cancels;
      await condition(() => allHandlersFinished() || this.#cancels !== cancels);
      if (isEnding()) {
        this.#leaving = false;
        return;
      }
    }
    await continueAsNew<typeof sendWorkflow>({ ...this.#input, resume: { afterSeq: 0 } });
  }

  async #waitFor(nudges: number, summary: string, ms?: number): Promise<void> {
    const nudged = () => this.#nudges !== nudges;
    if (ms === undefined) await condition(nudged);
    else await condition(nudged, ms, { summary });
  }

  async #preview({ apiKeyId }: { apiKeyId: string }): Promise<void> {
    try {
      const { previewId, teamId, environment, resource } = this.#input;
      await steps.writePreview({ previewId, teamId, environment, resource, apiKeyId });
      this.#previewed = true;
    } catch (error) {
      // Nobody holds a token of a preview that was refused, so there is nothing to wait for.
      if (!this.#previewed) this.#refused = true;
      throw refusal(error);
    }
  }

  async #confirm({ apiKeyId, idempotency }: { apiKeyId: string; idempotency: IdempotencyHandle }): Promise<void> {
    try {
      const { previewId, teamId, environment, resource } = this.#input;
      await steps.confirmSend({ previewId, teamId, environment, resource, apiKeyId, idempotency });
      this.#confirmed = true;
    } catch (error) {
      throw refusal(error);
    }
  }

  async #pause(): Promise<string> {
    if (!this.#confirmed) await this.#findConfirmed();
    if (this.#writing > 0 && patched("one-wish-at-a-time")) await this.#turn();
    this.#writing++;
    let paused: boolean;
    try {
      paused = await steps.pauseSend(this.#id);
    } finally {
      this.#writing--;
    }
    if (paused) {
      // An operator is at it.
      this.#operator(false);
      this.#wish = "pause";
    }
    this.#wished();
    this.#endSlice("Pausing: waits for the mails in hand. Updates: resume, cancel.");
    const overtaken = () => (paused && this.#wish !== "pause" ? this.#wish : undefined);
    const goesOn = () => overtaken() !== undefined && patched("pause-overtaken");
    if (this.#dispatching) await condition(() => !this.#dispatching || overtaken() !== undefined);
    if (!goesOn()) {
      await condition(() => !this.#dispatching);
      // A slice that was lost with its worker has left rows in hand that no other slice will come for.
      await steps.closeLost(this.#id);
    }
    const wish = overtaken();
    if (wish === "resume" || wish === "cancel") return MEANWHILE[wish];
    return paused && !this.#finished ? "PAUSED" : "nothing to pause: the send has ended";
  }

  async #resume(): Promise<string> {
    if (!this.#confirmed) await this.#findConfirmed();
    if (this.#writing > 0 && patched("one-wish-at-a-time")) await this.#turn();
    this.#writing++;
    let resumed: boolean;
    try {
      resumed = await steps.resumeSend(this.#id);
    } finally {
      this.#writing--;
    }
    if (resumed) {
      this.#operator(false);
      this.#wish = "resume";
      if (this.#dispatching)
        setCurrentDetails("Goes on as soon as the mails in hand are done. Updates: pause, cancel.");
    }
    this.#wished();
    return resumed ? "goes on" : "nothing to resume: the send is not paused";
  }

  async cancel(): Promise<string> {
    this.#cancels++;
    this.#cancelling++;
    try {
      // A confirm that is under way decides first whether there is anything to void.
      if (!this.#confirmed) {
        if (await steps.voidPreview(this.#id)) {
          this.#refused = true;
          return "CANCELLED: its token is void";
        }
        if (patched("confirmed-in-postgres")) this.#confirmed = true;
      }
      if (this.#writing > 0 && patched("one-wish-at-a-time")) await this.#turn();
      this.#writing++;
      let cancelled: boolean;
      try {
        cancelled = await steps.cancelSend(this.#id);
      } finally {
        this.#writing--;
      }
      this.#operator(false);
      if (cancelled) this.#wish = "cancel";
      this.#wished();
      this.#dismissed = true;
      const ended = "nothing to cancel: the send has ended";
      if (this.#finished && (this.#settled || !patched("cancel-while-settling"))) return ended;
      this.#endSlice("Cancelling: waits for the mails in hand, then settles the credits.");
      await condition(() => this.#settled);
      // It may have come to its end before.
      if (!cancelled) return ended;
      return this.#status === "CANCELLED" ? "CANCELLED" : "CANCELLED: the send is SENT as before";
    } finally {
      this.#cancelling--;
    }
  }

  async #retry(): Promise<string> {
    if (!this.#confirmed) await this.#findConfirmed();
    this.#nudges++;
    if (this.#finished) {
      if (!this.#settled) return "nothing to retry: the send has ended";
      if (patched("recounts")) this.#recount = true;
      return "counts the unknown anew: the send has ended";
    }
    if (this.#status === "PAUSED") return "nothing to retry: the send is paused; update resume instead";
    if (this.#status === "SCHEDULED") return "looks at the clock again: it starts at its send_at";
    return this.#dispatching ? "nothing to retry: it is mailing already" : "tries again now";
  }

  async #resendUnknown(): Promise<string> {
    if (!this.#confirmed) await this.#findConfirmed();
    const cancels = this.#cancels;
    const isCancelled = () => this.#cancelling > 0 || this.#cancels !== cancels;
    for (;;) {
      while (this.#finished && !this.#settled) await condition(() => this.#settled);
      if (this.#writing > 0 && patched("one-wish-at-a-time")) await this.#turn();
      if (isCancelled() && patched("resend-gives-way")) return "cancelled meanwhile: the unknown stay as they are";
      const { requeued, waitMs } = await this.#requeueUnknown();
      if (waitMs <= 0) {
        if (requeued > 0) return `${requeued} queued again`;
        // What was unknown when the send ended is known by now.
        if (this.#settled && patched("recounts")) this.#recount = true;
        return "nothing to resend: no outcome is unknown";
      }
      setCurrentDetails(
        `Waits ${Math.ceil(waitMs / 1000)} s to resend the unknown: until then a lost worker may still have them in hand. Updates: cancel.`,
      );
      const summary = "until no lost worker can have them in hand";
      if (!patched("resend-gives-way")) await sleep(waitMs, { summary });
      else {
        await condition(() => isCancelled() || this.#leaving, waitMs, { summary });
        setCurrentDetails(this.#details);
        if (isCancelled()) return "cancelled meanwhile: the unknown stay as they are";
        if (this.#leaving) return "not queued: the send goes on as a new run; update resendUnknown once more";
      }
    }
  }

  async #requeueUnknown(): Promise<UnknownRequeued> {
    this.#requeueing++;
    this.#writing++;
    try {
      const result = await steps.requeueUnknown(this.#id);
      if (result.requeued > 0) {
        this.#requeued = true;
        this.#dismissed = false;
        this.#wished();
      }
      return result;
    } finally {
      this.#writing--;
      this.#requeueing--;
    }
  }

  /** A wish is taken down: who waits looks again where the send stands. */
  #wished(): void {
    this.#wishes++;
    this.#nudges++;
  }

  /** Wishes reach Postgres one by one, as they came: two at once could be taken down in another order than is answered. */
  async #turn(): Promise<void> {
    while (this.#writing > 0) await condition(() => this.#writing === 0);
  }

  /** Postgres knows of a confirm that a run which was reset to a time before it does not. */
  async #findConfirmed(): Promise<void> {
    if (patched("confirmed-in-postgres") && (await steps.readSend(this.#id)) !== undefined) this.#confirmed = true;
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
    this.#details = details;
    setCurrentDetails(details);
    if (this.#status === status) return;
    this.#status = status;
    upsertSearchAttributes([{ key: SEND_STATUS, value: status }]);
  }
}

const hasTexts = (value: unknown, ...names: string[]): boolean =>
  typeof value === "object" &&
  value !== null &&
  names.every((name) => typeof (value as Record<string, unknown>)[name] === "string");

/** Sent by hand without its input, an update of the API would fail the workflow's task again and again. */
function assertPreviewRequest(request: unknown): void {
  if (hasTexts(request, "apiKeyId")) return;
  throw ApplicationFailure.nonRetryable("Used by the API alone: it takes an apiKeyId.", "validation_failed");
}

function assertConfirmRequest(request: { idempotency?: unknown } | undefined): void {
  const claim = request?.idempotency;
  if (hasTexts(request, "apiKeyId") && hasTexts(claim, "teamId", "environment", "keyHash", "requestId")) return;
  throw ApplicationFailure.nonRetryable("Used by the API alone: it takes its key and claim.", "validation_failed");
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
