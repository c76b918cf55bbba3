import { addressOf, MAX_REPORTED, readDeliveryStatus, readFields, type StatusGroup } from "./delivery-status.ts";
import { type IncomingMail, parseIncomingMail } from "./incoming-mail.ts";
import {
  addressesIn,
  isOfProgram,
  isPlainBounce,
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

/** Those that mail servers add come first. */
const RETURNED_RECIPIENTS = [/^x-original-to:(.*)$/im, /^delivered-to:(.*)$/im, /^to:(.*(?:\n[ \t].*)*)/im];

/** RFC 5965. */
function readFeedback(mail: IncomingMail, text: string): Classified {
  const fields = readFields(text);
  const type = /^[\w-]*/.exec(fields.get("feedback-type")?.toLowerCase() ?? "")?.[0] ?? "";
  if (type === "" || !isComplaint(type)) return { ...NO_REPORT, returned: mail.returned };
  const named = [...text.matchAll(/^(?:original-rcpt-to|removal-recipient):(.*)$/gim)];
  const addresses = [...new Set(named.map(([, value = ""]) => addressOf(value.trim())))].slice(0, MAX_REPORTED);
  const returnedTo = RETURNED_RECIPIENTS.map((field) => field.exec(mail.returned)?.[1] ?? "");
  const known = addresses.length > 0 ? addresses : [addressesIn(returnedTo.join(" "))[0] ?? ""];
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
  const own = `X-HmXmrOriginalRecipient: ${mail.header("x-hmxmroriginalrecipient")}`;
  const address = (JMRP_RECIPIENT.exec(own) ?? JMRP_RECIPIENT.exec(mail.returned))?.[1];
  if (address === undefined) return undefined;
  return reportOf(mail, [reportedRecipient(addressOf(address), "complaint")]);
}

/** RFC 3464, 2.3.3: the mail was handed on. */
const SUCCESSES = new Set(["delivered", "relayed", "expanded"]);

/** They repeat the mail's header or a status part. */
const REPEATED_FIELD =
  /^ *(?:to|cc|from|subject|date|sent|message-id|received|x-[\w-]+|[\w-]+-(?:mta|date|recipient|id)) ?:.*$/gim;

interface RecipientWords extends Omit<RecipientText, "address" | "quoted"> {
  /** Of a server; empty where the report quotes none. */
  reply: string;
  /** Of the report's status part, or empty. */
  status: string;
  /** The text can be about no other recipient. */
  isOnly: boolean;
}

/**
 * Classifies the quoted reply; where no rule fits it, the lines around it: first those of the recipient, last those that
 * several share.
 */
function classifyWords({ reply, entry, text, shared, status, isOnly }: RecipientWords) {
  const found = classifyReply(readReply(reply, text, status));
  if (found.hasRule || (reply !== "" && !isOnly)) return found;
  const words = (lines: string) => lines.replace(REPEATED_FIELD, "");
  const around = [readReply(words(entry), text, status), readReply(words(text), "", status)];
  if (shared !== "") around.push(readReply(replyIn(shared) || words(shared), shared, status));
  return around.map(classifyReply).find(({ hasRule }) => hasRule) ?? found;
}

const HAS_WORDS = /\p{L}{3}/u;

/** By the fields of RFC 3464, and by the text only where they give no reason. */
function classifyStatus(
  { address, action, status, diagnostic }: StatusGroup,
  about: Omit<RecipientText, "address">,
  isOnly: boolean,
): ReportedRecipient {
  const isSuccess = SUCCESSES.has(action) || (action === "" && status.startsWith("2."));
  if (isSuccess) return reportedRecipient(address, "none");
  if (action.startsWith("delay")) return reportedRecipient(address, "soft");
  // Services that ask an unknown sender to confirm: the mail waits for the answer.
  if (/not pre-?approved/i.test(diagnostic)) return reportedRecipient(address, "none");
  const hasWords = HAS_WORDS.test(diagnostic);
  // Where neither field gives a reason, the text may quote one.
  const reply = hasWords ? diagnostic : `${diagnostic}\n${about.quoted || replyIn(about.text)}`;
  const isByCode = !hasWords && specificityOf(status) === 3;
  const found = isByCode
    ? classifyReply(readReply(diagnostic, "", status))
    : classifyWords({ ...about, reply, status, isOnly });
  return { address, isDelay: false, ...found };
}

const NO_TEXT: Omit<RecipientText, "address"> = { text: "", entry: "", quoted: "", shared: "" };

/** RFC 3464. */
function readStatuses(mail: IncomingMail, text: string): Classified {
  const inText = readRecipients(mail);
  const named = new Map(inText.map((recipient) => [recipient.address, recipient]));
  const read = readDeliveryStatus(text);
  const isOnly = read.length === 1;
  // Exim gives the file or the command of a local delivery; its own header names the address.
  const groups = read.map((group) => {
    const isAddress = group.address.includes("@") || !isOnly || inText.length !== 1;
    return isAddress ? group : { ...group, address: inText[0]?.address ?? group.address };
  });
  const unnamed = { ...NO_TEXT, text: isOnly ? mail.text : "" };
  return reportOf(
    mail,
    groups.map((group) => classifyStatus(group, named.get(group.address) ?? unnamed, isOnly)),
  );
}

function readPlainBounce(mail: IncomingMail): Classified {
  const named = readRecipients(mail);
  const recipients = named.length > 0 ? named : [{ ...NO_TEXT, address: "", text: mail.text }];
  if (saysDelayed(mail.subject, mail.text)) {
    return reportOf(
      mail,
      recipients.map(({ address }) => reportedRecipient(address, "soft")),
    );
  }
  const isOnly = recipients.length === 1;
  // Recipients that the text does not name share the whole text.
  const known = new Map<string, ReturnType<typeof classifyWords>>();
  const classifyText = (about: RecipientText) => {
    const reply = about.quoted || replyIn(about.text);
    const key = `${reply}\n${about.text}`;
    const found = known.get(key) ?? classifyWords({ ...about, reply, status: "", isOnly });
    known.set(key, found);
    return found;
  };
  return reportOf(
    mail,
    recipients.map((about) => ({ address: about.address, isDelay: false, ...classifyText(about) })),
  );
}

const statusesOf = (mail: IncomingMail): string | undefined =>
  mail.part("message/delivery-status") ?? mail.part("message/global-delivery-status");

/** A gateway may have wrapped the report into a mail of its own. */
const hasFields = (mail: IncomingMail): boolean =>
  (statusesOf(mail) ?? mail.part("message/feedback-report")) !== undefined;

function classify(mail: IncomingMail): Classified {
  const feedback = mail.part("message/feedback-report");
  if (feedback !== undefined) return readFeedback(mail, feedback);
  const statuses = statusesOf(mail);
  if (statuses !== undefined) {
    const report = readStatuses(mail, statuses);
    if (report.recipients.length > 0) return report;
  }
  // RFC 8098: a receipt says that a mail was shown or deleted. RFC 5429, 2.2: its text may refuse the mail.
  if (mail.part("message/disposition-notification") !== undefined) {
    return /automatically rejected/i.test(mail.text) ? readPlainBounce(mail) : NO_REPORT;
  }
  const complained = readJunkReport(mail);
  if (complained !== undefined) return complained;
  const notified = readMailedNotification(mail.wholeText);
  if (notified !== undefined) return reportOf(mail, notified);
  if (!isPlainBounce(mail)) return NO_REPORT;
  // Gateways that rewrite a report put its status part into the text.
  const report = /^final-recipient:/im.test(mail.wholeText) ? readStatuses(mail, mail.wholeText) : NO_REPORT;
  return report.recipients.length > 0 ? report : readPlainBounce(mail);
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
