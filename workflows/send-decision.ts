import type { SendState, SettledSend } from "../domain/sends/ledger/lifecycle.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";
import type { SetBack } from "../temporal/starts.ts";
import { isCallingOperator, isUnderWay, type LaneView } from "./lane-view.ts";
import type { Shown } from "./operator-view.ts";
import { isOpen } from "./progress.ts";
import { type CommandKind, DETAILS, LANE_STATES, type SendOutcome } from "./send-messages.ts";
import { accountFailureWaitMs, type FailingStep, failingStep } from "./steps.ts";

/** Times are in ms of the workflow's clock. */
export interface SendView {
  now: number;
  /** Undefined while no confirm is known. */
  send?: SendState | undefined;
  isStale: boolean;
  /** Postgres was found to be behind the workflow, and no operator has resumed the send since. */
  setBack?: SetBack | undefined;
  neverBegan?: "refused" | "expired" | undefined;
  refusal?: string | undefined;
  isTokenExpired: boolean;
  lanes: readonly LaneView[];
  failing?: FailingStep | undefined;
  /** Pauses that were carried out: answered once no mail is in flight. */
  pauses: readonly unknown[];
  /** Cancels that were carried out: answered once the credits are settled. */
  cancels: readonly unknown[];
  resendAt?: number | undefined;
  /** Whether it lists sends that were paused on purpose and may be forgotten: a change since 1.0. */
  listsForgottenPauses?: boolean | undefined;
  /** `recountAt`: by then late replies have come. */
  settled?:
    | (Pick<SettledSend, "status" | "sent" | "unknown"> & { reviewUntil: number; recountAt?: number })
    | undefined;
  /** Of the unknown outcomes. `dismissed`: an operator leaves them as they are. `closed`: Postgres knows that. */
  review: "open" | "dismissed" | "closed";
  isLong: boolean;
}

export type Step = Partial<Shown> &
  (
    | { kind: CommandKind }
    | { kind: "read" | "begin" | "closeLost" | "settle" | "closeReview" | "continueAsNew" }
    | { kind: "pauseForFailure"; reason: string }
    | { kind: "dispatch"; accountId: string }
    | { kind: "wait"; summary: string; ms?: number }
    | { kind: "end"; outcome: SendOutcome["outcome"] }
  );

/** After this long a send that was paused on purpose is listed for operators: it may be forgotten. */
const FORGOTTEN_MS = 24 * 3600 * 1000;

/** Longest single timer while a send waits for its day: then the database clock is asked again. */
const LONGEST_WAIT_MS = 6 * 3600 * 1000;

const wait = (summary: string, details: string, ms?: number, needsOperator = false): Step => {
  return { kind: "wait", summary, details, needsOperator, ...(ms === undefined ? {} : { ms }) };
};

export function decide(view: SendView, command: CommandKind | undefined): Step {
  const { send, lanes, failing, resendAt, now } = view;
  // Postgres refuses the API's commands that come too late.
  if (command === "preview" || command === "confirm" || (command === "retry" && send)) return { kind: command };
  const isMailing = lanes.some(isUnderWay);
  // Pauses and cancels are answered by the run that took them.
  const mayLeave = view.isLong && !isMailing && view.pauses.length + view.cancels.length === 0;
  if (!command && failing && failing.until > now) {
    if (mayLeave && send) return { kind: "continueAsNew" };
    const details = failingStep(failing, "retry, cancel");
    return wait("until the step is tried again", details, failing.until - now, true);
  }
  // Before any command, and while other lanes are mailing: they would mail recipients once more.
  if (send && isOpen(send.status) && view.setBack?.isPaused === false) {
    return { kind: "pauseForFailure", reason: PAUSE_REASONS.databaseRestored };
  }
  const waitsForSlices = isMailing && (send?.status !== "SENDING" || lanes.every(isUnderWay));
  if (!command && send && waitsForSlices && !view.isStale) return { status: send.status, ...duringSlices(view, send) };
  if (view.isStale) return { kind: "read" };
  if (!send) return unconfirmed(view, command);
  if (command) return { kind: command };
  const next: Step = { status: send.status, ...betweenSlices(view, send) };
  if (isMailing || (next.kind !== "wait" && next.kind !== "dispatch")) return next;
  if (mayLeave) return { kind: "continueAsNew" };
  if (next.kind !== "wait" || resendAt === undefined) return next;
  return { ...next, details: DETAILS.resending(resendAt), ms: resendAt - now };
}

function unconfirmed({ neverBegan, isTokenExpired, setBack }: SendView, command: CommandKind | undefined): Step {
  if (command === "cancel") return { kind: command };
  if (neverBegan && !command) {
    const details = setBack ? DETAILS.vanishedAndEnded(setBack.sent) : DETAILS.neverConfirmed;
    return { kind: "end", outcome: neverBegan, status: neverBegan.toUpperCase(), details, needsOperator: false };
  }
  if (setBack && !command) return wait("until an operator ends it", DETAILS.vanished(setBack.sent), undefined, true);
  // Postgres may know of a confirm that this run does not: its answer was lost, or the run was reset.
  if (command || isTokenExpired) return { kind: "read" };
  return { ...wait("until the token expires", DETAILS.previewed), status: "PREVIEW" };
}

function duringSlices(view: SendView, send: SendState): Step {
  if (send.status === "PAUSED") return wait("for the slice", DETAILS.pausing);
  if (send.status !== "SENDING") return wait("for the slice", DETAILS.cancelling);
  return nextOfLanes(view, send);
}

function betweenSlices(view: SendView, send: SendState): Step {
  if (view.pauses.length > 0) return { kind: "closeLost" };
  const { pauseReason: reason, startsInMs, recipients } = send;
  switch (send.status) {
    case "PAUSED": {
      if (reason === null) return pausedOnPurpose(view, send, DETAILS.paused);
      if (reason === PAUSE_REASONS.client) return pausedOnPurpose(view, send, DETAILS.pausedByClient);
      return wait("paused", detailsOfPause(send, reason), undefined, true);
    }
    case "SCHEDULED":
      if (startsInMs <= 0) return { kind: "begin" };
      return wait("until send_at", DETAILS.scheduled(recipients), Math.min(startsInMs, LONGEST_WAIT_MS));
    case "SENDING":
      return nextOfLanes(view, send);
    default:
      return ended(view);
  }
}

function pausedOnPurpose({ listsForgottenPauses }: SendView, { pausedForMs }: SendState, details: string): Step {
  if (!listsForgottenPauses || typeof pausedForMs !== "number") return wait("paused", details);
  const leftMs = FORGOTTEN_MS - pausedForMs;
  return leftMs > 0 ? wait("paused", details, leftMs) : wait("paused", details, undefined, true);
}

function detailsOfPause({ complaintRate }: SendState, reason: string): string {
  if (reason === PAUSE_REASONS.complaints) return DETAILS.pausedForComplaints(complaintRate ?? 0);
  if (reason === PAUSE_REASONS.databaseRestored) return DETAILS.setBack;
  if (reason === PAUSE_REASONS.unsendable) return DETAILS.pausedAsUnsendable;
  if (reason.includes(PAUSE_REASONS.refusals)) return DETAILS.pausedForRefusals(reason);
  return reason === PAUSE_REASONS.workflowEnded ? DETAILS.cameBack : DETAILS.pausedFor(reason);
}

/** That of the first lane that can do something, else of all lanes together. */
function nextOfLanes({ lanes, now, isLong }: SendView, { recipients }: SendState): Step {
  const steps = lanes.map((lane) => ({ ...decideLane(lane, now), lane }));
  const isMailing = lanes.some(isUnderWay);
  const free = steps.find(({ kind }) => kind === "dispatch");
  // A long run begins no slice beside another, so that all of them end and it can continue as a new run.
  if (free && !(isLong && isMailing)) return { kind: "dispatch", accountId: free.lane.accountId };
  const waits = steps.filter((step) => step.kind === "wait").sort((a, b) => a.ms - b.ms);
  if (!isMailing) {
    const hasFailed = steps.length > 0 && steps.every(({ kind }) => kind === "failed");
    if (hasFailed) return { kind: "pauseForFailure", reason: reasonOf(steps) };
    // Nothing is left to a lane, and no other keeps recipients: then those that wait have nothing to wait for.
    const isDone = steps.some((step) => step.kind === "done" && !step.held);
    if (isDone || waits.length === 0) return { kind: "settle" };
  }
  const { ms, summary = "for the slice" } = waits[0] ?? {};
  const states = steps.map(({ lane, state }) => `${lane.accountId} ${state}`);
  return wait(summary, DETAILS.mailing(recipients, states), ms, lanes.every(isCallingOperator));
}

type StepOfLane = LaneStep & { lane: LaneView };

function reasonOf(steps: readonly StepOfLane[]): string {
  const failed = steps.flatMap((step) => (step.kind === "failed" ? [step] : []));
  const reasons = failed.map(({ lane, reason }) => (steps.length > 1 ? `${lane.accountId} ${reason}` : reason));
  return reasons.join(", ");
}

function ended({ settled, review, now }: SendView): Step {
  if (!settled) return { kind: "settle" };
  const { status, sent, unknown, reviewUntil, recountAt } = settled;
  const details = DETAILS.settled(sent, unknown);
  if (status === "SENT" && unknown > 0 && review !== "closed") {
    if (recountAt !== undefined && recountAt <= now) return { kind: "settle" };
    if (review === "dismissed" || reviewUntil <= now) return { kind: "closeReview" };
    return wait(
      "for a decision about the unknown",
      `${details} ${DETAILS.review(reviewUntil)}`,
      Math.min(reviewUntil, recountAt ?? reviewUntil) - now,
      true,
    );
  }
  const outcome = status === "CANCELLED" || status === "FAILED" ? status : "SENT";
  return { kind: "end", outcome, details, needsOperator: false };
}

/** `state`: a clause that operators read behind the id of its account. */
type LaneStep = { state: string } & (
  | { kind: "dispatch" }
  | { kind: "slice" }
  | { kind: "wait"; ms: number; summary: string }
  /** Its account must be repaired: it is not tried again before a command. */
  | { kind: "failed"; reason: string }
  /** Nothing is left to it. `held`: other lanes keep recipients that they deferred. */
  | { kind: "done"; held: boolean }
);

function decideLane({ slice, lastSlice, accountFailures, mayFindMore }: LaneView, now: number): LaneStep {
  if (slice !== "none") return { kind: "slice", state: slice === "ending" ? LANE_STATES.ending : LANE_STATES.mailing };
  const dispatch: LaneStep = { kind: "dispatch", state: LANE_STATES.mailing };
  const waitFor = (ms: number, summary: string, stateUntil: (at: number) => string): LaneStep => {
    const at = (lastSlice?.at ?? now) + ms;
    return at > now ? { kind: "wait", ms: at - now, summary, state: stateUntil(at) } : dispatch;
  };
  switch (lastSlice?.next) {
    case "done":
      if (mayFindMore) return dispatch;
      return { kind: "done", held: lastSlice.held === true, state: LANE_STATES.done };
    case "deferred":
      if (mayFindMore) return dispatch;
      return waitFor(lastSlice.waitMs, "until a deferred recipient is due", LANE_STATES.deferred);
    case "account_full":
      return waitFor(lastSlice.waitMs, "until the account has room", LANE_STATES.accountFull);
    case "failure": {
      const { reason, temporary, retryInMs } = lastSlice;
      if (!temporary) return { kind: "failed", reason, state: LANE_STATES.failed(reason) };
      const waitMs = retryInMs ?? accountFailureWaitMs(accountFailures);
      return waitFor(waitMs, "until the next try", (at) => LANE_STATES.accountFails(reason, at));
    }
    default:
      return dispatch;
  }
}
