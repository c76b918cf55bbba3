import { ApplicationFailure, defineSignal, defineUpdate } from "@temporalio/workflow";
import type { IdempotencyHandle } from "../domain/access/idempotency.ts";
import type { SendState } from "../domain/sends/ledger/lifecycle.ts";
import { WAKE_UP } from "../temporal/ids.ts";
import type { SendStart, SetBack } from "../temporal/starts.ts";
import type { LaneView } from "./lane-view.ts";
import type { KnownProgress } from "./progress.ts";
import { instantOf } from "./steps.ts";

export interface SendInput extends SendStart {
  /** A run hands more to the one that follows it. */
  resume?: { lanes?: readonly LaneView[]; known?: KnownProgress; setBack?: SetBack };
}

export interface SendOutcome {
  outcome: "expired" | "refused" | "SENT" | "CANCELLED" | "FAILED";
  /** Mails that left, also those that a restore of Postgres has forgotten. */
  sent?: number;
  unknown?: number;
}

export interface PreviewCommand {
  kind: "preview";
  apiKeyId: string;
}
export interface ConfirmCommand {
  kind: "confirm";
  apiKeyId: string;
  idempotency: IdempotencyHandle;
}
export type OperatorCommand = "pause" | "resume" | "cancel" | "retry" | "resendUnknown";
export interface ResumeCommand {
  kind: "resume";
  /** `GONE`, or a number, see `resumeRefusal`. */
  input?: unknown;
  /** Of the send, before the first try of this command. */
  resumes?: number | undefined;
}
export type Command =
  | PreviewCommand
  | ConfirmCommand
  | ResumeCommand
  | { kind: Exclude<OperatorCommand, ResumeCommand["kind"]> };
export type CommandKind = Command["kind"];

export const previewUpdate = defineUpdate<void, [Omit<PreviewCommand, "kind">]>("preview");
export const confirmUpdate = defineUpdate<void, [Omit<ConfirmCommand, "kind">]>("confirm");

export const wakeUpSignal = defineSignal(WAKE_UP);

export const OPERATOR_UPDATES: readonly [OperatorCommand, string][] = [
  [
    "pause",
    "Hold the send. Answers when no mail is in flight any more, or a resume or cancel came. Credits stay reserved.",
  ],
  ["resume", "Continue a paused send. Its details say where an input is of use."],
  ["cancel", "End the send for good. Answers when no mail is in flight and the credits of unsent mails are released."],
  ["retry", "Try again now instead of waiting, e.g. after the sending account was repaired."],
  [
    "resendUnknown",
    "Mail the recipients whose outcome is unknown once more: some of them may get the mail twice. Where send:settle recorded some as not_sent, these alone. Answers when they are queued, or a cancel came.",
  ],
];

const percent = (fraction: number): string => `${(fraction * 100).toFixed(2)} %`;

/** Where the send is, and the updates that help. Times are in ms of the workflow's clock. */
export const DETAILS = {
  previewed: "Previewed; waits for the confirm until the token expires.",
  neverConfirmed: "Never confirmed; nothing was sent.",
  scheduled: (recipients: number) => `${recipients} recipients; starts at its send_at. Updates: pause, cancel.`,
  mailing: (recipients: number, lanes: readonly string[]) =>
    `Mailing ${recipients} recipients: ${lanes.join("; ")}. Updates: retry, pause, cancel.`,
  pausing: "Pausing: waits for the mails in flight. Updates: resume, cancel.",
  cancelling: "Cancelling: waits for the mails in flight, then settles the credits.",
  paused: "Paused by an operator. Updates: resume, cancel.",
  pausedByClient:
    "Paused by a client of the API, which may resume it. Updates: resume, cancel, or pause, so that no client resumes it.",
  pausedForComplaints: (rate: number) =>
    `Paused: complaints are ${percent(rate)} of the team's delivered mail of 30 days. Find their cause, then update: resume; it pauses again once they are 0.05 points more than at the resume. Or: cancel.`,
  pausedForRefusals: (reason: string) =>
    `Paused: ${reason}. The server refuses all recipients alike, or the account; its reply stands below. Nobody was suppressed for it, and those recipients are queued again. Repair the account or the content, then update: resume. Where the reply is right that these mailboxes do not exist: resume with the input "gone". Or: cancel.`,
  pausedAsUnsendable:
    "Paused: mails_unsendable. Ten mails in a row could not be composed; these recipients are queued again. Ask the team to look at its draft: cancel, and send a corrected copy. Or update: resume, to try again.",
  pausedFor: (reason: string) => `Paused: ${reason}. Repair the sending account, then update: resume. Or: cancel.`,
  setBack:
    "Paused: Postgres was restored from an older backup, or lost its last commits: recipients that had their mail may be queued again. Compare send:recipients with the relay's log, then update: resume, which mails those that are queued; with the number of mails below as input, if Postgres knows of fewer. Or: cancel.",
  vanished: (sent: number) =>
    `Postgres was restored from a backup of before the confirm and does not know this send any more; ${sent} mails had been sent. To confirm its draft again mails all recipients once more. Updates: cancel, to end this workflow.`,
  vanishedAndEnded: (sent: number) =>
    `Ended by an operator: Postgres does not know this send any more. ${sent} mails had been sent.`,
  cameBack:
    "Its workflow was terminated or failed, so it was restored paused. Updates: resume, or cancel to end it for good.",
  settled: (sent: number, unknown: number) =>
    `${sent} mails sent, ${unknown} with an unknown outcome. Credits are settled.`,
  review: (until: number) =>
    `The command send:unknown lists them, send:settle records what the relay's log says of each. Updates: resendUnknown (those that were not sent alone; where none is known not to be, all, and some may get the mail twice), cancel to leave them unknown, or retry to count them again; closes by itself at ${instantOf(until)}.`,
  resending: (at: number) =>
    `Waits until ${instantOf(at)} to resend the unknown outcomes: until then a worker that is presumed dead may have them in flight. Updates: cancel.`,
} as const;

/** The clauses that follow an account's id in `DETAILS.mailing`. */
export const LANE_STATES = {
  mailing: "is mailing",
  ending: "finishes its mails in flight",
  deferred: (at: number) => `waits for its deferred recipients, the next of which is due at ${instantOf(at)}`,
  accountFull: (at: number) =>
    `has its connections or limits used up, or its team's share, and continues at ${instantOf(at)}`,
  accountFails: (reason: string, at: number) =>
    `cannot be mailed at present (${reason}) and is tried again at ${instantOf(at)}`,
  failed: (reason: string) => `has failed (${reason}): repair it, then retry`,
  done: "has nothing left to mail",
} as const;

export const ANSWERS = {
  neverConfirmed: () => ApplicationFailure.nonRetryable("This send was never confirmed.", "resource_state_invalid"),
  nothingToPause: "nothing to pause: the send has ended",
  nothingToResume: "nothing to resume: the send is not paused",
  nothingToCancel: "nothing to cancel: the send has ended",
  leftUnknown: "nothing more is mailed: the send has ended, and unknown outcomes stay as they are",
  nothingToResend: "nothing to resend: no outcome is unknown",
  pausedMeanwhile: "paused meanwhile",
  resumedMeanwhile: "resumed meanwhile",
  continues: "continues",
  continuesSetBack:
    "continues: who had the mail before Postgres was set back, and is QUEUED there again, gets it twice",
  cancelledMeanwhile: "cancelled meanwhile",
  resendDropped: "cancelled meanwhile: the unknown outcomes stay as they are",
  resendLost: "not queued: the send continues as a new run; update resendUnknown once more",
  voided: "CANCELLED: its token is void",
  cancelled: "CANCELLED",
  resendCancelled: "CANCELLED: the send is SENT as before",
  retryEnded: "counts the unknown outcomes again: the send has ended",
  retryPaused: "nothing to retry: the send is paused; update resume instead",
  retry: "tries again now",
  look: "looks again now: the details say what is due",
} as const;

/** Recipients that a resume would mail again, by the facts of the workflow. */
export const mailedAgain = ({ sent }: Pick<SendState, "sent">, setBack: SetBack): number => setBack.sent - sent;

/** A resume that would mail recipients again needs, as its input, the number of mails that were sent. */
export function resumeRefusal(
  { send, setBack }: { send?: SendState | undefined; setBack?: SetBack | undefined },
  { input }: ResumeCommand,
): ApplicationFailure | undefined {
  if (!send || !setBack || mailedAgain(send, setBack) <= 0 || input === setBack.sent) return undefined;
  return ApplicationFailure.nonRetryable(
    `By its workflow ${setBack.sent} mails were sent, by Postgres ${send.sent}: a resume mails ${mailedAgain(send, setBack)} recipients again. If it shall: send:resume --although-mailed ${setBack.sent}, or update resume with the input ${setBack.sent}. Else cancel.`,
    "resource_state_invalid",
  );
}

/** The answer to a retry. A send that is mailed may have nothing due: its details say when. */
export function retryAnswer(view: {
  failing?: unknown;
  settled?: unknown;
  send?: { status: string } | undefined;
}): string {
  if (view.failing) return ANSWERS.retry;
  if (view.settled) return ANSWERS.retryEnded;
  return view.send?.status === "PAUSED" ? ANSWERS.retryPaused : ANSWERS.look;
}
