import type { MailOutcome } from "../mail/outcome.ts";
import { classifyReply } from "../reports/reply-rules.ts";

/** Reasons that may be the recipient's: their mailbox, or the server that holds it, takes no mail at present. */
const RECIPIENTS_REASONS: ReadonlySet<string> = new Set<MailOutcome["reason"]>([
  "mailbox_full",
  "mailbox_disabled",
  "recipient_refused",
  "temporary_refusal",
]);

/**
 * Whether a refusal counts like a soft bounce, should the mail not be sent later: not when it is about the sender or
 * the content.
 */
export function isSoftRefusal(outcome: MailOutcome): boolean {
  if (!RECIPIENTS_REASONS.has(outcome.reason) || !("response" in outcome)) return false;
  const { code, enhanced = "", response = "" } = outcome;
  return !classifyReply({ status: enhanced, code, text: response.toLowerCase(), stage: undefined }).isSendersFault;
}
