import { MAX_REPORTED, WHOLE_ADDRESS } from "./delivery-status.ts";
import { type IncomingMail, saysAutomatic } from "./incoming-mail.ts";
import { LIST_REFUSAL } from "./reply-rules.ts";

/** RFC 5321, 4.5.5 and RFC 2142 name the mailboxes; the rest are the names of MTAs. */
const SYSTEM_SENDER =
  /mail(?:er)?[-_ ]?daemon|post[-_]?master(?:@|"? ?<|$)|mail(?:er)?[ ._](?:delivery|system|administrator|error)|smtp[ _](?:gateway|mail|server)|system administrator|\bndr\b|mdaemon|^<>$|undeliver|microsoftexchange[0-9a-f]{6,40}@/;

/** In the sender's address, not beside it. */
const SYSTEM_ADDRESS = /(?:^|[<\s])(?:mail(?:er)?[-_]?daemon|post[-_]?master)(?:@|$)|^<>$/;

/** In the languages of MTAs. */
const FAILURE_SUBJECT =
  /undeliver|non-?deliver|not (?:be )?deliver|(?:could|can)(?: ?not|n't) be delivered|un(?:able|successful).{0,20}deliver|deliver\w{0,20} (?:\w{1,40} )?(?:fail|error|problem|status|report|notif|has failed|delayed|incomplete)|(?:fail|error|problem)\w{0,20} (?:in |of |to |during )?(?:mail )?deliver|delayed|failure notice|returned (?:mail|to sender|e-?mail)|returning message|mail (?:system )?(?:error|failure|failed)|failed mail|message (?:you sent )?blocked|mail could not|unzustellbar|zustell|nicht zugestellt|non remis|non-?distribu|[ée]chec|no se (?:ha )?(?:puede|pudo|podido) entregar|devuel|mancat[oa] (?:consegna|recapito)|não (?:foi )?entreg|falha|onbestelbaar|не доставлен|недоставлен|невозможно доставить|退信|退回|无法(?:投递|送达|送達)|無法(?:投遞|傳送|送達)|系统退信|配信|配送|送信でき|メールエラー|エラー通知|반송|전송 실패|niedostarcz|odrzuc|misluk|leverer|olever|levereras|leveres|ei voitu toimittaa|nedoru[čc]|kézbesít|nelivrat|iletilemedi|teslim edilemedi|недоставлен|не вдалося доставити|αποτυχία|אי-?מסירה|לא נמסר|تعذر تسليم|فشل التسليم|không gửi được|ส่งไม่ได้|error sending|user unknown|unknown user|see transcript/i;

const FAILURE_SENTENCE =
  /(?:could|can|was|were|has|have|is|be)(?: ?not|n't)(?: yet)?(?: been| be)? (?:able to be |successfully )?(?:deliver|relay|sent|reach|receiv|process|post)|(?:un|not )able to (?:be )?(?:deliver|relay|send|reach)|undeliverable|(?:delivery|message|mail|following)\b.{0,60}fail|fail\w{0,20}.{0,30}deliver|did not reach|(?:delivery|fatal|permanent) (?:errors?|problems?|failure)|has been (?:delayed|rejected|returned)|unsent message|transcript of session|not listed|no such|not a valid|recipient.{0,30}(?:unknown|not)|account is disabled|was blocked by|error occurred while|we (?:were|are) (?:un|not )able|unzustellbar|nicht (?:zugestellt|ausgeliefert)|n'a pas (?:pu|été)|non remis|no (?:se )?(?:ha )?(?:pudo|podido)|impossibile|não (?:foi|pôde)|не (?:может|могло|был[ао]?) .{0,20}(?:доставлен|отправлен)|无法(?:投递|送达|发送)|無法|できません|届け|失敗|被退回|退信原因|投递失败|전송하지 못|배달되지|nie (?:mo[zż]na|uda[lł]o si[eę]) dostarczy|niet (?:worden )?(?:be|af)gelever|kunde inte levereras|kunne ikke leveres|ei voitu toimittaa|nelze doru[čc]it|nebyl[ao]? doru[čc]|nem (?:sikerült|lehetett) kézbesíteni|nu a putut fi livrat|iletilemedi|teslim edilemedi|не вдалося доставити|δεν (?:ήταν δυνατή|παραδόθηκε)|לא (?:נמסר|ניתן)|تعذر تسليم|لم يتم تسليم|không (?:thể )?gửi được|user unknown|unknown user|not (?:be )?delivered|gave up|giving up|temporary problem|rejected|requested (?:mail )?action (?:not taken|aborted)|mailbox unavailable|failed recipients/i;

/** RFC 3464, 2.3.3. */
const SUCCESS_SUBJECT = /\bsuccess|\(relay\)|^(?:delivered|relayed|expanded) ?:|return receipt/i;

const SMTP_REPLY = /(?:^|[\s:'"<>[(])[45]\d{2}[- ](?:[45]\.\d{1,3}\.\d{1,3}|\S)|\(?#?[45]\.\d{1,3}\.\d{1,3}\)?/m;

/** Of mail programs, list servers, challenge systems and people who are away. */
const AUTOMATIC_ANSWER =
  /out of (?:the )?office|auto(?:matic|mated|matisch\w{0,10})?[ -]?(?:reply|response|answer|antwort)|autoreply|autoresponder|vacation|on (?:annual |sick |parental )?leave|away (?:from|until)|abwesen|absence|absent du|fuera de (?:la )?oficina|ausen|fuori (?:sede|ufficio)|afwezig|отсутств|автоответ|自动回复|自動回覆|不在(?:通知|の)|confirm (?:that )?you|verify (?:that )?you|challenge|thank you for (?:your (?:e-?mail|message|mail|inquiry)|contacting)|ticket|case (?:number|id)|subscri|moderator|awaiting approval/i;

/** Of an answer or a forwarded mail: "Re:", "AW:", "TR:", "回复：". */
const ANSWER_SUBJECT = /^(?:\[[^\]]{0,60}\] ?)?(?:\p{L}{1,4}|doorst|reenv|antwort) ?(?:\[\d+\])?[:：]/iu;
const PARCEL = /parcel|package|shipment|courier|\bpaket\b|\bcolis\b|paquete|pacco|encomenda|посылк|快递|荷物|택배/i;
const OTHER_FAILURE_SUBJECT = /\border\b|\balert\b|\bcron\b|logwatch|backup|invoice|payment/i;

/** RFC 3464 "delayed", and the same in words. */
const DELAY =
  /this is a warning message only|delay|will be retried|attempts will continue|has been postponed|will (?:continue|keep) (?:trying|to try)|still (?:being )?(?:trying|retr)|temporary failure report|not yet (?:been )?(?:delivered|received)|do not need to re-?send/i;
const FINAL =
  /(?:permanent|fatal) (?:error|failure)|given up|giving up|gave up|will not (?:be )?(?:retr|try|continue)|failed permanently/i;

/** No other text looks like it. */
const CERTAIN_REPLY = /(?:^|\s)[45]\d{2}[- ]#?[45]\.\d{1,3}\.\d{1,3}(?!\d)/m;

const isDeclared = (mail: IncomingMail): boolean => /report-type="?delivery-status/i.test(mail.header("content-type"));

/** An MTA or a gateway, not a person. */
export const isOfProgram = (mail: IncomingMail): boolean =>
  mail.from === "" || isDeclared(mail) || SYSTEM_SENDER.test(mail.from) || mail.header("return-path").trim() === "<>";

/** Of list servers. */
const LIST_HEADERS = ["precedence", "list-subscribe"];

/**
 * Weighs three signs: the sender is an MTA, the words are those of a report, and there is evidence: a returned mail, an SMTP
 * reply or a recipient. Where the sender is no MTA, subject and text must both have such words, and the evidence be of a kind
 * that other mail lacks.
 */
export function isPlainBounce(mail: IncomingMail): boolean {
  const { from, subject, text, returned } = mail;
  if (SUCCESS_SUBJECT.test(subject)) return false;
  const isReport = isDeclared(mail);
  const isSystem = isReport || SYSTEM_SENDER.test(from);
  const isNamed = FAILURE_SUBJECT.test(subject);
  // Reports break their lines within a sentence.
  const isSaid = FAILURE_SENTENCE.test(text.replace(/\s+/g, " "));
  const quotesServer = SMTP_REPLY.test(text);
  if (mail.header("x-failed-recipients") !== "") return isSystem || isSaid;
  const hasRecipients = () => readRecipients(mail).length > 0;
  // A report's subject may repeat the mail's, so its words alone prove nothing.
  if (isSystem && isNamed) {
    if (isReport || returned !== "" || hasRecipients()) return true;
    // A person may have a name such as "Mail Delivery Help".
    return SYSTEM_ADDRESS.test(from) && (isSaid || quotesServer);
  }
  const isAutomatic = AUTOMATIC_ANSWER.test(subject) || AUTOMATIC_ANSWER.test(text);
  if (isSystem) {
    if (!isSaid || (isAutomatic && (!quotesServer || AUTOMATIC_ANSWER.test(subject)))) return false;
    const isDaemon = /mailer-?daemon@|^<>$/.test(from) && hasRecipients();
    return returned !== "" || quotesServer || isDaemon || listsRecipients(mail);
  }
  const isAnswer = mail.header("in-reply-to") !== "" || ANSWER_SUBJECT.test(subject.trim());
  // A person writes such words too.
  if (LIST_REFUSAL.test(text)) return LIST_HEADERS.some((name) => mail.header(name) !== "") && !isAnswer;
  const isOther = OTHER_FAILURE_SUBJECT.test(subject) || PARCEL.test(subject) || PARCEL.test(text);
  if (isAnswer || isAutomatic || saysAutomatic(mail) || isOther || !isSaid) return false;
  // RFC 5321, 4.5.5: reports have the empty return path, and most automatic answers.
  const hasEmptyPath = mail.header("return-path").trim() === "<>";
  if (!isNamed) return returned !== "" && hasEmptyPath && readRecipients(mail).some(({ entry }) => entry !== "");
  const quotesReply = CERTAIN_REPLY.test(text) || (hasEmptyPath && quotesServer);
  return returned !== "" || (quotesReply && hasRecipients()) || (hasEmptyPath && listsRecipients(mail));
}

/** Delivery is still tried. */
export const saysDelayed = (subject: string, text: string): boolean =>
  (DELAY.test(subject) || DELAY.test(text)) && !FINAL.test(text);

/**
 * Chinese and Japanese texts set no space beside an address: their letters, and punctuation of full width, are no part of a
 * local name here, nor of a domain that is complete without them.
 */
const NO_LOCAL =
  "\\s<>\"'()[\\],;:*|{}\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\u3000-\\u303f\\uff01-\\uff60";
const ADDRESS = new RegExp(
  `(?<![^${NO_LOCAL}])[^${NO_LOCAL}]{1,64}(?:'[^${NO_LOCAL}]{1,63})?@(?:[a-zA-Z0-9][a-zA-Z0-9.-]{0,190}\\.[a-zA-Z]{2,63}(?![\\p{Script=Latin}0-9-])|[\\p{L}\\p{N}][\\p{L}\\p{N}.-]{0,252}[\\p{L}\\p{N}])`,
  "gu",
);
/** Or a person to ask. */
const OTHER_PERSON =
  /mail from|envelope-from|\bsenders?: |^\s*(?:from|sender|reply-to|return-path|message-id|subject)\s*:|contact|assistance|help|support@|do not reply|reporting-mta/i;
/** Words before an address that make it a recipient's. */
const DELIVERED_TO = /(?:deliver\w{0,8}|sent) (?:\S{1,40} ){0,4}(?:to|for):? ?[<"'(]?$/i;
/** The header that is repeated, an alias. */
const LESS_CERTAIN = /^\s*(?:to|cc)\s*:|(?:generated|expanded) from/i;
/** A report may name each recipient several times. */
const MAX_MENTIONS = 4 * MAX_REPORTED;
const ROLE = /^(?:post[-_]?master|mailer-?daemon|abuse|hostmaster|root|no-?reply)@/;

/** In lower case. */
export const addressesIn = (text: string): string[] =>
  // Inside an X.400 address, one of Exchange begins with its type.
  [...text.matchAll(ADDRESS)].map(([address]) => address.toLowerCase().replace(/^smtp=|\.+$/g, ""));

/** To whom a returned mail was written. */
export const mailedAddresses = (returned: string): string[] =>
  [/^to:(.*(?:\n[ \t].*)*)/im, /^x-original-to:(.*)/im, /^envelope-to:(.*)/im]
    .map((field) => addressesIn(field.exec(returned)?.[1] ?? ""))
    .find((addresses) => addresses.length > 0) ?? [];

const MAX_ENTRY_LINES = 20;

/** The lines about one recipient. */
export interface RecipientText {
  address: string;
  /** From the line that names it to the next recipient's; all where there is one recipient. */
  text: string;
  /** Up to the first empty line; empty where no line names the recipient. */
  entry: string;
  /** The first reply that names the recipient, of several. */
  quoted: string;
  /** Before those of the first recipient, of several. */
  shared: string;
}

const BEFORE_ENTRY =
  /^\s*(?:[-*•>] ?)?(?:[\w -]{0,24}(?:recipient|address)[\w ()]{0,12}\s*: ?)?(?:rfc822; ?|smtp[:;] ?)?["'<[(]{0,2}$/i;

interface Mention {
  address: string;
  line: number;
  /** Undefined where the address stands within the line. */
  indent: number | undefined;
}

/** In a line that only lists addresses. */
const ONLY_SEPARATORS = /^[\s<>,;&"'()[\]*•-]*$/;

/**
 * The first address of a line: further ones are the one before forwarding, or the sender. All, of a line that only lists
 * addresses.
 */
function mentionsIn(lines: readonly string[], own: ReadonlySet<string>): { found: Mention[]; repeated: string[] } {
  const found: Mention[] = [];
  const repeated = new Set<string>();
  for (const [line, text] of lines.entries()) {
    if (!text.includes("@")) continue;
    const [address, ...further] = addressesIn(text).filter((named) => !own.has(named) && !ROLE.test(named));
    if (address === undefined) continue;
    const at = text.toLowerCase().indexOf(address);
    const begins = BEFORE_ENTRY.test(text.slice(0, at));
    // A support@ or a help@ may be the recipient.
    const words = begins ? text.slice(0, at) : text;
    const isRecipient = /rcpt/i.test(words) || DELIVERED_TO.test(text.slice(0, at));
    if (OTHER_PERSON.test(words) && !isRecipient) continue;
    if (!begins && LESS_CERTAIN.test(text)) repeated.add(address);
    else {
      const indent = begins ? text.search(/\S/) : undefined;
      const listed = ONLY_SEPARATORS.test(text.replace(ADDRESS, "")) ? further : [];
      found.push(...[address, ...listed].map((named) => ({ address: named, line, indent })));
    }
    if (found.length + repeated.size >= MAX_MENTIONS) break;
  }
  return { found, repeated: [...repeated] };
}

/** A deeper indent continues a server's reply. */
function entriesOf(mentions: readonly Mention[]): readonly Mention[] {
  const begun = mentions.filter(({ indent }) => indent !== undefined);
  const least = Math.min(...begun.map(({ indent = 0 }) => indent));
  return begun.length === 0 ? mentions : begun.filter(({ indent }) => indent === least);
}

const ownAddresses = (mail: IncomingMail): ReadonlySet<string> =>
  new Set(addressesIn(`${mail.header("to")} ${mail.header("from")} ${mail.header("reply-to")}`));

const listsRecipients = (mail: IncomingMail): boolean =>
  mentionsIn(mail.text.split("\n"), ownAddresses(mail)).found.some(({ indent }) => indent !== undefined);

export function readRecipients(mail: IncomingMail): RecipientText[] {
  const given = [...new Set(addressesIn(mail.headerList("x-failed-recipients")))].slice(0, MAX_REPORTED);
  const lines = mail.text.split("\n");
  const { found: mentions, repeated } = mentionsIn(lines, ownAddresses(mail));
  const starts = new Map<string, number>();
  for (const { address, line } of given.length > 0 ? mentions : entriesOf(mentions)) {
    if (!starts.has(address)) starts.set(address, line);
  }
  const quotedTo = mailedAddresses(mail.returned);
  // Of addresses within sentences, others are examples or offered instead.
  const isProse = mentions.every(({ indent, line }) => indent === undefined && !SMTP_REPLY.test(lines[line] ?? ""));
  const known = given.length > 0 ? given : isProse ? quotedTo : [];
  const among = known.filter((address) => starts.has(address));
  const candidates = among.length > 0 || given.length > 0 ? among : [...starts.keys()];
  // MTAs name their store ("user@ims-daemon") beside the address.
  const whole = candidates.filter((address) => WHOLE_ADDRESS.test(address));
  const named = whole.length > 0 ? whole : candidates;
  const fallback = given.length > 0 ? given : [...new Set([...repeated, ...quotedTo])];
  const found = (named.length > 0 ? named : fallback).slice(0, MAX_REPORTED);
  const ordered = found.toSorted((a, b) => (starts.get(a) ?? 0) - (starts.get(b) ?? 0));
  const linesOf = (address: string) => {
    const start = starts.get(address) ?? 0;
    const next = ordered.find((other) => (starts.get(other) ?? 0) > start);
    return lines.slice(start, next === undefined ? lines.length : starts.get(next));
  };
  const entryOf = (address: string, about: readonly string[]) => {
    if (!starts.has(address)) return "";
    const length = about.slice(0, MAX_ENTRY_LINES).findIndex((line) => line.trim() === "");
    return about.slice(0, length < 0 ? MAX_ENTRY_LINES : length).join("\n");
  };
  const isOnly = ordered.length === 1;
  const shared = isOnly ? "" : lines.slice(0, Math.min(...starts.values(), lines.length)).join("\n");
  return ordered.map((address) => {
    const about = linesOf(address);
    const text = isOnly ? mail.text : about.join("\n");
    const lineOf = (mention: Mention) => (mention.address === address ? (lines[mention.line] ?? "") : "");
    const quoted = isOnly ? "" : (mentions.map(lineOf).find((line) => SMTP_REPLY.test(line)) ?? "");
    return { address, text, entry: entryOf(address, about), quoted, shared };
  });
}

/** To the end of the paragraph or to the next reply. */
const REPLY =
  /(?:^|[\s:'"<>[(])(?:[45]\d{2}-[^\n]*(?:\n[^\n]*\S[^\n]*){0,8}|[45]\d{2}(?: |: )[^\n]*(?:\n(?![45]\d{2} |>>>|<<<)[^\n]*\S[^\n]*){0,8})/;

/** Empty where the text quotes no server. */
export const replyIn = (text: string): string => REPLY.exec(text)?.[0] ?? "";
