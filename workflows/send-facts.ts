import { isUnderWay } from "./lane-view.ts";
import { isOpen } from "./progress.ts";
import type { SendView, Step } from "./send-decision.ts";
import { mailedAgain } from "./send-messages.ts";
import { instantOf } from "./steps.ts";

/** The facts that operators read below the sentence of a send's state. Times are in UTC. */
export function factsOf({ send, lanes, now, neverBegan, refusal, setBack }: SendView, next: Step): string[] {
  if (!send) return neverBegan === "refused" && refusal !== undefined ? [`Refused: ${refusal}.`] : [];
  const { status, sent, recipients, since, startsAt } = send;
  if (next.kind === "end") return status === "CANCELLED" ? ["An operator or a client cancelled it."] : [];
  // The number is read when a slice ends.
  const before = lanes.some(isUnderWay) ? " before the slices under way" : "";
  const facts = isOpen(status) ? [`${sent} of ${recipients} sent${before}; ${status} since ${since}.`] : [];
  if (setBack && isOpen(status)) {
    const again = mailedAgain(send, setBack);
    const needs = again > 0 ? ` A resume mails ${again} recipients again, and needs the input ${setBack.sent}.` : "";
    facts.push(`By this workflow ${setBack.sent} were sent before Postgres was set back.${needs}`);
  }
  if (status === "SCHEDULED" || status === "PAUSED") facts.push(`Its send_at is ${startsAt}.`);
  if (lanes.length > 0) facts.push(`Accounts: ${lanes.map(({ accountId }) => accountId).join(", ")}.`);
  for (const { accountId, lastFailure } of lanes) {
    if (!lastFailure) continue;
    const { reason, reply, at } = lastFailure;
    facts.push(`${accountId} failed at ${instantOf(at)}: ${reason}${reply === undefined ? "" : `, "${reply}"`}.`);
  }
  if (next.kind === "wait" && next.ms !== undefined) facts.push(`Looks again at ${instantOf(now + next.ms)}.`);
  return facts;
}

export const withFacts = (view: SendView, next: Step): Step =>
  next.details === undefined ? next : { ...next, details: [next.details, ...factsOf(view, next)].join("\n\n") };
