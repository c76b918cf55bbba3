import { classOfRefusal, classOfStatus, type StatusClass } from "../mail/enhanced-status.ts";

/** Where the report says so. `other`: the connection, HELO or MAIL. */
export type ReplyStage = "other" | "rcpt" | "data";

export interface QuotedReply {
  /** E.g. "5.1.1", or empty. */
  status: string;
  code: number | undefined;
  /** In lower case, white space as single spaces; every address as `a@b.example`, the sender's as `sender@b.example`. */
  text: string;
  stage: ReplyStage | undefined;
}

/**
 * Whom a reply is about. `account`: the sender, its login, its limit or its rights. `message`: the mail, or a rule of the
 * recipient's side that refuses it or its sender. `server`: a server or the way.
 */
export type Fault = "recipient" | "account" | "message" | "server" | "unknown";

interface ReplyRule {
  /** `gone`: no later mail can arrive. */
  fault: Exclude<Fault, "unknown"> | "gone";
  says?: RegExp;
  when?: (reply: QuotedReply) => boolean;
}

/**
 * As Sendmail (`<a@b>... User unknown`) and Postfix (`<a@b>: Recipient address rejected`) answer RCPT: the reply is about
 * this address.
 */
const NAMES_ADDRESS = /<[^<> ]{1,320}>(?:\.\.\.|:)/;

/** The sender, in the languages of `TRANSLATIONS`. */
const SENDER =
  /\bsender|from user|reverse-path|return-path|originator|smtp auth|sending from|your (?:smtp |e-?mail )?account|\bcredits?\b|compromised|absender|exp[eé]diteur|remitente|mittente|remetente|afzender|avsändare|afsender|avsender|nadawc|odes[ií]latel|felad[oó]|l[aä]hett[aä]j|αποστολ|g[oö]nderen|отправител|відправник|发件人|寄件者|發件人|差出人|送信者|発信者|보낸 ?사람|발신자/;
/** About the sender or its server, even if the reply also names the recipient. */
const NAMES_SENDER = new RegExp(
  `${SENDER.source}|\\bfrom:|\\bcall-?(?:back|out)|\\bhelo\\b|\\behlo\\b|mail from|your (?:domain|host|server)|\\bip\\b|\\bclient\\b|\\bptr\\b|\\breverse\\b|from (?:address|header)|password|credential`,
);

const isTemporary = ({ status, code }: QuotedReply): boolean =>
  status.startsWith("4.") || (/^(?:5\.0\.0)?$/.test(status) && code !== undefined && code < 500);

/**
 * A reply to DATA or the final dot is about the message: filters that accept every recipient write "user unknown" there too.
 */
const isAboutMailbox = ({ stage, status, code, text }: QuotedReply): boolean => {
  if (stage !== undefined) return stage === "rcpt";
  // The mailbox exists.
  if (status.startsWith("5.2.")) return false;
  // An MTA that quotes no other server speaks of its own mailboxes.
  return NAMES_ADDRESS.test(text) || (code === undefined && /^(?:5\.0\.0)?$/.test(status));
};

const RECIPIENT =
  "(?<![a-z])(?:user(?: ?name|id)?s?|recipients?|rcpt|mail ?-?box(?:es)?|mail ?drop|accounts?|alias|address(?:ee|es)?|local[- ]?part|person|customer|id\\b)";
const MISSING =
  "(?:unknown|invalid|illegal|incorrect|wrong|bad|non-?existent|inexistent|un(?:route?able|recogni[sz]ed))";
/** Between "unknown" and "user". */
const QUALIFIERS =
  "(?:(?:or|local|virtual|final|delivery|destination|intended|valid|known|e-?mail|mail|smtp|user) ){0,3}";
const NOT_THERE =
  "(?:exist|be (?:found|located)|(?:exactly )?match an|found|located|listed|known|recogni[sz]ed|registered|valid\\b|available here|have an account)";

/** Words for the recipient, and for its absence, in either order with few words between. */
const TRANSLATIONS: readonly string[] = String.raw`
French ¦ utilisateur|destinataire|adresse|compte|bo[iî]te ¦ inconnu|inexistant|n'existe pas|invalide|introuvable|aucun\b
Spanish ¦ usuario|destinatario|cuenta|buz[oó]n|casilla|direcci[oó]n ¦ desconocid|inexistente|no (?:existe|es v[aá]lid|(?:fue |ha sido )?encontrad)|inv[aá]lid
Italian ¦ utente|destinatario|destin\.|indirizzo|casella ¦ sconosciut|inesistente|non (?:esiste|valid|trovat)|errato|nessun\b
Portuguese ¦ usu[aá]rio|destinat[aá]rio|conta\b|caixa postal|endere[cç]o ¦ desconhecid|inexistente|n[aã]o (?:existe|(?:foi )?encontrad)|inv[aá]lid
Romanian ¦ utilizator|destinatar|adres[aă] ¦ necunoscut|inexistent|nu exist[aă]
German ¦ empf(?:ä|ae)nger|benutzer|postfach|adress|konto ¦ unbekannt|existiert nicht|nicht (?:gefunden|bekannt|vorhanden)|ungültig
Dutch ¦ gebruiker|ontvanger|adres|postbus ¦ onbekend|bestaat niet|niet gevonden
Swedish, Danish, Norwegian ¦ användare|mottagare|bruger|modtager|bruker|mottaker|adress ¦ okänd|ukendt|ukjent|(?:finns|existerar) inte|(?:findes|finnes|eksisterer) ikke
Polish ¦ u[zż]ytkownik|adres|kont[oa]|skrzynk|odbiorc ¦ nie (?:istnieje|zosta[lł]a? znalezion)|nieznan|nie ma takiego
Czech, Slovak ¦ u[zž][ií]vate[lľ]|schr[aá]nk|adres ¦ neexistuj|nezn[aá]m
Hungarian ¦ felhaszn[aá]l[oó]|c[ií]mzett|postafi[oó]k ¦ ismeretlen|nem (?:l[eé]tezik|tal[aá]lhat[oó])
Finnish ¦ k[aä]ytt[aä]j[aä]|vastaanottaja|osoite ¦ tuntematon|ei (?:ole|l[oö]ydy)
Greek ¦ χρήστη|παραλήπτη|διεύθυνση ¦ άγνωστ|δεν (?:υπάρχει|βρέθηκε)
Turkish ¦ kullan[ıi]c[ıi]|al[ıi]c[ıi]|hesap|adres ¦ bulunamad|bilinmiyor|mevcut de[gğ]il|ge[cç]ersiz|\byok
Russian, Ukrainian, Bulgarian ¦ пользовател|получател|адрес|ящик|абонент|користувач|потребител ¦ не найден|не существует|неизвест|не зарегистрирован|не існує|не съществува|нет такого
Hebrew ¦ משתמש|נמען|כתובת ¦ לא (?:קיימ?ת?|נמצאה?|מוכרת?)
Arabic ¦ المستخدم|المستلم|العنوان ¦ غير (?:موجود|معروف)
Thai ¦ ผู้ใช้|ผู้รับ ¦ ไม่พบ|ไม่มี
Vietnamese ¦ người (?:dùng|nhận)|địa chỉ ¦ không tồn tại|không tìm thấy
Chinese ¦ 用户|收件人|邮箱|帐号|账号|地址|使用者|收件者|信箱|此人 ¦ 不存在|未找到|无效|找不到|無此|查無|查无
Japanese ¦ 宛先|ユーザ|メールアドレス|アドレス|受信者 ¦ 存在しません|存在しない|見つかりません|不明|いません
Korean ¦ 사용자|수신자|계정|주소|받는 ?사람 ¦ 없|존재하지
`
  .trim()
  .split("\n")
  .map((line) => {
    const [, recipient = "", missing = ""] = line.split(" ¦ ");
    return `(?:${recipient}).{0,40}(?:${missing})|(?:${missing}).{0,20}(?:${recipient})`;
  });

const UNKNOWN_USER = new RegExp(
  [
    `${MISSING}[ _]${QUALIFIERS}${RECIPIENT}`,
    // "Undeliverable address: a@b" is a heading.
    `undeliverable ${QUALIFIERS}${RECIPIENT}(?!(?:e?s)?: ?<?a@b)`,
    `${RECIPIENT}(?: name)?(?: \\S{1,120})?,? ?(?:is |was |are )?(?:${MISSING}|not known)`,
    `no (?:such|valid) ${QUALIFIERS}(?:${RECIPIENT}|destinat)`,
    `(?:${RECIPIENT}|\\be-?mail)\\b.{0,60}?(?:does not|doesn't|dosn't|do not|didn't|did not|cannot|could not|not|no longer) ${NOT_THERE}`,
    `(?:[>)"]|@\\S{1,255})[:,]? (?:is |was )?(?:unknown|not (?:found|known|exist)|(?:does not|doesn't) (?:exist|have an account))`,
    "(?:recipient|address) rejected\\.?(?= ?\\(|$)",
    `not (?:a |an |our |my |one of our )(?:valid |known |existing |registered )?(?:member of|${RECIPIENT})`,
    `no (?:${RECIPIENT}|one)\\b.{0,40}(?:by that name|with (?:that|this|such)|\\bhere|found|available for)`,
    `(?:can't|cannot|could not|couldn't|unable to|do not|don't) (?:find|locate|validate|resolve|verify|know|have) (?:the |this |that |your |alias |such |an? |any )?(?:${RECIPIENT}|<?\\S{1,64}@)`,
    `(?:can't|cannot|could not|couldn't|does not|doesn't|do not|don't) (?:deliver|handle|accept) (?:any )?mail for (?:the |this |that )?(?:${RECIPIENT}|[<{]?\\S{1,64}@)`,
    "no longer (?:an employee|employed|works)|nobody (?:here )?(?:by|with) (?:that|this)|because it does not exist",
    `${RECIPIENT} (?:\\S{1,120} )?(?:lookup|cannot be verified|not ok\\b)|incorrectly addressed|(?:bad|not in my valid)rcptto|missing home directory`,
    "not (?:present |listed |found )?in (?:the |my |our |this )?(?:\\S{1,40} )?(?:directory|ldap|address book)",
    ...TRANSLATIONS,
  ].join("|"),
);

/** About the sender's address, its login, its limit or its rights, under any code. */
const ACCOUNT = new RegExp(
  [
    "(?:sending|outgoing|outbound|submission|relay) ?(?:message |mail |e-?mail |rate )?(?:limit|quota)",
    "(?:daily|hourly|monthly) (?:(?:message|mail|e-?mail|user|relay) ){0,2}(?:limit|quota)",
    "exceeded (?:the |your |its )?(?:max(?:imum)?|allowed|number of) (?:e-?mails?|messages|recipients|defers)\\b.{0,30}(?:per |an? |each |/)(?:hour|day)",
    "(?:exceeded|insufficient|not enough|no|out of|maximum) (?:\\w+ )?credits?\\b|credits? exceeded|sending allowance|limit on the number of (?:\\w+ ){0,3}messages",
    "pop before smtp|must issue a starttls|address is not verified|verified sender|permissions? to send as|account is not (?:yet )?activated|unauthori[sz]ed sender|outgoing mail\\b.{0,80}suspended",
    "\\bauth(?:entication)? (?:is )?(?:required|needed|first)|(?:must|need to|have to|please) (?:first )?(?:be )?(?:authenticat|log(?:ged)? ?(?:in|on))",
    "not (?:authenticated|logged (?:in|on))\\b|log ?in (?:is )?required|authenticate first",
    `\\bsender\\b.{0,40}(?:rejected|refused|denied|unknown|invalid|not (?:allowed|authori[sz]ed|permitted|verified|local|exist|owned)|verif\\w{1,8} (?:failed|failure))`,
    "verif\\w{1,8} (?:failed|failure) for <?sender@",
    "not (?:allowed|permitted|authori[sz]ed|entitled) to (?:send|relay)(?! (?:(?:e-?)?mails? |messages? )?to\\b)",
    "relay(?:ing)? (?:\\S{1,80} )?(?:access )?(?:denied|not permitted|not allowed|prohibited|is not)|(?:unable|not (?:allowed|permitted)|won't|will not|cannot) (?:to )?relay|we do not relay|isn't in my list of allowed rcpthosts|not (?:an? )?(?:\\w{1,9} )?gateway(?! user)",
    "(?:disabled|suspended|blocked|restricted) (?:from|for) sending|sending (?:is |has been |was )?(?:disabled|suspended|blocked)",
  ].join("|"),
);

/** To a sender who may not post. */
export const LIST_REFUSAL = /not (?:a member of|allowed to post to|subscribed to) this (?:mailing[- ])?list\b/i;

const TOO_MUCH =
  /receiving (?:mail|email)s? at a rate|frequency limited|mailbox unavailable or access denied|too (?:many(?! hops)|much|fast)|rate[- ]?limit|throttl|(?:exceed|over).{0,30}(?:rate|connections|messages per)|unexpected volume|concurren|(?:message|mail|size).{0,40}(?:too (?:large|big)|exceed|limit)|(?:exceed|limit).{0,40}(?:size|length)/;

const FULL_OR_UNWANTED =
  /mailbox (?:size )?limit|storage (?:is )?full|reached (?:the |its |his |their )?(?:disk |mailbox |storage )?quota|(?:user|mailbox|recipient|account) has too many messages|mailbox (?:is |has )?(?:been )?(?:full|exceed)|(?:in|mail)box.{0,20} full|(?:over|exceed\w{0,20}|out of|insufficient|not enough) ?(?:the |its |his |their |allowed |mail |local |disk |storage |system )*(?:quota|storage|space|allocation)|quota (?:is )?(?:full|exceed)|exceed.{0,40}(?:quota|local limit|storage)|(?:quota|storage|allocation).{0,30}exceed|boîte.{0,30}pleine|(?:mailbox|buz[oó]n|casilla|cuenta).{0,20}llen[oa]\b|postfach.{0,20}voll|casella.{0,20}piena|переполнен|(?:邮箱|信箱).{0,6}(?:已满|滿)|容量.{0,10}(?:超|いっぱい)|recipient(?:'s|s)? (?:preferences|privacy)|(?:rejected|refused|blocked|denied) by (?:the |this |its )?(?:recipient|user|addressee)s?(?!'|[ -](?:address|domain|server|policy))|(?:user|recipient) (?:refused|rejected) to receive/;

/**
 * The first rule that fits decides; a reply that fits none is soft. Rules on words, which several servers use or a vendor
 * documents, come before rules on codes, because servers often give a general code to exact words.
 * Hard means that no later mail can arrive: the mailbox or its domain does not exist, moved away for good, or takes no mail
 * at all. All else is soft, also a full, disabled or inactive mailbox, and each refusal of the sender, its server or the
 * mail. "User unknown" in answer to the message is soft: filters write it to hide themselves.
 */
const REPLY_RULES: readonly ReplyRule[] = [
  // Sender's account refused: RFC 3463 X.1.7, X.1.8, X.7.8; Postfix, reject_unlisted_sender; Gmail, 5.4.5; cPanel
  {
    fault: "account",
    // Receivers that ask for SPF or DMARC write so too, and recipients who block a sender.
    when: ({ status, text }) =>
      /\.1\.[78]$/.test(status) ||
      (ACCOUNT.test(text) &&
        !/\bspf\b|dkim|dmarc|(?:rejected|refused|blocked|denied) by (?:the |this |its )?(?:recipient|user|addressee|mailbox owner)|gr[ae]ylist|\b(?:list|group)\b(?! of allowed)/.test(
          text,
        )),
  },
  // Full, or refused by the recipient's own rules: RFC 3463 X.2.2, X.7.1; Dovecot, Exim; Facebook, RCP-P2, RCP-P3; QQ
  {
    fault: "recipient",
    when: ({ status, text }) => status.endsWith(".2.2") || FULL_OR_UNWANTED.test(text),
  },
  // The sender named beside any words; too many, too large, not for a list: RFC 3463 X.2.3, X.3.4, X.4.5, X.7.2; RFC 1870
  {
    fault: "message",
    when: ({ text }) => LIST_REFUSAL.test(text) || TOO_MUCH.test(text) || /\bsender(?:@b)?\.example/.test(text),
  },
  // Cannot be verified now: RFC 3463 X.4.3; Postfix, Name service error: try again
  {
    fault: "server",
    says: /(?:can't|cannot|could not|couldn't|unable to|not) (?:be )?(?:verif|validat|resolv)\w{0,4}\b.{0,60}(?:time[ds]?[ -]?out|later|unavailable)|unable to (?:verify|validate) (?:the |this |that |your )?recipient|not found, try again|(?:directory|ldap|database|recipient|user|lookup)\b.{0,40}time[ds]?[ -]?out|(?:directory|ldap|database)\b.{0,20}(?:unavailable|not available)|temporar\w{0,3} (?:\w{1,12} )?(?:unavail|fail|error)/,
  },
  // Host unknown, or takes no mail: RFC 3463 X.1.2, X.4.4; RFC 7504; RFC 7505; Postfix, Sendmail, Exim, qmail, hMailServer
  {
    fault: "gone",
    says: /host (?:or domain )?(?:name )?(?:is )?(?:unknown|not found)|unknown (?:host|domain)|(?:couldn't|could not|cannot|can't) find (?:any host|an? mail exchanger|an? mx|mx|the host|domain)|(?:domain|host)(?: name)? (?:\S{1,120} )?(?:(?:does not|doesn't|may not) exist|(?:was |is )?not found|(?:wasn't|couldn't be|could not be|cannot be) found)|account or domain may not exist|no such (?:host|domain)|(?:invalid|bad|illegal|unrouteable|unroutable|non-?existent) (?:mail |destination )?(?:host|domain|system)|nxdomain|name or service not known|domain (?:\S{1,120} )?(?:is )?(?:unknown|invalid|obsolete|retired|no longer in use)|(?:cannot|can't|could not|unable to) resolve|domain ?nonexistent|nonexistentdomain|dns\.unknownhost|domain name not found|\bno (?:valid |usable )?(?:mx|mail exchanger)s?(?: hosts?)?(?: records?)?(?: (?:was |were )?found|\b)|domain is not reachable|all relevant mx records point to non-existent hosts|no mail servers? appears? to exists?|domain (?:\S{1,120} )?(?:has no|no) (?:mx|mail exchanger)|illegal host\/domain name|domain must exist|no (?:dns entry|address associated|valid hosts)\b|gethostbyname|(?:host|domain|server|system|recipient|\.[a-z]{2,20})\b.{0,60}(?:does not|doesn't|not) (?:accept|receive) (?:any |incoming |inbound )?(?:e-?)?mail(?! (?:from|via|without|with|sent|that|to|larger))|not accepting network messages|null ?mx|mx points to "?\.|indicated no smtp service|smtp protocol (?:is )?not (?:supported|available)/,
    when: ({ text }) => !NAMES_SENDER.test(text),
  },
  // Account disabled: RFC 3463 X.2.1; RFC 5248 X.7.13; replies of Gmail, Yahoo and Orange
  {
    fault: "recipient",
    says: /(?:account|mailbox|user|recipient|address)\b.{0,60}?(?:disabled|suspended|inactive|deactivated|not active|locked|blocked|frozen|restricted|expired|closed|discontinued|bloqu)|(?:disabled|inactive|suspended|not an active) (?:recipient|account|user|mailbox|address)|заблокирован|(?:帐号|账号|邮箱|用户).{0,6}(?:冻结|禁用|停用)/,
    when: ({ text }) => !NAMES_SENDER.test(text) && !/dnsbl|\brbl\b|spam|(?:block|black) ?list/.test(text),
  },
  // User unknown: RFC 5321 3.3 and 4.2.3, reply 550 to RCPT; RFC 3463 X.1.1
  {
    fault: "gone",
    says: UNKNOWN_USER,
    when: (reply) => (/^5\.1\.(?:1|10)$/.test(reply.status) || isAboutMailbox(reply)) && !NAMES_SENDER.test(reply.text),
  },
  // Sender, its server or the message refused: RFC 3463 X.6, X.7; RFC 7372; sender guidelines of Gmail, Yahoo, Microsoft
  {
    fault: "message",
    says: /\bspam|\bube\b|unsolicited|\bbulk|virus|malware|phish|black ?list|block ?list|blocklisted|\brbl\b|dnsbl|spamhaus|barracuda|reputation|\bspf\b|\bdkim\b|dmarc|authenticat|reverse dns|\bptr\b|\brdns\b|policy|banned|not (?:rfc|compliant)|rfc ?(?:2?822|2821|532[12])(?![;\d])|content (?:rejected|refused|filter)|rejected (?:by|due|for)|sender.{0,40}(?:reject|refus|denied|invalid|not exist|unknown|verif|domain|block)|domain of sender|from: domain|client host|your (?:ip|host|server|domain|network)|sending (?:ip|domain|server)|greylist|graylist|prohibited|not authori[sz]ed|unauthori[sz]ed|permission|restrict|administrative|attachment|8-bit|(?<!following )header/,
    // A report that quotes no server uses such words in its own advice.
    when: ({ code, status }) => code !== undefined || status !== "",
  },
  // Not delivered in time: RFC 3463 X.4
  {
    fault: "server",
    says: /timed? ?out|expired|(?:connection|connect).{0,40}(?:refused|failed|lost|dropped|reset)|not responding|(?:un|not )reachable|retry (?:timeout|time)|too long|loop|hop ?count|too many hops|delivery attempts|temporar|deferred|lookup failure|name server reply|multiple retries/,
  },
  // No account, in reply to the message: Yahoo, 554 delivery error: dd; Mail.ru, list of errors
  {
    fault: "gone",
    says: /(?:doesn't|does not) have an? \S{1,120} account|\bdd not a valid recipient|mail action aborted, mailbox not found|local mailbox \S{1,120} is unavailable: user not found/,
    // Without a code, a report of Yahoo does not show which command the reply answers.
    when: ({ code }) => code !== undefined,
  },
  // Unavailable, moved, not in the directory: RFC 3463 X.1.6; RFC 5321 4.2.3, 550 and 551; Microsoft, NDR codes; Yahoo, Domino
  {
    fault: "gone",
    says: /(?:recipient|user|mailbox|address|account|a@b\.example)\b.{0,40}(?:no longer (?:on|at|with|in use|available|valid|exists?)|(?:has |was |is )(?:been )?(?:moved|changed|removed|deleted))|(?:mailbox|account|user) (?:removed|deleted)|replaced by|no forwarding address|mailbox moved|user (?:a@b\.example )?(?:is )?not local|recipient address rejected: access denied|resolver\.adr\.(?:rec[a-z]*notfound|exrecipnotfound)|recip(?:ient)?notfound|mailbox (?:\S{1,120} )?(?:does not exist|not found|not available|unavailable)|recipient name is not recognized|unknown recipient|no mailbox here by that name|unrouteable address|invalid recipient|wasn't found at|email account that you tried to reach does not exist|not our customer|contain a non-existent account|check (?:if|that|whether) (?:the )?(?:e-?mail )?address is correct/,
    when: ({ stage, status, text }) => stage !== "data" && !status.startsWith("5.2.") && !SENDER.test(text),
  },
  // Full by code, or user unknown in reply to the message: RFC 5321 3.3 (a reply after DATA refuses the message) and 4.2.3
  {
    fault: "recipient",
    when: ({ code, status, text }) =>
      classOfRefusal(code, status) === "full" ||
      (UNKNOWN_USER.test(text) && !SENDER.test(text) && !/^5\.1\.[01236]$/.test(status)),
  },
  // Address, by code: RFC 3463 X.1.1 to X.1.3, X.1.6, X.4.4; RFC 7505 (5.1.10)
  {
    fault: "gone",
    // In reply to the message a code alone says nothing of the mailbox.
    when: ({ stage, status, text }) =>
      stage !== "data" &&
      !SENDER.test(text) &&
      ((status.startsWith("5.1.") && classOfStatus(status) === "unknown") || status === "5.4.4"),
  },
];

const FAULT_OF_CLASS: Readonly<Record<StatusClass, Fault>> = {
  unknown: "unknown",
  disabled: "recipient",
  full: "recipient",
  sender: "account",
  policy: "message",
  content: "message",
  system: "server",
};

/** What a reply means. */
export interface ReadReply {
  fault: Fault;
  /** `hard`: no later mail can arrive. Only with the fault `recipient`. */
  kind: "hard" | "soft";
  /** It does not count against the address. */
  isSendersFault: boolean;
  /** The rule knows the words, whatever the code. */
  isByWords: boolean;
  /** Words or a code that a rule knows; otherwise the fault follows from the subject of the code, if from anything. */
  hasRule: boolean;
}

/** The one reading of a reply, for SMTP, reports by mail and providers. */
export function classifyReply(reply: QuotedReply): ReadReply {
  const rule = REPLY_RULES.find(
    ({ fault, says, when }) =>
      (fault !== "gone" || !isTemporary(reply)) &&
      (says === undefined || says.test(reply.text)) &&
      (when === undefined || when(reply)),
  );
  const subject = NAMES_SENDER.test(reply.text) ? "policy" : classOfStatus(reply.status);
  const byCode = subject === undefined ? "unknown" : FAULT_OF_CLASS[subject];
  const about = reply.stage === "other" ? "account" : (rule?.fault ?? byCode);
  const fault = about === "gone" ? "recipient" : about;
  return {
    fault,
    kind: about === "gone" ? "hard" : "soft",
    isSendersFault: fault === "account" || fault === "message",
    isByWords: rule?.says !== undefined,
    hasRule: rule !== undefined,
  };
}
