import type { SliceResult } from "../activities/dispatch.ts";
import type { SendState, SettledSend } from "../domain/sends/lifecycle.ts";
import { accountFailureWaitMs, FAILURES_TO_OPERATOR } from "./account-failure.ts";
import type { FailingStep } from "./command-loop.ts";
import type { Shown } from "./operator-view.ts";
import { type CommandKind, DETAILS, type SendOutcome } from "./send-messages.ts";
import { WORKFLOW_ENDED } from "./start.ts";
import { failingStep } from "./steps.ts";

/** The facts that the workflow of a send knows. Times are in ms of the workflow's clock. */
export interface SendView {
  now: number;
  /** The last state that was read from Postgres; undefined while no confirm is known. */
  send?: SendState | undefined;
  /** The state in Postgres may have changed since. */
  isStale: boolean;
  /** Why the send never began. */
  neverBegan?: "refused" | "expired" | undefined;
  isTokenExpired: boolean;
  /** `retried`: an operator wants another slice after this one at once. */
  slice: "none" | "under way" | "retried" | "ending";
  /** The result of the last slice and its time; undefined when the next one may begin at once. */
  lastSlice?: (SliceResult & { at: number }) | undefined;
  /** Account failures in a row. */
  accountFailures: number;
  failing?: FailingStep | undefined;
  /** Pauses that were carried out: answered once no mail is in flight. */
  pauses: readonly unknown[];
  /** Cancels that were carried out: answered once the credits are settled. */
  cancels: readonly unknown[];
  /** When a resend that waits is tried again. */
  resendAt?: number | undefined;
  settled?: (Pick<SettledSend, "status" | "sent" | "unknown"> & { reviewUntil: number }) | undefined;
  /** Of the unknown outcomes. `dismissed`: an operator leaves them as they are. `closed`: Postgres knows that. */
  review: "open" | "dismissed" | "closed";
  /** The history is long enough to continue as a new run. */
  isLong: boolean;
}

/** The next step: a command, a step of the send itself, or a wait for a command, the slice's end, or `ms`. */
export type Step = Partial<Shown> &
  (
    | { kind: CommandKind }
    | { kind: "read" | "begin" | "closeLost" | "settle" | "closeReview" | "continueAsNew" }
    | { kind: "pauseForFailure"; reason: string }
    | { kind: "dispatch"; accountId: string }
    | { kind: "wait"; summary: string; ms?: number }
    | { kind: "end"; outcome: SendOutcome["outcome"] }
  );

/** Longest single timer while a send waits for its day: then the database clock is asked again. */
const LONGEST_WAIT_MS = 6 * 3600 * 1000;

const wait = (summary: string, details: string, ms?: number, needsOperator = false): Step => {
  return { kind: "wait", summary, details, needsOperator, ...(ms === undefined ? {} : { ms }) };
};

/** The next step of a send, from the known facts and the first command that is due. */
export function decide(view: SendView, command: CommandKind | undefined): Step {
  const { send, failing, resendAt, now } = view;
  // Postgres refuses the API's commands that come too late.
  if (command === "preview" || command === "confirm" || (command === "retry" && send)) return { kind: command };
  // Pauses and cancels are answered by the run that took them.
  const mayLeave = view.isLong && view.slice === "none" && view.pauses.length + view.cancels.length === 0;
  if (!command && failing && failing.until > now) {
    if (mayLeave && send) return { kind: "continueAsNew" };
    const details = failingStep(failing.step, failing.code, failing.until - now, "retry, cancel");
    return wait("until the step is tried again", details, failing.until - now, true);
  }
  if (!command && send && view.slice !== "none") return { status: send.status, ...duringSlice(view, send) };
  if (view.isStale) return { kind: "read" };
  if (!send) return unconfirmed(view, command);
  if (command) return { kind: command };
  const next: Step = { status: send.status, ...betweenSlices(view, send) };
  if (next.kind !== "wait" && next.kind !== "dispatch") return next;
  if (mayLeave) return { kind: "continueAsNew" };
  return next.kind === "wait" && resendAt !== undefined
    ? { ...next, details: DETAILS.resending(resendAt - now) }
    : next;
}

function unconfirmed({ neverBegan, isTokenExpired }: SendView, command: CommandKind | undefined): Step {
  if (command === "cancel") return { kind: command };
  if (neverBegan && !command) {
    const shown = { status: neverBegan.toUpperCase(), details: DETAILS.neverConfirmed, needsOperator: false };
    return { kind: "end", outcome: neverBegan, ...shown };
  }
  // Postgres may know of a confirm that this run does not: its answer was lost, or the run was reset.
  if (command || isTokenExpired) return { kind: "read" };
  return { ...wait("until the token expires", DETAILS.previewed), status: "PREVIEW" };
}

function duringSlice({ slice, accountFailures }: SendView, { status, recipients }: SendState): Step {
  if (status === "PAUSED") return wait("for the slice", DETAILS.pausing);
  if (status !== "SENDING") return wait("for the slice", DETAILS.cancelling);
  const details = slice === "ending" ? DETAILS.continuing : DETAILS.mailing(recipients);
  return wait("for the slice", details, undefined, accountFailures >= FAILURES_TO_OPERATOR);
}

function betweenSlices(view: SendView, send: SendState): Step {
  if (view.pauses.length > 0) return { kind: "closeLost" };
  const { pauseReason: reason, startsInMs, recipients } = send;
  switch (send.status) {
    case "PAUSED": {
      if (reason === null) return wait("paused", DETAILS.paused);
      const details = reason === WORKFLOW_ENDED ? DETAILS.cameBack : DETAILS.pausedFor(reason);
      return wait("paused", details, undefined, true);
    }
    case "SCHEDULED":
      if (startsInMs <= 0) return { kind: "begin" };
      return wait("until send_at", DETAILS.scheduled(recipients), Math.min(startsInMs, LONGEST_WAIT_MS));
    case "SENDING":
      return nextSlice(view, send);
    default:
      return ended(view);
  }
}

/** A newsletter has one account, and so one lane. */
function nextSlice({ lastSlice, accountFailures, now }: SendView, { accountIds: [accountId] }: SendState): Step {
  const dispatch: Step = accountId === undefined ? { kind: "settle" } : { kind: "dispatch", accountId };
  const waitFor = (ms: number, summary: string, details: string): Step => {
    const leftMs = (lastSlice?.at ?? now) + ms - now;
    return leftMs > 0 ? wait(summary, details, leftMs, accountFailures >= FAILURES_TO_OPERATOR) : dispatch;
  };
  switch (lastSlice?.next) {
    case "done":
      return { kind: "settle" };
    case "deferred":
      return waitFor(lastSlice.waitMs, "until a deferred recipient is due", DETAILS.deferred);
    case "account_full":
      return waitFor(lastSlice.waitMs, "until the account has room", DETAILS.accountFull);
    case "failure": {
      if (!lastSlice.temporary) return { kind: "pauseForFailure", reason: lastSlice.reason };
      const waitMs = lastSlice.retryInMs ?? accountFailureWaitMs(accountFailures);
      return waitFor(waitMs, "until the next try", DETAILS.accountFails(lastSlice.reason, waitMs));
    }
    default:
      return dispatch;
  }
}

function ended({ settled, review, now }: SendView): Step {
  if (!settled) return { kind: "settle" };
  const { status, sent, unknown, reviewUntil } = settled;
  const details = DETAILS.settled(sent, unknown);
  if (status === "SENT" && unknown > 0 && review !== "closed") {
    if (review === "dismissed" || reviewUntil <= now) return { kind: "closeReview" };
    return wait("for a decision about the unknown", `${details} ${DETAILS.review}`, reviewUntil - now, true);
  }
  const outcome = status === "CANCELLED" || status === "FAILED" ? status : "SENT";
  return { kind: "end", outcome, details, needsOperator: false };
}
