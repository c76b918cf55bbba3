import type { ReportKind } from "../../domain/reports/report.ts";

/**
 * Reports as mail programs write them, put together from the texts in their sources and manuals, with made-up addresses.
 * They are no mails that were received.
 */
export interface ProgramMail {
  raw: string;
  /** What the report says of each recipient, in its order. */
  wanted: [address: string, kind: ReportKind][];
}

export const USER = "user@example.net";
const RETURNED = `Return-Path: <bounce@sender.example>\nReceived: by sender.example; Thu, 29 Apr 2010 23:34:45 +0900\nMessage-ID: <1.x@sender.example>\nFrom: News <news@sender.example>\nTo: ${USER}\nSubject: Hello\n\nHello ann@example.com\n`;

interface Head {
  from: string;
  subject: string;
  /** Further lines of the header. */
  more?: string;
}

const head = ({ from, subject, more = "" }: Head) =>
  `Return-Path: <>\nDate: Thu, 29 Apr 2010 23:34:45 +0900\nFrom: ${from}\nTo: bounce@sender.example\nSubject: ${subject}\nMIME-Version: 1.0\n${more === "" ? "" : `${more}\n`}`;

/** A report without parts. */
const plain = (from: string, subject: string, text: string, more = "Content-Type: text/plain; charset=utf-8") =>
  `${head({ from, subject, more })}\n${text}`;

/** A report of RFC 3464 with the groups of its recipients. */
const dsn = (from: string, subject: string, text: string, groups: string, type = "text/plain") =>
  `${head({ from, subject, more: 'Content-Type: multipart/report; report-type=delivery-status;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: ${type}; charset=utf-8\n\n${text}\n--=_b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.relay.example\nArrival-Date: Thu, 29 Apr 2010 23:34:45 +0900\n\n${groups}\n\n--=_b\nContent-Type: message/rfc822\n\n${RETURNED}\n--=_b--\n`;

const group = (status: string, diagnostic: string, address = USER) =>
  `Final-Recipient: rfc822; ${address}\nAction: failed\nStatus: ${status}\nDiagnostic-Code: smtp; ${diagnostic}`;

const DAEMON = "MAILER-DAEMON@mx.relay.example";
const MAIL_DAEMON = "MAILER-DAEMON@mx.relay.example (Mail Delivery System)";

const postfix = (entry: string, fields: string) =>
  dsn(
    MAIL_DAEMON,
    "Undelivered Mail Returned to Sender",
    `This is the mail system at host mx.relay.example.\n\nI'm sorry to have to inform you that your message could not\nbe delivered to one or more recipients. It's attached below.\n\nFor further assistance, please send mail to postmaster.\n\n                   The mail system\n\n${entry}\n`,
    fields,
  );
const exim = (entry: string, more = `X-Failed-Recipients: ${USER}`) =>
  plain(
    "Mail Delivery System <Mailer-Daemon@mx.relay.example>",
    "Mail delivery failed: returning message to sender",
    `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n${entry}\n\n------ This is a copy of the message, including all the headers. ------\n\n${RETURNED}`,
    `${more}\nAuto-Submitted: auto-replied`,
  );
const qmail = (entry: string) =>
  plain(
    DAEMON,
    "failure notice",
    `Hi. This is the qmail-send program at mx.relay.example.\nI'm afraid I wasn't able to deliver your message to the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\n${entry}\n\n--- Below this line is a copy of the message.\n\n${RETURNED}`,
    "",
  );
const sendmail = (problem: string, transcript: string, fields: string) =>
  dsn(
    "Mail Delivery Subsystem <MAILER-DAEMON@mx.relay.example>",
    "Returned mail: see transcript for details",
    `The original message was received at Thu, 29 Apr 2010 23:34:45 +0900\nfrom sender.example [192.0.2.1]\n\n   ----- The following addresses had permanent fatal errors -----\n${problem}\n\n   ----- Transcript of session follows -----\n${transcript}\n`,
    fields,
  );
const oldSendmail = (subject: string, transcript: string) =>
  plain(
    "MAILER-DAEMON@mx.relay.example (Mail Delivery Subsystem)",
    subject,
    `   ----- Transcript of session follows -----\n${transcript}\n\n   ----- Unsent message follows -----\n${RETURNED}`,
    "",
  );
const courier = (entry: string, fields: string, subject = "NOTICE: mail delivery status.") =>
  dsn(
    "mx.relay.example <postmaster@mx.relay.example>",
    subject,
    `This is a delivery status notification from mx.relay.example,\nrunning the Courier mail server, version 0.65.2.\n\nThe original message was received on Thu, 29 Apr 2010 23:34:45 +0900\nfrom sender.example (sender.example [192.0.2.1])\n\n---------------------------------------------------------------------------\n\n                           UNDELIVERABLE MAIL\n\nYour message to the following recipients cannot be delivered:\n\n${entry}\n\n---------------------------------------------------------------------------\n\nIf your message was also sent to additional recipients, their delivery\nstatus is not included in this report.\n`,
    fields,
  );
const exchange = (text: string) =>
  plain(
    "System Administrator <postmaster@example.net>",
    "Undeliverable: Hello",
    `Your message\n\n  To:      ${USER}\n  Subject: Hello\n  Sent:    Thu, 29 Apr 2010 23:34:45 +0900\n\n${text}\n`,
  );

const statusOf = (reply: string) => /(?<![\d.])[45]\.\d{1,3}\.\d{1,3}(?![\d.])/.exec(reply)?.[0] ?? `${reply[0]}.0.0`;

/** Reports of programs about a server's answer to RCPT. */
export const postfixReport = (reply: string): string =>
  postfix(
    `<${USER}>: host mx.example.net[192.0.2.7] said: ${reply} (in\n    reply to RCPT TO command)`,
    group(statusOf(reply), reply),
  );
export const qmailReport = (reply: string): string =>
  qmail(`<${USER}>:\n192.0.2.7 does not like recipient.\nRemote host said: ${reply}\nGiving up on 192.0.2.7.`);
export const eximReport = (reply: string): string =>
  exim(
    `  ${USER}\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after RCPT TO:<${USER}>:\n    ${reply}`,
  );

/** Lists the recipients of a cell: "hard" for one that is `USER`, or "ADDRESS KIND, ADDRESS KIND". */
function wantedOf(cell: string): ProgramMail["wanted"] {
  if (cell === "-") return [];
  if (!cell.includes("@")) return [[USER, cell as ReportKind]];
  return cell.split(", ").map((recipient) => {
    const end = recipient.lastIndexOf(" ");
    return [recipient.slice(0, end), recipient.slice(end + 1) as ReportKind];
  });
}

const filled = (cell: string) =>
  cell === "-"
    ? ""
    : cell
        .replaceAll("\\n", "\n")
        .replaceAll("\\t", "\t")
        .replaceAll("%s", USER)
        .replaceAll("%r", RETURNED)
        .replaceAll("%R", RETURNED.replace(USER, "one@example.net, two@example.org"));

/**
 * Reads a table of mails. A line has the name of the program and the failure, what the report says, and the texts that
 * `make` takes. `%s` stands for `USER`, `%r` for the returned mail, `%R` for one to two recipients, and `-` for no text.
 */
const mailsOf = (make: (...texts: [string, ...string[]]) => string, table: string): Record<string, ProgramMail> =>
  Object.fromEntries(
    table
      .split("\n")
      .slice(1, -1)
      .map((line) => {
        const [name = "", wanted = "", ...cells] = line.split(" ¦ ");
        const [first = "", ...others] = cells.map(filled);
        return [name, { raw: make(first, ...others), wanted: wantedOf(wanted) }];
      }),
  );

/** Reports by the name of the program and the failure. */
export const PROGRAM_MAILS: Record<string, ProgramMail> = {
  ...mailsOf(
    postfix,
    String.raw`
Postfix: unknown local user ¦ hard ¦ <%s>: unknown user: "user" ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: X-Postfix; unknown user: "user"
Postfix: expanded alias ¦ hard ¦ <%s> (expanded from <list@sender.example>): host mx.example.net[192.0.2.7]\n    said: 550 5.1.1 <%s>: Recipient address rejected: User unknown in\n    virtual mailbox table (in reply to RCPT TO command) ¦ Original-Recipient: rfc822;list@sender.example\nFinal-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 <%s>: Recipient address rejected: User\n    unknown in virtual mailbox table
Postfix: host not found ¦ hard ¦ <%s>: Host or domain name not found. Name service error for name=example.net\n    type=AAAA: Host not found ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.4.4\nDiagnostic-Code: X-Postfix; Host or domain name not found. Name service error\n    for name=example.net type=AAAA: Host not found
Postfix: name server does not answer ¦ soft ¦ <%s>: Host or domain name not found. Name service error for name=example.net\n    type=MX: Host not found, try again ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 4.4.3\nDiagnostic-Code: X-Postfix; Host or domain name not found. Name service error\n    for name=example.net type=MX: Host not found, try again
Postfix: domain without mail ¦ hard ¦ <%s>: Domain example.net does not accept mail (nullMX) ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.0\nDiagnostic-Code: X-Postfix; Domain example.net does not accept mail (nullMX)
Postfix: connection timed out ¦ soft ¦ <%s>: connect to mx.example.net[192.0.2.7]:25: Connection timed out ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 4.4.1\nDiagnostic-Code: X-Postfix; connect to mx.example.net[192.0.2.7]:25:\n    Connection timed out
Postfix: loop ¦ soft ¦ <%s>: mail for example.net loops back to myself ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.4.6\nDiagnostic-Code: X-Postfix; mail for example.net loops back to myself
Postfix: disk quota of a maildir ¦ soft ¦ <%s>: maildir delivery failed: create maildir file\n    /var/mail/user/tmp/1272551685.P1.mx: Disk quota exceeded ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: X-Postfix; maildir delivery failed: create maildir file\n    /var/mail/user/tmp/1272551685.P1.mx: Disk quota exceeded
Postfix: message too large ¦ soft ¦ <%s>: message size 21495489 exceeds size limit 20971520 of server\n    mx.example.net[192.0.2.7] ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.3.4\nDiagnostic-Code: X-Postfix; message size 21495489 exceeds size limit 20971520 of\n    server mx.example.net[192.0.2.7]
Postfix: pipe to Dovecot ¦ hard ¦ <%s>: user unknown. Command output: user: no such user ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: x-unix; user unknown
Postfix: LMTP ¦ hard ¦ <%s>: host mx.relay.example[private/dovecot-lmtp] said: 550 5.1.1\n    <%s> User doesn't exist: %s (in reply to RCPT TO\n    command) ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 <%s> User doesn't exist:\n    %s
Postfix: refused greeting ¦ soft ¦ <%s>: host mx.example.net[192.0.2.7] refused to talk to me: 554\n    mx.example.net ESMTP not accepting messages ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 554 mx.example.net ESMTP not accepting messages
`,
  ),
  ...mailsOf(
    sendmail,
    String.raw`
Sendmail: user unknown ¦ hard ¦ <%s>\n    (reason: 550 5.1.1 <%s>... User unknown) ¦ ... while talking to mx.example.net.:\n>>> DATA\n<<< 550 5.1.1 <%s>... User unknown\n550 5.1.1 <%s>... User unknown\n<<< 503 5.0.0 Need RCPT (recipient) ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 5.1.1\nRemote-MTA: DNS; mx.example.net\nDiagnostic-Code: SMTP; 550 5.1.1 <%s>... User unknown\nLast-Attempt-Date: Thu, 29 Apr 2010 23:34:45 +0900
Sendmail: refused at RCPT without an enhanced code ¦ hard ¦ <%s>\n    (reason: 550 No such user here) ¦ ... while talking to mx.example.net.:\n>>> RCPT To:<%s>\n<<< 550 No such user here\n550 5.1.1 <%s>... User unknown ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 5.1.1\nRemote-MTA: DNS; mx.example.net\nDiagnostic-Code: SMTP; 550 No such user here
Sendmail: blocked sender, called unavailable ¦ soft ¦ <%s>\n    (reason: 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org) ¦ ... while talking to mx.example.net.:\n>>> DATA\n<<< 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org\n554 5.0.0 Service unavailable\n<<< 554 5.5.1 Error: no valid recipients ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 5.7.1\nDiagnostic-Code: SMTP; 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org
Sendmail: host unknown ¦ hard ¦ <%s> ¦ 550 5.1.2 <%s>... Host unknown (Name server: example.net: host not found) ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 5.1.2\nRemote-MTA: DNS; example.net\nLast-Attempt-Date: Thu, 29 Apr 2010 23:34:45 +0900
Sendmail: expired ¦ soft ¦ <%s> ¦ <%s>... Deferred: Connection timed out with mx.example.net.\nMessage could not be delivered for 5 days\nMessage will be deleted from queue ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 4.4.7\nRemote-MTA: DNS; mx.example.net
Sendmail: alias with two members ¦ list@sender.example hard, list@sender.example soft ¦ one@example.net\n    (reason: 550 5.1.1 <one@example.net>... User unknown)\n    (expanded from: <list@sender.example>)\ntwo@example.org\n    (reason: 552 5.2.2 <two@example.org>... Mailbox full)\n    (expanded from: <list@sender.example>) ¦ 550 5.1.1 one@example.net... User unknown\n552 5.2.2 two@example.org... Mailbox full ¦ Original-Recipient: rfc822;list@sender.example\nFinal-Recipient: RFC822; list@sender.example\nX-Actual-Recipient: RFC822; one@example.net\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: SMTP; 550 5.1.1 <one@example.net>... User unknown\n\nFinal-Recipient: RFC822; list@sender.example\nX-Actual-Recipient: RFC822; two@example.org\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: SMTP; 552 5.2.2 <two@example.org>... Mailbox full
Sendmail: file of a local user ¦ soft ¦ <%s>\n    (reason: can't create (user) output file) ¦ procmail: Quota exceeded while writing "/var/mail/user"\n550 5.0.0 <%s>... Can't create output ¦ Final-Recipient: RFC822; %s\nAction: failed\nStatus: 5.2.0\nDiagnostic-Code: X-Unix; 73
`,
  ),
  ...mailsOf(
    oldSendmail,
    String.raw`
Sendmail 5: user unknown ¦ hard ¦ Returned mail: User unknown ¦ While talking to mx.example.net:\n>>> RCPT To:<%s>\n<<< 550 <%s>... User unknown\n550 <%s>... User unknown
Sendmail 5: host unknown ¦ hard ¦ Returned mail: Host unknown ¦ 550 <%s>... Host unknown (Authoritative answer from name server)
Sendmail 5: cannot send ¦ soft ¦ Returned mail: Cannot send message for 3 days ¦ 421 example.net (smtp)... Deferred: Connection timed out during user open with mx.example.net\n421 %s... Deferred: Connection timed out
`,
  ),
  ...mailsOf(
    exim,
    String.raw`
Exim: unrouteable address ¦ hard ¦   %s\n    Unrouteable address
Exim: unknown local part ¦ hard ¦   %s:\n    unknown local-part "user" in domain "example.net"
Exim: unrouteable domain ¦ hard ¦   %s\n    unrouteable mail domain "example.net"
Exim: no such user at RCPT ¦ hard ¦   %s\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after RCPT TO:<%s>:\n    550 No Such User Here
Exim: refused message ¦ soft ¦   %s\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after end of data:\n    554 5.7.1 The message was refused: no such user is wanted
Exim: refused MAIL ¦ soft ¦   %s\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after MAIL FROM:<bounce@sender.example> SIZE=1024:\n    550 unknown user bounce@sender.example
Exim: full mailbox ¦ soft ¦   %s\n    mailbox is full (MTA-imposed quota exceeded while writing to file /var/mail/user)
Exim: retry timeout ¦ soft ¦   %s\n    host mx.example.net [192.0.2.7]\n    Connection timed out: retry timeout exceeded
Exim: retry timeout after an unknown user for now ¦ soft ¦   %s\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after RCPT TO:<%s>:\n    450 4.1.1 <%s>: Recipient address rejected: User unknown: retry timeout exceeded
Exim: failing hosts ¦ soft ¦   %s\n    all hosts for 'example.net' have been failing for a long time (and retry time not reached)
Exim: no SMTP service ¦ hard ¦   %s\n    an MX or SRV record indicated no SMTP service
Exim: MX of hosts that do not exist ¦ hard ¦   %s\n    all relevant MX records point to non-existent hosts
Exim: loop ¦ soft ¦   %s\n    Too many "Received" headers - suspected mail loop
Exim: pipe ¦ soft ¦   pipe to |/usr/bin/vacation ann\n    generated by %s\n    local delivery failed\n\nThe following text was generated during the delivery attempt:\n\n------ pipe to |/usr/bin/vacation ann\n       generated by %s ------\n\nsh: vacation: command not found
Exim without its header ¦ hard ¦   %s:\n    SMTP error from remote mailer after RCPT TO:\n    <%s>:\n    host mx.example.net [192.0.2.7]: 550 5.1.1 unknown user ¦ Auto-Submitted: auto-generated
`,
  ),
  ...mailsOf(
    qmail,
    String.raw`
qmail: no mailbox ¦ hard ¦ <%s>:\nSorry, no mailbox here by that name. (#5.1.1)
qmail: no mailbox of vpopmail ¦ hard ¦ <%s>:\nSorry, no mailbox here by that name. vpopmail (#5.1.1)
qmail: no host ¦ hard ¦ <%s>:\nSorry, I couldn't find any host named example.net. (#5.1.2)
qmail: no connection ¦ soft ¦ <%s>:\nSorry, I wasn't able to establish an SMTP connection. (#4.4.1)\nI'm not going to try again; this message has been in the queue too long.
qmail: name server ¦ soft ¦ <%s>:\nCNAME lookup failed temporarily. (#4.4.3)\nI'm not going to try again; this message has been in the queue too long.
qmail: over quota ¦ soft ¦ <%s>:\nThe users mailfolder is over the allowed quota (size). (#5.2.2)
qmail: full mailbox ¦ soft ¦ <%s>:\nRecipient's mailbox is full, message returned to sender. (#5.2.2)
qmail: loop ¦ soft ¦ <%s>:\nThis message is looping: it already has my Delivered-To line. (#5.4.6)
qmail: MX points back ¦ soft ¦ <%s>:\nSorry. Although I'm listed as a best-preference MX or A for that host,\nit isn't in my control/locals file, so I don't treat it as local. (#5.4.6)
qmail: refused recipient ¦ hard ¦ <%s>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 sorry, no mailbox here by that name (#5.1.1 - chkuser)\nGiving up on 192.0.2.7.
qmail: refused message ¦ soft ¦ <%s>:\n192.0.2.7 failed after I sent the message.\nRemote host said: 554 Message does not conform to standards
qmail: refused sender ¦ soft ¦ <%s>:\nConnected to 192.0.2.7 but sender was rejected.\nRemote host said: 553 5.1.8 unknown user in sender address
qmail: two recipients ¦ one@example.net hard, two@example.org soft ¦ <one@example.net>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 5.1.1 <one@example.net>: Recipient address rejected: User unknown\nGiving up on 192.0.2.7.\n\n<two@example.org>:\n192.0.2.8 does not like recipient.\nRemote host said: 452 4.2.2 Mailbox full\nGiving up on 192.0.2.8.\nI'm not going to try again; this message has been in the queue too long.
a report about an address with words of the rules ¦ spam@sender-tools.example hard ¦ <spam@sender-tools.example>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 5.1.1 <spam@sender-tools.example>: Recipient address rejected: User unknown
a report about an address with an apostrophe ¦ o'brien@example.net hard ¦ <o'brien@example.net>:\nSorry, no mailbox here by that name. (#5.1.1)
`,
  ),
  ...mailsOf(
    courier,
    String.raw`
Courier: user unknown ¦ hard ¦ <%s>:\n    mx.example.net [192.0.2.7]:\n>>> RCPT TO:<%s>\n<<< 550 User unknown. ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nRemote-MTA: dns; mx.example.net [192.0.2.7]\nDiagnostic-Code: smtp; 550 User unknown.
Courier: refused message ¦ soft ¦ <%s>:\n    mx.example.net [192.0.2.7]:\n>>> DATA\n<<< 550 User unknown. ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 User unknown.
Courier: no such domain ¦ hard ¦ <%s>:\nNo such domain. ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: unknown; No such domain.
Courier: delayed ¦ soft ¦ <%s>:\n    mx.example.net [192.0.2.7]:\n<<< 450 4.3.2 Busy ¦ Final-Recipient: rfc822; %s\nAction: delayed\nStatus: 4.0.0\nDiagnostic-Code: smtp; 450 4.3.2 Busy ¦ WARNING: delayed mail.
`,
  ),
  ...mailsOf(
    exchange,
    String.raw`
Exchange 5.5: no transport provider ¦ hard ¦ did not reach the following recipient(s):\n\n%s on Thu, 29 Apr 2010 23:34:45 +0900\n    The recipient name is not recognized\n\tThe MTS-ID of the original message is: c=us;a= ;p=example;l=MX\n    MSEXCH:IMS:Example:Site:MX 0 (000C05A6) Unknown Recipient\n
Exchange 2000 ¦ hard ¦ did not reach the following recipient(s):\n\n%s on Thu, 29 Apr 2010 23:34:45 +0900\n            The e-mail account does not exist at the organization this message was sent to.  Check the e-mail address, or contact the recipient directly to find out the correct address.\n            <mx.example.net #5.1.1>\n
Exchange 2000 of an X.500 address ¦ hard ¦ did not reach the following recipient(s):\n\nIMCEAEX-_O=EXAMPLE_OU=FIRST+20ADMINISTRATIVE+20GROUP_CN=RECIPIENTS_CN=USER@example.net on Thu, 29 Apr 2010 23:34:45 +0900\n            The e-mail system was unable to deliver the message, but did not report a specific reason.  Check the address and try again.  If it still fails, contact your system administrator.\n            < mx.example.net #5.1.1 SMTP; 550 5.1.1 User unknown>\n
Exchange 2000: limit of the mailbox ¦ soft ¦ did not reach the following recipient(s):\n\n%s on Thu, 29 Apr 2010 23:34:45 +0900\n            The recipient's mailbox is full and can't accept messages now. Please try resending this message later, or contact the recipient directly.\n            <mx.example.net #5.2.2>\n
`,
  ),
  ...mailsOf(
    dsn,
    String.raw`
Postfix: delayed ¦ soft ¦ MAILER-DAEMON@mx.relay.example (Mail Delivery System) ¦ Delayed Mail (still being retried) ¦ This is the mail system at host mx.relay.example.\n\n####################################################################\n# THIS IS A WARNING ONLY.  YOU DO NOT NEED TO RESEND YOUR MESSAGE. #\n####################################################################\n\nYour message could not be delivered for more than 4 hour(s).\nIt will be retried until it is 5 day(s) old.\n\n<%s>: connect to mx.example.net[192.0.2.7]:25: Connection refused\n ¦ Final-Recipient: rfc822; %s\nAction: delayed\nStatus: 4.4.1\nDiagnostic-Code: X-Postfix; connect to mx.example.net[192.0.2.7]:25:\n    Connection refused\nWill-Retry-Until: Tue, 04 May 2010 23:34:45 +0900
Postfix: delivered ¦ none ¦ MAILER-DAEMON@mx.relay.example (Mail Delivery System) ¦ Successful Mail Delivery Report ¦ This is the mail system at host mx.relay.example.\n\nYour message was successfully delivered to the destination(s)\nlisted below.\n\n<%s>: delivery via mx.example.net[192.0.2.7]:25: 250 2.0.0 Ok\n ¦ Final-Recipient: rfc822; %s\nAction: relayed\nStatus: 2.0.0\nDiagnostic-Code: smtp; 250 2.0.0 Ok
Sendmail: delay ¦ soft ¦ Mail Delivery Subsystem <MAILER-DAEMON@mx.relay.example> ¦ Warning: could not send message for past 4 hours ¦     **********************************************\n    **      THIS IS A WARNING MESSAGE ONLY      **\n    **  YOU DO NOT NEED TO RESEND YOUR MESSAGE  **\n    **********************************************\n\n   ----- The following addresses had transient non-fatal errors -----\n<%s>\n\n   ----- Transcript of session follows -----\n<%s>... Deferred: Connection refused by mx.example.net.\nWarning: message still undelivered after 4 hours\nWill keep trying until message is 5 days old\n ¦ Final-Recipient: RFC822; %s\nAction: delayed\nStatus: 4.2.0\nWill-Retry-Until: Tue, 4 May 2010 23:34:45 +0900
OpenSMTPD: permanent ¦ hard ¦ Mailer Daemon <MAILER-DAEMON@mx.relay.example> ¦ Delivery status notification: error ¦     Hi!\n\n    This is the MAILER-DAEMON, please DO NOT REPLY to this email.\n\n    An error has occurred while attempting to deliver a message for\n    the following list of recipients:\n\n%s: 550 5.1.1 <%s>: Recipient address rejected: User unknown\n\n    Below is a copy of the original message:\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1
OpenSMTPD: no MX ¦ hard ¦ Mailer Daemon <MAILER-DAEMON@mx.relay.example> ¦ Delivery status notification: error ¦     Hi!\n\n    This is the MAILER-DAEMON, please DO NOT REPLY to this email.\n\n    An error has occurred while attempting to deliver a message for\n    the following list of recipients:\n\n%s: Domain does not exist\n\n    Below is a copy of the original message:\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0
CommuniGate Pro ¦ hard ¦ <MAILER-DAEMON@mx.relay.example> ¦ Undeliverable mail ¦ Failed to deliver to '%s'\nSMTP module(domain example.net) reports:\n host mx.example.net says:\n 550 5.1.1 <%s> unknown user account\n ¦ Original-Recipient: rfc822;<%s>\nFinal-Recipient: rfc822;<%s>\nAction: failed\nStatus: 5.0.0
CommuniGate Pro: local account ¦ soft ¦ <MAILER-DAEMON@mx.relay.example> ¦ Undeliverable mail ¦ Failed to deliver to '<%s>'\nLOCAL module(account user) reports:\n account is full (quota exceeded)\n ¦ Original-Recipient: rfc822;<%s>\nFinal-Recipient: system;<user>\nAction: failed\nStatus: 5.0.0
Exchange 2003: DSN ¦ hard ¦ postmaster@example.net ¦ Delivery Status Notification (Failure) ¦ This is an automatically generated Delivery Status Notification.\n\nDelivery to the following recipients failed.\n\n       %s\n\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1
Exchange 2003: delay ¦ soft ¦ postmaster@example.net ¦ Delivery Status Notification (Delay) ¦ This is an automatically generated Delivery Status Notification.\n\nTHIS IS A WARNING MESSAGE ONLY.\n\nYOU DO NOT NEED TO RESEND YOUR MESSAGE.\n\nDelivery to the following recipients has been delayed.\n\n       %s\n\n ¦ Final-Recipient: rfc822;%s\nAction: delayed\nStatus: 4.4.7\nWill-Retry-Until: Sat, 1 May 2010 23:34:45 +0900
Exchange 2010: recipient not found ¦ hard ¦ Microsoft Exchange <postmaster@example.net> ¦ Undeliverable: Hello ¦ Delivery has failed to these recipients or groups:\n\n%s<mailto:%s>\nThe e-mail address you entered couldn't be found. Please check the recipient's e-mail address and try to resend the message. If the problem continues, please contact your helpdesk.\n\nDiagnostic information for administrators:\n\nGenerating server: mx.example.net\n\n%s\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##rfc822;%s\n\nOriginal message headers:\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 5.1.1 RESOLVER.ADR.RecipNotFound; not found\nX-Display-Name: User
Exchange 2010 in German: full ¦ soft ¦ Microsoft Exchange <postmaster@example.net> ¦ Unzustellbar: Hello ¦ Fehler bei der Nachrichtenzustellung an folgende Empfänger oder Verteilerlisten:\n\n%s<mailto:%s>\nDas Postfach des Empfängers ist voll und kann zurzeit keine Nachrichten annehmen.\n\n#550 5.2.2 STOREDRV.Deliver: mailbox full. The following information should help identify the cause\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: smtp;550 5.2.2 STOREDRV.Deliver: mailbox full. The following\n information should help identify the cause
Exchange 2010: restricted ¦ soft ¦ Microsoft Exchange <postmaster@example.net> ¦ Undeliverable: Hello ¦ Delivery has failed to these recipients or groups:\n\n%s\nYour message can't be delivered because delivery to this address is restricted.\n\n#550 5.7.1 RESOLVER.RST.NotAuthorized; not authorized ##\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.7.1\nDiagnostic-Code: smtp;550 5.7.1 RESOLVER.RST.NotAuthorized; not authorized
Exchange Online: unknown to SMTP look-up ¦ hard ¦ postmaster@example.onmicrosoft.com ¦ Undeliverable: Hello ¦ <html><body><p>Your message to %s couldn't be delivered.</p><p>user wasn't found at example.net.</p><table><tr><td>Unknown To address</td></tr></table></body></html> ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.10\nDiagnostic-Code: smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient %s not found by SMTP address lookup ¦ text/html
Exchange Online: expired ¦ soft ¦ postmaster@example.onmicrosoft.com ¦ Undeliverable: Hello ¦ Your message couldn't be delivered. Despite repeated attempts to contact the recipient's email system it didn't respond. ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.4.300\nDiagnostic-Code: smtp;550 5.4.300 Message expired -> 451 4.4.0 DNS query failed
Exchange Online: domain not found ¦ hard ¦ postmaster@example.onmicrosoft.com ¦ Undeliverable: Hello ¦ Your message wasn't delivered to %s because the domain couldn't be found. ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.4.310\nDiagnostic-Code: smtp;550 5.4.310 DNS domain example.net does not exist [Message=InfoDomainNonexistent]
Domino: not listed ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ DELIVERY FAILURE: User user (%s) not listed in Domino Directory ¦ Your message\n\n  Subject: Hello\n\nwas not delivered to:\n\n  %s\n\nbecause:\n\n  User user (%s) not listed in Domino Directory\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: X-Notes; User user (%s) not listed in Domino Directory
Domino: router ¦ soft ¦ postmaster@mx.relay.example ¦ DELIVERY FAILURE: Error transferring to mx.example.net; Maximum hop count exceeded ¦ Your message\n\n  Subject: Hello\n\nwas not delivered to:\n\n  %s\n\nbecause:\n\n  Error transferring to mx.example.net; Maximum hop count exceeded.  Message probably in a routing loop.\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: X-Notes; Error transferring to mx.example.net; Maximum hop count exceeded.  Message probably in a routing loop.
Sun Messaging Server ¦ hard ¦ Internet Mail Delivery <postmaster@mx.relay.example> ¦ Delivery Notification: Delivery has failed ¦ This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  From: News <news@sender.example>\n  To: list@sender.example\n  Subject: Hello\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: %s\n  Reason: Remote SMTP server has rejected address\n  Diagnostic code: smtp;550 5.1.1 unknown or illegal alias: %s\n  Remote system: dns;mx.example.net (TCP|192.0.2.1|2525|192.0.2.7|25) (mx.example.net ESMTP)\n ¦ Original-recipient: rfc822;%s\nFinal-recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1 (Remote SMTP server has rejected address)\nRemote-MTA: dns;mx.example.net\nDiagnostic-code: smtp;550 5.1.1 unknown or illegal alias: %s
Gmail: address not found ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ \n** Address not found **\n\nYour message wasn't delivered to %s because the address couldn't be found, or is unable to receive mail.\n\nLearn more here: https://support.google.com/mail/?p=NoSuchUser\n\nThe response was:\n\n550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the recipient's email address for typos or unnecessary spaces.\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550-5.1.1 The email account that you tried to reach does not exist. Please try\n 550-5.1.1 double-checking the recipient's email address for typos or\n 550 5.1.1 unnecessary spaces. 1 - gsmtp
Gmail: domain not found ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ \n** Address not found **\n\nYour message wasn't delivered to %s because the domain example.net couldn't be found. Check for typos or unnecessary spaces and try again.\n\nThe response was:\n\nDNS Error: DNS type 'mx' lookup of example.net responded with code NXDOMAIN\nDomain name not found: example.net\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.2\nDiagnostic-Code: smtp; DNS Error: DNS type 'mx' lookup of example.net responded with code NXDOMAIN\n Domain name not found: example.net
Gmail: delay ¦ soft ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Delay) ¦ \n** Delivery incomplete **\n\nThere was a temporary problem delivering your message to %s. Gmail will retry for 46 more hours. You'll be notified if the delivery fails permanently.\n ¦ Final-Recipient: rfc822; %s\nAction: delayed\nStatus: 4.4.1\nDiagnostic-Code: smtp; The recipient server did not accept our requests to connect.
Zmailer ¦ hard ¦ The Post Office <postmaster@mx.relay.example> ¦ Delivery reports about your email [FAILED(1)] ¦ This is a collection of reports about email delivery\nprocess concerning a message you originated.\n\nFollowing is a list of reports:\n\nFAILED:\n  Original Recipient:\n    rfc822;%s\n  Final Recipient:\n    RFC822;%s\n  Remote host:\n    dns; mx.example.net (192.0.2.7)\n  Diagnostic Code:\n    smtp; 550 (User unknown)\n  Control data:\n    smtp example.net %s 60001\n  Diagnostic texts:\n    <smtp; 550 5.1.1 User unknown>\n    (on machine: mx.example.net)\n    <- RCPT To:<%s>\n    -> 550 5.1.1 User unknown\n ¦ Original-Recipient: rfc822;%s\nFinal-Recipient: RFC822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 (User unknown)\nRemote-MTA: dns; mx.example.net (192.0.2.7)
Cisco Email Security ¦ hard ¦ Mail Delivery System <MAILER-DAEMON@mx.relay.example> ¦ Delivery Status Notification (Failure) ¦ The following message to <%s> was undeliverable.\nThe reason for the problem:\n5.1.0 - Unknown address error 550-'5.1.1 <%s>... User unknown'\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.0.0 (permanent failure)\nRemote-MTA: dns; [192.0.2.7]\nDiagnostic-Code: smtp; 5.1.0 - Unknown address error 550-'5.1.1 <%s>... User unknown' (delivery attempts: 0)
Cisco Email Security: blocked ¦ soft ¦ Mail Delivery System <MAILER-DAEMON@mx.relay.example> ¦ Delivery Status Notification (Failure) ¦ The following message to <%s> was undeliverable.\nThe reason for the problem:\n5.3.0 - Other mail system problem 554-'5.7.1 Message rejected as spam'\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.0.0 (permanent failure)\nDiagnostic-Code: smtp; 5.3.0 - Other mail system problem 554-'5.7.1 Message rejected as spam' (delivery attempts: 0)
Cisco Email Security: host unknown ¦ hard ¦ Mail Delivery System <MAILER-DAEMON@mx.relay.example> ¦ Delivery Status Notification (Failure) ¦ The following message to <%s> was undeliverable.\nThe reason for the problem:\n5.1.2 - Bad destination host 'DNS Hard Error looking up example.net (MX):  NXDomain'\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.0.0 (permanent failure)\nDiagnostic-Code: smtp; 5.1.2 - Bad destination host 'DNS Hard Error looking up example.net (MX):  NXDomain' (delivery attempts: 0)
Mimecast ¦ soft ¦ Mail Delivery Subsystem <MAILER-DAEMON@mx.relay.example> ¦ Undeliverable: Hello ¦ Your message was not delivered to %s.\n\nThe reason: 550 Rejected by header based manually Blocked Senders: news@sender.example\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 Rejected by header based manually Blocked Senders: news@sender.example
MessageLabs ¦ soft ¦ Mail Delivery System <MAILER-DAEMON@messagelabs.com> ¦ Mail Delivery Failure ¦ This is the mail delivery agent at messagelabs.com.\n\nI was unable to deliver your message to the following addresses:\n\n%s\n\nReason: 552 The mailbox is over quota\n\nThe message subject was: Hello\n\nPlease do not reply to this email as it is sent from an unattended mailbox.\nPlease visit www.messagelabs.com/support for more details\nabout this error message and instructions to resolve this issue.\n ¦ Action: failed\nStatus: 5.0.0\nRemote-MTA: dns; mx.example.net\nDiagnostic-Code: smtp; 552 The mailbox is over quota\nFinal-Recipient: rfc822; %s
PowerMTA ¦ hard ¦ mailer-daemon@mx.relay.example ¦ Delivery report ¦ Hello, this is the mail server on mx.relay.example.\n\nI am sending you this message to inform you on the delivery status of a\nmessage you previously sent.  Immediately below you will find a list of\nthe affected recipients;  also attached is a Delivery Status Notification\n(DSN) report in standard format, as well as the headers of the original\nmessage.\n\n  <%s>  delivery failed; will not continue trying\n ¦ Original-Recipient: rfc822;%s\nFinal-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1 (bad destination mailbox address)\nRemote-MTA: dns;mx.example.net (192.0.2.7)\nDiagnostic-Code: smtp;550 5.1.1 User unknown\nX-PowerMTA-BounceCategory: bad-mailbox
PowerMTA: delayed ¦ soft ¦ mailer-daemon@mx.relay.example ¦ Delivery report ¦ Hello, this is the mail server on mx.relay.example.\n\n  <%s>  delivery delayed, will continue trying\n ¦ Final-Recipient: rfc822;%s\nAction: delayed\nStatus: 4.4.1 (no answer from host)
KumoMTA ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@mx.relay.example> ¦ Returned mail ¦ The message was received at Thu, 29 Apr 2010 23:34:45 +0900\nfrom bounce@sender.example and addressed to %s.\nWhile communicating with mx.example.net (192.0.2.7):\nResponse: 550 5.1.1 user unknown\n\nThe message will be deleted from the queue.\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1 user unknown\nRemote-MTA: dns; mx.example.net\nDiagnostic-Code: smtp; 550 5.1.1 user unknown
Stalwart ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@mx.relay.example> ¦ Failed to deliver message ¦ Your message could not be delivered to the following recipients:\n\n<%s> (host 'mx.example.net' rejected command 'RCPT TO:<%s>' with code 550 (5.1.1) 'User unknown')\n\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 User unknown\nRemote-MTA: dns;mx.example.net
Maddy ¦ hard ¦ MAILER-DAEMON <MAILER-DAEMON@mx.relay.example> ¦ Undelivered Mail Returned to Sender ¦ This is the mail delivery system at mx.relay.example.\n\nUnfortunately, your message could not be delivered to one or more\nrecipients. The usual cause of this problem is invalid\nrecipient address or maintenance at the recipient side.\n\nContact the postmaster for further assistance, provide the Message ID (below):\n\nMessage ID: 1\nArrival: 2010-04-29\nLast delivery attempt: 2010-04-29\n\nDelivery to %s (SMTP) failed with error: User unknown\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 User unknown
ZoneMTA ¦ soft ¦ Mail Delivery Subsystem <mailer-daemon@mx.relay.example> ¦ Delivery Status Notification (Failure) ¦ Delivery to the following recipient failed permanently:\n    %s\n\nTechnical details of permanent failure:\n\n    554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org\n\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org
Microsoft SMTP service ¦ soft ¦ postmaster@mx.relay.example ¦ Delivery Status Notification (Failure) ¦ This is an automatically generated Delivery Status Notification.\n\nUnable to deliver message to the following recipients, due to being unable to connect successfully to the destination mail server.\n\n       %s\n\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 4.4.7
Amazon SES ¦ hard ¦ MAILER-DAEMON@amazonses.com ¦ Delivery Status Notification (Failure) ¦ An error occurred while trying to deliver the mail to the following recipients:\n%s\n ¦ Final-Recipient: rfc822;%s\nDiagnostic-Code: Amazon SES has suppressed sending to this address because it has a recent history of bouncing as an invalid address. For more information about how to remove an address from the suppression list, see the Amazon SES Developer Guide.\nAction: failed\nStatus: 5.1.1
Amazon SES: expired ¦ soft ¦ MAILER-DAEMON@eu-west-1.amazonses.com ¦ Delivery Status Notification (Failure) ¦ Technical report:\n\n ¦ Final-Recipient: rfc822;%s\nDiagnostic-Code: smtp; 550 4.4.7 Message expired: unable to deliver in 840 minutes.<421 4.4.0 Unable to lookup DNS for example.net>\nAction: failed\nStatus: 4.4.7
SendGrid ¦ hard ¦ MAILER-DAEMON ¦ Undelivered Mail Returned to Sender ¦ Hello, this is the mail server on mx.relay.example.\n\nI am sending you this message to inform you on the delivery status of a message you previously sent.\n\n<%s>  delivery failed; will not continue trying\n ¦ Final-Recipient: rfc822; %s\nOriginal-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: 550 5.1.1 The email account that you tried to reach does not exist
Mailgun ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undeliverable: Hello ¦ The following message could not be delivered:\n\nTo: %s\nReason: 550 5.1.1 No such user\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 No such user
Domino in French ¦ hard ¦ postmaster@mx.relay.example ¦ ECHEC DE LA DISTRIBUTION : Utilisateur user (%s) non répertorié dans l'annuaire Domino ¦ Votre message\n\n  Objet : Hello\n\nn'a pas été distribué à :\n\n  %s\n\ncar :\n\n  Utilisateur user (%s) non répertorié dans l'annuaire Domino\n ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: X-Notes; Utilisateur user (%s) non r=?pertori=? dans l'annuaire Domino
a report that leaves out status and diagnostic ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Returned mail ¦ <%s>: 550 5.1.1 User unknown (in reply to RCPT TO command)\n ¦ Final-Recipient: rfc822; %s\nAction: failed
a report whose parts are empty ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Returned mail: User unknown ¦ <%s>: 550 5.1.1 User unknown\n ¦ -
a report with a final address of LAN type ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undeliverable ¦ The message was not delivered.\n ¦ Original-Recipient: rfc822;%s\nFinal-Recipient: LAN=user\nAction: failed\nStatus: 5.1.1
a report with a forwarded address ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Original-Recipient: rfc822;list@sender.example\nFinal-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 User unknown
a report with a display name ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: rfc822; "User" <%s>\nAction: failed\nStatus: 5.1.1
a report with a quoted local part ¦ "us er"@example.net hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: rfc822; "us er"@example.net\nAction: failed\nStatus: 5.1.1
a report with a telling text and no status ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ <%s>: 5.0.0\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 The mailbox of this person is over its quota
a report whose text contradicts its status ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 552 5.2.2 <%s>: mailbox full
a report with parenthesised status ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.2.2 (mailbox full)
a report with a comment after the address ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: rfc822;%s (User)\nAction: failed\nStatus: 552 5.2.2
a report without an address type ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undelivered Mail Returned to Sender ¦ See below.\n ¦ Final-Recipient: <%s>\nAction: failed (see below)\nStatus: 5.1.1.
a report of success without an action ¦ none ¦ MAILER-DAEMON@mx.relay.example ¦ Delivery report ¦ See below.\n ¦ Final-Recipient: rfc822;%s\nStatus: 2.1.5
a report of a delay in other words ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Delivery report ¦ See below.\n ¦ Final-Recipient: rfc822;%s\nAction: delay\nStatus: 4.1.1\nDiagnostic-Code: smtp; 450 4.1.1 User unknown
Facebook: recipient preferences ¦ soft ¦ Facebook <mailer-daemon@mx-out.facebook.com> ¦ Sorry, your message could not be delivered ¦ This message was created automatically by Facebook.\n\nSorry, your message couldn't be delivered to %s.\n ¦ Final-Recipient: rfc822; %s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 RCP-P2 http://postmaster.facebook.com/response_codes?ip=192.0.2.1#rcp Refused due to recipient preferences
Trend Micro IMSVA: full ¦ soft ¦ "Mail Delivery Subsystem" <mailer-daemon@x.example> ¦ Mail System Error ¦ Unable to deliver message to <%s>.\n ¦ Final-Recipient: rfc822; <%s>\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 5.2.2 <%s>... Mailbox Full
Outlook in HTML ¦ hard ¦ Microsoft Outlook <MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@example.net> ¦ Undeliverable: Hello ¦ <html><body>Your message to <a href="mailto:%s">%s</a> couldn't be delivered.<br><b>user</b> wasn't found at <b>example.net</b>.</body></html> ¦ Final-Recipient: rfc822;%s\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ¦ text/html
Exim: file of a local delivery ¦ soft ¦ Mail Delivery System <Mailer-Daemon@mx.relay.example> ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  save to /var/mail/user\n    generated by %s\n    mailbox is full: retry timeout exceeded\n ¦ Action: failed\nFinal-Recipient: rfc822;/var/mail/user\nStatus: 5.0.0
`,
  ),
  ...mailsOf(
    plain,
    String.raw`
Postfix before DSN ¦ hard ¦ MAILER-DAEMON@mx.relay.example (Mail Delivery System) ¦ Undelivered Mail Returned to Sender ¦ This is the Postfix program at host mx.relay.example.\n\nI'm sorry to have to inform you that the message returned\nbelow could not be delivered to one or more destinations.\n\n\t\t\tThe Postfix program\n\n<%s>: host mx.example.net[192.0.2.7] said: 550 <%s>:\n    User unknown in local recipient table (in reply to RCPT TO command)\n\n%r ¦ -
Exim: warning ¦ soft ¦ Mail Delivery System <Mailer-Daemon@mx.relay.example> ¦ Warning: message 1O7Q0k-0001Xb-5K delayed 24 hours ¦ This message was created automatically by mail delivery software.\n\nA message that you sent has not yet been delivered to one or more of its\nrecipients after more than 24 hours on the queue on mx.relay.example.\n\nThe message identifier is:     1O7Q0k-0001Xb-5K\nThe subject of the message is: Hello\n\nThe address to which the message has not yet been delivered is:\n\n  %s\n    Delay reason: Connection timed out\n\nNo action is required on your part. Delivery attempts will continue for\nsome time, and this warning may be repeated at intervals if the message\nremains undelivered. Eventually the mail delivery software will give up,\nand when that happens, the message will be returned to you.\n ¦ Auto-Submitted: auto-replied
Exim in German ¦ hard ¦ Mail Delivery System <Mailer-Daemon@mx.relay.example> ¦ Unzustellbare Nachricht: Hello ¦ Diese Nachricht wurde automatisch erstellt.\n\nEine von Ihnen gesendete Nachricht konnte einem oder mehreren Empfängern\nnicht zugestellt werden. Dies ist ein dauerhafter Fehler.\n\n  %s\n    SMTP error from remote mail server after RCPT TO:<%s>:\n    550 Benutzer unbekannt\n\n%r
Haraka ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ failure notice ¦ Hi. This is the Haraka Mailer program at mx.relay.example.\nI'm afraid I wasn't able to deliver your message\n    "Hello"\nto the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\nIntended Recipients: <%s>\nFailure Reason: 550 5.1.1 I cannot deliver mail for <%s>\n\n ¦ Received: (Haraka 1 invoked for bounce)\nAuto-Submitted: auto-replied
Apache James ¦ hard ¦ postmaster@mx.relay.example ¦ Re:Hello ¦ Hi. This is the James mail server at mx.relay.example.\nI'm afraid I wasn't able to deliver your message to the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.  Below\nI include the list of recipients and the reason why I was unable to deliver\nyour message.\n\nFailed recipient(s):\n%s\n\nError message:\n550 5.1.1 <%s>: Recipient address rejected: User unknown\n\nOriginal message subject: Hello\n
hMailServer ¦ hard ¦ mailer-daemon@mx.relay.example ¦ Message undeliverable: Hello ¦ Your message did not reach some or all of the intended recipients.\n\n   Sent: Thu, 29 Apr 2010 23:34:45 +0900\n   Subject: Hello\n\nThe following recipient(s) could not be reached:\n\n%s\n   Error Type: SMTP\n   Remote server (192.0.2.7) issued an error.\n   hMailServer sent: RCPT TO:<%s>\n   Remote server replied: 550 5.1.1 User unknown\n\nhMailServer\n
hMailServer: no server of the domain ¦ hard ¦ mailer-daemon@mx.relay.example ¦ Message undeliverable: Hello ¦ Your message did not reach some or all of the intended recipients.\n\n   Sent: Thu, 29 Apr 2010 23:34:45 +0900\n   Subject: Hello\n\nThe following recipient(s) could not be reached:\n\n%s\n   Error Type: SMTP\n   Error Description: No mail servers appear to exists for the recipient's address.\n   Additional information: Please check that you have not misspelled the recipient's email address.\n\nhMailServer\n
MailEnable ¦ hard ¦ Postmaster <postmaster@mx.relay.example> ¦ Message Delivery Failure ¦ MailEnable: Message Delivery Failure.\n\nThe following recipient(s) could not be reached:\n\n\tRecipient: [SMTP:%s]\n\tReason: Remote SMTP Server Returned: 550 5.1.1 <%s>: Recipient address rejected: User unknown\n\n\nMessage headers follow:\n\n%r
MDaemon ¦ hard ¦ MDaemon@mx.relay.example ¦ Warning: %s - User unknown! ¦ The following addresses had permanent delivery errors:\n\nFailed address: %s\n\n--- Session Transcript ---\n Thu 2010-04-29 23:34:45: --> RCPT To:<%s>\n Thu 2010-04-29 23:34:45: <-- 550 5.1.1 <%s>, Recipient unknown\n--- End Transcript ---\n\n: Message contains [1] file attachments\n
SmarterMail ¦ hard ¦ System Administrator <postmaster@mx.relay.example> ¦ Delivery Failure ¦ Could not deliver message to the following recipient(s):\n\nFailed Recipient: %s\nReason: Remote host said: 550 5.1.1 No such user here\n\n   -- The header and top 20 lines of the message follows --\n\n%r
SmarterMail: cut off from the server ¦ soft ¦ System Administrator <postmaster@mx.relay.example> ¦ Delivery Failure ¦ Could not deliver message to the following recipient(s):\n\nFailed Recipient: %s\nReason: The remote server timed out\n\n   -- The header and top 20 lines of the message follows --\n\n%r
Notes without parts ¦ hard ¦ postmaster@mx.relay.example ¦ DELIVERY FAILURE: User user (%s) not listed in public Name & Address Book ¦ ------- Failure Reasons  --------\n\nUser not listed in public Name & Address Book\n%s\n\n------- Returned Message --------\n\n%r
GroupWise ¦ hard ¦ Mailer-Daemon@mx.relay.example ¦ Message status - undeliverable ¦ The message that you sent was undeliverable to the following:\n\t%s (user unknown)\n\nPossibly truncated original message follows:\n\n%r
GroupWise: full ¦ soft ¦ postmaster@mx.relay.example ¦ Message status - undeliverable ¦ \nThe attached file had the following undeliverable recipient(s):\n\t%s (mailbox is full)\n
Novell NIMS ¦ hard ¦ Postmaster@mx.relay.example ¦ Returned mail: User unknown ¦ This is a postmaster message.\n\nThe following address(es) could not be delivered:\n\n<%s>: User unknown\n\n%r
IMail ¦ hard ¦ Postmaster <postmaster@mx.relay.example> ¦ Undeliverable Mail ¦ Unknown user: %s\n\nOriginal message follows.\n\n%r
IMail: full ¦ soft ¦ Postmaster <postmaster@mx.relay.example> ¦ Undeliverable Mail ¦ User mailbox exceeds allowed size: %s\n\nOriginal message follows.\n\n%r
IMail: not delivered ¦ soft ¦ Postmaster <postmaster@mx.relay.example> ¦ Undeliverable Mail ¦ undeliverable to %s\nDelivery failed 20 attempts: %s\n\nOriginal message follows.\n\n%r
Sun Messaging Server in plain text ¦ soft ¦ Internet Mail Delivery <postmaster@mx.relay.example> ¦ Delivery Notification: Delivery has failed ¦ This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  From: News <news@sender.example>\n  To: list@sender.example\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: user@ims-ms-daemon\n  Original address: %s\n  Reason: Over quota\n
Gmail in plain text ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ Delivery to the following recipient failed permanently:\n\n     %s\n\nTechnical details of permanent failure: \nGoogle tried to deliver your message, but it was rejected by the server for the recipient domain example.net by mx.example.net. [192.0.2.7].\n\nThe error that the other server returned was:\n550 5.1.1 <%s>: Recipient address rejected: User unknown\n\n----- Original message -----\n\n%r ¦ X-Failed-Recipients: %s
Yahoo: refused recipient ¦ hard ¦ MAILER-DAEMON@yahoo.com ¦ Failure Notice ¦ Sorry, we were unable to deliver your message to the following address.\n\n<%s>:\nRemote host said:\n550 5.1.1 <%s>: Recipient address rejected: User unknown\n [RCPT_TO]\n\n--- Below this line is a copy of the message.\n\n%r
GMX: unknown user ¦ hard ¦ GMX Mailer Daemon <mailer-daemon@gmx.net> ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address\nfailed:\n\n"%s":\nSMTP error from remote server after RCPT command:\nhost: mx.example.net\n5.1.1 <%s>... User Unknown\n\n--- The header of the original message is following. ---\n\n%r
GMX: no MX ¦ hard ¦ WEB.DE Mailer Daemon <mailer-daemon@web.de> ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address(es)\nfailed:\n\n%s:\nno mx record found for domain\n\n--- The header of the original message is following. ---\n\n%r
Smail3 of T-Online ¦ hard ¦ <> ¦ mail failed, returning to sender ¦ |------------------------- Message log follows: -------------------------|\n no valid recipients were found for this message\n|------------------------- Failed addresses follow: ---------------------|\n <%s> ... unknown user\n|------------------------- Message text follows: ------------------------|\n%r ¦ -
QQ Mail in HTML ¦ hard ¦ PostMaster@qq.com ¦ =?utf-8?B?57O757uf6YCA5L+h?= ¦ <html><body><p>很抱歉，您的邮件被退回来了……</p><table><tr><td>原邮件信息：</td></tr><tr><td>时间</td><td>2010-04-29 23:34:45</td></tr><tr><td>主题</td><td>Hello</td></tr><tr><td>收件人</td><td>%s</td></tr><tr><td>退信原因：</td></tr><tr><td>收件人邮件地址（%s）不存在，邮件无法送达。<br>host mx.example.net[192.0.2.7] said: 550 User not found: %s (in reply to RCPT TO command)</td></tr></table></body></html> ¦ Content-Type: text/html; charset=utf-8
163 Mail in HTML ¦ hard ¦ Postmaster@163.com ¦ =?utf-8?B?57O757uf6YCA5L+h?= ¦ <html><body><div>抱歉，您的邮件被退回来了……</div><div>邮件主题：Hello</div><div>收件人：<a href="mailto:%s">%s</a></div><div>退信代码：550 5.1.1 User unknown</div><div>退信原因：收件人不存在 SMTP error, RCPT TO: 550 5.1.1 User unknown</div></body></html> ¦ Content-Type: text/html; charset=utf-8
Coremail: full ¦ soft ¦ postmaster@mx.relay.example ¦ 系统退信/Systems bounce ¦ 您好！\n您的邮件无法投递到以下收件人：\n\n%s\n\n退信原因：收件人邮箱已满\nUser %s is over quota.\n
BIGLOBE: full ¦ soft ¦ postmaster@biglobe.ne.jp ¦ Returned mail: Mailbox limit exceeded ¦ This is a MIME-encapsulated message.\n\n   ----- The following addresses had delivery problems -----\n<%s>\n\n   ----- Non-delivered information -----\nThe number of messages in recipient's mailbox exceeded the local limit.\n\n%r
au by KDDI ¦ hard ¦ Postmaster@ezweb.ne.jp ¦ Mail System Error - Returned Mail ¦ The following recipients did not receive this message:\n\n<%s>\n\nPlease reply to Postmaster@ezweb.ne.jp\nif you feel this message to be in error.\n\n   ----- Transcript of session follows -----\n... while talking to mx.example.net.:\n>>> RCPT TO:<%s>\n<<< 550 <%s>: User unknown\n
au by KDDI: disabled ¦ soft ¦ Postmaster@ezweb.ne.jp ¦ Mail System Error - Returned Mail ¦ Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n\nThe user(s) account is disabled.\n\n<%s>: 550 user unknown\n
Symantec Mail Security ¦ hard ¦ Symantec_Mail_Security_for_SMTP@mx.relay.example ¦ Delivery failure notification ¦ Your message with Subject: Hello \ncould not be delivered to the following recipients:\n\n%s\n\nSMTP error: RCPT TO:<%s> 550 5.1.1 <%s> User unknown\n\nPlease do not reply to this message.\n
Trend Micro InterScan ¦ hard ¦ InterScan MSS <postmaster@mx.relay.example> ¦ Mail could not be delivered ¦ *************************************************************\nMessage from InterScan Messaging Security Suite\n\nSent <<< RCPT TO:<%s>\nReceived >>> 550 5.1.1 <%s>... user unknown\n\nUnable to deliver message to <%s>.\n*************************************************************\n
McAfee WebShield ¦ hard ¦ Mail Delivery System <MAILER-DAEMON@mx.relay.example> ¦ Delivery Status ¦ --- The following addresses had delivery problems ---\n\n<%s>   (User unknown %s)\n\n--------------- Returned Message ---------------\n%r
MailMarshal: relaying ¦ soft ¦ MailMarshal <postmaster@mx.relay.example> ¦ Undeliverable Mail: "Hello" ¦ Your message:\n   From:    news@sender.example\n   Subject: Hello\n\nCould not be delivered because of\n\n550 5.7.1 Unable to relay for %s\n\nThe following recipients were affected: \n   %s\n\nAdditional Information\n======================\nOriginal Sender:    <bounce@sender.example>\nSender-MTA:         <192.0.2.1>\nRemote-MTA:         <192.0.2.7>\nReporting-MTA:      <mx.relay.example>\n
DragonFly Mail Agent ¦ hard ¦ <MAILER-DAEMON@mx.relay.example> ¦ Mail delivery failed ¦ This is the DragonFly Mail Agent v0.13 at mx.relay.example.\n\nThere was an error delivering your mail to <%s>.\n\nmx.example.net [192.0.2.7] did not like our RCPT TO:\n550 5.1.1 <%s>: Recipient address rejected: User unknown\n\nMessage headers follow.\n\n%r ¦ X-Original-To: <bounce@sender.example>
DragonFly Mail Agent: no host ¦ hard ¦ <MAILER-DAEMON@mx.relay.example> ¦ Mail delivery failed ¦ This is the DragonFly Mail Agent v0.13 at mx.relay.example.\n\nThere was an error delivering your mail to <%s>.\n\nDNS lookup failure: host example.net not found\n\nMessage headers follow.\n\n%r ¦ -
Citadel ¦ hard ¦ Citadel <postmaster@mx.relay.example> ¦ Delivery Status Notification (Failure) ¦ A message you sent could not be delivered to some or all of its recipients\ndue to prevailing unreachability of its final destination address(es):\n\n%s: 550 5.1.1 No such user here\n
XMail ¦ hard ¦ postmaster@mx.relay.example ¦ Error sending message [1272551685.1.mx] from [sender.example] ¦ [<00>] XMail bounce: Rcpt=[%s];Error=[550 5.1.1 <%s>: Recipient address rejected: User unknown]\n\n\n[<01>] Error sending message [1272551685.1.mx] from [mx.relay.example].\n\nID:        <S1>\nMail From: <bounce@sender.example>\nRcpt To:   <%s>\nServer:    <mx.example.net> [192.0.2.7]\n\n\n[<02>] The reason of the delivery failure was:\n\n550 5.1.1 <%s>: Recipient address rejected: User unknown\n\n\n[<05>] Here is listed the initial part of the message:\n\n%r
Mercury/32 ¦ hard ¦ Electronic Postmaster <postmaster@mx.relay.example> ¦ Postmaster notify: see transcript for details ¦ Your message could not be delivered to one or more addresses.\nOne or more addresses in your message have failed with the\nfollowing responses from the mail transport system:\n\n   %s\n    550 5.1.1 User unknown\n
IceWarp ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@mx.relay.example> ¦ Undeliverable: Hello ¦ The message could not be delivered to the following recipient(s):\n\n <%s>:\n 550 5.1.1 <%s> User unknown; rejecting\n
SurgeMail ¦ hard ¦ Mail System <postmaster@mx.relay.example> ¦ Mail could not be delivered ¦ Your message cannot be delivered to the following recipients:\n\nFailed: %s\nReason: Remote server said: 550 5.1.1 No such user\n
Axigen ¦ hard ¦ Mail Delivery System <postmaster@mx.relay.example> ¦ Delivery notification: Message delivery failed ¦ Message delivery failed for: %s\nError: 550 <%s>: unknown local recipient\n
Lotus SMTP gateway ¦ hard ¦ SMTP Gateway <smtpgateway@mx.relay.example> ¦ Undeliverable mail returned ¦ The message could not be delivered because the recipient is unknown:\n\n  %s\n\n%r
an MTA that only lists the header of Exim ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Delivery problem ¦ We did not manage it.\n ¦ X-Failed-Recipients: %s
AT&T Net Station ¦ soft ¦ Mail Administrator <postmaster@mx.relay.example> ¦ Mail System Error - Returned Mail ¦ This Message was undeliverable due to the following reason:\n\nYour message was not delivered because the destination computer was\nnot reachable within the allowed queue period.\n\nHost mx.example.net is not responding.\n\nThe following recipients did not receive this message:\n\n     <%s>\n\nPlease reply to <postmaster@mx.relay.example>\nif you feel this message to be in error.\n
Openwave: unknown ¦ hard ¦ Mail Administrator <Postmaster@mx.relay.example> ¦ Mail System Error - Returned Mail ¦ This Message was undeliverable due to the following reason:\n\nEach of the following recipients was rejected by a remote mail server.\nThe reasons given by the server are included to help you determine why\neach recipient was rejected.\n\n    Recipient: <%s>\n    Reason:    5.1.1 <%s>... User unknown\n\n\nPlease reply to <Postmaster@mx.relay.example>\nif you feel this message to be in error.\n
InterMail: over quota ¦ soft ¦ Mail Administrator <Postmaster@mx.relay.example> ¦ Mail System Error - Returned Mail ¦ This Message was undeliverable due to the following reason:\n\nThe user(s) account is temporarily over quota.\n\n<%s>\n\nPlease reply to Postmaster@mx.relay.example\nif you feel this message to be in error.\n
Exim: two recipients ¦ one@example.net hard, two@example.org soft ¦ Mailer-Daemon@x.example ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  one@example.net\n    SMTP error from remote mail server after RCPT TO:<one@example.net>:\n    host mx [192.0.2.1]: 550 unknown user\n  two@example.org\n    mailbox is full: retry timeout exceeded\n\n------ This is a copy of the message, including all the headers. ------\n\n%R ¦ X-Failed-Recipients: one@example.net,\n two@example.org
Exim: two headers ¦ one@example.net hard, two@example.org hard ¦ Mailer-Daemon@x.example ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software (Exim).\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  one@example.net\n    Unrouteable address\n  two@example.org\n    Unrouteable address\n\n------ This is a copy of the message, including all the headers. ------\n\n%R ¦ X-Failed-Recipients: one@example.net\nX-Failed-Recipients: two@example.org
Sendmail 8.6: two recipients ¦ one@example.net hard, two@example.org hard ¦ Mail Delivery Subsystem <MAILER-DAEMON@x.example> ¦ Returned mail: User unknown ¦ The original message was received at Thu\nfrom x [192.0.2.1]\n\n   ----- The following addresses had delivery problems -----\n<one@example.net>  (unrecoverable error)\n<two@example.org>  (unrecoverable error)\n\n   ----- Transcript of session follows -----\n... while talking to mx.example.net.:\n>>> RCPT To:<one@example.net>\n<<< 550 <one@example.net>... User unknown\n550 <one@example.net>... User unknown\n550 <two@example.org>... Host unknown (Name server: example.org: host not found)\n\n   ----- Original message follows -----\n%R
Postfix before DSN: two recipients ¦ one@example.net hard, two@example.org soft ¦ MAILER-DAEMON@x.example (Mail Delivery System) ¦ Undelivered Mail Returned to Sender ¦ This is the Postfix program at host x.example.\n\nI'm sorry to have to inform you that the message returned\nbelow could not be delivered to one or more destinations.\n\n<one@example.net>: host mx[192.0.2.1] said: 550 5.1.1 <one@example.net> User unknown (in\n    reply to RCPT TO command)\n\n<two@example.org>: host mx[192.0.2.1] said: 552 5.2.2 <two@example.org> full (in\n    reply to RCPT TO command)\n\n%R
IMail: two recipients ¦ one@example.net hard, two@example.org soft ¦ Postmaster <postmaster@x.example> ¦ Undeliverable Mail ¦ Unknown user: one@example.net\n\nUser mailbox exceeds allowed size: two@example.org\n\nOriginal message follows.\n\n%R
MailMarshal: two recipients ¦ one@example.net hard, two@example.org hard ¦ postmaster@x.example ¦ Undeliverable Mail: "Hello" ¦ Your message:\n   From:    news@sender.example\n   Subject: Hello\n\nCould not be delivered because of\n\n550 5.1.1 User unknown\n\nThe following recipients were affected: \n   one@example.net\n   two@example.org\n\nAdditional Information\n======================\nOriginal Sender:    <bounce@sender.example>\n
GMX: two recipients ¦ one@example.net hard, two@example.org soft ¦ GMX Mailer Daemon <mailer-daemon@gmx.net> ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address(es)\nfailed:\n\n"one@example.net":\nSMTP error from remote server after RCPT command:\nhost: mx.example.net\n5.1.1 <one@example.net>... User Unknown\n"two@example.org":\ndelivery retry timeout exceeded\n\n--- The header of the original message is following. ---\n\n%R
Exchange 5.5: two recipients ¦ one@example.net hard, two@example.org soft ¦ System Administrator <postmaster@x.example> ¦ Undeliverable: Hello ¦ Your message\n\n  To:      one@example.net; two@example.org\n  Subject: Hello\n  Sent:    Thu\n\ndid not reach the following recipient(s):\n\none@example.net on Thu, 29 Apr 2010\n    The recipient name is not recognized\n    MSEXCH:IMS:X:Y:Z 0 (000C05A6) Unknown Recipient\ntwo@example.org on Thu, 29 Apr 2010\n    The recipient's mailbox is full\n    MSEXCH:IMS:X:Y:Z 0 (000C05A6) 552\n
a mail client's server: two recipients ¦ one@example.net hard, two@example.org soft ¦ MAILER-DAEMON@x.example ¦ There was an error sending your mail ¦ Delivery of your message failed. Full details follow:\n\nSubject: 'Hello'\nDate:    'Thu'\n\n2 error(s):\n\nSMTP Server <mx.example.net> rejected recipient <one@example.net> \n  (Error following RCPT command). It responded as follows: [550 5.1.1 User unknown]\nSMTP Server <mx.example.org> rejected recipient <two@example.org> \n  (Error following RCPT command). It responded as follows: [552 5.2.2 Mailbox full]\n
Sun Messaging Server: two recipients ¦ one@example.net hard, two@example.org soft ¦ Internet Mail Delivery <postmaster@x.example> ¦ Delivery Notification: Delivery has failed ¦ This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  To: list@sender.example\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: one@example.net\n  Reason: Remote SMTP server has rejected address\n  Diagnostic code: smtp;550 5.1.1 unknown user\n\n  Recipient address: two@example.org\n  Reason: Over quota\n
Notes: two recipients ¦ one@example.net hard, two@example.org hard ¦ postmaster@x.example ¦ DELIVERY FAILURE: User unknown ¦ ------- Failure Reasons  --------\n\nUser not listed in public Name & Address Book\none@example.net\n\nUser not listed in public Name & Address Book\ntwo@example.org\n\n------- Returned Message --------\n\n%R
McAfee WebShield: two recipients ¦ one@example.net hard, two@example.org soft ¦ Mail Delivery System <MAILER-DAEMON@x.example> ¦ Delivery Status ¦ --- The following addresses had delivery problems ---\n\n<one@example.net>   (User unknown one@example.net)\n<two@example.org>   (552 Mailbox full)\n\n--------------- Returned Message ---------------\n%R
au by KDDI: two recipients ¦ one@example.net soft, two@example.org hard ¦ Postmaster@x.example ¦ Mail System Error - Returned Mail ¦ Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n Could not be delivered to: <one@example.net>\n As their mailbox is full.\n\n Could not be delivered to: <two@example.org>\n As there is no such user.\n
GroupWise: two recipients ¦ one@example.net hard, two@example.org soft ¦ Mailer-Daemon@x.example ¦ Message status - undeliverable ¦ The message that you sent was undeliverable to the following:\n\tone@example.net (user unknown)\n\ttwo@example.org (mailbox full)\n\nPossibly truncated original message follows:\n\n%R
a list of addresses in one line ¦ one@example.net hard, two@example.org hard ¦ MAILER-DAEMON@x.example ¦ failure notice ¦ Your message was not delivered to the following recipients:\n\none@example.net, two@example.org\n\nReason: 550 5.1.1 user unknown\n
Postfix: two members of an alias ¦ one@example.net hard, two@example.org soft ¦ MAILER-DAEMON@x.example ¦ Undelivered Mail Returned to Sender ¦ This is the mail system at host mx.relay.example.\n\n<one@example.net> (expanded from <list@news.example>): unknown user: "one"\n\n<two@example.org> (expanded from <list@news.example>): host said: 552 5.2.2 full\n\n%R
1&1: message too large ¦ soft ¦ "Mail Delivery System" <mailer-daemon@kundenserver.de> ¦ Mail delivery failed: returning message to sender ¦ This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address\nfailed:\n\n%s\n\nFor the following reason:\n\nMail size limit exceeded. For explanation visit\nhttp://postmaster.1and1.com/en/error-messages?ip=%1s\n\n--- The header of the original message is following. ---\n\n%r
an MTA with the reason in brackets ¦ hard ¦ "Mail Deliver System" <MAILER-DAEMON@x.example> ¦ Returned Mail: User unknown ¦ The original message was received at Thu, 29 Apr 2010 23:34:45 +0900\nfrom news@sender.example\n\n---The following addresses had delivery errors---\n\n%s [User unknown]\n\n%r
an MTA that marks recipients with an asterisk ¦ hard ¦ Mail Delivery System <postmaster@x.example> ¦ Delivery status notification ¦ ============================================================================\n      This is an automatic message from the mail system.\n============================================================================\n  * %s\n   553 5.3.0 <%s>... No such user here\n   STATUS: 5.3.0\n\n%r
a qmail that is sorry: full ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ failure notice ¦ We're sorry.\nYour mail could not be delivered to the following address(es):\n\n<%s>:\nMailbox full\n\n--- Below this line is a copy of the message.\n\n%r
Bigfoot ¦ hard ¦ Mail Delivery Subsystem <MAILER-DAEMON@bigfoot.example> ¦ Returned mail: Service unavailable ¦ The original message was received\n\n   ----- The following addresses had permanent fatal errors -----\n<%s>\n\n   ----- Transcript of session follows -----\n>>> RCPT TO:<%s>\n<<< 553 Invalid recipient %s (Mode: normal)\n\n   ----- Transcript end ----\n
Verizon: no recipient of a multimedia message ¦ hard ¦ post_master@vtext.com ¦ Undeliverable Message ¦ Error: No valid recipients for this MM\n\nMessage could not be delivered to mobile.\nTo: %s\n
SurfControl ¦ hard ¦ SurfControl E-mail Filter <postmaster@x.example> ¦ Message could not be sent ¦ Your message could not be sent.\nA transcript of the attempts to send the message follows.\nThe number of attempts made: 1\nAddressed To: %s\n\nThu 29 Apr 2010 23:34:45 +0900\nFailed to send to identified host,\n%s: [192.0.2.5], 550 5.1.1 %s... No such user\n\n--- Message non-deliverable.\n
MX Logic ¦ hard ¦ Mail Delivery System <mailer-daemon@x.example> ¦ Mail delivery failed: returning message to sender ¦ Included is a copy of the message header:\n\n<%s>:\n550 5.1.1 <%s>: Recipient address rejected: User unknown in local recipient table\n\n%r
m-FILTER ¦ hard ¦ mFILTER <postmaster@x.example> ¦ failure notice ¦ %s\n\n-------SERVER MESSAGE: \n550 5.1.1 <%s>: Recipient address rejected: User unknown\n\n-------LAST COMMAND: \nRCPT TO:<%s>\n\n%r
NTMail: no host ¦ hard ¦ Postmaster <postmaster@x.example> ¦ Undeliverable mail ¦ The message returned below could not be delivered to the following address(es):\n\n   %s\n\nThe reason: The remote host does not exist\n\n%r
VPOP3 ¦ hard ¦ VPOP3 Mail Server <postmaster@x.example> ¦ Undeliverable Message ¦ The following message could not be delivered to:\n%s\n\nThe mail server reported: 550 5.1.1 User unknown\n\n%r
Magic Winmail ¦ soft ¦ Mail Delivery Subsystem <postmaster@x.example> ¦ Delivery Status Notification(Failure) ¦ This is an automatically generated Delivery Status Notification.\n\nDelivery to the following recipients failed:\n\n\t%s\n\nReason: Remote host said: 550 user not exist\n
ArGoSoft: no MX ¦ hard ¦ ArGoSoft Mail Server <postmaster@x.example> ¦ Undeliverable mail ¦ Message could not be delivered to some recipients.\n\n%s: Could not find MX record for domain\n
Zoho: unknown ¦ hard ¦ mailer-daemon@mail.zoho.com ¦ Undelivered Mail Returned to Sender ¦ This message was created automatically by mail delivery software.\n A message that you sent could not be delivered to one or more of its recipients. This is a permanent error. \n\n%s Invalid Address, ERROR_CODE :550, ERROR_CODE :5.1.1 <%s>... User Unknown\n
Zoho: full ¦ soft ¦ mailer-daemon@mail.zoho.com ¦ Undelivered Mail Returned to Sender ¦ This message was created automatically by mail delivery software.\n A message that you sent could not be delivered to one or more of its recipients. This is a permanent error. \n\n%s Mailbox Quota Exceeded, ERROR_CODE :552, ERROR_CODE :5.2.2 <%s>... Mailbox Full\n
Zoho: delay ¦ soft ¦ mailer-daemon@mail.zoho.com ¦ Delivery delayed ¦ This message was created automatically by mail delivery software.\n The original message was not yet delivered: \n\n[Status: Error, Address: <%s>, ResponseCode 421, , Host not reachable.]\n
Gmail with a numbered state ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ This is an automatically generated Delivery Status Notification\n\nDelivery to the following recipient failed permanently:\n\n     %s\n\nTechnical details of permanent failure: \nGoogle tried to deliver your message, but it was rejected by the recipient domain. We recommend contacting the other email provider for further information about the cause of this error. The error that the other server returned was: 550 550 5.1.1 <%s>... User Unknown (state 14).\n\n----- Original message -----\n\n%r ¦ X-Failed-Recipients: %s
Gmail: no domain ¦ hard ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ Delivery to the following recipient failed permanently:\n\n     %s\n\nTechnical details of permanent failure: \nDNS Error: Domain name not found\n\n----- Original message -----\n\n%r
Gmail: no name server ¦ soft ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Failure) ¦ Delivery to the following recipient failed permanently:\n\n     %s\n\nTechnical details of permanent failure: \nDNS Error: Could not contact DNS servers\n\n----- Original message -----\n\n%r
Gmail: retried ¦ soft ¦ Mail Delivery Subsystem <mailer-daemon@googlemail.com> ¦ Delivery Status Notification (Delay) ¦ This is an automatically generated Delivery Status Notification\n\nTHIS IS A WARNING MESSAGE ONLY.\n\nYOU DO NOT NEED TO RESEND YOUR MESSAGE.\n\nDelivery to the following recipient has been delayed:\n\n     %s\n\nMessage will be retried for 2 more day(s)\n\nTechnical details of temporary failure: \nThe recipient server did not accept our requests to connect.\n
Yahoo: discontinued account ¦ soft ¦ MAILER-DAEMON@yahoo.com ¦ Delivery failure ¦ Message from yahoo.com.\nUnable to deliver message to the following address(es).\n\n<%s>:\nSorry your message to %s cannot be delivered. This account has been disabled or discontinued [#102].\n\n--- Original message follows.\n\n%r
Yahoo: no MX ¦ hard ¦ MAILER-DAEMON@yahoo.com ¦ Failure Notice ¦ Sorry, we were unable to deliver your message to the following address.\n\n<%s>:\nNo MX or A records for example.net\n\n--- Below this line is a copy of the message.\n\n%r
Exchange 2007 without parts ¦ hard ¦ Microsoft Exchange <postmaster@example.net> ¦ Undeliverable: Hello ¦ Delivery has failed to these recipients or distribution lists:\n\n%s\nThe recipient's e-mail address was not found in the recipient's e-mail system. Microsoft Exchange will not try to redeliver this message for you.\n\n  _____\n\nSent by Microsoft Exchange Server 2007\n\nDiagnostic information for administrators:\n\nGenerating server: mx.example.net\n\n%s\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##\n\nOriginal message headers:\n\n%r
Exchange 2007 in French ¦ hard ¦ Microsoft Exchange <postmaster@example.net> ¦ Non remis : Hello ¦ Échec de la remise pour ces destinataires ou ces listes de distribution :\n\n%s\nL'adresse de messagerie du destinataire est introuvable dans le système de messagerie du destinataire.\n\nInformations de diagnostic pour les administrateurs :\n\nServeur de génération : mx.example.net\n\n%s\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##\n\n%r
Exchange 2007: size ¦ soft ¦ Microsoft Exchange <postmaster@example.net> ¦ Undeliverable: Hello ¦ Delivery has failed to these recipients or groups:\n\n%s\nYour message is too large to send.\n\n%s\n#550 5.2.3 RESOLVER.RST.RecipSizeLimit; message too large for this recipient ##\n
Exchange 2003 in Japanese ¦ hard ¦ System Administrator <postmaster@example.net> ¦ =?utf-8?B?6YWN5L+h5LiN6IO9OiBIZWxsbw==?= ¦ 次の受信者にメッセージを配信できませんでした:\n\n'%s' 日時 2010/04/29 23:34\n        受信者のメール アドレスが見つかりませんでした。\n            <mx.example.net #5.1.1>\n
Sendmail: pipe of an alias ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Returned mail: Data format error ¦    ----- The following addresses had permanent fatal errors -----\n"|exec /usr/bin/procmail"\n    (reason: Data format error)\n    (expanded from: <%s>)\n\n   ----- Transcript of session follows -----\n501 5.6.0 Data format error\n
an MTA that writes one line ¦ hard ¦ MAILER-DAEMON@mx.relay.example ¦ Undeliverable mail ¦ Could not deliver to: %s -> host mx.example.net rejected recipient: 550 5.1.1 unknown\n
an MTA that writes a few words ¦ hard ¦ Mail System <mail-daemon@x.example> ¦ Mail not delivered ¦ %s: recipient does not exist\n
au by KDDI: full ¦ soft ¦ no-reply@app.auone-net.jp ¦ Mail System Error - Returned Mail ¦ Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n Could not be delivered to: <%s>\n As their mailbox is full.\n\n%r
an MTA that names the sender in the same line ¦ soft ¦ MAILER-DAEMON@mx.relay.example ¦ Mail Delivery Problem ¦ Your mail is not deliverable to %s, reason: member has blocked mail from you\n
a success in plain text ¦ - ¦ Mail Delivery System <mailer-daemon@x.example> ¦ Delivery Status Notification (Success) ¦ Your message has been successfully delivered to the following recipients:\n\n%s\n
Exchange: relayed ¦ - ¦ Microsoft Exchange <postmaster@x.example> ¦ Relayed: Hello ¦ Delivery to these recipients or distribution lists is complete, but delivery notification was not sent by the destination:\n\n%s\n
`,
  ),
  "Sieve: quota": {
    raw: `${head({ from: "Mail Delivery Subsystem <postmaster@example.net>", subject: "Rejected: Hello", more: 'Auto-Submitted: auto-replied (rejected)\nContent-Type: multipart/report; report-type=disposition-notification;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: text/plain; charset=utf-8\n\nYour message to <${USER}> was automatically rejected:\nQuota exceeded (mailbox for user is full)\n--=_b\nContent-Type: message/disposition-notification\n\nReporting-UA: mx.example.net; Dovecot Mail Delivery Agent\nOriginal-Recipient: rfc822; ${USER}\nFinal-Recipient: rfc822; ${USER}\nDisposition: automatic-action/MDN-sent-automatically; deleted\n\n--=_b--\n`,
    wanted: [[USER, "soft"]],
  },
  "a complaint that names no recipient": {
    raw: `${head({ from: "fbl@provider.example", subject: "Abuse report", more: 'Content-Type: multipart/report; report-type=feedback-report;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: text/plain\n\nThis is an email abuse report.\n--=_b\nContent-Type: message/feedback-report\n\nFeedback-Type: Abuse\nUser-Agent: Example/1.0\nVersion: 1\nCFBL-Feedback-ID: 1:2\n\n--=_b\nContent-Type: message/rfc822\n\nX-Original-To: ${USER}\nTo: <undisclosed-recipients:;>\nSubject: Hello\n\nHello\n--=_b--\n`,
    wanted: [[USER, "complaint"]],
  },
};
