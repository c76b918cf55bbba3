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
export const plain = (from: string, subject: string, text: string, more = "Content-Type: text/plain; charset=utf-8") =>
  `${head({ from, subject, more })}\n${text}`;

/** A report of RFC 3464 with the groups of its recipients. */
export const dsn = (from: string, subject: string, text: string, groups: string[], type = "text/plain") =>
  `${head({ from, subject, more: 'Content-Type: multipart/report; report-type=delivery-status;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: ${type}; charset=utf-8\n\n${text}\n--=_b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.relay.example\nArrival-Date: Thu, 29 Apr 2010 23:34:45 +0900\n\n${groups.join("\n\n")}\n\n--=_b\nContent-Type: message/rfc822\n\n${RETURNED}\n--=_b--\n`;

const group = (status: string, diagnostic: string, address = USER) =>
  `Final-Recipient: rfc822; ${address}\nAction: failed\nStatus: ${status}\nDiagnostic-Code: smtp; ${diagnostic}`;

const DAEMON = "MAILER-DAEMON@mx.relay.example";
const MAIL_DAEMON = "MAILER-DAEMON@mx.relay.example (Mail Delivery System)";
const soft = (raw: string): ProgramMail => ({ raw, wanted: [[USER, "soft"]] });
const hard = (raw: string): ProgramMail => ({ raw, wanted: [[USER, "hard"]] });
const none = (raw: string): ProgramMail => ({ raw, wanted: [[USER, "none"]] });

const postfix = (entry: string, fields: string) =>
  dsn(
    MAIL_DAEMON,
    "Undelivered Mail Returned to Sender",
    `This is the mail system at host mx.relay.example.\n\nI'm sorry to have to inform you that your message could not\nbe delivered to one or more recipients. It's attached below.\n\nFor further assistance, please send mail to postmaster.\n\n                   The mail system\n\n${entry}\n`,
    [fields],
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
const sendmail = (problem: string, transcript: string, fields: string[]) =>
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
    [fields],
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

const ONE = "one@example.net";
const TWO = "two@example.org";
const RETURNED_OF_TWO = RETURNED.replace(USER, `${ONE}, ${TWO}`);

/** Reports by the name of the program and the failure. */
export const PROGRAM_MAILS: Record<string, ProgramMail> = {
  "Postfix: unknown local user": hard(
    postfix(`<${USER}>: unknown user: "user"`, group("5.1.1", 'unknown user: "user"').replace("smtp;", "X-Postfix;")),
  ),
  "Postfix: expanded alias": hard(
    postfix(
      `<${USER}> (expanded from <list@sender.example>): host mx.example.net[192.0.2.7]\n    said: 550 5.1.1 <${USER}>: Recipient address rejected: User unknown in\n    virtual mailbox table (in reply to RCPT TO command)`,
      `Original-Recipient: rfc822;list@sender.example\n${group("5.1.1", `550 5.1.1 <${USER}>: Recipient address rejected: User\n    unknown in virtual mailbox table`)}`,
    ),
  ),
  "Postfix: host not found": hard(
    postfix(
      `<${USER}>: Host or domain name not found. Name service error for name=example.net\n    type=AAAA: Host not found`,
      group(
        "5.4.4",
        "Host or domain name not found. Name service error\n    for name=example.net type=AAAA: Host not found",
      ).replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: name server does not answer": soft(
    postfix(
      `<${USER}>: Host or domain name not found. Name service error for name=example.net\n    type=MX: Host not found, try again`,
      group(
        "4.4.3",
        "Host or domain name not found. Name service error\n    for name=example.net type=MX: Host not found, try again",
      ).replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: domain without mail": hard(
    postfix(
      `<${USER}>: Domain example.net does not accept mail (nullMX)`,
      group("5.1.0", "Domain example.net does not accept mail (nullMX)").replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: connection timed out": soft(
    postfix(
      `<${USER}>: connect to mx.example.net[192.0.2.7]:25: Connection timed out`,
      group("4.4.1", "connect to mx.example.net[192.0.2.7]:25:\n    Connection timed out").replace(
        "smtp;",
        "X-Postfix;",
      ),
    ),
  ),
  "Postfix: loop": soft(
    postfix(
      `<${USER}>: mail for example.net loops back to myself`,
      group("5.4.6", "mail for example.net loops back to myself").replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: disk quota of a maildir": soft(
    postfix(
      `<${USER}>: maildir delivery failed: create maildir file\n    /var/mail/user/tmp/1272551685.P1.mx: Disk quota exceeded`,
      group(
        "5.2.2",
        "maildir delivery failed: create maildir file\n    /var/mail/user/tmp/1272551685.P1.mx: Disk quota exceeded",
      ).replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: message too large": soft(
    postfix(
      `<${USER}>: message size 21495489 exceeds size limit 20971520 of server\n    mx.example.net[192.0.2.7]`,
      group(
        "5.3.4",
        "message size 21495489 exceeds size limit 20971520 of\n    server mx.example.net[192.0.2.7]",
      ).replace("smtp;", "X-Postfix;"),
    ),
  ),
  "Postfix: pipe to Dovecot": hard(
    postfix(
      `<${USER}>: user unknown. Command output: user: no such user`,
      group("5.1.1", "user unknown").replace("smtp;", "x-unix;"),
    ),
  ),
  "Postfix: LMTP": hard(
    postfix(
      `<${USER}>: host mx.relay.example[private/dovecot-lmtp] said: 550 5.1.1\n    <${USER}> User doesn't exist: ${USER} (in reply to RCPT TO\n    command)`,
      group("5.1.1", `550 5.1.1 <${USER}> User doesn't exist:\n    ${USER}`),
    ),
  ),
  "Postfix: refused greeting": soft(
    postfix(
      `<${USER}>: host mx.example.net[192.0.2.7] refused to talk to me: 554\n    mx.example.net ESMTP not accepting messages`,
      group("5.0.0", "554 mx.example.net ESMTP not accepting messages"),
    ),
  ),
  "Postfix: delayed": soft(
    dsn(
      MAIL_DAEMON,
      "Delayed Mail (still being retried)",
      `This is the mail system at host mx.relay.example.\n\n####################################################################\n# THIS IS A WARNING ONLY.  YOU DO NOT NEED TO RESEND YOUR MESSAGE. #\n####################################################################\n\nYour message could not be delivered for more than 4 hour(s).\nIt will be retried until it is 5 day(s) old.\n\n<${USER}>: connect to mx.example.net[192.0.2.7]:25: Connection refused\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: delayed\nStatus: 4.4.1\nDiagnostic-Code: X-Postfix; connect to mx.example.net[192.0.2.7]:25:\n    Connection refused\nWill-Retry-Until: Tue, 04 May 2010 23:34:45 +0900`,
      ],
    ),
  ),
  "Postfix: delivered": none(
    dsn(
      MAIL_DAEMON,
      "Successful Mail Delivery Report",
      `This is the mail system at host mx.relay.example.\n\nYour message was successfully delivered to the destination(s)\nlisted below.\n\n<${USER}>: delivery via mx.example.net[192.0.2.7]:25: 250 2.0.0 Ok\n`,
      [`Final-Recipient: rfc822; ${USER}\nAction: relayed\nStatus: 2.0.0\nDiagnostic-Code: smtp; 250 2.0.0 Ok`],
    ),
  ),
  "Postfix before DSN": hard(
    plain(
      MAIL_DAEMON,
      "Undelivered Mail Returned to Sender",
      `This is the Postfix program at host mx.relay.example.\n\nI'm sorry to have to inform you that the message returned\nbelow could not be delivered to one or more destinations.\n\n\t\t\tThe Postfix program\n\n<${USER}>: host mx.example.net[192.0.2.7] said: 550 <${USER}>:\n    User unknown in local recipient table (in reply to RCPT TO command)\n\n${RETURNED}`,
      "",
    ),
  ),
  "Sendmail: user unknown": hard(
    sendmail(
      `<${USER}>\n    (reason: 550 5.1.1 <${USER}>... User unknown)`,
      `... while talking to mx.example.net.:\n>>> DATA\n<<< 550 5.1.1 <${USER}>... User unknown\n550 5.1.1 <${USER}>... User unknown\n<<< 503 5.0.0 Need RCPT (recipient)`,
      [
        `Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 5.1.1\nRemote-MTA: DNS; mx.example.net\nDiagnostic-Code: SMTP; 550 5.1.1 <${USER}>... User unknown\nLast-Attempt-Date: Thu, 29 Apr 2010 23:34:45 +0900`,
      ],
    ),
  ),
  "Sendmail: refused at RCPT without an enhanced code": hard(
    sendmail(
      `<${USER}>\n    (reason: 550 No such user here)`,
      `... while talking to mx.example.net.:\n>>> RCPT To:<${USER}>\n<<< 550 No such user here\n550 5.1.1 <${USER}>... User unknown`,
      [
        `Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 5.1.1\nRemote-MTA: DNS; mx.example.net\nDiagnostic-Code: SMTP; 550 No such user here`,
      ],
    ),
  ),
  "Sendmail: blocked sender, called unavailable": soft(
    sendmail(
      `<${USER}>\n    (reason: 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org)`,
      `... while talking to mx.example.net.:\n>>> DATA\n<<< 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org\n554 5.0.0 Service unavailable\n<<< 554 5.5.1 Error: no valid recipients`,
      [
        `Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 5.7.1\nDiagnostic-Code: SMTP; 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org`,
      ],
    ),
  ),
  "Sendmail: host unknown": hard(
    sendmail(`<${USER}>`, `550 5.1.2 <${USER}>... Host unknown (Name server: example.net: host not found)`, [
      `Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 5.1.2\nRemote-MTA: DNS; example.net\nLast-Attempt-Date: Thu, 29 Apr 2010 23:34:45 +0900`,
    ]),
  ),
  "Sendmail: expired": soft(
    sendmail(
      `<${USER}>`,
      `<${USER}>... Deferred: Connection timed out with mx.example.net.\nMessage could not be delivered for 5 days\nMessage will be deleted from queue`,
      [`Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 4.4.7\nRemote-MTA: DNS; mx.example.net`],
    ),
  ),
  "Sendmail: delay": soft(
    dsn(
      "Mail Delivery Subsystem <MAILER-DAEMON@mx.relay.example>",
      "Warning: could not send message for past 4 hours",
      `    **********************************************\n    **      THIS IS A WARNING MESSAGE ONLY      **\n    **  YOU DO NOT NEED TO RESEND YOUR MESSAGE  **\n    **********************************************\n\n   ----- The following addresses had transient non-fatal errors -----\n<${USER}>\n\n   ----- Transcript of session follows -----\n<${USER}>... Deferred: Connection refused by mx.example.net.\nWarning: message still undelivered after 4 hours\nWill keep trying until message is 5 days old\n`,
      [
        `Final-Recipient: RFC822; ${USER}\nAction: delayed\nStatus: 4.2.0\nWill-Retry-Until: Tue, 4 May 2010 23:34:45 +0900`,
      ],
    ),
  ),
  "Sendmail: alias with two members": {
    raw: sendmail(
      "one@example.net\n    (reason: 550 5.1.1 <one@example.net>... User unknown)\n    (expanded from: <list@sender.example>)\ntwo@example.org\n    (reason: 552 5.2.2 <two@example.org>... Mailbox full)\n    (expanded from: <list@sender.example>)",
      "550 5.1.1 one@example.net... User unknown\n552 5.2.2 two@example.org... Mailbox full",
      [
        "Original-Recipient: rfc822;list@sender.example\nFinal-Recipient: RFC822; list@sender.example\nX-Actual-Recipient: RFC822; one@example.net\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: SMTP; 550 5.1.1 <one@example.net>... User unknown",
        "Final-Recipient: RFC822; list@sender.example\nX-Actual-Recipient: RFC822; two@example.org\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: SMTP; 552 5.2.2 <two@example.org>... Mailbox full",
      ],
    ),
    // The address that was mailed is the one that counts: its server knows the members alone.
    wanted: [
      ["list@sender.example", "hard"],
      ["list@sender.example", "soft"],
    ],
  },
  "Sendmail: file of a local user": soft(
    sendmail(
      `<${USER}>\n    (reason: can't create (user) output file)`,
      `procmail: Quota exceeded while writing "/var/mail/user"\n550 5.0.0 <${USER}>... Can't create output`,
      [`Final-Recipient: RFC822; ${USER}\nAction: failed\nStatus: 5.2.0\nDiagnostic-Code: X-Unix; 73`],
    ),
  ),
  "Sendmail 5: user unknown": hard(
    oldSendmail(
      "Returned mail: User unknown",
      `While talking to mx.example.net:\n>>> RCPT To:<${USER}>\n<<< 550 <${USER}>... User unknown\n550 <${USER}>... User unknown`,
    ),
  ),
  "Sendmail 5: host unknown": hard(
    oldSendmail("Returned mail: Host unknown", `550 <${USER}>... Host unknown (Authoritative answer from name server)`),
  ),
  "Sendmail 5: cannot send": soft(
    oldSendmail(
      "Returned mail: Cannot send message for 3 days",
      `421 example.net (smtp)... Deferred: Connection timed out during user open with mx.example.net\n421 ${USER}... Deferred: Connection timed out`,
    ),
  ),
  "Exim: unrouteable address": hard(exim(`  ${USER}\n    Unrouteable address`)),
  "Exim: unknown local part": hard(exim(`  ${USER}:\n    unknown local-part "user" in domain "example.net"`)),
  "Exim: unrouteable domain": hard(exim(`  ${USER}\n    unrouteable mail domain "example.net"`)),
  "Exim: no such user at RCPT": hard(
    exim(
      `  ${USER}\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after RCPT TO:<${USER}>:\n    550 No Such User Here`,
    ),
  ),
  "Exim: refused message": soft(
    exim(
      `  ${USER}\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after end of data:\n    554 5.7.1 The message was refused: no such user is wanted`,
    ),
  ),
  "Exim: refused MAIL": soft(
    exim(
      `  ${USER}\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after MAIL FROM:<bounce@sender.example> SIZE=1024:\n    550 unknown user bounce@sender.example`,
    ),
  ),
  "Exim: full mailbox": soft(
    exim(`  ${USER}\n    mailbox is full (MTA-imposed quota exceeded while writing to file /var/mail/user)`),
  ),
  "Exim: retry timeout": soft(
    exim(`  ${USER}\n    host mx.example.net [192.0.2.7]\n    Connection timed out: retry timeout exceeded`),
  ),
  "Exim: retry timeout after an unknown user for now": soft(
    exim(
      `  ${USER}\n    host mx.example.net [192.0.2.7]\n    SMTP error from remote mail server after RCPT TO:<${USER}>:\n    450 4.1.1 <${USER}>: Recipient address rejected: User unknown: retry timeout exceeded`,
    ),
  ),
  "Exim: failing hosts": soft(
    exim(`  ${USER}\n    all hosts for 'example.net' have been failing for a long time (and retry time not reached)`),
  ),
  "Exim: no SMTP service": hard(exim(`  ${USER}\n    an MX or SRV record indicated no SMTP service`)),
  "Exim: MX of hosts that do not exist": hard(
    exim(`  ${USER}\n    all relevant MX records point to non-existent hosts`),
  ),
  "Exim: loop": soft(exim(`  ${USER}\n    Too many "Received" headers - suspected mail loop`)),
  "Exim: pipe": soft(
    exim(
      `  pipe to |/usr/bin/vacation ann\n    generated by ${USER}\n    local delivery failed\n\nThe following text was generated during the delivery attempt:\n\n------ pipe to |/usr/bin/vacation ann\n       generated by ${USER} ------\n\nsh: vacation: command not found`,
    ),
  ),
  "Exim without its header": hard(
    exim(
      `  ${USER}:\n    SMTP error from remote mailer after RCPT TO:\n    <${USER}>:\n    host mx.example.net [192.0.2.7]: 550 5.1.1 unknown user`,
      "Auto-Submitted: auto-generated",
    ),
  ),
  "Exim: warning": soft(
    plain(
      "Mail Delivery System <Mailer-Daemon@mx.relay.example>",
      "Warning: message 1O7Q0k-0001Xb-5K delayed 24 hours",
      `This message was created automatically by mail delivery software.\n\nA message that you sent has not yet been delivered to one or more of its\nrecipients after more than 24 hours on the queue on mx.relay.example.\n\nThe message identifier is:     1O7Q0k-0001Xb-5K\nThe subject of the message is: Hello\n\nThe address to which the message has not yet been delivered is:\n\n  ${USER}\n    Delay reason: Connection timed out\n\nNo action is required on your part. Delivery attempts will continue for\nsome time, and this warning may be repeated at intervals if the message\nremains undelivered. Eventually the mail delivery software will give up,\nand when that happens, the message will be returned to you.\n`,
      "Auto-Submitted: auto-replied",
    ),
  ),
  "Exim in German": hard(
    plain(
      "Mail Delivery System <Mailer-Daemon@mx.relay.example>",
      "Unzustellbare Nachricht: Hello",
      `Diese Nachricht wurde automatisch erstellt.\n\nEine von Ihnen gesendete Nachricht konnte einem oder mehreren Empfängern\nnicht zugestellt werden. Dies ist ein dauerhafter Fehler.\n\n  ${USER}\n    SMTP error from remote mail server after RCPT TO:<${USER}>:\n    550 Benutzer unbekannt\n\n${RETURNED}`,
    ),
  ),
  "qmail: no mailbox": hard(qmail(`<${USER}>:\nSorry, no mailbox here by that name. (#5.1.1)`)),
  "qmail: no mailbox of vpopmail": hard(qmail(`<${USER}>:\nSorry, no mailbox here by that name. vpopmail (#5.1.1)`)),
  "qmail: no host": hard(qmail(`<${USER}>:\nSorry, I couldn't find any host named example.net. (#5.1.2)`)),
  "qmail: no connection": soft(
    qmail(
      `<${USER}>:\nSorry, I wasn't able to establish an SMTP connection. (#4.4.1)\nI'm not going to try again; this message has been in the queue too long.`,
    ),
  ),
  "qmail: name server": soft(
    qmail(
      `<${USER}>:\nCNAME lookup failed temporarily. (#4.4.3)\nI'm not going to try again; this message has been in the queue too long.`,
    ),
  ),
  "qmail: over quota": soft(qmail(`<${USER}>:\nThe users mailfolder is over the allowed quota (size). (#5.2.2)`)),
  "qmail: full mailbox": soft(qmail(`<${USER}>:\nRecipient's mailbox is full, message returned to sender. (#5.2.2)`)),
  "qmail: loop": soft(qmail(`<${USER}>:\nThis message is looping: it already has my Delivered-To line. (#5.4.6)`)),
  "qmail: MX points back": soft(
    qmail(
      `<${USER}>:\nSorry. Although I'm listed as a best-preference MX or A for that host,\nit isn't in my control/locals file, so I don't treat it as local. (#5.4.6)`,
    ),
  ),
  "qmail: refused recipient": hard(
    qmail(
      `<${USER}>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 sorry, no mailbox here by that name (#5.1.1 - chkuser)\nGiving up on 192.0.2.7.`,
    ),
  ),
  "qmail: refused message": soft(
    qmail(
      `<${USER}>:\n192.0.2.7 failed after I sent the message.\nRemote host said: 554 Message does not conform to standards`,
    ),
  ),
  "qmail: refused sender": soft(
    qmail(
      `<${USER}>:\nConnected to 192.0.2.7 but sender was rejected.\nRemote host said: 553 5.1.8 unknown user in sender address`,
    ),
  ),
  "qmail: two recipients": {
    raw: qmail(
      "<one@example.net>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 5.1.1 <one@example.net>: Recipient address rejected: User unknown\nGiving up on 192.0.2.7.\n\n<two@example.org>:\n192.0.2.8 does not like recipient.\nRemote host said: 452 4.2.2 Mailbox full\nGiving up on 192.0.2.8.\nI'm not going to try again; this message has been in the queue too long.",
    ),
    wanted: [
      ["one@example.net", "hard"],
      ["two@example.org", "soft"],
    ],
  },
  "Courier: user unknown": hard(
    courier(
      `<${USER}>:\n    mx.example.net [192.0.2.7]:\n>>> RCPT TO:<${USER}>\n<<< 550 User unknown.`,
      `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.0.0\nRemote-MTA: dns; mx.example.net [192.0.2.7]\nDiagnostic-Code: smtp; 550 User unknown.`,
    ),
  ),
  "Courier: refused message": soft(
    courier(
      `<${USER}>:\n    mx.example.net [192.0.2.7]:\n>>> DATA\n<<< 550 User unknown.`,
      `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 User unknown.`,
    ),
  ),
  "Courier: no such domain": hard(
    courier(
      `<${USER}>:\nNo such domain.`,
      `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: unknown; No such domain.`,
    ),
  ),
  "Courier: delayed": soft(
    courier(
      `<${USER}>:\n    mx.example.net [192.0.2.7]:\n<<< 450 4.3.2 Busy`,
      `Final-Recipient: rfc822; ${USER}\nAction: delayed\nStatus: 4.0.0\nDiagnostic-Code: smtp; 450 4.3.2 Busy`,
      "WARNING: delayed mail.",
    ),
  ),
  "OpenSMTPD: permanent": hard(
    dsn(
      "Mailer Daemon <MAILER-DAEMON@mx.relay.example>",
      "Delivery status notification: error",
      `    Hi!\n\n    This is the MAILER-DAEMON, please DO NOT REPLY to this email.\n\n    An error has occurred while attempting to deliver a message for\n    the following list of recipients:\n\n${USER}: 550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\n    Below is a copy of the original message:\n`,
      [`Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.1`],
    ),
  ),
  "OpenSMTPD: no MX": hard(
    dsn(
      "Mailer Daemon <MAILER-DAEMON@mx.relay.example>",
      "Delivery status notification: error",
      `    Hi!\n\n    This is the MAILER-DAEMON, please DO NOT REPLY to this email.\n\n    An error has occurred while attempting to deliver a message for\n    the following list of recipients:\n\n${USER}: Domain does not exist\n\n    Below is a copy of the original message:\n`,
      [`Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.0.0`],
    ),
  ),
  Haraka: hard(
    plain(
      DAEMON,
      "failure notice",
      `Hi. This is the Haraka Mailer program at mx.relay.example.\nI'm afraid I wasn't able to deliver your message\n    "Hello"\nto the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\nIntended Recipients: <${USER}>\nFailure Reason: 550 5.1.1 I cannot deliver mail for <${USER}>\n\n`,
      "Received: (Haraka 1 invoked for bounce)\nAuto-Submitted: auto-replied",
    ),
  ),
  "Apache James": hard(
    plain(
      "postmaster@mx.relay.example",
      "Re:Hello",
      `Hi. This is the James mail server at mx.relay.example.\nI'm afraid I wasn't able to deliver your message to the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.  Below\nI include the list of recipients and the reason why I was unable to deliver\nyour message.\n\nFailed recipient(s):\n${USER}\n\nError message:\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\nOriginal message subject: Hello\n`,
    ),
  ),
  hMailServer: hard(
    plain(
      "mailer-daemon@mx.relay.example",
      "Message undeliverable: Hello",
      `Your message did not reach some or all of the intended recipients.\n\n   Sent: Thu, 29 Apr 2010 23:34:45 +0900\n   Subject: Hello\n\nThe following recipient(s) could not be reached:\n\n${USER}\n   Error Type: SMTP\n   Remote server (192.0.2.7) issued an error.\n   hMailServer sent: RCPT TO:<${USER}>\n   Remote server replied: 550 5.1.1 User unknown\n\nhMailServer\n`,
    ),
  ),
  "hMailServer: no server of the domain": hard(
    plain(
      "mailer-daemon@mx.relay.example",
      "Message undeliverable: Hello",
      `Your message did not reach some or all of the intended recipients.\n\n   Sent: Thu, 29 Apr 2010 23:34:45 +0900\n   Subject: Hello\n\nThe following recipient(s) could not be reached:\n\n${USER}\n   Error Type: SMTP\n   Error Description: No mail servers appear to exists for the recipient's address.\n   Additional information: Please check that you have not misspelled the recipient's email address.\n\nhMailServer\n`,
    ),
  ),
  MailEnable: hard(
    plain(
      "Postmaster <postmaster@mx.relay.example>",
      "Message Delivery Failure",
      `MailEnable: Message Delivery Failure.\n\nThe following recipient(s) could not be reached:\n\n\tRecipient: [SMTP:${USER}]\n\tReason: Remote SMTP Server Returned: 550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\n\nMessage headers follow:\n\n${RETURNED}`,
    ),
  ),
  MDaemon: hard(
    plain(
      "MDaemon@mx.relay.example",
      `Warning: ${USER} - User unknown!`,
      `The following addresses had permanent delivery errors:\n\nFailed address: ${USER}\n\n--- Session Transcript ---\n Thu 2010-04-29 23:34:45: --> RCPT To:<${USER}>\n Thu 2010-04-29 23:34:45: <-- 550 5.1.1 <${USER}>, Recipient unknown\n--- End Transcript ---\n\n: Message contains [1] file attachments\n`,
    ),
  ),
  SmarterMail: hard(
    plain(
      "System Administrator <postmaster@mx.relay.example>",
      "Delivery Failure",
      `Could not deliver message to the following recipient(s):\n\nFailed Recipient: ${USER}\nReason: Remote host said: 550 5.1.1 No such user here\n\n   -- The header and top 20 lines of the message follows --\n\n${RETURNED}`,
    ),
  ),
  "SmarterMail: cut off from the server": soft(
    plain(
      "System Administrator <postmaster@mx.relay.example>",
      "Delivery Failure",
      `Could not deliver message to the following recipient(s):\n\nFailed Recipient: ${USER}\nReason: The remote server timed out\n\n   -- The header and top 20 lines of the message follows --\n\n${RETURNED}`,
    ),
  ),
  "CommuniGate Pro": hard(
    dsn(
      "<MAILER-DAEMON@mx.relay.example>",
      "Undeliverable mail",
      `Failed to deliver to '${USER}'\nSMTP module(domain example.net) reports:\n host mx.example.net says:\n 550 5.1.1 <${USER}> unknown user account\n`,
      [`Original-Recipient: rfc822;<${USER}>\nFinal-Recipient: rfc822;<${USER}>\nAction: failed\nStatus: 5.0.0`],
    ),
  ),
  "CommuniGate Pro: local account": soft(
    dsn(
      "<MAILER-DAEMON@mx.relay.example>",
      "Undeliverable mail",
      `Failed to deliver to '<${USER}>'\nLOCAL module(account user) reports:\n account is full (quota exceeded)\n`,
      [`Original-Recipient: rfc822;<${USER}>\nFinal-Recipient: system;<user>\nAction: failed\nStatus: 5.0.0`],
    ),
  ),
  "Exchange 5.5: no transport provider": hard(
    exchange(
      `did not reach the following recipient(s):\n\n${USER} on Thu, 29 Apr 2010 23:34:45 +0900\n    The recipient name is not recognized\n\tThe MTS-ID of the original message is: c=us;a= ;p=example;l=MX\n    MSEXCH:IMS:Example:Site:MX 0 (000C05A6) Unknown Recipient\n`,
    ),
  ),
  "Exchange 2000": hard(
    exchange(
      `did not reach the following recipient(s):\n\n${USER} on Thu, 29 Apr 2010 23:34:45 +0900\n            The e-mail account does not exist at the organization this message was sent to.  Check the e-mail address, or contact the recipient directly to find out the correct address.\n            <mx.example.net #5.1.1>\n`,
    ),
  ),
  "Exchange 2000 of an X.500 address": hard(
    exchange(
      `did not reach the following recipient(s):\n\nIMCEAEX-_O=EXAMPLE_OU=FIRST+20ADMINISTRATIVE+20GROUP_CN=RECIPIENTS_CN=USER@example.net on Thu, 29 Apr 2010 23:34:45 +0900\n            The e-mail system was unable to deliver the message, but did not report a specific reason.  Check the address and try again.  If it still fails, contact your system administrator.\n            < mx.example.net #5.1.1 SMTP; 550 5.1.1 User unknown>\n`,
    ),
  ),
  "Exchange 2000: limit of the mailbox": soft(
    exchange(
      `did not reach the following recipient(s):\n\n${USER} on Thu, 29 Apr 2010 23:34:45 +0900\n            The recipient's mailbox is full and can't accept messages now. Please try resending this message later, or contact the recipient directly.\n            <mx.example.net #5.2.2>\n`,
    ),
  ),
  "Exchange 2003: DSN": hard(
    dsn(
      "postmaster@example.net",
      "Delivery Status Notification (Failure)",
      `This is an automatically generated Delivery Status Notification.\n\nDelivery to the following recipients failed.\n\n       ${USER}\n\n`,
      [`Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1`],
    ),
  ),
  "Exchange 2003: delay": soft(
    dsn(
      "postmaster@example.net",
      "Delivery Status Notification (Delay)",
      `This is an automatically generated Delivery Status Notification.\n\nTHIS IS A WARNING MESSAGE ONLY.\n\nYOU DO NOT NEED TO RESEND YOUR MESSAGE.\n\nDelivery to the following recipients has been delayed.\n\n       ${USER}\n\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: delayed\nStatus: 4.4.7\nWill-Retry-Until: Sat, 1 May 2010 23:34:45 +0900`,
      ],
    ),
  ),
  "Exchange 2010: recipient not found": hard(
    dsn(
      "Microsoft Exchange <postmaster@example.net>",
      "Undeliverable: Hello",
      `Delivery has failed to these recipients or groups:\n\n${USER}<mailto:${USER}>\nThe e-mail address you entered couldn't be found. Please check the recipient's e-mail address and try to resend the message. If the problem continues, please contact your helpdesk.\n\nDiagnostic information for administrators:\n\nGenerating server: mx.example.net\n\n${USER}\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##rfc822;${USER}\n\nOriginal message headers:\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 5.1.1 RESOLVER.ADR.RecipNotFound; not found\nX-Display-Name: User`,
      ],
    ),
  ),
  "Exchange 2010 in German: full": soft(
    dsn(
      "Microsoft Exchange <postmaster@example.net>",
      "Unzustellbar: Hello",
      `Fehler bei der Nachrichtenzustellung an folgende Empfänger oder Verteilerlisten:\n\n${USER}<mailto:${USER}>\nDas Postfach des Empfängers ist voll und kann zurzeit keine Nachrichten annehmen.\n\n#550 5.2.2 STOREDRV.Deliver: mailbox full. The following information should help identify the cause\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: smtp;550 5.2.2 STOREDRV.Deliver: mailbox full. The following\n information should help identify the cause`,
      ],
    ),
  ),
  "Exchange 2010: restricted": soft(
    dsn(
      "Microsoft Exchange <postmaster@example.net>",
      "Undeliverable: Hello",
      `Delivery has failed to these recipients or groups:\n\n${USER}\nYour message can't be delivered because delivery to this address is restricted.\n\n#550 5.7.1 RESOLVER.RST.NotAuthorized; not authorized ##\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.7.1\nDiagnostic-Code: smtp;550 5.7.1 RESOLVER.RST.NotAuthorized; not authorized`,
      ],
    ),
  ),
  "Exchange Online: unknown to SMTP look-up": hard(
    dsn(
      "postmaster@example.onmicrosoft.com",
      "Undeliverable: Hello",
      `<html><body><p>Your message to ${USER} couldn't be delivered.</p><p>user wasn't found at example.net.</p><table><tr><td>Unknown To address</td></tr></table></body></html>`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.10\nDiagnostic-Code: smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient ${USER} not found by SMTP address lookup`,
      ],
      "text/html",
    ),
  ),
  "Exchange Online: expired": soft(
    dsn(
      "postmaster@example.onmicrosoft.com",
      "Undeliverable: Hello",
      `Your message couldn't be delivered. Despite repeated attempts to contact the recipient's email system it didn't respond.`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.4.300\nDiagnostic-Code: smtp;550 5.4.300 Message expired -> 451 4.4.0 DNS query failed`,
      ],
    ),
  ),
  "Exchange Online: domain not found": hard(
    dsn(
      "postmaster@example.onmicrosoft.com",
      "Undeliverable: Hello",
      `Your message wasn't delivered to ${USER} because the domain couldn't be found.`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.4.310\nDiagnostic-Code: smtp;550 5.4.310 DNS domain example.net does not exist [Message=InfoDomainNonexistent]`,
      ],
    ),
  ),
  "Domino: not listed": hard(
    dsn(
      "MAILER-DAEMON@mx.relay.example",
      "DELIVERY FAILURE: User user (user@example.net) not listed in Domino Directory",
      `Your message\n\n  Subject: Hello\n\nwas not delivered to:\n\n  ${USER}\n\nbecause:\n\n  User user (${USER}) not listed in Domino Directory\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: X-Notes; User user (${USER}) not listed in Domino Directory`,
      ],
    ),
  ),
  "Notes without parts": hard(
    plain(
      "postmaster@mx.relay.example",
      "DELIVERY FAILURE: User user (user@example.net) not listed in public Name & Address Book",
      `------- Failure Reasons  --------\n\nUser not listed in public Name & Address Book\n${USER}\n\n------- Returned Message --------\n\n${RETURNED}`,
    ),
  ),
  "Domino: router": soft(
    dsn(
      "postmaster@mx.relay.example",
      "DELIVERY FAILURE: Error transferring to mx.example.net; Maximum hop count exceeded",
      `Your message\n\n  Subject: Hello\n\nwas not delivered to:\n\n  ${USER}\n\nbecause:\n\n  Error transferring to mx.example.net; Maximum hop count exceeded.  Message probably in a routing loop.\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: X-Notes; Error transferring to mx.example.net; Maximum hop count exceeded.  Message probably in a routing loop.`,
      ],
    ),
  ),
  GroupWise: hard(
    plain(
      "Mailer-Daemon@mx.relay.example",
      "Message status - undeliverable",
      `The message that you sent was undeliverable to the following:\n\t${USER} (user unknown)\n\nPossibly truncated original message follows:\n\n${RETURNED}`,
    ),
  ),
  "GroupWise: full": soft(
    plain(
      "postmaster@mx.relay.example",
      "Message status - undeliverable",
      `\nThe attached file had the following undeliverable recipient(s):\n\t${USER} (mailbox is full)\n`,
    ),
  ),
  "Novell NIMS": hard(
    plain(
      "Postmaster@mx.relay.example",
      "Returned mail: User unknown",
      `This is a postmaster message.\n\nThe following address(es) could not be delivered:\n\n<${USER}>: User unknown\n\n${RETURNED}`,
    ),
  ),
  IMail: hard(
    plain(
      "Postmaster <postmaster@mx.relay.example>",
      "Undeliverable Mail",
      `Unknown user: ${USER}\n\nOriginal message follows.\n\n${RETURNED}`,
    ),
  ),
  "IMail: full": soft(
    plain(
      "Postmaster <postmaster@mx.relay.example>",
      "Undeliverable Mail",
      `User mailbox exceeds allowed size: ${USER}\n\nOriginal message follows.\n\n${RETURNED}`,
    ),
  ),
  "IMail: not delivered": soft(
    plain(
      "Postmaster <postmaster@mx.relay.example>",
      "Undeliverable Mail",
      `undeliverable to ${USER}\nDelivery failed 20 attempts: ${USER}\n\nOriginal message follows.\n\n${RETURNED}`,
    ),
  ),
  "Sun Messaging Server": hard(
    dsn(
      "Internet Mail Delivery <postmaster@mx.relay.example>",
      "Delivery Notification: Delivery has failed",
      `This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  From: News <news@sender.example>\n  To: list@sender.example\n  Subject: Hello\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: ${USER}\n  Reason: Remote SMTP server has rejected address\n  Diagnostic code: smtp;550 5.1.1 unknown or illegal alias: ${USER}\n  Remote system: dns;mx.example.net (TCP|192.0.2.1|2525|192.0.2.7|25) (mx.example.net ESMTP)\n`,
      [
        `Original-recipient: rfc822;${USER}\nFinal-recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1 (Remote SMTP server has rejected address)\nRemote-MTA: dns;mx.example.net\nDiagnostic-code: smtp;550 5.1.1 unknown or illegal alias: ${USER}`,
      ],
    ),
  ),
  "Sun Messaging Server in plain text": soft(
    plain(
      "Internet Mail Delivery <postmaster@mx.relay.example>",
      "Delivery Notification: Delivery has failed",
      `This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  From: News <news@sender.example>\n  To: list@sender.example\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: user@ims-ms-daemon\n  Original address: ${USER}\n  Reason: Over quota\n`,
    ),
  ),
  "Gmail: address not found": hard(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `\n** Address not found **\n\nYour message wasn't delivered to ${USER} because the address couldn't be found, or is unable to receive mail.\n\nLearn more here: https://support.google.com/mail/?p=NoSuchUser\n\nThe response was:\n\n550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the recipient's email address for typos or unnecessary spaces.\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550-5.1.1 The email account that you tried to reach does not exist. Please try\n 550-5.1.1 double-checking the recipient's email address for typos or\n 550 5.1.1 unnecessary spaces. 1 - gsmtp`,
      ],
    ),
  ),
  "Gmail: domain not found": hard(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `\n** Address not found **\n\nYour message wasn't delivered to ${USER} because the domain example.net couldn't be found. Check for typos or unnecessary spaces and try again.\n\nThe response was:\n\nDNS Error: DNS type 'mx' lookup of example.net responded with code NXDOMAIN\nDomain name not found: example.net\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.2\nDiagnostic-Code: smtp; DNS Error: DNS type 'mx' lookup of example.net responded with code NXDOMAIN\n Domain name not found: example.net`,
      ],
    ),
  ),
  "Gmail in plain text": hard(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `Delivery to the following recipient failed permanently:\n\n     ${USER}\n\nTechnical details of permanent failure: \nGoogle tried to deliver your message, but it was rejected by the server for the recipient domain example.net by mx.example.net. [192.0.2.7].\n\nThe error that the other server returned was:\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\n----- Original message -----\n\n${RETURNED}`,
      `X-Failed-Recipients: ${USER}`,
    ),
  ),
  "Gmail: delay": soft(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Delay)",
      `\n** Delivery incomplete **\n\nThere was a temporary problem delivering your message to ${USER}. Gmail will retry for 46 more hours. You'll be notified if the delivery fails permanently.\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: delayed\nStatus: 4.4.1\nDiagnostic-Code: smtp; The recipient server did not accept our requests to connect.`,
      ],
    ),
  ),
  "Yahoo: refused recipient": hard(
    plain(
      "MAILER-DAEMON@yahoo.com",
      "Failure Notice",
      `Sorry, we were unable to deliver your message to the following address.\n\n<${USER}>:\nRemote host said:\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n [RCPT_TO]\n\n--- Below this line is a copy of the message.\n\n${RETURNED}`,
    ),
  ),
  "GMX: unknown user": hard(
    plain(
      "GMX Mailer Daemon <mailer-daemon@gmx.net>",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address\nfailed:\n\n"${USER}":\nSMTP error from remote server after RCPT command:\nhost: mx.example.net\n5.1.1 <${USER}>... User Unknown\n\n--- The header of the original message is following. ---\n\n${RETURNED}`,
    ),
  ),
  "GMX: no MX": hard(
    plain(
      "WEB.DE Mailer Daemon <mailer-daemon@web.de>",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address(es)\nfailed:\n\n${USER}:\nno mx record found for domain\n\n--- The header of the original message is following. ---\n\n${RETURNED}`,
    ),
  ),
  "Smail3 of T-Online": hard(
    plain(
      "<>",
      "mail failed, returning to sender",
      `|------------------------- Message log follows: -------------------------|\n no valid recipients were found for this message\n|------------------------- Failed addresses follow: ---------------------|\n <${USER}> ... unknown user\n|------------------------- Message text follows: ------------------------|\n${RETURNED}`,
      "",
    ),
  ),
  Zmailer: hard(
    dsn(
      "The Post Office <postmaster@mx.relay.example>",
      "Delivery reports about your email [FAILED(1)]",
      `This is a collection of reports about email delivery\nprocess concerning a message you originated.\n\nFollowing is a list of reports:\n\nFAILED:\n  Original Recipient:\n    rfc822;${USER}\n  Final Recipient:\n    RFC822;${USER}\n  Remote host:\n    dns; mx.example.net (192.0.2.7)\n  Diagnostic Code:\n    smtp; 550 (User unknown)\n  Control data:\n    smtp example.net ${USER} 60001\n  Diagnostic texts:\n    <smtp; 550 5.1.1 User unknown>\n    (on machine: mx.example.net)\n    <- RCPT To:<${USER}>\n    -> 550 5.1.1 User unknown\n`,
      [
        `Original-Recipient: rfc822;${USER}\nFinal-Recipient: RFC822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 (User unknown)\nRemote-MTA: dns; mx.example.net (192.0.2.7)`,
      ],
    ),
  ),
  "QQ Mail in HTML": hard(
    plain(
      "PostMaster@qq.com",
      "=?utf-8?B?57O757uf6YCA5L+h?=",
      `<html><body><p>很抱歉，您的邮件被退回来了……</p><table><tr><td>原邮件信息：</td></tr><tr><td>时间</td><td>2010-04-29 23:34:45</td></tr><tr><td>主题</td><td>Hello</td></tr><tr><td>收件人</td><td>${USER}</td></tr><tr><td>退信原因：</td></tr><tr><td>收件人邮件地址（${USER}）不存在，邮件无法送达。<br>host mx.example.net[192.0.2.7] said: 550 User not found: ${USER} (in reply to RCPT TO command)</td></tr></table></body></html>`,
      "Content-Type: text/html; charset=utf-8",
    ),
  ),
  "163 Mail in HTML": hard(
    plain(
      "Postmaster@163.com",
      "=?utf-8?B?57O757uf6YCA5L+h?=",
      `<html><body><div>抱歉，您的邮件被退回来了……</div><div>邮件主题：Hello</div><div>收件人：<a href="mailto:${USER}">${USER}</a></div><div>退信代码：550 5.1.1 User unknown</div><div>退信原因：收件人不存在 SMTP error, RCPT TO: 550 5.1.1 User unknown</div></body></html>`,
      "Content-Type: text/html; charset=utf-8",
    ),
  ),
  "Coremail: full": soft(
    plain(
      "postmaster@mx.relay.example",
      "系统退信/Systems bounce",
      `您好！\n您的邮件无法投递到以下收件人：\n\n${USER}\n\n退信原因：收件人邮箱已满\nUser ${USER} is over quota.\n`,
    ),
  ),
  "BIGLOBE: full": soft(
    plain(
      "postmaster@biglobe.ne.jp",
      "Returned mail: Mailbox limit exceeded",
      `This is a MIME-encapsulated message.\n\n   ----- The following addresses had delivery problems -----\n<${USER}>\n\n   ----- Non-delivered information -----\nThe number of messages in recipient's mailbox exceeded the local limit.\n\n${RETURNED}`,
    ),
  ),
  "au by KDDI": hard(
    plain(
      "Postmaster@ezweb.ne.jp",
      "Mail System Error - Returned Mail",
      `The following recipients did not receive this message:\n\n<${USER}>\n\nPlease reply to Postmaster@ezweb.ne.jp\nif you feel this message to be in error.\n\n   ----- Transcript of session follows -----\n... while talking to mx.example.net.:\n>>> RCPT TO:<${USER}>\n<<< 550 <${USER}>: User unknown\n`,
    ),
  ),
  "au by KDDI: disabled": soft(
    plain(
      "Postmaster@ezweb.ne.jp",
      "Mail System Error - Returned Mail",
      `Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n\nThe user(s) account is disabled.\n\n<${USER}>: 550 user unknown\n`,
    ),
  ),
  "Cisco Email Security": hard(
    dsn(
      "Mail Delivery System <MAILER-DAEMON@mx.relay.example>",
      "Delivery Status Notification (Failure)",
      `The following message to <${USER}> was undeliverable.\nThe reason for the problem:\n5.1.0 - Unknown address error 550-'5.1.1 <${USER}>... User unknown'\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.0.0 (permanent failure)\nRemote-MTA: dns; [192.0.2.7]\nDiagnostic-Code: smtp; 5.1.0 - Unknown address error 550-'5.1.1 <${USER}>... User unknown' (delivery attempts: 0)`,
      ],
    ),
  ),
  "Cisco Email Security: blocked": soft(
    dsn(
      "Mail Delivery System <MAILER-DAEMON@mx.relay.example>",
      "Delivery Status Notification (Failure)",
      `The following message to <${USER}> was undeliverable.\nThe reason for the problem:\n5.3.0 - Other mail system problem 554-'5.7.1 Message rejected as spam'\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.0.0 (permanent failure)\nDiagnostic-Code: smtp; 5.3.0 - Other mail system problem 554-'5.7.1 Message rejected as spam' (delivery attempts: 0)`,
      ],
    ),
  ),
  "Cisco Email Security: host unknown": hard(
    dsn(
      "Mail Delivery System <MAILER-DAEMON@mx.relay.example>",
      "Delivery Status Notification (Failure)",
      `The following message to <${USER}> was undeliverable.\nThe reason for the problem:\n5.1.2 - Bad destination host 'DNS Hard Error looking up example.net (MX):  NXDomain'\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.0.0 (permanent failure)\nDiagnostic-Code: smtp; 5.1.2 - Bad destination host 'DNS Hard Error looking up example.net (MX):  NXDomain' (delivery attempts: 0)`,
      ],
    ),
  ),
  "Symantec Mail Security": hard(
    plain(
      "Symantec_Mail_Security_for_SMTP@mx.relay.example",
      "Delivery failure notification",
      `Your message with Subject: Hello \ncould not be delivered to the following recipients:\n\n${USER}\n\nSMTP error: RCPT TO:<${USER}> 550 5.1.1 <${USER}> User unknown\n\nPlease do not reply to this message.\n`,
    ),
  ),
  "Trend Micro InterScan": hard(
    plain(
      "InterScan MSS <postmaster@mx.relay.example>",
      "Mail could not be delivered",
      `*************************************************************\nMessage from InterScan Messaging Security Suite\n\nSent <<< RCPT TO:<${USER}>\nReceived >>> 550 5.1.1 <${USER}>... user unknown\n\nUnable to deliver message to <${USER}>.\n*************************************************************\n`,
    ),
  ),
  "McAfee WebShield": hard(
    plain(
      "Mail Delivery System <MAILER-DAEMON@mx.relay.example>",
      "Delivery Status",
      `--- The following addresses had delivery problems ---\n\n<${USER}>   (User unknown ${USER})\n\n--------------- Returned Message ---------------\n${RETURNED}`,
    ),
  ),
  "MailMarshal: relaying": soft(
    plain(
      "MailMarshal <postmaster@mx.relay.example>",
      'Undeliverable Mail: "Hello"',
      `Your message:\n   From:    news@sender.example\n   Subject: Hello\n\nCould not be delivered because of\n\n550 5.7.1 Unable to relay for ${USER}\n\nThe following recipients were affected: \n   ${USER}\n\nAdditional Information\n======================\nOriginal Sender:    <bounce@sender.example>\nSender-MTA:         <192.0.2.1>\nRemote-MTA:         <192.0.2.7>\nReporting-MTA:      <mx.relay.example>\n`,
    ),
  ),
  Mimecast: soft(
    dsn(
      "Mail Delivery Subsystem <MAILER-DAEMON@mx.relay.example>",
      "Undeliverable: Hello",
      `Your message was not delivered to ${USER}.\n\nThe reason: 550 Rejected by header based manually Blocked Senders: news@sender.example\n`,
      [group("5.0.0", "550 Rejected by header based manually Blocked Senders: news@sender.example")],
    ),
  ),
  MessageLabs: soft(
    dsn(
      "Mail Delivery System <MAILER-DAEMON@messagelabs.com>",
      "Mail Delivery Failure",
      `This is the mail delivery agent at messagelabs.com.\n\nI was unable to deliver your message to the following addresses:\n\n${USER}\n\nReason: 552 The mailbox is over quota\n\nThe message subject was: Hello\n\nPlease do not reply to this email as it is sent from an unattended mailbox.\nPlease visit www.messagelabs.com/support for more details\nabout this error message and instructions to resolve this issue.\n`,
      [
        `Action: failed\nStatus: 5.0.0\nRemote-MTA: dns; mx.example.net\nDiagnostic-Code: smtp; 552 The mailbox is over quota\nFinal-Recipient: rfc822; ${USER}`,
      ],
    ),
  ),
  PowerMTA: hard(
    dsn(
      "mailer-daemon@mx.relay.example",
      "Delivery report",
      `Hello, this is the mail server on mx.relay.example.\n\nI am sending you this message to inform you on the delivery status of a\nmessage you previously sent.  Immediately below you will find a list of\nthe affected recipients;  also attached is a Delivery Status Notification\n(DSN) report in standard format, as well as the headers of the original\nmessage.\n\n  <${USER}>  delivery failed; will not continue trying\n`,
      [
        `Original-Recipient: rfc822;${USER}\nFinal-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1 (bad destination mailbox address)\nRemote-MTA: dns;mx.example.net (192.0.2.7)\nDiagnostic-Code: smtp;550 5.1.1 User unknown\nX-PowerMTA-BounceCategory: bad-mailbox`,
      ],
    ),
  ),
  "PowerMTA: delayed": soft(
    dsn(
      "mailer-daemon@mx.relay.example",
      "Delivery report",
      `Hello, this is the mail server on mx.relay.example.\n\n  <${USER}>  delivery delayed, will continue trying\n`,
      [`Final-Recipient: rfc822;${USER}\nAction: delayed\nStatus: 4.4.1 (no answer from host)`],
    ),
  ),
  KumoMTA: hard(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@mx.relay.example>",
      "Returned mail",
      `The message was received at Thu, 29 Apr 2010 23:34:45 +0900\nfrom bounce@sender.example and addressed to ${USER}.\nWhile communicating with mx.example.net (192.0.2.7):\nResponse: 550 5.1.1 user unknown\n\nThe message will be deleted from the queue.\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1 user unknown\nRemote-MTA: dns; mx.example.net\nDiagnostic-Code: smtp; 550 5.1.1 user unknown`,
      ],
    ),
  ),
  Stalwart: hard(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@mx.relay.example>",
      "Failed to deliver message",
      `Your message could not be delivered to the following recipients:\n\n<${USER}> (host 'mx.example.net' rejected command 'RCPT TO:<${USER}>' with code 550 (5.1.1) 'User unknown')\n\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 User unknown\nRemote-MTA: dns;mx.example.net`,
      ],
    ),
  ),
  Maddy: hard(
    dsn(
      "MAILER-DAEMON <MAILER-DAEMON@mx.relay.example>",
      "Undelivered Mail Returned to Sender",
      `This is the mail delivery system at mx.relay.example.\n\nUnfortunately, your message could not be delivered to one or more\nrecipients. The usual cause of this problem is invalid\nrecipient address or maintenance at the recipient side.\n\nContact the postmaster for further assistance, provide the Message ID (below):\n\nMessage ID: 1\nArrival: 2010-04-29\nLast delivery attempt: 2010-04-29\n\nDelivery to ${USER} (SMTP) failed with error: User unknown\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 User unknown`,
      ],
    ),
  ),
  ZoneMTA: soft(
    dsn(
      "Mail Delivery Subsystem <mailer-daemon@mx.relay.example>",
      "Delivery Status Notification (Failure)",
      `Delivery to the following recipient failed permanently:\n    ${USER}\n\nTechnical details of permanent failure:\n\n    554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org\n\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org`,
      ],
    ),
  ),
  "DragonFly Mail Agent": hard(
    plain(
      "<MAILER-DAEMON@mx.relay.example>",
      "Mail delivery failed",
      `This is the DragonFly Mail Agent v0.13 at mx.relay.example.\n\nThere was an error delivering your mail to <${USER}>.\n\nmx.example.net [192.0.2.7] did not like our RCPT TO:\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\nMessage headers follow.\n\n${RETURNED}`,
      "X-Original-To: <bounce@sender.example>",
    ),
  ),
  "DragonFly Mail Agent: no host": hard(
    plain(
      "<MAILER-DAEMON@mx.relay.example>",
      "Mail delivery failed",
      `This is the DragonFly Mail Agent v0.13 at mx.relay.example.\n\nThere was an error delivering your mail to <${USER}>.\n\nDNS lookup failure: host example.net not found\n\nMessage headers follow.\n\n${RETURNED}`,
      "",
    ),
  ),
  Citadel: hard(
    plain(
      "Citadel <postmaster@mx.relay.example>",
      "Delivery Status Notification (Failure)",
      `A message you sent could not be delivered to some or all of its recipients\ndue to prevailing unreachability of its final destination address(es):\n\n${USER}: 550 5.1.1 No such user here\n`,
    ),
  ),
  XMail: hard(
    plain(
      "postmaster@mx.relay.example",
      "Error sending message [1272551685.1.mx] from [sender.example]",
      `[<00>] XMail bounce: Rcpt=[${USER}];Error=[550 5.1.1 <${USER}>: Recipient address rejected: User unknown]\n\n\n[<01>] Error sending message [1272551685.1.mx] from [mx.relay.example].\n\nID:        <S1>\nMail From: <bounce@sender.example>\nRcpt To:   <${USER}>\nServer:    <mx.example.net> [192.0.2.7]\n\n\n[<02>] The reason of the delivery failure was:\n\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\n\n[<05>] Here is listed the initial part of the message:\n\n${RETURNED}`,
    ),
  ),
  "Mercury/32": hard(
    plain(
      "Electronic Postmaster <postmaster@mx.relay.example>",
      "Postmaster notify: see transcript for details",
      `Your message could not be delivered to one or more addresses.\nOne or more addresses in your message have failed with the\nfollowing responses from the mail transport system:\n\n   ${USER}\n    550 5.1.1 User unknown\n`,
    ),
  ),
  IceWarp: hard(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@mx.relay.example>",
      "Undeliverable: Hello",
      `The message could not be delivered to the following recipient(s):\n\n <${USER}>:\n 550 5.1.1 <${USER}> User unknown; rejecting\n`,
    ),
  ),
  SurgeMail: hard(
    plain(
      "Mail System <postmaster@mx.relay.example>",
      "Mail could not be delivered",
      `Your message cannot be delivered to the following recipients:\n\nFailed: ${USER}\nReason: Remote server said: 550 5.1.1 No such user\n`,
    ),
  ),
  Axigen: hard(
    plain(
      "Mail Delivery System <postmaster@mx.relay.example>",
      "Delivery notification: Message delivery failed",
      `Message delivery failed for: ${USER}\nError: 550 <${USER}>: unknown local recipient\n`,
    ),
  ),
  "Microsoft SMTP service": soft(
    dsn(
      "postmaster@mx.relay.example",
      "Delivery Status Notification (Failure)",
      `This is an automatically generated Delivery Status Notification.\n\nUnable to deliver message to the following recipients, due to being unable to connect successfully to the destination mail server.\n\n       ${USER}\n\n`,
      [`Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 4.4.7`],
    ),
  ),
  "Lotus SMTP gateway": hard(
    plain(
      "SMTP Gateway <smtpgateway@mx.relay.example>",
      "Undeliverable mail returned",
      `The message could not be delivered because the recipient is unknown:\n\n  ${USER}\n\n${RETURNED}`,
    ),
  ),
  "an MTA that only lists the header of Exim": soft(
    plain(DAEMON, "Delivery problem", "We did not manage it.\n", `X-Failed-Recipients: ${USER}`),
  ),
  "AT&T Net Station": soft(
    plain(
      "Mail Administrator <postmaster@mx.relay.example>",
      "Mail System Error - Returned Mail",
      `This Message was undeliverable due to the following reason:\n\nYour message was not delivered because the destination computer was\nnot reachable within the allowed queue period.\n\nHost mx.example.net is not responding.\n\nThe following recipients did not receive this message:\n\n     <${USER}>\n\nPlease reply to <postmaster@mx.relay.example>\nif you feel this message to be in error.\n`,
    ),
  ),
  "Openwave: unknown": hard(
    plain(
      "Mail Administrator <Postmaster@mx.relay.example>",
      "Mail System Error - Returned Mail",
      `This Message was undeliverable due to the following reason:\n\nEach of the following recipients was rejected by a remote mail server.\nThe reasons given by the server are included to help you determine why\neach recipient was rejected.\n\n    Recipient: <${USER}>\n    Reason:    5.1.1 <${USER}>... User unknown\n\n\nPlease reply to <Postmaster@mx.relay.example>\nif you feel this message to be in error.\n`,
    ),
  ),
  "InterMail: over quota": soft(
    plain(
      "Mail Administrator <Postmaster@mx.relay.example>",
      "Mail System Error - Returned Mail",
      `This Message was undeliverable due to the following reason:\n\nThe user(s) account is temporarily over quota.\n\n<${USER}>\n\nPlease reply to Postmaster@mx.relay.example\nif you feel this message to be in error.\n`,
    ),
  ),
  "Amazon SES": hard(
    dsn(
      "MAILER-DAEMON@amazonses.com",
      "Delivery Status Notification (Failure)",
      `An error occurred while trying to deliver the mail to the following recipients:\n${USER}\n`,
      [
        `Final-Recipient: rfc822;${USER}\nDiagnostic-Code: Amazon SES has suppressed sending to this address because it has a recent history of bouncing as an invalid address. For more information about how to remove an address from the suppression list, see the Amazon SES Developer Guide.\nAction: failed\nStatus: 5.1.1`,
      ],
    ),
  ),
  "Amazon SES: expired": soft(
    dsn("MAILER-DAEMON@eu-west-1.amazonses.com", "Delivery Status Notification (Failure)", `Technical report:\n\n`, [
      `Final-Recipient: rfc822;${USER}\nDiagnostic-Code: smtp; 550 4.4.7 Message expired: unable to deliver in 840 minutes.<421 4.4.0 Unable to lookup DNS for example.net>\nAction: failed\nStatus: 4.4.7`,
    ]),
  ),
  SendGrid: hard(
    dsn(
      "MAILER-DAEMON",
      "Undelivered Mail Returned to Sender",
      `Hello, this is the mail server on mx.relay.example.\n\nI am sending you this message to inform you on the delivery status of a message you previously sent.\n\n<${USER}>  delivery failed; will not continue trying\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nOriginal-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: 550 5.1.1 The email account that you tried to reach does not exist`,
      ],
    ),
  ),
  Mailgun: hard(
    dsn(
      "MAILER-DAEMON@mx.relay.example",
      "Undeliverable: Hello",
      `The following message could not be delivered:\n\nTo: ${USER}\nReason: 550 5.1.1 No such user\n`,
      [group("5.1.1", "550 5.1.1 No such user")],
    ),
  ),
  "Domino in French": hard(
    dsn(
      "postmaster@mx.relay.example",
      "ECHEC DE LA DISTRIBUTION : Utilisateur user (user@example.net) non répertorié dans l'annuaire Domino",
      `Votre message\n\n  Objet : Hello\n\nn'a pas été distribué à :\n\n  ${USER}\n\ncar :\n\n  Utilisateur user (${USER}) non répertorié dans l'annuaire Domino\n`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: X-Notes; Utilisateur user (${USER}) non r=?pertori=? dans l'annuaire Domino`,
      ],
    ),
  ),
  "a report that leaves out status and diagnostic": hard(
    dsn(DAEMON, "Returned mail", `<${USER}>: 550 5.1.1 User unknown (in reply to RCPT TO command)\n`, [
      `Final-Recipient: rfc822; ${USER}\nAction: failed`,
    ]),
  ),
  "a report whose parts are empty": hard(
    dsn(DAEMON, "Returned mail: User unknown", `<${USER}>: 550 5.1.1 User unknown\n`, [""]),
  ),
  "a report with a final address of LAN type": hard(
    dsn(DAEMON, "Undeliverable", "The message was not delivered.\n", [
      `Original-Recipient: rfc822;${USER}\nFinal-Recipient: LAN=user\nAction: failed\nStatus: 5.1.1`,
    ]),
  ),
  "a report with a forwarded address": hard(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Original-Recipient: rfc822;list@sender.example\n${group("5.1.1", "550 5.1.1 User unknown")}`,
    ]),
  ),
  "a report with a display name": hard(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Final-Recipient: rfc822; "User" <${USER}>\nAction: failed\nStatus: 5.1.1`,
    ]),
  ),
  "a report with a quoted local part": {
    raw: dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Final-Recipient: rfc822; "us er"@example.net\nAction: failed\nStatus: 5.1.1`,
    ]),
    wanted: [['"us er"@example.net', "hard"]],
  },
  "a report with a telling text and no status": soft(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", `<${USER}>: 5.0.0\n`, [
      group("5.0.0", "550 The mailbox of this person is over its quota"),
    ]),
  ),
  "a report whose text contradicts its status": soft(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      group("5.1.1", "552 5.2.2 <user@example.net>: mailbox full"),
    ]),
  ),
  "a report with parenthesised status": soft(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.2.2 (mailbox full)`,
    ]),
  ),
  "Sieve: quota": soft(
    `${head({ from: "Mail Delivery Subsystem <postmaster@example.net>", subject: "Rejected: Hello", more: 'Auto-Submitted: auto-replied (rejected)\nContent-Type: multipart/report; report-type=disposition-notification;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: text/plain; charset=utf-8\n\nYour message to <${USER}> was automatically rejected:\nQuota exceeded (mailbox for user is full)\n--=_b\nContent-Type: message/disposition-notification\n\nReporting-UA: mx.example.net; Dovecot Mail Delivery Agent\nOriginal-Recipient: rfc822; ${USER}\nFinal-Recipient: rfc822; ${USER}\nDisposition: automatic-action/MDN-sent-automatically; deleted\n\n--=_b--\n`,
  ),
  "Exim: two recipients": {
    raw: plain(
      "Mailer-Daemon@x.example",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  ${ONE}\n    SMTP error from remote mail server after RCPT TO:<${ONE}>:\n    host mx [192.0.2.1]: 550 unknown user\n  ${TWO}\n    mailbox is full: retry timeout exceeded\n\n------ This is a copy of the message, including all the headers. ------\n\n${RETURNED_OF_TWO}`,
      `X-Failed-Recipients: ${ONE},\n ${TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "Exim: two headers": {
    raw: plain(
      "Mailer-Daemon@x.example",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software (Exim).\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  ${ONE}\n    Unrouteable address\n  ${TWO}\n    Unrouteable address\n\n------ This is a copy of the message, including all the headers. ------\n\n${RETURNED_OF_TWO}`,
      `X-Failed-Recipients: ${ONE}\nX-Failed-Recipients: ${TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "hard"],
    ],
  },
  "Sendmail 8.6: two recipients": {
    raw: plain(
      "Mail Delivery Subsystem <MAILER-DAEMON@x.example>",
      "Returned mail: User unknown",
      `The original message was received at Thu\nfrom x [192.0.2.1]\n\n   ----- The following addresses had delivery problems -----\n<${ONE}>  (unrecoverable error)\n<${TWO}>  (unrecoverable error)\n\n   ----- Transcript of session follows -----\n... while talking to mx.example.net.:\n>>> RCPT To:<${ONE}>\n<<< 550 <${ONE}>... User unknown\n550 <${ONE}>... User unknown\n550 <${TWO}>... Host unknown (Name server: example.org: host not found)\n\n   ----- Original message follows -----\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "hard"],
    ],
  },
  "Postfix before DSN: two recipients": {
    raw: plain(
      "MAILER-DAEMON@x.example (Mail Delivery System)",
      "Undelivered Mail Returned to Sender",
      `This is the Postfix program at host x.example.\n\nI'm sorry to have to inform you that the message returned\nbelow could not be delivered to one or more destinations.\n\n<${ONE}>: host mx[192.0.2.1] said: 550 5.1.1 <${ONE}> User unknown (in\n    reply to RCPT TO command)\n\n<${TWO}>: host mx[192.0.2.1] said: 552 5.2.2 <${TWO}> full (in\n    reply to RCPT TO command)\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "IMail: two recipients": {
    raw: plain(
      "Postmaster <postmaster@x.example>",
      "Undeliverable Mail",
      `Unknown user: ${ONE}\n\nUser mailbox exceeds allowed size: ${TWO}\n\nOriginal message follows.\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "MailMarshal: two recipients": {
    raw: plain(
      "postmaster@x.example",
      'Undeliverable Mail: "Hello"',
      `Your message:\n   From:    news@sender.example\n   Subject: Hello\n\nCould not be delivered because of\n\n550 5.1.1 User unknown\n\nThe following recipients were affected: \n   ${ONE}\n   ${TWO}\n\nAdditional Information\n======================\nOriginal Sender:    <bounce@sender.example>\n`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "hard"],
    ],
  },
  "GMX: two recipients": {
    raw: plain(
      "GMX Mailer Daemon <mailer-daemon@gmx.net>",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address(es)\nfailed:\n\n"${ONE}":\nSMTP error from remote server after RCPT command:\nhost: mx.example.net\n5.1.1 <${ONE}>... User Unknown\n"${TWO}":\ndelivery retry timeout exceeded\n\n--- The header of the original message is following. ---\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "Exchange 5.5: two recipients": {
    raw: plain(
      "System Administrator <postmaster@x.example>",
      "Undeliverable: Hello",
      `Your message\n\n  To:      ${ONE}; ${TWO}\n  Subject: Hello\n  Sent:    Thu\n\ndid not reach the following recipient(s):\n\n${ONE} on Thu, 29 Apr 2010\n    The recipient name is not recognized\n    MSEXCH:IMS:X:Y:Z 0 (000C05A6) Unknown Recipient\n${TWO} on Thu, 29 Apr 2010\n    The recipient's mailbox is full\n    MSEXCH:IMS:X:Y:Z 0 (000C05A6) 552\n`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "a mail client's server: two recipients": {
    raw: plain(
      "MAILER-DAEMON@x.example",
      "There was an error sending your mail",
      `Delivery of your message failed. Full details follow:\n\nSubject: 'Hello'\nDate:    'Thu'\n\n2 error(s):\n\nSMTP Server <mx.example.net> rejected recipient <${ONE}> \n  (Error following RCPT command). It responded as follows: [550 5.1.1 User unknown]\nSMTP Server <mx.example.org> rejected recipient <${TWO}> \n  (Error following RCPT command). It responded as follows: [552 5.2.2 Mailbox full]\n`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "Sun Messaging Server: two recipients": {
    raw: plain(
      "Internet Mail Delivery <postmaster@x.example>",
      "Delivery Notification: Delivery has failed",
      `This report relates to a message you sent with the following header fields:\n\n  Message-id: <1.x@sender.example>\n  To: list@sender.example\n\nYour message cannot be delivered to the following recipients:\n\n  Recipient address: ${ONE}\n  Reason: Remote SMTP server has rejected address\n  Diagnostic code: smtp;550 5.1.1 unknown user\n\n  Recipient address: ${TWO}\n  Reason: Over quota\n`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "Notes: two recipients": {
    raw: plain(
      "postmaster@x.example",
      "DELIVERY FAILURE: User unknown",
      `------- Failure Reasons  --------\n\nUser not listed in public Name & Address Book\n${ONE}\n\nUser not listed in public Name & Address Book\n${TWO}\n\n------- Returned Message --------\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "hard"],
    ],
  },
  "McAfee WebShield: two recipients": {
    raw: plain(
      "Mail Delivery System <MAILER-DAEMON@x.example>",
      "Delivery Status",
      `--- The following addresses had delivery problems ---\n\n<${ONE}>   (User unknown ${ONE})\n<${TWO}>   (552 Mailbox full)\n\n--------------- Returned Message ---------------\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "au by KDDI: two recipients": {
    raw: plain(
      "Postmaster@x.example",
      "Mail System Error - Returned Mail",
      `Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n Could not be delivered to: <${ONE}>\n As their mailbox is full.\n\n Could not be delivered to: <${TWO}>\n As there is no such user.\n`,
    ),
    wanted: [
      [ONE, "soft"],
      [TWO, "hard"],
    ],
  },
  "GroupWise: two recipients": {
    raw: plain(
      "Mailer-Daemon@x.example",
      "Message status - undeliverable",
      `The message that you sent was undeliverable to the following:\n\t${ONE} (user unknown)\n\t${TWO} (mailbox full)\n\nPossibly truncated original message follows:\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "a list of addresses in one line": {
    raw: plain(
      "MAILER-DAEMON@x.example",
      "failure notice",
      `Your message was not delivered to the following recipients:\n\n${ONE}, ${TWO}\n\nReason: 550 5.1.1 user unknown\n`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "hard"],
    ],
  },
  "Postfix: two members of an alias": {
    raw: plain(
      "MAILER-DAEMON@x.example",
      "Undelivered Mail Returned to Sender",
      `This is the mail system at host mx.relay.example.\n\n<${ONE}> (expanded from <list@news.example>): unknown user: "one"\n\n<${TWO}> (expanded from <list@news.example>): host said: 552 5.2.2 full\n\n${RETURNED_OF_TWO}`,
    ),
    wanted: [
      [ONE, "hard"],
      [TWO, "soft"],
    ],
  },
  "a report with a comment after the address": soft(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Final-Recipient: rfc822;${USER} (User)\nAction: failed\nStatus: 552 5.2.2`,
    ]),
  ),
  "a report without an address type": hard(
    dsn(DAEMON, "Undelivered Mail Returned to Sender", "See below.\n", [
      `Final-Recipient: <${USER}>\nAction: failed (see below)\nStatus: 5.1.1.`,
    ]),
  ),
  "a report of success without an action": none(
    dsn(DAEMON, "Delivery report", "See below.\n", [`Final-Recipient: rfc822;${USER}\nStatus: 2.1.5`]),
  ),
  "a report of a delay in other words": soft(
    dsn(DAEMON, "Delivery report", "See below.\n", [
      `Final-Recipient: rfc822;${USER}\nAction: delay\nStatus: 4.1.1\nDiagnostic-Code: smtp; 450 4.1.1 User unknown`,
    ]),
  ),
  "a complaint that names no recipient": {
    raw: `${head({ from: "fbl@provider.example", subject: "Abuse report", more: 'Content-Type: multipart/report; report-type=feedback-report;\n\tboundary="=_b"' })}\n--=_b\nContent-Type: text/plain\n\nThis is an email abuse report.\n--=_b\nContent-Type: message/feedback-report\n\nFeedback-Type: Abuse\nUser-Agent: Example/1.0\nVersion: 1\nCFBL-Feedback-ID: 1:2\n\n--=_b\nContent-Type: message/rfc822\n\nX-Original-To: ${USER}\nTo: <undisclosed-recipients:;>\nSubject: Hello\n\nHello\n--=_b--\n`,
    wanted: [[USER, "complaint"]],
  },
  "1&1: message too large": soft(
    plain(
      '"Mail Delivery System" <mailer-daemon@kundenserver.de>',
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of\nits recipients. This is a permanent error. The following address\nfailed:\n\n${USER}\n\nFor the following reason:\n\nMail size limit exceeded. For explanation visit\nhttp://postmaster.1and1.com/en/error-messages?ip=%1s\n\n--- The header of the original message is following. ---\n\n${RETURNED}`,
    ),
  ),
  "an MTA with the reason in brackets": hard(
    plain(
      '"Mail Deliver System" <MAILER-DAEMON@x.example>',
      "Returned Mail: User unknown",
      `The original message was received at Thu, 29 Apr 2010 23:34:45 +0900\nfrom news@sender.example\n\n---The following addresses had delivery errors---\n\n${USER} [User unknown]\n\n${RETURNED}`,
    ),
  ),
  "an MTA that marks recipients with an asterisk": hard(
    plain(
      "Mail Delivery System <postmaster@x.example>",
      "Delivery status notification",
      `============================================================================\n      This is an automatic message from the mail system.\n============================================================================\n  * ${USER}\n   553 5.3.0 <${USER}>... No such user here\n   STATUS: 5.3.0\n\n${RETURNED}`,
    ),
  ),
  "a qmail that is sorry: full": soft(
    plain(
      DAEMON,
      "failure notice",
      `We're sorry.\nYour mail could not be delivered to the following address(es):\n\n<${USER}>:\nMailbox full\n\n--- Below this line is a copy of the message.\n\n${RETURNED}`,
    ),
  ),
  Bigfoot: hard(
    plain(
      "Mail Delivery Subsystem <MAILER-DAEMON@bigfoot.example>",
      "Returned mail: Service unavailable",
      `The original message was received\n\n   ----- The following addresses had permanent fatal errors -----\n<${USER}>\n\n   ----- Transcript of session follows -----\n>>> RCPT TO:<${USER}>\n<<< 553 Invalid recipient ${USER} (Mode: normal)\n\n   ----- Transcript end ----\n`,
    ),
  ),
  "Facebook: recipient preferences": soft(
    dsn(
      "Facebook <mailer-daemon@mx-out.facebook.com>",
      "Sorry, your message could not be delivered",
      `This message was created automatically by Facebook.\n\nSorry, your message couldn't be delivered to ${USER}.\n`,
      [
        `Final-Recipient: rfc822; ${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 RCP-P2 http://postmaster.facebook.com/response_codes?ip=192.0.2.1#rcp Refused due to recipient preferences`,
      ],
    ),
  ),
  "Verizon: no recipient of a multimedia message": hard(
    plain(
      "post_master@vtext.com",
      "Undeliverable Message",
      `Error: No valid recipients for this MM\n\nMessage could not be delivered to mobile.\nTo: ${USER}\n`,
    ),
  ),
  SurfControl: hard(
    plain(
      "SurfControl E-mail Filter <postmaster@x.example>",
      "Message could not be sent",
      `Your message could not be sent.\nA transcript of the attempts to send the message follows.\nThe number of attempts made: 1\nAddressed To: ${USER}\n\nThu 29 Apr 2010 23:34:45 +0900\nFailed to send to identified host,\n${USER}: [192.0.2.5], 550 5.1.1 ${USER}... No such user\n\n--- Message non-deliverable.\n`,
    ),
  ),
  "MX Logic": hard(
    plain(
      "Mail Delivery System <mailer-daemon@x.example>",
      "Mail delivery failed: returning message to sender",
      `Included is a copy of the message header:\n\n<${USER}>:\n550 5.1.1 <${USER}>: Recipient address rejected: User unknown in local recipient table\n\n${RETURNED}`,
    ),
  ),
  "Trend Micro IMSVA: full": soft(
    dsn(
      '"Mail Delivery Subsystem" <mailer-daemon@x.example>',
      "Mail System Error",
      `Unable to deliver message to <${USER}>.\n`,
      [
        `Final-Recipient: rfc822; <${USER}>\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; 550 5.2.2 <${USER}>... Mailbox Full`,
      ],
    ),
  ),
  "m-FILTER": hard(
    plain(
      "mFILTER <postmaster@x.example>",
      "failure notice",
      `${USER}\n\n-------SERVER MESSAGE: \n550 5.1.1 <${USER}>: Recipient address rejected: User unknown\n\n-------LAST COMMAND: \nRCPT TO:<${USER}>\n\n${RETURNED}`,
    ),
  ),
  "NTMail: no host": hard(
    plain(
      "Postmaster <postmaster@x.example>",
      "Undeliverable mail",
      `The message returned below could not be delivered to the following address(es):\n\n   ${USER}\n\nThe reason: The remote host does not exist\n\n${RETURNED}`,
    ),
  ),
  VPOP3: hard(
    plain(
      "VPOP3 Mail Server <postmaster@x.example>",
      "Undeliverable Message",
      `The following message could not be delivered to:\n${USER}\n\nThe mail server reported: 550 5.1.1 User unknown\n\n${RETURNED}`,
    ),
  ),
  "Magic Winmail": soft(
    plain(
      "Mail Delivery Subsystem <postmaster@x.example>",
      "Delivery Status Notification(Failure)",
      `This is an automatically generated Delivery Status Notification.\n\nDelivery to the following recipients failed:\n\n\t${USER}\n\nReason: Remote host said: 550 user not exist\n`,
    ),
  ),
  "ArGoSoft: no MX": hard(
    plain(
      "ArGoSoft Mail Server <postmaster@x.example>",
      "Undeliverable mail",
      `Message could not be delivered to some recipients.\n\n${USER}: Could not find MX record for domain\n`,
    ),
  ),
  "Zoho: unknown": hard(
    plain(
      "mailer-daemon@mail.zoho.com",
      "Undelivered Mail Returned to Sender",
      `This message was created automatically by mail delivery software.\n A message that you sent could not be delivered to one or more of its recipients. This is a permanent error. \n\n${USER} Invalid Address, ERROR_CODE :550, ERROR_CODE :5.1.1 <${USER}>... User Unknown\n`,
    ),
  ),
  "Zoho: full": soft(
    plain(
      "mailer-daemon@mail.zoho.com",
      "Undelivered Mail Returned to Sender",
      `This message was created automatically by mail delivery software.\n A message that you sent could not be delivered to one or more of its recipients. This is a permanent error. \n\n${USER} Mailbox Quota Exceeded, ERROR_CODE :552, ERROR_CODE :5.2.2 <${USER}>... Mailbox Full\n`,
    ),
  ),
  "Zoho: delay": soft(
    plain(
      "mailer-daemon@mail.zoho.com",
      "Delivery delayed",
      `This message was created automatically by mail delivery software.\n The original message was not yet delivered: \n\n[Status: Error, Address: <${USER}>, ResponseCode 421, , Host not reachable.]\n`,
    ),
  ),
  "Gmail with a numbered state": hard(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `This is an automatically generated Delivery Status Notification\n\nDelivery to the following recipient failed permanently:\n\n     ${USER}\n\nTechnical details of permanent failure: \nGoogle tried to deliver your message, but it was rejected by the recipient domain. We recommend contacting the other email provider for further information about the cause of this error. The error that the other server returned was: 550 550 5.1.1 <${USER}>... User Unknown (state 14).\n\n----- Original message -----\n\n${RETURNED}`,
      `X-Failed-Recipients: ${USER}`,
    ),
  ),
  "Gmail: no domain": hard(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `Delivery to the following recipient failed permanently:\n\n     ${USER}\n\nTechnical details of permanent failure: \nDNS Error: Domain name not found\n\n----- Original message -----\n\n${RETURNED}`,
    ),
  ),
  "Gmail: no name server": soft(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Failure)",
      `Delivery to the following recipient failed permanently:\n\n     ${USER}\n\nTechnical details of permanent failure: \nDNS Error: Could not contact DNS servers\n\n----- Original message -----\n\n${RETURNED}`,
    ),
  ),
  "Gmail: retried": soft(
    plain(
      "Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
      "Delivery Status Notification (Delay)",
      `This is an automatically generated Delivery Status Notification\n\nTHIS IS A WARNING MESSAGE ONLY.\n\nYOU DO NOT NEED TO RESEND YOUR MESSAGE.\n\nDelivery to the following recipient has been delayed:\n\n     ${USER}\n\nMessage will be retried for 2 more day(s)\n\nTechnical details of temporary failure: \nThe recipient server did not accept our requests to connect.\n`,
    ),
  ),
  "Yahoo: discontinued account": soft(
    plain(
      "MAILER-DAEMON@yahoo.com",
      "Delivery failure",
      `Message from yahoo.com.\nUnable to deliver message to the following address(es).\n\n<${USER}>:\nSorry your message to ${USER} cannot be delivered. This account has been disabled or discontinued [#102].\n\n--- Original message follows.\n\n${RETURNED}`,
    ),
  ),
  "Yahoo: no MX": hard(
    plain(
      "MAILER-DAEMON@yahoo.com",
      "Failure Notice",
      `Sorry, we were unable to deliver your message to the following address.\n\n<${USER}>:\nNo MX or A records for example.net\n\n--- Below this line is a copy of the message.\n\n${RETURNED}`,
    ),
  ),
  "Outlook in HTML": hard(
    dsn(
      "Microsoft Outlook <MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@example.net>",
      "Undeliverable: Hello",
      `<html><body>Your message to <a href="mailto:${USER}">${USER}</a> couldn't be delivered.<br><b>user</b> wasn't found at <b>example.net</b>.</body></html>`,
      [
        `Final-Recipient: rfc822;${USER}\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp;550 5.1.1 RESOLVER.ADR.RecipNotFound; not found`,
      ],
      "text/html",
    ),
  ),
  "Exchange 2007 without parts": hard(
    plain(
      "Microsoft Exchange <postmaster@example.net>",
      "Undeliverable: Hello",
      `Delivery has failed to these recipients or distribution lists:\n\n${USER}\nThe recipient's e-mail address was not found in the recipient's e-mail system. Microsoft Exchange will not try to redeliver this message for you.\n\n  _____\n\nSent by Microsoft Exchange Server 2007\n\nDiagnostic information for administrators:\n\nGenerating server: mx.example.net\n\n${USER}\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##\n\nOriginal message headers:\n\n${RETURNED}`,
    ),
  ),
  "Exchange 2007 in French": hard(
    plain(
      "Microsoft Exchange <postmaster@example.net>",
      "Non remis : Hello",
      `Échec de la remise pour ces destinataires ou ces listes de distribution :\n\n${USER}\nL'adresse de messagerie du destinataire est introuvable dans le système de messagerie du destinataire.\n\nInformations de diagnostic pour les administrateurs :\n\nServeur de génération : mx.example.net\n\n${USER}\n#550 5.1.1 RESOLVER.ADR.RecipNotFound; not found ##\n\n${RETURNED}`,
    ),
  ),
  "Exchange 2007: size": soft(
    plain(
      "Microsoft Exchange <postmaster@example.net>",
      "Undeliverable: Hello",
      `Delivery has failed to these recipients or groups:\n\n${USER}\nYour message is too large to send.\n\n${USER}\n#550 5.2.3 RESOLVER.RST.RecipSizeLimit; message too large for this recipient ##\n`,
    ),
  ),
  "Exchange 2003 in Japanese": hard(
    plain(
      "System Administrator <postmaster@example.net>",
      `=?utf-8?B?${Buffer.from("配信不能: Hello").toString("base64")}?=`,
      `次の受信者にメッセージを配信できませんでした:\n\n'${USER}' 日時 2010/04/29 23:34\n        受信者のメール アドレスが見つかりませんでした。\n            <mx.example.net #5.1.1>\n`,
    ),
  ),
  "Sendmail: pipe of an alias": soft(
    plain(
      DAEMON,
      "Returned mail: Data format error",
      `   ----- The following addresses had permanent fatal errors -----\n"|exec /usr/bin/procmail"\n    (reason: Data format error)\n    (expanded from: <${USER}>)\n\n   ----- Transcript of session follows -----\n501 5.6.0 Data format error\n`,
    ),
  ),
  "an MTA that writes one line": hard(
    plain(
      DAEMON,
      "Undeliverable mail",
      `Could not deliver to: ${USER} -> host mx.example.net rejected recipient: 550 5.1.1 unknown\n`,
    ),
  ),
  "an MTA that writes a few words": hard(
    plain("Mail System <mail-daemon@x.example>", "Mail not delivered", `${USER}: recipient does not exist\n`),
  ),
  "au by KDDI: full": soft(
    plain(
      "no-reply@app.auone-net.jp",
      "Mail System Error - Returned Mail",
      `Your mail sent on: Thu, 29 Apr 2010 23:34:45 +0900\n Could not be delivered to: <${USER}>\n As their mailbox is full.\n\n${RETURNED}`,
    ),
  ),
  "an MTA that names the sender in the same line": soft(
    plain(
      DAEMON,
      "Mail Delivery Problem",
      `Your mail is not deliverable to ${USER}, reason: member has blocked mail from you\n`,
    ),
  ),
  "a success in plain text": {
    raw: plain(
      "Mail Delivery System <mailer-daemon@x.example>",
      "Delivery Status Notification (Success)",
      `Your message has been successfully delivered to the following recipients:\n\n${USER}\n`,
    ),
    wanted: [],
  },
  "Exchange: relayed": {
    raw: plain(
      "Microsoft Exchange <postmaster@x.example>",
      "Relayed: Hello",
      `Delivery to these recipients or distribution lists is complete, but delivery notification was not sent by the destination:\n\n${USER}\n`,
    ),
    wanted: [],
  },
  "Exim: file of a local delivery": soft(
    dsn(
      "Mail Delivery System <Mailer-Daemon@mx.relay.example>",
      "Mail delivery failed: returning message to sender",
      `This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:\n\n  save to /var/mail/user\n    generated by ${USER}\n    mailbox is full: retry timeout exceeded\n`,
      [`Action: failed\nFinal-Recipient: rfc822;/var/mail/user\nStatus: 5.0.0`],
    ),
  ),
  "a report about an address with words of the rules": {
    raw: qmail(
      "<spam@sender-tools.example>:\n192.0.2.7 does not like recipient.\nRemote host said: 550 5.1.1 <spam@sender-tools.example>: Recipient address rejected: User unknown",
    ),
    wanted: [["spam@sender-tools.example", "hard"]],
  },
  "a report about an address with an apostrophe": {
    raw: qmail("<o'brien@example.net>:\nSorry, no mailbox here by that name. (#5.1.1)"),
    wanted: [["o'brien@example.net", "hard"]],
  },
};
