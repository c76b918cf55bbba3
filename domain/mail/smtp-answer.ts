import { createHash } from "node:crypto";
import { readReply } from "../reports/quoted-reply.ts";
import { classifyReply, type ReadReply } from "../reports/reply-rules.ts";
import { classOfRefusal, classOfStatus, type StatusClass } from "./enhanced-status.ts";
import type { AccountFailure, MailOutcome, Refusal, ReplyDetails, SmtpReason } from "./outcome.ts";

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

const isFinal = (code: number | undefined): code is number =>
  code !== undefined && ((code >= 200 && code < 300) || (code >= 400 && code < 600));

const REFUSED_OPENING = {
  connect: "greeting_refused",
  greeting: "greeting_refused",
  helo: "helo_refused",
  auth: "login_refused",
} as const satisfies Record<OpeningStage, SmtpReason>;

interface Envelope {
  from: string;
  /** The sender's own address, where `from` is a return path. */
  sender?: string | undefined;
  /** Its address is removed from the reply. */
  to: string;
}

export function classifyAnswer(answer: MessageAnswer, envelope?: Envelope): MailOutcome {
  const { stage, code } = answer;
  const to = envelope?.to;
  // Such as 1xx, 3xx, or no SMTP at all.
  if (!isFinal(code)) return classifyNoReply(answer, detailsOf(answer, to));
  if (code < 300 && stage === "dot") {
    return { outcome: "sent", reason: "accepted", code, enhanced: answer.enhanced };
  }
  const details = detailsOf(answer, to);
  if (code < 300) return classifyNoReply(answer, details);

  // The server ends the session, not the message.
  if (code === 421 && stage !== "dot") return deferred("server_closing", details, true);
  if (stage === "mail") {
    return { outcome: "account_failure", reason: "sender_refused", temporary: code < 500, ...details };
  }
  // RFC 5321, 4.2.5 and 6.1: 4xx to the dot, 421 included, did not take the message.
  return classifyRefusal(answer, code, details, envelope);
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

/** RFC 3463: the mailbox is named by the code. */
const MAILBOX_CODES: ReadonlySet<string | undefined> = new Set(["5.1.1", "5.1.6", "5.1.10"]);

const REASONS: Readonly<Record<StatusClass, SmtpReason>> = {
  unknown: "mailbox_unknown",
  // The mailbox may take mail again.
  disabled: "mailbox_disabled",
  full: "mailbox_full",
  // Given to RCPT by servers that delay their refusals of a sender.
  sender: "policy_refused",
  policy: "policy_refused",
  content: "content_refused",
  system: "recipient_refused",
};

/** Reasons that may be the recipient's: their mailbox, or the server that holds it, takes no mail at present. */
const RECIPIENTS_REASONS: ReadonlySet<SmtpReason> = new Set<SmtpReason>([
  "mailbox_full",
  "mailbox_disabled",
  "recipient_refused",
  "temporary_refusal",
]);

/** To RCPT. A code, and words beside it, may each be about another: words about the sender or the mailbox decide. */
function reasonOfRefusal(code: number, enhanced: string | undefined, read: ReadReply): SmtpReason {
  if (read.fault === "account") return "policy_refused";
  if (read.kind === "hard") return "mailbox_unknown";
  const known = classOfRefusal(code, enhanced) ?? "system";
  // A 5xx with a code of a temporary refusal suppresses no address.
  if (known === "unknown" && (enhanced?.startsWith("4.") || (read.hasRule && read.fault !== "message"))) {
    return "recipient_refused";
  }
  return known === "unknown" && read.isSendersFault ? "policy_refused" : REASONS[known];
}

/** After RCPT was accepted, no refusal is about a mailbox that does not exist. */
function reasonOfRefusedMessage(enhanced: string | undefined, { fault }: ReadReply): SmtpReason {
  const about = (enhanced !== undefined && classOfStatus(enhanced)) || "content";
  if (fault === "account") return "policy_refused";
  return about === "unknown" || about === "system" ? "content_refused" : REASONS[about];
}

function classifyRefusal(
  { stage, response = "" }: MessageAnswer,
  code: number,
  details: ReplyDetails,
  envelope: Envelope | undefined,
): MailOutcome {
  const { enhanced } = details;
  const senders = envelope ? sendersIn(envelope) : [];
  const quoted = readReply(response, "", enhanced, senders);
  const isToMessage = stage !== "rcpt";
  const read = classifyReply({ ...quoted, code, stage: isToMessage ? "data" : "rcpt" });
  const refusal: Refusal = {
    key: keyOf(code, enhanced, details.response),
    isAccounts: read.fault === "account",
    mayBeGone: false,
  };
  if (code < 500) {
    refusal.isTemporary = true;
    const isFull = enhanced !== undefined && classOfStatus(enhanced) === "full" && !refusal.isAccounts;
    const reason = isFull ? "mailbox_full" : "temporary_refusal";
    const isSoftBounce = !read.isSendersFault;
    return {
      outcome: "deferred",
      reason,
      retry: false,
      isSoftBounce,
      ...(refusal.isAccounts && { refusal }),
      ...details,
    };
  }
  const reason = isToMessage ? reasonOfRefusedMessage(enhanced, read) : reasonOfRefusal(code, enhanced, read);
  const isSoftBounce = RECIPIENTS_REASONS.has(reason) && !read.isSendersFault;
  // Of an alias, it may name the member that is gone.
  if (reason === "mailbox_unknown" && !namesOther(response, envelope, senders)) {
    refusal.mayBeGone = true;
    if (MAILBOX_CODES.has(enhanced)) refusal.namesMailbox = "code";
    else if (read.kind === "hard" && read.isByWords) refusal.namesMailbox = "words";
  }
  const suppress = refusal.namesMailbox !== undefined;
  return { outcome: "rejected", reason, suppress, isSoftBounce, refusal, ...details };
}

/** The addresses and domains of the sender, as far as they are not the recipient's. */
function sendersIn({ from, sender = from, to }: Envelope): string[] {
  const addresses = [from, sender].map((address) => address.toLowerCase());
  const names = addresses.flatMap((address) => [address, address.slice(address.lastIndexOf("@") + 1)]);
  return names.filter((name) => name !== "" && !to.toLowerCase().endsWith(name));
}

const localPartOf = (address: string): string => address.slice(0, address.lastIndexOf("@")).toLowerCase();

/** Whether the addresses that a reply names are others than its recipient's: a server may write that with another domain. */
function namesOther(response: string, envelope: Envelope | undefined, senders: readonly string[]): boolean {
  const named = [...response.matchAll(ADDRESS)].map(([address]) => address.toLowerCase());
  const others = named.filter((address) => !senders.includes(address));
  return envelope !== undefined && others.length > 0 && !others.map(localPartOf).includes(localPartOf(envelope.to));
}

/** The words of a refusal without what differs by recipient: addresses, domains, numbers and ids. */
function keyOf(code: number, enhanced: string | undefined, response = ""): string {
  const words = response.toLowerCase().replace(/\S*(?:[\d@.]|\[address\])\S*/g, "#");
  return createHash("sha256").update(`${code} ${enhanced} ${words}`).digest("base64url").slice(0, 22);
}

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

const ADDRESS = /[^\s<>"'()[\],;:]{1,64}@[^\s<>"'()[\],;:]{1,253}/g;
const MAX_RESPONSE_CHARS = 200;
const MAX_READ_CHARS = 2_000;

/** As a reply may be logged and shown: one line, its addresses replaced, also the recipient's local part alone. */
export function scrubResponse(response: string, to?: string): string {
  let text = response.slice(0, MAX_READ_CHARS).replace(/[\p{Cc}\s]+/gu, " ");
  if (/@|%40|=40/.test(text)) {
    text = text.replace(/<?(?:[^\s<>"'()[\],;:/?&=]|=2b)+(?:@|%40|=40)[^\s<>"'()[\],;/?&]+>?/gi, "[address]");
  }
  const whole = localPartOf(to ?? "");
  // Some servers leave out what stands behind the plus sign.
  for (const localPart of [whole, whole.split("+")[0] ?? ""]) {
    if (localPart.length < 2 || !text.toLowerCase().includes(localPart)) continue;
    const literally = localPart.replace(/[^\w\s]/gu, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
    text = text.replace(new RegExp(`(?<![\\w.])${literally}(?!\\w)`, "giu"), "[address]");
  }
  return text.trim().slice(0, MAX_RESPONSE_CHARS);
}
