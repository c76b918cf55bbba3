import {
  classifyAnswer,
  type SmtpOutcome,
  type SmtpReason,
  type SmtpVerdict,
  scrubResponse,
} from "../../domain/mail/smtp-answer.ts";
import type { SessionAnswer } from "./session.ts";

/** What became of one message. `not_attempted`: it was never begun, nothing has left. */
export interface SmtpResult {
  outcome: SmtpOutcome | "not_attempted";
  reason: SmtpReason | "unsendable" | "smtputf8_unsupported" | "pool_stopped";
  /** A hard bounce: the address goes on the do-not-mail list */
  suppress: boolean;
  /** A refusal of the sender or the content; many in a row pause the send */
  policy: boolean;
  /** With `account`: the trouble may pass by itself */
  temporary: boolean;
  code?: number | undefined;
  enhanced?: string | undefined;
  /** The server's reply without addresses, at most 200 characters */
  response?: string | undefined;
}

const NOTHING = { suppress: false, policy: false, temporary: false };

export const NOT_ATTEMPTED: SmtpResult = { ...NOTHING, outcome: "not_attempted", reason: "pool_stopped" };

/** Refused here, before the server was asked. */
export const refusedHere = (reason: "unsendable" | "smtputf8_unsupported"): SmtpResult => ({
  ...NOTHING,
  outcome: "rejected",
  reason,
});

/** The result that a verdict is, with the server's words made fit to be kept. */
export function toResult(verdict: SmtpVerdict, answer: SessionAnswer, to?: string): SmtpResult {
  const { outcome, reason, suppress, policy, temporary } = verdict;
  const { code, enhanced, response } = answer;
  const scrubbed = response === undefined ? undefined : scrubResponse(response, to);
  return { outcome, reason, suppress, policy, temporary, code, enhanced, response: scrubbed };
}

export const accountTrouble = (answer: SessionAnswer): SmtpResult => toResult(classifyAnswer(answer), answer);
