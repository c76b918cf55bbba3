import { classifyReply } from "../reports/reply-rules.ts";
import { classOfRefusal, classOfStatus, type StatusClass } from "./enhanced-status.ts";
import type { AccountFailure, MailOutcome, ReplyDetails, SmtpReason } from "./outcome.ts";

type OpeningStage = "connect" | "greeting" | "helo" | "auth";

/** `dot`: the body, and with it the final dot, may have left. */
export type MessageStage = "mail" | "rcpt" | "data" | "dot";

export type NetworkFailure =
  | "refused"
  | "name"
  | "tls"
  | "timeout"
  | "lost"
  | "protocol"
  /** The address guard refuses the server. */
  | "forbidden"
  /** A login would go out without TLS. */
  | "clear_text";

/** `network`: why there is no reply. */
interface Answer<Stage> {
  stage: Stage;
  code?: number | undefined;
  /** RFC 3463. */
  enhanced?: string | undefined;
  /** May hold addresses. */
  response?: string | undefined;
  network?: NetworkFailure | undefined;
}

export type OpeningAnswer = Answer<OpeningStage>;
export type MessageAnswer = Answer<MessageStage>;

const detailsOf = ({ code, enhanced, response }: Answer<string>, address: string | undefined): ReplyDetails => ({
  code,
  enhanced,
  response: response === undefined ? undefined : scrubResponse(response, address),
});

const deferred = (reason: SmtpReason, details: ReplyDetails, retry = false): MailOutcome => ({
  outcome: "deferred",
  reason,
  retry,
  ...details,
});

const rejected = (
  reason: SmtpReason,
  details: ReplyDetails,
  { suppress = false, policy = false }: { suppress?: boolean; policy?: boolean } = {},
): MailOutcome => ({ outcome: "rejected", reason, suppress, policy, ...details });

const isFinal = (code: number | undefined): code is number =>
  code !== undefined && ((code >= 200 && code < 300) || (code >= 400 && code < 600));

const REFUSED_OPENING = {
  connect: "greeting_refused",
  greeting: "greeting_refused",
  helo: "helo_refused",
  auth: "login_refused",
} as const satisfies Record<OpeningStage, SmtpReason>;

/** @param to the recipient, whose address is removed from the reply */
export function classifyAnswer(answer: MessageAnswer, to?: string): MailOutcome {
  const { stage, code } = answer;
  // Such as 1xx, 3xx, or no SMTP at all.
  if (!isFinal(code)) return classifyNoReply(answer, detailsOf(answer, to));
  if (code < 300 && stage === "dot") {
    return { outcome: "sent", reason: "accepted", code, enhanced: answer.enhanced };
  }
  const details = detailsOf(answer, to);
  if (code < 300) return classifyNoReply(answer, details);

  const temporary = code < 500;
  // The server ends the session, not the message.
  if (code === 421 && stage !== "dot") return deferred("server_closing", details, true);
  switch (stage) {
    case "mail":
      return { outcome: "account_failure", reason: "sender_refused", temporary, ...details };
    case "rcpt":
      return temporary ? classifyDeferral(details) : classifyRefusedRecipient(code, details, answer.response);
    case "data":
    case "dot":
      // RFC 5321, 4.2.5 and 6.1: 4xx to the dot, 421 included, did not take the message.
      return temporary ? classifyDeferral(details) : classifyRefusedMessage(details);
  }
}

/** The failure that a refused connection means. @param address a name that is removed from the reply */
export function classifyOpening(answer: OpeningAnswer, address?: string): AccountFailure {
  const { stage, code, network = "protocol" } = answer;
  const details = detailsOf(answer, address);
  if (!isFinal(code) || code < 300) {
    return { outcome: "account_failure", reason: NETWORK_REASONS[network], temporary: !FINAL.has(network), ...details };
  }
  // 421 may refuse the name in EHLO, or say that the relay is busy: its words decide.
  const isClosing = code === 421 && !(stage === "helo" && /\b(?:ehlo|helo)\b/i.test(answer.response ?? ""));
  const reason = isClosing ? "server_closing" : REFUSED_OPENING[stage];
  return { outcome: "account_failure", reason, temporary: code < 500, ...details };
}

/** Until the account, or the service's settings, are changed. */
const FINAL: ReadonlySet<NetworkFailure> = new Set<NetworkFailure>(["tls", "forbidden", "clear_text"]);

const classOf = ({ enhanced }: ReplyDetails): StatusClass | undefined =>
  enhanced === undefined ? undefined : classOfStatus(enhanced);

const REFUSED_RECIPIENT: Readonly<Record<StatusClass, (details: ReplyDetails) => MailOutcome>> = {
  unknown: (details) => rejected("mailbox_unknown", details, { suppress: true }),
  // The mailbox may take mail again, so the address is not suppressed.
  disabled: (details) => rejected("mailbox_disabled", details),
  full: (details) => rejected("mailbox_full", details),
  // Given to RCPT by servers that delay their refusals of a sender.
  sender: (details) => rejected("policy_refused", details, { policy: true }),
  policy: (details) => rejected("policy_refused", details, { policy: true }),
  content: (details) => rejected("content_refused", details, { policy: true }),
  system: (details) => rejected("recipient_refused", details),
};

/**
 * Relays that refuse the sender for every recipient, and servers whose mailbox is full, answer 550 too: their words decide.
 */
function classOfWords(code: number, response: string): StatusClass {
  const text = response.slice(0, MAX_READ_CHARS).toLowerCase().replace(/\s+/g, " ");
  const { kind, isSendersFault, hasRule } = classifyReply({ status: "", code, text, stage: "rcpt" });
  if (isSendersFault) return "policy";
  return kind === "hard" || !hasRule ? "unknown" : "system";
}

function classifyRefusedRecipient(code: number, details: ReplyDetails, response = ""): MailOutcome {
  const { enhanced } = details;
  const known = classOfRefusal(code, enhanced) ?? "system";
  const about = known === "unknown" && enhanced === undefined ? classOfWords(code, response) : known;
  // A 5xx with a code of a temporary refusal suppresses no address.
  const contradicts = about === "unknown" && enhanced !== undefined && !enhanced.startsWith("5.");
  return REFUSED_RECIPIENT[contradicts ? "system" : about](details);
}

/** After RCPT was accepted, no refusal suppresses the recipient. */
function classifyRefusedMessage(details: ReplyDetails): MailOutcome {
  const about = classOf(details);
  if (about === "disabled" || about === "full") return REFUSED_RECIPIENT[about](details);
  if (about === "sender" || about === "policy") return REFUSED_RECIPIENT.policy(details);
  return REFUSED_RECIPIENT.content(details);
}

const classifyDeferral = (details: ReplyDetails): MailOutcome =>
  deferred(classOf(details) === "full" ? "mailbox_full" : "temporary_refusal", details);

const NETWORK_REASONS = {
  refused: "connection_refused",
  name: "name_not_found",
  tls: "tls_failed",
  timeout: "connection_timeout",
  lost: "connection_lost",
  protocol: "protocol_error",
  forbidden: "server_forbidden",
  clear_text: "login_in_clear_text",
} as const satisfies Record<NetworkFailure, SmtpReason>;

function classifyNoReply({ stage, network = "protocol" }: MessageAnswer, details: ReplyDetails): MailOutcome {
  if (stage === "dot") return { outcome: "unknown", reason: "no_answer", ...details };
  // A timeout has already taken its time: the message waits its turn.
  return deferred(NETWORK_REASONS[network], details, network === "lost");
}

/** Of a reply line such as "550 5.1.1 No such user". */
export function parseReply(response: string): { code?: number; enhanced?: string } {
  const match = /^(\d{3})(?:[ -]([245]\.\d{1,3}\.\d{1,3})(?![\d.]))?/.exec(response);
  if (match === null) return {};
  const [, code, enhanced] = match;
  return { code: Number(code), ...(enhanced === undefined ? {} : { enhanced }) };
}

const MAX_RESPONSE_CHARS = 200;
const MAX_READ_CHARS = 2_000;

/** As a reply may be logged and shown: one line, its addresses replaced, also the recipient's local part alone. */
export function scrubResponse(response: string, to?: string): string {
  let text = response.slice(0, MAX_READ_CHARS).replace(/[\p{Cc}\s]+/gu, " ");
  if (/@|%40/.test(text)) text = text.replace(/<?[^\s<>"'()[\],;:=/?&]+(?:@|%40)[^\s<>"'()[\],;/?&]+>?/gi, "[address]");
  const localPart = to?.slice(0, to.lastIndexOf("@")).toLowerCase() ?? "";
  if (localPart.length > 2 && text.toLowerCase().includes(localPart)) {
    const literally = localPart.replace(/[^\w\s]/gu, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
    text = text.replace(new RegExp(`(?<![\\w.])${literally}(?!\\w)`, "giu"), "[address]");
  }
  return text.trim().slice(0, MAX_RESPONSE_CHARS);
}
