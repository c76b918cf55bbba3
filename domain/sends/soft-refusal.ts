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
 * Whether a server's refusal counts like a soft bounce of the address, should the mail not be sent at a later try. The rules
 * for bounces that come by mail decide whether the reply is about the sender or the content: then it does not.
 */
export function isSoftRefusal(outcome: MailOutcome): boolean {
  if (!RECIPIENTS_REASONS.has(outcome.reason) || !("response" in outcome)) return false;
  const { code, enhanced = "", response = "" } = outcome;
  return !classifyReply({ status: enhanced, code, text: response.toLowerCase(), stage: undefined }).isSendersFault;
}
