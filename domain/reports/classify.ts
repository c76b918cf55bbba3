import { addressOf, MAX_REPORTED, readDeliveryStatus, type StatusGroup, unfold } from "./delivery-status.ts";
import { type IncomingMail, parseIncomingMail } from "./incoming-mail.ts";
import {
  addressesIn,
  isOfProgram,
  isPlainBounce,
  mailedAddresses,
  type RecipientText,
  readRecipients,
  replyIn,
  saysDelayed,
} from "./plain-bounce.ts";
import { readReply, specificityOf } from "./quoted-reply.ts";
import { classifyReply } from "./reply-rules.ts";
import { isComplaint, type ReportedRecipient, type ReportKind, reportedRecipient } from "./report.ts";
import { readMailedNotification } from "./ses-notification.ts";

export interface ClassifiedMail {
  /** The gravest kind of its recipients. */
  kind: ReportKind;
  /** In the report's order; empty for a mail that is no report. */
  recipients: ReportedRecipient[];
  /** May hold the returned mail's ids: its headers and body, and the fields of a feedback report, bounded. */
  returned: string;
  /** Domain of the sender; empty where the mail names none. */
  reporter: string;
}

type Classified = Omit<ClassifiedMail, "reporter">;

const NO_REPORT: Classified = { kind: "none", recipients: [], returned: "" };

const GRAVITY: readonly ReportKind[] = ["complaint", "hard", "soft", "none"];

const gravest = (recipients: readonly ReportedRecipient[]): ReportKind =>
  GRAVITY.find((candidate) => recipients.some(({ kind }) => kind === candidate)) ?? "none";

const reportOf = ({ returned }: IncomingMail, recipients: ReportedRecipient[]): Classified => ({
  kind: gravest(recipients),
  recipients,
  returned,
});

const DECLARED_FEEDBACK = /report-type="?feedback-report/i;

/** Some loops give the fields as a text, or attach them as one. */
const feedbackOf = (mail: IncomingMail): string | undefined =>
  mail.part("message/feedback-report") ??
  (DECLARED_FEEDBACK.test(mail.header("content-type"))
    ? `${mail.wholeText}\n${mail.part("text/plain") ?? ""}`
    : undefined);

const FEEDBACK_TYPE = /^feedback-type[ \t]*:[ \t]*(?:\([^()]*\)[ \t]*)*"?([\w-]+)/im;

/** RFC 5965. */
function readFeedback(mail: IncomingMail, given: string): Classified {
  const text = unfold(given);
  const type = FEEDBACK_TYPE.exec(text)?.[1]?.toLowerCase() ?? "";
  if (type === "" || !isComplaint(type)) return { ...NO_REPORT, returned: mail.returned };
  const named = [...text.matchAll(/^(?:original-rcpt-to|removal-recipient):(.*)$/gim)];
  const addresses = [...new Set(named.map(([, value = ""]) => addressOf(value.trim())))].slice(0, MAX_REPORTED);
  const known = addresses.length > 0 ? addresses : [mailedAddresses(mail.returned)[0] ?? ""];
  const report = reportOf(
    mail,
    known.map((address) => reportedRecipient(address, "complaint")),
  );
  // RFC 5965, 3.2: a loop may leave out the header that repeats these fields.
  return { ...report, returned: `${mail.returned}\n${text}` };
}

/** The feedback loop of Outlook.com (JMRP) returns the mail with a header and no report of RFC 5965. */
const JMRP_SENDER = /(?:^|[<\s])staff@(?:hotmail|outlook|live|msn)\.com/;
const JMRP_RECIPIENT = /^x-hmxmroriginalrecipient:\s*(\S+@\S+)/im;

function readJunkReport(mail: IncomingMail): Classified | undefined {
  if (!JMRP_SENDER.test(`${mail.from} ${mail.header("return-path")}`)) return undefined;
  const own = `\nX-HmXmrOriginalRecipient: ${mail.header("x-hmxmroriginalrecipient")}`;
  const address = JMRP_RECIPIENT.exec(mail.returned + own)?.[1];
  if (address === undefined) return undefined;
  return reportOf(mail, [reportedRecipient(addressOf(address), "complaint")]);
}

/** RFC 3464, 2.3.3: the mail was handed on. `deliverable` is Postfix's answer to a test. */
const SUCCESSES = new Set(["delivered", "relayed", "expanded", "deliverable"]);

/** They repeat the mail's header or a status part. */
const REPEATED_FIELD =
  /^ *(?:to|cc|from|subject|date|sent|message-id|received|x-[\w-]+|[\w-]+-(?:mta|date|recipient|id)) ?:.*$/gim;

/** The addresses from which the returned mail came, and their domains, except those of its recipient. */
function sendersOf(mail: IncomingMail, recipient: string): string[] {
  const returned = [/^return-path:.*/im, /^from:.*(?:\n[ \t].*)*/im].map((field) => field.exec(mail.returned)?.[0]);
  const domainOf = (address: string) => address.slice(address.lastIndexOf("@") + 1);
  return addressesIn([mail.header("to"), ...returned].join(" "))
    .flatMap((address) => [address, domainOf(address)])
    .filter((name) => name !== recipient && name !== domainOf(recipient));
}

/**
 * Classifies the quoted reply, if any; where no rule fits it, the lines around it: first those of the recipient, last those
 * that several share.
 * @param isOnly the text can be about no other recipient
 */
function classifyWords(
  { entry, text, shared }: RecipientText,
  { reply, status, senders }: { reply: string; status: string; senders: readonly string[] },
  isOnly: boolean,
) {
  const found = classifyReply(readReply(reply, text, status, senders));
  if (found.hasRule || (reply !== "" && !isOnly)) return found;
  const words = (lines: string) => lines.replace(REPEATED_FIELD, "");
  const around = [readReply(words(entry), text, status), readReply(words(text), "", status)];
  if (shared !== "") around.push(readReply(replyIn(shared) || words(shared), shared, status));
  return around.map(classifyReply).find(({ hasRule }) => hasRule) ?? found;
}

const HAS_WORDS = /\p{L}{3}/u;

/** By the fields of RFC 3464, and by the text only where they give no reason. */
function classifyRecipient(
  mail: IncomingMail,
  { address, isForwarded, action, status, diagnostic }: StatusGroup,
  about: RecipientText,
  isOnly: boolean,
): ReportedRecipient {
  const isSuccess = SUCCESSES.has(action) || (action === "" && status.startsWith("2."));
  // Services that ask an unknown sender to confirm: the mail waits for the answer.
  if (isSuccess || /not pre-?approved/i.test(diagnostic)) return reportedRecipient(address, "none");
  if (action.startsWith("delay")) return reportedRecipient(address, "soft");
  const hasWords = HAS_WORDS.test(diagnostic);
  // Where neither field gives a reason, the text may quote one.
  const reply = hasWords ? diagnostic : `${diagnostic}\n${about.quoted || replyIn(about.text)}`.trim();
  const isByCode = !hasWords && specificityOf(status) === 3;
  const found = isByCode
    ? classifyReply(readReply(diagnostic, about.text, status))
    : classifyWords(about, { reply, status, senders: sendersOf(mail, address) }, isOnly);
  // The mailed address took the mail, perhaps for others too.
  return { address, isDelay: false, ...found, kind: isForwarded ? "soft" : found.kind };
}

const NO_TEXT: RecipientText = { address: "", text: "", entry: "", quoted: "", shared: "" };

/** @param groups of a status part, or none: then the text alone names the recipients */
function readBounce(mail: IncomingMail, groups: readonly StatusGroup[]): Classified {
  const inText = readRecipients(mail);
  const named = new Map(inText.map((recipient) => [recipient.address, recipient]));
  const action = saysDelayed(mail.subject, mail.text) ? "delayed" : "";
  const ofText = (inText.length > 0 ? inText : [NO_TEXT]).map(({ address }) => ({
    address,
    isForwarded: false,
    action,
    status: "",
    diagnostic: "",
  }));
  const read = groups.length > 0 ? groups : ofText;
  const isOnly = read.length === 1;
  const unnamed = { ...NO_TEXT, text: isOnly ? mail.text : "" };
  return reportOf(
    mail,
    read.map((group) => {
      // Exim gives the file or the command of a local delivery; its own header names the address.
      const isAddress = group.address.includes("@") || !isOnly || inText.length !== 1;
      const address = isAddress ? group.address : (inText[0]?.address ?? "");
      return classifyRecipient(mail, { ...group, address }, named.get(address) ?? unnamed, isOnly);
    }),
  );
}

const statusesOf = (mail: IncomingMail): string | undefined =>
  mail.part("message/delivery-status") ?? mail.part("message/global-delivery-status");

/** A gateway may have wrapped the report into a mail of its own. */
const hasFields = (mail: IncomingMail): boolean => (statusesOf(mail) ?? feedbackOf(mail)) !== undefined;

function classify(mail: IncomingMail): Classified {
  const feedback = feedbackOf(mail);
  if (feedback !== undefined) return readFeedback(mail, feedback);
  const groups = readDeliveryStatus(statusesOf(mail) ?? "");
  if (groups.length > 0) return readBounce(mail, groups);
  // RFC 8098: a receipt says that a mail was shown or deleted. RFC 5429, 2.2: its text may refuse the mail.
  if (mail.part("message/disposition-notification") !== undefined) {
    return /automatically rejected/i.test(mail.text) ? readBounce(mail, []) : NO_REPORT;
  }
  const complained = readJunkReport(mail);
  if (complained !== undefined) return complained;
  const notified = readMailedNotification(mail.wholeText);
  if (notified !== undefined) return reportOf(mail, notified);
  return isPlainBounce(mail) ? readBounce(mail, []) : NO_REPORT;
}

/**
 * Reads the bounces and complaints that a mail reports. Pure, and linear in the bytes that it reads, which may be any: a mail
 * that is no report, or exceeds the parser's bounds, is "none".
 */
export async function classifyMail(raw: Uint8Array): Promise<ClassifiedMail> {
  const mail = await parseIncomingMail(raw);
  if (mail === undefined) return { ...NO_REPORT, reporter: "" };
  const [, reporter = ""] = /@([a-z0-9.-]{1,253})>?\s*$/.exec(mail.from) ?? [];
  return { ...(await classifyWithin(mail, 0)), reporter };
}

/** Mails within mails. */
const MAX_DEPTH = 3;

/** The report that a program has wrapped into a mail of its own; where there is none, the mail itself. */
async function classifyWithin(mail: IncomingMail, depth: number): Promise<Classified> {
  const isWrapper = !hasFields(mail) && isOfProgram(mail) && depth < MAX_DEPTH;
  const inner = isWrapper ? await parseIncomingMail(mail.within) : undefined;
  if (inner && (hasFields(inner) || isOfProgram(inner))) {
    const report = await classifyWithin(inner, depth + 1);
    if (report.recipients.length > 0) return report;
  }
  return classify(mail);
}
