import * as workflow from "@temporalio/workflow";
import type { DispatchActivities, SliceInput, SliceResult } from "../activities/dispatch.ts";
import type { ChangedSend, SendState } from "../domain/sends/ledger/lifecycle.ts";
import { GONE } from "../domain/sends/pause-reasons.ts";
import type { PreviewRequest } from "../domain/sends/plan/preview.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import { isTaken } from "./changes.ts";
import { answerAll, CommandLoop, isRunLong, type PendingCommand } from "./command-loop.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { isLimitUsedUp, isUnderWay, type LaneView, takenOverBy } from "./lane-view.ts";
import { OperatorView } from "./operator-view.ts";
import { isOpen, isSetBack, type KnownProgress, progressOf } from "./progress.ts";
import { decide, type SendView, type Step } from "./send-decision.ts";
import { withFacts } from "./send-facts.ts";
import * as messages from "./send-messages.ts";
import { sendSteps as steps } from "./send-steps.ts";
import { failureCodeOf, isRefusal, refusalOf, refusalText, STEP_RETRY } from "./steps.ts";

const { CancellationScope, setHandler } = workflow;
type CancellationScope = workflow.CancellationScope;
const { ANSWERS } = messages;
type Command = messages.Command;

/** A token is dead at its expiry; the minute is for confirms that came just before it. */
const GRACE_MS = 60_000;

/** One broadcast, from preview to settled credits. ID: send/{previewId}. */
export function sendWorkflow(input: messages.SendInput): Promise<messages.SendOutcome> {
  const send = new Send(input);
  // A cancel in the UI is the cancel update: mails in flight are finished and settled, not cut off.
  CancellationScope.current()
    .cancelRequested.catch(() => send.loop.submit({ kind: "cancel" }))
    .catch(() => undefined);
  return CancellationScope.nonCancellable(() => send.run());
}

interface RunView extends SendView {
  lanes: LaneView[];
  /** Replaced, never changed: a step is compared with how far the send was when the step began. */
  known?: KnownProgress | undefined;
  pauses: PendingCommand<Command>[];
  cancels: PendingCommand<Command>[];
}

/** A serial loop: `run` alone takes commands, and it alone asks Postgres for changes. */
class Send {
  readonly loop = new CommandLoop<Command>();
  readonly #input: messages.SendInput;
  readonly #id: string;
  readonly #ui = new OperatorView();
  readonly #view: RunView;
  /** Of the slices under way, by account. */
  readonly #scopes = new Map<string, CancellationScope>();
  #endedSlices = 0;
  #wakeUps = 0;
  /** When the preview was made whose token may be used, in ms of the workflow's clock. */
  #previewed: { at: number; apiKeyId: string; isLarge: boolean } | undefined;

  constructor(input: messages.SendInput) {
    const { previewId, resume } = input;
    this.#input = input;
    this.#id = previewId;
    const resumed = { ...resume, isStale: resume !== undefined, lanes: [...(resume?.lanes ?? [])] };
    const nothing = { review: "open", isLong: false } as const;
    // A run that follows another waits for no token.
    this.#view = { ...resumed, ...nothing, isTokenExpired: resume !== undefined, now: 0, pauses: [], cancels: [] };
    setHandler(messages.previewUpdate, async (sent) => void (await this.loop.submit({ ...sent, kind: "preview" })), {
      description: "Used by the API: resolve the plan",
    });
    setHandler(messages.confirmUpdate, async (sent) => void (await this.loop.submit({ ...sent, kind: "confirm" })), {
      description: "Used by the API: arm the send with the token of its preview",
    });
    setHandler(
      messages.wakeUpSignal,
      () => {
        this.#wakeUps++;
        this.#view.isStale = true;
      },
      { description: "Used by the reconciler: read the send's state again" },
    );
    for (const [kind, description] of messages.OPERATOR_UPDATES) {
      const submit = (input?: unknown) => this.loop.submit(kind === "resume" ? { kind, input } : { kind });
      setHandler(workflow.defineUpdate<string, [unknown?]>(kind), submit, { description });
    }
  }

  async run(): Promise<messages.SendOutcome> {
    const token = new CancellationScope();
    const lifetimeMs = this.#input.expiresInMs + GRACE_MS;
    if (this.#input.resume) token.cancel();
    const lifetime = token.run(() => workflow.sleep(lifetimeMs, { summary: "until the token expires" }));
    lifetime.then(() => Object.assign(this.#view, { isTokenExpired: true })).catch(() => undefined);
    for (;;) {
      const pending = this.loop.next();
      const next = decide(this.#refreshView(), pending?.command.kind);
      this.#ui.show(withFacts(this.#view, next));
      if (next.kind === "wait") await this.#wait(next);
      else if (next.kind === "continueAsNew") await this.#continueAsNew();
      else if (next.kind === "end") {
        const { settled, setBack, known } = this.#view;
        // After a restore more mails have left than the ledger knows; a later restore reads this number.
        const sent = Math.max(settled?.sent ?? 0, setBack?.sent ?? 0, known?.sent ?? 0);
        const counts = settled || setBack ? { sent, ...(settled && { unknown: settled.unknown }) } : {};
        if (await this.loop.areAllAnswered()) return { outcome: next.outcome, ...counts };
      } else await this.loop.tryStep(next.kind, () => this.#take(next, pending), pending);
      if (this.#view.send) token.cancel();
    }
  }

  #refreshView(): SendView {
    const { failing } = this.loop;
    const now = Date.now();
    const listsForgottenPauses = this.#view.send?.status === "PAUSED" && isTaken("list-forgotten-pauses");
    return Object.assign(this.#view, {
      listsForgottenPauses,
      now,
      failing,
      resendAt: this.loop.dueAt("resendUnknown"),
      isLong: isRunLong(),
    });
  }

  async #take(next: Step, pending: PendingCommand<Command> | undefined): Promise<void> {
    const view = this.#view;
    switch (next.kind) {
      case "read": {
        const { isTokenExpired } = view;
        await this.#ask(async () => ({ changed: false, state: await steps.readSend(this.#id) }));
        if (view.send) return;
        // A cancel is carried out next: it makes the token void.
        if (pending && pending.command.kind !== "cancel") pending.refuse(ANSWERS.neverConfirmed());
        else if (!pending && isTokenExpired && !view.setBack) view.neverBegan ??= "expired";
        return;
      }
      case "begin":
        return void (await this.#ask(() => steps.beginSend(this.#id)));
      case "dispatch":
        return this.#beginSlice(next.accountId);
      case "pauseForFailure":
        await this.#ask(() => steps.pauseSend(this.#id, next.reason));
        if (view.setBack) view.setBack = { ...view.setBack, isPaused: true };
        return;
      case "closeLost":
        await steps.closeLost(this.#id);
        return answerAll(view.pauses, "PAUSED");
      case "settle": {
        const finished = await steps.finishSend(this.#id);
        // Recipients that were put back meanwhile are found by a lane that had found none.
        for (const lane of view.lanes) if (lane.lastSlice?.next === "done") lane.lastSlice = undefined;
        // Complaints paused it meanwhile, with recipients left; or Postgres was set back.
        view.isStale ||= isOpen(finished.status) && finished.status !== "SENDING";
        if (isOpen(finished.status)) return;
        const { reviewMs, lateMs, ...settled } = finished;
        const recount = lateMs !== undefined && { recountAt: Date.now() + lateMs };
        view.settled = { ...settled, ...recount, reviewUntil: Date.now() + reviewMs };
        if (view.send) view.send = { ...view.send, status: settled.status };
        if (view.known) view.known = { ...view.known, status: settled.status };
        return answerAll(view.cancels, settled.status === "CANCELLED" ? ANSWERS.cancelled : ANSWERS.resendCancelled);
      }
      case "closeReview":
        await steps.closeReview(this.#id);
        view.review = "closed";
        return;
      default:
        return pending && this.#carryOut(pending);
    }
  }

  /** Each command is answered, or waits for its answer in the view or in the loop. */
  async #carryOut(pending: PendingCommand<Command>): Promise<void> {
    const view = this.#view;
    switch (pending.command.kind) {
      case "preview":
      case "confirm":
        return this.#arm(pending, pending.command);
      case "pause":
        if (!(await this.#ask(() => steps.pauseSend(this.#id)))) return pending.reply(ANSWERS.nothingToPause);
        this.loop.drop("resume", ANSWERS.pausedMeanwhile, pending);
        view.pauses.push(pending.remove());
        return;
      case "resume": {
        const { command } = pending;
        const refusal = messages.resumeRefusal(view, command);
        if (refusal) return pending.refuse(refusal);
        this.#forgetStatus();
        const areGone = command.input === GONE;
        command.resumes ??= view.send?.resumes;
        if (!(await this.#ask(() => steps.resumeSend(this.#id, areGone, command.resumes))))
          return pending.reply(ANSWERS.nothingToResume);
        const { setBack } = view;
        if (setBack?.isPaused) {
          view.setBack = undefined;
          // A later restore may queue them once more.
          if (view.known) view.known = { ...view.known, sent: Math.max(view.known.sent, setBack.sent) };
        }
        this.loop.drop("pause", ANSWERS.resumedMeanwhile, pending);
        if (view.setBack) return pending.reply(ANSWERS.pausedMeanwhile);
        return pending.reply(setBack ? ANSWERS.continuesSetBack : ANSWERS.continues);
      }
      case "cancel":
        return this.#cancel(pending);
      case "retry":
        pending.reply(messages.retryAnswer(view));
        for (const lane of view.lanes) {
          if (lane.slice === "under way") lane.slice = "retried";
          Object.assign(lane, { lastSlice: undefined, triesNow: true });
        }
        Object.assign(view, { isStale: true, settled: undefined });
        return this.loop.makeAllDue();
      case "resendUnknown": {
        this.#forgetStatus();
        const { requeued, waitMs } = await steps.requeueUnknown(this.#id);
        if (waitMs > 0) return pending.postpone(waitMs);
        pending.reply(requeued > 0 ? `${requeued} queued again` : ANSWERS.nothingToResend);
        // Without rows, outcomes may have become known, or the answer of a try that queued them was lost.
        Object.assign(view, { isStale: true, settled: undefined });
        for (const lane of view.lanes) lane.lastSlice = undefined;
        if (requeued === 0) return;
        view.review = "open";
        this.#endSlices();
      }
    }
  }

  /** Their callers have deadlines of their own, so none is tried again later. */
  async #arm(pending: PendingCommand<Command>, command: Extract<Command, { apiKeyId: string }>): Promise<void> {
    const view = this.#view;
    const { previewId, teamId, environment, resource } = this.#input;
    const request = { previewId, teamId, environment, resource, apiKeyId: command.apiKeyId };
    try {
      if (command.kind === "confirm") {
        const arm = this.#previewed?.isLarge ? steps.confirmLargeSend : steps.confirmSend;
        await arm({ ...request, idempotency: command.idempotency });
        view.isStale = true;
      } else {
        if (!this.#hasToken(request)) await this.#writePreview(request);
        view.neverBegan = undefined;
      }
      pending.reply("done");
    } catch (error) {
      // Without a token there is nothing to wait for.
      const refusal = refusalOf(error);
      if (command.kind === "preview" && this.#previewed === undefined) {
        Object.assign(view, { neverBegan: "refused", refusal: refusalText(refusal) });
      }
      // It may have been committed although its answer was lost: Postgres knows.
      if (command.kind === "confirm" && !isRefusal(error)) view.isStale = true;
      pending.refuse(refusal);
    }
  }

  async #writePreview(request: PreviewRequest): Promise<void> {
    // A quick plan is resolved in this very task of the workflow.
    const written = await steps.writePreview(request);
    if (written === "slow") await steps.writeLongPreview(request);
    this.#previewed = {
      at: Date.now(),
      apiKeyId: request.apiKeyId,
      isLarge: written === "slow" || written === "large",
    };
  }

  /** An earlier request of the key under the same Idempotency-Key may have made the preview, and not have waited for it. */
  #hasToken({ apiKeyId }: PreviewRequest): boolean {
    const previewed = this.#previewed;
    if (previewed === undefined || previewed.apiKeyId !== apiKeyId) return false;
    return Date.now() < previewed.at + this.#input.expiresInMs / 2;
  }

  async #cancel(pending: PendingCommand<Command>): Promise<void> {
    const view = this.#view;
    if (!view.send && ((await steps.voidPreview(this.#id)) || view.setBack)) {
      const refusal = view.setBack ? undefined : "an operator cancelled it before its confirm";
      Object.assign(view, { neverBegan: "refused", refusal });
      return pending.reply(ANSWERS.voided);
    }
    const cancelled = await this.#ask(() => steps.cancelSend(this.#id));
    this.loop.drop("resendUnknown", ANSWERS.resendDropped, pending);
    if (view.review === "open") view.review = "dismissed";
    if (!cancelled) {
      return pending.reply(view.send?.status === "SENT" ? ANSWERS.leftUnknown : ANSWERS.nothingToCancel);
    }
    view.settled = undefined;
    view.cancels.push(pending.remove());
  }

  #beginSlice(accountId: string): void {
    const { lanes } = this.#view;
    const lane = lanes.find((each) => each.accountId === accountId);
    if (!lane) return;
    const takesOver = takenOverBy(accountId, lanes);
    const closedEpoch = this.#view.known?.closedEpochs[accountId];
    const slice: SliceInput = {
      sendId: this.#id,
      accountId,
      teamId: this.#input.teamId,
      ...(lane.triesNow && { tryNow: true }),
      ...(takesOver.length > 0 && { takesOver }),
      ...(closedEpoch !== undefined && { closedEpoch }),
    };
    const scope = new CancellationScope();
    this.#scopes.set(accountId, scope);
    Object.assign(lane, { slice: "under way", triesNow: false, mayFindMore: false });
    void scope.run(() => requestSlice(slice)).then((result) => this.#endSlice(lane, slice, result));
  }

  #endSlice(lane: LaneView, { tryNow }: SliceInput, result: SliceResult): void {
    const view = this.#view;
    // The result is out of date when an operator ended the slice or retries it, or when it found the send not SENDING.
    const isVoid = lane.slice !== "under way" || result.next === "stopped";
    if (result.next === "failure" && lane.slice !== "ending") lane.accountFailures++;
    else if (result.mailed > 0) lane.accountFailures = 0;
    if (result.next === "failure") lane.lastFailure = { reason: result.reason, reply: result.reply, at: Date.now() };
    else if (result.mailed > 0) lane.lastFailure = undefined;
    // It had no connection to try, or no room in its limits.
    if (result.next === "account_full" && result.mailed === 0) lane.triesNow ||= tryNow === true;
    lane.slice = "none";
    lane.lastSlice = isVoid ? undefined : { ...result, at: Date.now() };
    view.isStale ||= isVoid;
    if (view.send && result.sent !== undefined) view.send = { ...view.send, sent: result.sent };
    if (view.known) {
      const { known } = view;
      const closed = result.epoch === undefined ? {} : { [lane.accountId]: result.epoch };
      const sent = Math.max(known.sent, result.sent ?? 0);
      view.known = { ...known, sent, closedEpochs: { ...known.closedEpochs, ...closed } };
    }
    if (result.next === "failure" || isLimitUsedUp(result) || result.returned) {
      for (const other of view.lanes) if (other !== lane) other.mayFindMore = true;
    }
    this.#endedSlices++;
  }

  /** Cancels the slices under way. A live worker finishes the mails in flight, and can stage no more. */
  #endSlices(): void {
    for (const lane of this.#view.lanes.filter(isUnderWay)) {
      lane.slice = "ending";
      this.#scopes.get(lane.accountId)?.cancel();
    }
  }

  async #wait({ ms, summary }: Extract<Step, { kind: "wait" }>): Promise<void> {
    const view = this.#view;
    const { isTokenExpired } = view;
    const isMailing = view.lanes.some(isUnderWay);
    const [ended, wakeUps] = [this.#endedSlices, this.#wakeUps];
    const hasChanged = () =>
      this.#endedSlices !== ended || this.#wakeUps !== wakeUps || view.isTokenExpired !== isTokenExpired;
    await this.loop.wait(hasChanged, summary, ms);
    if (view.send && !isMailing) view.isStale = true;
  }

  #setSend(send: SendState | undefined, known: KnownProgress | undefined): void {
    const view = this.#view;
    const driven = new Map(view.lanes.map((lane) => [lane.accountId, lane]));
    const newLane = { slice: "none", accountFailures: 0, mayFindMore: false } as const;
    const lanes = send?.accountIds.map((accountId) => driven.get(accountId) ?? { accountId, ...newLane });
    Object.assign(view, { send, lanes: lanes ?? [] });
    const wasSetBack = known !== undefined && (!send || isSetBack(known, send));
    if (wasSetBack) view.setBack = { sent: Math.max(known.sent, view.setBack?.sent ?? 0), isPaused: false };
    // Once it was found behind, Postgres counts as it is: an operator decides.
    if (send) view.known = progressOf(send, wasSetBack ? undefined : view.known);
    if (!send) return;
    if (send.status !== "SENDING") this.#endSlices();
    if (send.status !== "PAUSED") {
      answerAll(view.pauses, isOpen(send.status) ? ANSWERS.resumedMeanwhile : ANSWERS.cancelledMeanwhile);
    }
    if (known && send.resumes > known.resumes) {
      for (const lane of view.lanes) Object.assign(lane, { lastSlice: undefined, accountFailures: 0, triesNow: true });
    }
  }

  /** Before a step that takes the send back: if its answer is lost, Postgres may know of it and this run does not. */
  #forgetStatus(): void {
    const { known } = this.#view;
    if (known) this.#view.known = { ...known, status: undefined };
  }

  /** @returns whether it changed as asked */
  async #ask(step: () => Promise<ChangedSend>): Promise<boolean> {
    const view = this.#view;
    const { known, isStale } = view;
    // What comes while Postgres answers may be newer than its answer.
    view.isStale = false;
    const { changed, state } = await step().catch((error: unknown) => {
      view.isStale ||= isStale;
      throw error;
    });
    this.#setSend(state, known);
    if (changed) for (const lane of view.lanes) Object.assign(lane, { lastSlice: undefined, accountFailures: 0 });
    return changed;
  }

  async #continueAsNew(): Promise<void> {
    this.loop.drop("resendUnknown", ANSWERS.resendLost);
    if (!(await this.loop.areAllAnswered())) return;
    const { lanes, known, setBack } = this.#view;
    const resume = { lanes, ...(known && { known }), ...(setBack && { setBack }) };
    await workflow.continueAsNew<typeof sendWorkflow>({ ...this.#input, resume });
  }
}

/** An activity that fails three times is a result: a failure that may pass by itself. */
async function requestSlice(slice: SliceInput): Promise<SliceResult> {
  const { dispatchSlice } = workflow.proxyActivities<DispatchActivities>({
    taskQueue: TASK_QUEUES.dispatch,
    // Half a minute of mailing, and what the limits of SMTP allow to the last mails in flight.
    startToCloseTimeout: "1 hour",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    retry: STEP_RETRY,
    // A live worker finishes the mails in flight.
    cancellationType: workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    // Fairness acts between tasks only, which is why a slice gives way: one large team does not hold up the others.
    priority: { fairnessKey: slice.teamId },
    summary: "mail a slice",
  });
  try {
    return await dispatchSlice(slice);
  } catch (error) {
    return { next: "failure", reason: failureCodeOf(error), temporary: true, mailed: 0 };
  }
}
