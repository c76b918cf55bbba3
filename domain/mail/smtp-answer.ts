/** How far a message had come when its outcome was known. `dot`: the body, and with it the final dot, may have left. */
export type SmtpStage = "connect" | "greeting" | "auth" | "mail" | "rcpt" | "data" | "dot";

/** What went wrong below SMTP, when there is no answer to read. */
export type NetworkTrouble = "refused" | "name" | "tls" | "timeout" | "lost" | "protocol";

/** One SMTP outcome: the server's reply (`code`), or why there is none (`network`). */
export interface SmtpAnswer {
  stage: SmtpStage;
  /** Reply code, e.g. 250 */
  code?: number | undefined;
  /** Enhanced status code (RFC 3463), e.g. "5.1.1" */
  enhanced?: string | undefined;
  network?: NetworkTrouble | undefined;
}

/**
 * `sent`: the server took responsibility. `deferred`: not accepted, may be tried again later. `rejected`: refused for
 * good. `unknown`: the message may have been accepted, nobody can tell. `account`: the trouble is the account's, no
 * recipient's; the message was not accepted.
 */
export type SmtpOutcome = "sent" | "deferred" | "rejected" | "unknown" | "account";

/** Why, in a word that is safe to log and to store. */
export type SmtpReason =
  | "accepted"
  | "no_answer"
  | "connection_refused"
  | "connection_lost"
  | "connection_timeout"
  | "name_not_found"
  | "tls_failed"
  | "protocol_error"
  | "greeting_refused"
  | "login_refused"
  | "sender_refused"
  | "server_closing"
  | "temporary_refusal"
  | "mailbox_unknown"
  | "recipient_refused"
  | "policy_refused"
  | "content_refused";

export interface SmtpVerdict {
  outcome: SmtpOutcome;
  /** A hard bounce: the address goes on the do-not-mail list. */
  suppress: boolean;
  /** The refusal was about the sender or the content; many in a row pause the send. */
  policy: boolean;
  /** For `account`: it may go away by itself (an outage, a 4xx), in contrast to a refused login. */
  temporary: boolean;
  /** The connection did not survive; before the dot, the same message may go at once over another one. */
  retry: boolean;
  reason: SmtpReason;
}

const verdict = (outcome: SmtpOutcome, reason: SmtpReason, more: Partial<SmtpVerdict> = {}): SmtpVerdict => ({
  outcome,
  suppress: false,
  policy: false,
  temporary: false,
  retry: false,
  reason,
  ...more,
});

/** Says what an SMTP reply, or the lack of one, means for the recipient and for the account. */
export function classifyAnswer(answer: SmtpAnswer): SmtpVerdict {
  const { stage, code } = answer;
  // A reply that is no final verdict (1xx, 3xx, rubbish) is as good as none.
  if (code === undefined || !((code >= 200 && code < 300) || (code >= 400 && code < 600))) return unanswered(answer);
  if (code < 300) return stage === "dot" ? verdict("sent", "accepted") : unanswered(answer);

  const temporary = code < 500;
  switch (stage) {
    case "connect":
    case "greeting":
      return verdict("account", code === 421 ? "server_closing" : "greeting_refused", { temporary });
    case "auth":
      return verdict("account", code === 421 ? "server_closing" : "login_refused", { temporary });
    case "mail":
      return code === 421 ? closing() : verdict("account", "sender_refused", { temporary });
    case "rcpt":
      if (code === 421) return closing();
      return temporary ? verdict("deferred", "temporary_refusal") : recipientRefused(code, answer.enhanced);
    case "data":
    case "dot":
      if (code === 421 && stage === "data") return closing();
      // RFC 5321 4.2.5 and 6.1: whoever answers the dot with 4xx, 421 included, has not taken the message.
      if (temporary) return verdict("deferred", "temporary_refusal");
      return verdict("rejected", isPolicy(answer.enhanced) ? "policy_refused" : "content_refused", { policy: true });
  }
}

/** 421 before the dot: the server ends the session, not the message, which was never accepted. */
const closing = () => verdict("deferred", "server_closing", { retry: true });

const isPolicy = (enhanced: string | undefined) => enhanced?.startsWith("5.7.") === true;

/**
 * 5.1.7 and 5.1.8 speak of the sender's address, although servers that delay their refusals give them to RCPT: they
 * must not cost the recipient a place on the list.
 */
const ABOUT_THE_SENDER = new Set(["5.1.7", "5.1.8"]);
const MAILBOX_UNKNOWN = new Set([550, 551, 553]);

function recipientRefused(code: number, enhanced: string | undefined): SmtpVerdict {
  if (enhanced === undefined) {
    if (MAILBOX_UNKNOWN.has(code)) return verdict("rejected", "mailbox_unknown", { suppress: true });
    // A bare 554 at RCPT is how relays say "not for you", whoever the recipient is.
    return verdict("rejected", code === 554 ? "policy_refused" : "recipient_refused", { policy: code === 554 });
  }
  if (isPolicy(enhanced) || ABOUT_THE_SENDER.has(enhanced)) {
    return verdict("rejected", "policy_refused", { policy: true });
  }
  if (enhanced.startsWith("5.1.")) return verdict("rejected", "mailbox_unknown", { suppress: true });
  return verdict("rejected", "recipient_refused");
}

const NETWORK_REASONS = {
  refused: "connection_refused",
  name: "name_not_found",
  tls: "tls_failed",
  timeout: "connection_timeout",
  lost: "connection_lost",
  protocol: "protocol_error",
} as const satisfies Record<NetworkTrouble, SmtpReason>;

function unanswered({ stage, network = "protocol" }: SmtpAnswer): SmtpVerdict {
  if (stage === "dot") return verdict("unknown", "no_answer");
  const reason = NETWORK_REASONS[network];
  if (stage === "connect" || stage === "greeting" || stage === "auth") {
    return verdict("account", reason, { temporary: network !== "tls" });
  }
  // A timeout has already taken its time: the message waits its turn instead of doubling it.
  return verdict("deferred", reason, { retry: network === "lost" });
}

/** Code and enhanced code of a reply line such as "550 5.1.1 No such user". */
export function parseReply(response: string): { code?: number; enhanced?: string } {
  const match = /^(\d{3})(?:[ -]([245]\.\d{1,3}\.\d{1,3})(?![\d.]))?/.exec(response);
  if (match === null) return {};
  const [, code, enhanced] = match;
  return { code: Number(code), ...(enhanced === undefined ? {} : { enhanced }) };
}

const MAX_RESPONSE_CHARS = 200;

/**
 * A server's reply as it may be logged and shown: one line of at most 200 characters, e-mail addresses replaced, the
 * recipient's local part too where it stands alone.
 */
export function scrubResponse(response: string, to?: string): string {
  let text = response.slice(0, 2_000).replace(/[\p{Cc}\s]+/gu, " ");
  if (/@|%40/.test(text)) text = text.replace(/<?[^\s<>"'()[\],;:=/?&]+(?:@|%40)[^\s<>"'()[\],;/?&]+>?/gi, "[address]");
  const localPart = to?.slice(0, to.lastIndexOf("@")).toLowerCase() ?? "";
  if (localPart.length > 2 && text.toLowerCase().includes(localPart)) {
    const literally = localPart.replace(/[^\w\s]/gu, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
    text = text.replace(new RegExp(`(?<![\\w.])${literally}(?!\\w)`, "giu"), "[address]");
  }
  return text.trim().slice(0, MAX_RESPONSE_CHARS);
}
