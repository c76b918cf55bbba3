import { strict as assert } from "node:assert";
import { readdirSync } from "node:fs";
import fc from "fast-check";
import { classifyMail } from "../../domain/reports/classify.ts";
import { MAX_READ_BYTES } from "../../domain/reports/incoming-mail.ts";
import type { ReportKind } from "../../domain/reports/report.ts";
import { cpuClock } from "../support/cpu.ts";
import { classifyLabelled, isRight, MAILS, readLabelled } from "./labelled.ts";

const mail = (head: string, body: string) => Buffer.from(`${head.trim()}\r\n\r\n${body}`.replace(/\r?\n/g, "\r\n"));

/** A notification of RFC 3464 with one recipient. */
const notification = (group: string, text = "") =>
  mail(
    'From: <MAILER-DAEMON@relay.example>\nTo: <bounce@news.example>\nSubject: Delivery report\nContent-Type: multipart/report; report-type=delivery-status; boundary="b"',
    `--b\n\n${text}\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; relay.example\n\n${group}\n\n--b--\n`,
  );
const failed = (status: string, diagnostic: string, text = "") =>
  notification(
    `Final-Recipient: rfc822; user@example.net\nAction: failed\nStatus: ${status}\nDiagnostic-Code: smtp; ${diagnostic}`,
    text,
  );
const feedback = (type: string) =>
  mail(
    'From: <fbl@provider.example>\nSubject: report\nContent-Type: multipart/report; report-type=feedback-report; boundary="b"',
    `--b\n\nThis is a report.\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: ${type}\nVersion: 1\nOriginal-Rcpt-To: <user@example.net>\n\n--b\nContent-Type: message/rfc822\n\nMessage-ID: <1.x@example.org>\nTo: user@example.net\n\nHello\n--b--\n`,
  );

/** Mail with parts that is neither a bounce nor a complaint; `ordinary-mails.ts` has mail without parts. */
const OTHER_MAIL: Record<string, Buffer> = {
  "an attached bounce": mail(
    'From: Ann <ann@example.net>\nSubject: What is this?\nContent-Type: multipart/mixed; boundary="c"',
    `--c\n\nI got this.\n--c\nContent-Type: message/rfc822\n\n${failed("5.1.1", "550 5.1.1 User unknown").toString()}\n--c--\n`,
  ),
  "an attached feedback report": mail(
    'From: Ann <ann@example.net>\nSubject: FYI\nContent-Type: multipart/mixed; boundary="c"',
    `--c\n\nI got this.\n--c\nContent-Type: message/rfc822\n\n${feedback("abuse").toString()}\n--c--\n`,
  ),
  "a receipt": mail(
    'From: ann@example.net\nSubject: Read: News\nContent-Type: multipart/report; report-type=disposition-notification; boundary="b"',
    "--b\n\nYour message was displayed.\n--b\nContent-Type: message/disposition-notification\n\nFinal-Recipient: rfc822; ann@example.net\nDisposition: manual-action/MDN-sent-manually; deleted\n\n--b--\n",
  ),
};

describe("classifying reports that come by mail", () => {
  it("is right on at least 98 % of 310 labelled mails, and takes none for a report that the labels call neither", async () => {
    const outcomes = await classifyLabelled();
    const wrong = outcomes.filter((outcome) => !isRight(outcome));
    assert.equal(outcomes.length, readdirSync(MAILS).length);
    assert.ok(wrong.length / outcomes.length <= 0.02, JSON.stringify(wrong, null, 2));
    for (const { file, wanted, found } of outcomes) {
      if (wanted.every((kind) => kind === "none")) assert.deepEqual(new Set(found), new Set(["none"]), file);
    }
  });

  for (const [name, raw] of Object.entries(OTHER_MAIL)) {
    it(`takes ${name} for no report`, async () => {
      assert.deepEqual((await classifyMail(raw)).recipients, []);
    });
  }

  const replies: [status: string, diagnostic: string, kind: ReportKind][] = [
    ["5.0.0", "550 <user@example.net>... User unknown", "hard"],
    ["5.0.0", "550 Unknown user user@example.net", "soft"],
    ["5.1.1", "550 5.1.1 mailbox full", "soft"],
    ["4.1.1", "450 4.1.1 <user@example.net>: Recipient address rejected: User unknown", "soft"],
    ["5.0.0", "550 [192.0.2.1] not found in DNS", "soft"],
    ["4.4.7", "", "soft"],
    // The most specific code, of either field.
    ["5.2.2", "550 5.1.0 Denied", "soft"],
    ["5.1.1", "550 5.0.0 Denied", "hard"],
    // The sender's, to any recipient; under a code that says otherwise, too.
    ["5.1.7", "550 5.1.7 <user@example.net>: no such user", "soft"],
    ["5.1.8", "553 5.1.8 Unknown user", "soft"],
    ["5.1.1", "550 5.1.1 <bounce@news.example>: unknown user", "soft"],
    ["5.0.0", "550 Verification failed for <bounce@news.example> 550 No such user here", "soft"],
    ["5.0.0", "550 <user@example.net>: domain news.example does not exist", "soft"],
    ["5.1.1", "550 5.1.1 Could not verify bounce@news.example: no such mailbox", "soft"],
    ["5.0.0", "550 <user@example.net>: domain not.news.example does not exist", "hard"],
    // May be known later.
    ["5.0.0", "550 Unable to verify recipient, directory timeout", "soft"],
    ["5.0.0", "550 <user@example.net>: Recipient address rejected: cannot verify the user, try again later", "soft"],
    ["5.1.1", "550 5.1.1 Recipient lookup timed out", "soft"],
    ["5.1.1", "550 5.1.1 LDAP: temporary error, user unknown", "soft"],
    ["5.0.0", "550 <user@example.net>: unknown user (directory not available)", "soft"],
    ["5.0.0", "550 One or more recipients not found", "soft"],
    ["5.1.1", "550 5.1.1 Permanent failure for one or more recipients", "hard"],
    ["5.2.2", "550 5.2.2 The message exceeds the size that is left, rejected by policy", "soft"],
  ];
  for (const [status, diagnostic, kind] of replies) {
    it(`calls ${JSON.stringify(diagnostic || status)} ${kind}`, async () => {
      const { recipients } = await classifyMail(failed(status, diagnostic));
      assert.deepEqual(
        recipients.map((recipient) => [recipient.address, recipient.kind]),
        [["user@example.net", kind]],
      );
    });
  }

  it("reads the fields before the text", async () => {
    assert.equal((await classifyMail(failed("5.1.1", "", "554 5.4.6 Too many hops: the mail loops"))).kind, "hard");
    assert.equal((await classifyMail(failed("5.7.1", "", "550 5.1.1 User unknown"))).kind, "soft");
  });

  it("suppresses nobody for what was said to MAIL, EHLO or the connection, or by a code to the message", async () => {
    const answers: [reply: string, command: string, kind: ReportKind][] = [
      ["550 5.1.1 Access refused", "(in reply to EHLO command)", "soft"],
      ["550 5.1.1 Unknown user", "(in reply to MAIL FROM command)", "soft"],
      ["553 5.1.0 news.example does not exist", "after MAIL FROM:<bounce@news.example> SIZE=1022:", "soft"],
      ["550 5.1.2 Unknown host", "after pipelined EHLO mx.relay.example:", "soft"],
      ["554 5.1.0 Go away", "refused to talk to me:", "soft"],
      ["554 5.1.0 Message rejected", "(in reply to end of DATA command)", "soft"],
      ["554 5.1.2 Denied", "after end of data:", "soft"],
      ["550 5.1.1 Denied", "while talking to mx.example.net.: <<< 550 5.1.1 Denied", "soft"],
      ["550 5.1.1 Denied", "(in reply to initial server greeting)", "soft"],
      ["554 5.1.0 Denied", "(in reply to RCPT TO command)", "hard"],
      ["550 5.1.1 User unknown", "(in reply to end of DATA command)", "hard"],
    ];
    for (const [reply, command, kind] of answers) {
      const { recipients } = await classifyMail(failed(reply.slice(4, 9), reply, `host mx said: ${reply} ${command}`));
      assert.deepEqual(
        recipients.map((recipient) => recipient.kind),
        [kind],
        `${reply} ${command}`,
      );
    }
    const withoutReply = failed("5.1.1", "", "<user@example.net>: Access refused (in reply to EHLO command)");
    assert.equal((await classifyMail(withoutReply)).kind, "soft");
  });

  it("takes the command that a reply answers from the text", async () => {
    const reply = "550 <user@example.net> recipient rejected";
    const answering = (command: string) =>
      `<user@example.net>: host mx said: ${reply} (in reply to ${command} command)`;
    assert.equal((await classifyMail(failed("5.0.0", reply, answering("RCPT TO")))).kind, "hard");
    assert.equal((await classifyMail(failed("5.0.0", reply, answering("end of DATA")))).kind, "soft");
    assert.equal((await classifyMail(failed("5.0.0", reply, answering("MAIL FROM")))).kind, "soft");
  });

  for (const action of ["delivered", "relayed", "expanded", "deliverable", "(to a list)\n expanded"]) {
    it(`takes the action "${action}" for no bounce`, async () => {
      const group = `Final-Recipient: rfc822; user@example.net\nAction: ${action}\nStatus: 2.0.0`;
      assert.equal((await classifyMail(notification(group))).kind, "none");
    });
  }

  it("marks a delay, after which the mail may still arrive", async () => {
    const group = "Final-Recipient: rfc822; user@example.net\nAction: delayed\nStatus: 4.4.1";
    const { recipients } = await classifyMail(notification(group));
    assert.deepEqual(
      recipients.map(({ kind, isDelay }) => ({ kind, isDelay })),
      [{ kind: "soft", isDelay: true }],
    );
  });

  for (const type of ["abuse", "fraud", "virus", "other", "\n abuse", "(spam) abuse", '"abuse" (by the button)']) {
    it(`takes feedback of the type ${JSON.stringify(type)} for a complaint`, async () => {
      const { kind, recipients, returned } = await classifyMail(feedback(type));
      assert.equal(kind, "complaint");
      assert.deepEqual(
        recipients.map(({ address }) => address),
        ["user@example.net"],
      );
      assert.match(returned, /1\.x@example\.org/);
    });
  }

  for (const type of ["not-spam", "auth-failure", "dmarc", ""]) {
    it(`takes feedback of the type "${type}" for no complaint`, async () => {
      assert.equal((await classifyMail(feedback(type))).kind, "none");
    });
  }

  it("counts what is the sender's, its server's or the mail's against no address", async () => {
    for (const [words, isSendersFault] of [
      ["550 Access from ip address 192.0.2.1 blocked", true],
      ["550 5.7.1 Your message was blocked by a DNSBL, address listed", true],
      ["552 5.2.2 Mailbox full", false],
      ["550 5.2.2 Rejected by a policy", false],
      ["550 Mailbox size limit exceeded", false],
      ["550 User has too many messages on the server", false],
      ["550 The recipient reached disk quota", false],
      ["550 Your domain exceeded the max emails per hour", true],
      ["550 5.2.1 This account is blocked", false],
      ["451 4.4.7 This message has been in the queue too long", false],
    ] as const) {
      const { recipients } = await classifyMail(failed("5.0.0", words));
      assert.equal(recipients[0]?.isSendersFault, isSendersFault, words);
    }
    const greeted = await classifyMail(failed("5.0.0", "550 Go away", "550 Go away (in reply to MAIL FROM command)"));
    assert.equal(greeted.recipients[0]?.isSendersFault, true);
  });

  /** Formats of reports, as their senders write them. */
  const FORMATS: Record<string, { raw: Buffer; address: string; kind: ReportKind }> = {
    "a gateway whose status part is empty, without a sender": {
      raw: mail(
        'Subject: Destinataire absent de l\'annuaire\nContent-Type: multipart/report; report-type=delivery-status; boundary="b"',
        "--b\nContent-Type: text/plain\n\nA message could not be delivered to:\nuser@example.net\nL'adresse de messagerie n'existe pas.\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: mx.example\n\n--b--\n",
      ),
      address: "user@example.net",
      kind: "hard",
    },
    "a mailing list, which refuses a sender who may not post": {
      raw: mail(
        "From: news-owner@lists.example\nSubject: Request to mailing list News rejected\nPrecedence: bulk",
        'Your request to the News mailing list\n\n    Posting of your message titled "Hello"\n\nhas been rejected by the list moderator. The moderator gave the\nfollowing reason for rejecting your request:\n\n"You are not allowed to post to this mailing list."\n',
      ),
      address: "",
      kind: "soft",
    },
    "a server in one sentence, without a subject": {
      raw: mail("From: <>", "You sent mail to user@example.net. That's not a valid user here.\n"),
      address: "user@example.net",
      kind: "hard",
    },
    "a server whose quota is a sentence, with the mail and without a subject of a failure": {
      raw: mail(
        'Return-Path: <>\nTo: <bounce@news.example>\nFrom: no-reply@example.net\nSubject: Mail\nContent-Type: multipart/mixed; boundary="b"',
        "--b\nContent-Type: text/plain\n\nYour mail\n   could not be delivered to: <user@example.net>\n   as their mailbox is full.\n--b\nContent-Type: message/rfc822\n\nFrom: news@news.example\nTo: user@example.net\n\nNews\n--b--\n",
      ),
      address: "user@example.net",
      kind: "soft",
    },
    "a directory that offers other addresses": {
      raw: mail(
        'Return-Path: <>\nTo: bounce@news.example\nFrom: postmaster@example.net\nSubject: FAILED MAIL to "user"',
        "Addresses here look like lastname@example.net. The address that your message has,\nuser@example.net, did not match any entry. Perhaps one of these may help:\n\n  Judith User     925-555-0100     other.user@example.net\n\n----- Original message follows -----\nFrom: news@news.example\nTo: user@example.net\n",
      ),
      address: "user@example.net",
      kind: "hard",
    },
    "a feedback loop whose fields are a text": {
      raw: mail(
        'From: fbl@provider.example\nTo: bounce@news.example\nContent-Type: multipart/report; report-type=feedback-report; boundary="b"',
        '--b\nContent-Type: text/plain\n\nThis is a report.\n--b\nContent-Type: text/plain; name="report.txt"\n\nFeedback-Type: abuse\nOriginal-Rcpt-To:\n <user@example.net>\n--b\nContent-Type: message/rfc822\n\nTo: user@example.net\n\nHello\n--b--\n',
      ),
      address: "user@example.net",
      kind: "complaint",
    },
    "a feedback loop that attaches its fields as a text": {
      raw: mail(
        'From: fbl@provider.example\nTo: bounce@news.example\nContent-Type: multipart/report; report-type="feedback-report"; boundary="b"',
        "--b\nContent-Type: text/plain\nContent-Disposition: attachment\n\nVersion: 1\nFeedback-Type: abuse\n--b\nContent-Type: message/rfc822\n\nTo: user@example.net\n\nHello\n--b--\n",
      ),
      address: "user@example.net",
      kind: "complaint",
    },
    "the junk reports of Outlook.com": {
      raw: mail(
        'From: staff@hotmail.com\nSubject: complaint about message from 192.0.2.1\nContent-Type: multipart/mixed; boundary="b"',
        "--b\nContent-Type: message/rfc822\n\nX-HmXmrOriginalRecipient: user@example.net\nFrom: news@example.org\nTo: user@example.net\n\nHello\n--b--\n",
      ),
      address: "user@example.net",
      kind: "complaint",
    },
  };
  for (const [name, { raw, address, kind }] of Object.entries(FORMATS)) {
    it(`reads a report of ${name}`, async () => {
      const { recipients } = await classifyMail(raw);
      assert.deepEqual(
        recipients.map((recipient) => [recipient.address, recipient.kind]),
        [[address, kind]],
      );
    });
  }

  it("begins a group with the next recipient where no empty line stands before it", async () => {
    const group = (address: string, status: string) =>
      `Original-Recipient: rfc822;${address}\nFinal-Recipient: rfc822; ${address}\nAction: failed\nStatus:\n ${status}`;
    const { recipients } = await classifyMail(
      notification(`${group("one@example.net", "5.2.2")}\n${group("two@example.net", "5.1.1")}`),
    );
    assert.deepEqual(
      recipients.map(({ address, kind }) => [address, kind]),
      [
        ["one@example.net", "soft"],
        ["two@example.net", "hard"],
      ],
    );
  });

  it("calls soft what failed beyond the mailed address", async () => {
    const group = (original: string) =>
      `Original-Recipient: rfc822; ${original}\nFinal-Recipient: rfc822; User@example.net\nAction: failed\nStatus: 5.1.1`;
    for (const [original, kind] of [
      ["team@example.net", "soft"],
      ["user@example.com", "soft"],
      ["user@EXAMPLE.net", "hard"],
      ['"user"@example.net', "hard"],
    ]) {
      assert.equal((await classifyMail(notification(group(`${original}`)))).kind, kind, original);
    }
  });

  it("does not classify a report that asks the sender to confirm as a bounce", async () => {
    const group =
      "Final-Recipient: rfc822; user@example.net\nAction: failed\nStatus: 4.7.0\nDiagnostic-Code: X-Notice; Sender not pre-approved. Follow the link";
    assert.equal((await classifyMail(notification(group))).kind, "none");
  });

  it("takes any bytes", async () => {
    const files = readdirSync(MAILS).slice(0, 60).map(readLabelled);
    const changed = fc.tuple(fc.constantFrom(...files), fc.nat(), fc.nat(), fc.uint8Array({ maxLength: 40 }));
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.uint8Array({ maxLength: 2_000 }), changed), async (made) => {
        if (made instanceof Uint8Array) return void (await classifyMail(made));
        const [file, from, length, bytes] = made;
        const start = from % file.length;
        await classifyMail(Buffer.concat([file.subarray(0, start), bytes, file.subarray(start + (length % 200))]));
      }),
      { numRuns: 300 },
    );
  });

  // Far above the time that each takes, far below that of a rule that is quadratic in its text.
  const MOST_MS = 5_000;
  const head = 'From: MAILER-DAEMON@x.example\nSubject: failure notice\nContent-Type: multipart/mixed; boundary="b"';
  const plain = "From: MAILER-DAEMON@x.example\nSubject: failure notice\nContent-Type: text/";
  const nested = Array.from(
    { length: 2_000 },
    (_, i) => `--b${i}\nContent-Type: multipart/mixed; boundary="b${i + 1}"\n`,
  );
  const BOMBS: Record<string, () => Buffer> = {
    "50 MB": () => Buffer.concat([mail(head, "--b\n\n"), Buffer.alloc(50_000_000, "a b@c.example 550 5.1.1 <")]),
    "one line of 50 MB": () => Buffer.concat([mail(`${plain}plain`, ""), Buffer.alloc(50_000_000, "x")]),
    "200,000 headers": () => mail(`From: a@b.example\n${"X-A: b\n".repeat(200_000)}`, "x"),
    "a header of 5 MB": () => mail(`From: ${"(".repeat(5_000_000)}`, "x"),
    "2,000 nested parts": () => mail(head.replace('"b"', '"b0"'), nested.join("\n")),
    "100,000 parts": () => mail(head, "--b\n\nx\n".repeat(100_000)),
    "open tags": () => mail(`${plain}html`, "<".repeat(400_000)),
    spaces: () => mail(`${plain}plain`, `${" ".repeat(400_000)}x`),
    addresses: () => mail(`${plain}plain`, "a@b.example\n".repeat(40_000)),
    "at signs": () => mail(`${plain}plain`, "@".repeat(400_000)),
    "letters before an at sign": () => mail(`${plain}plain`, "a.".repeat(200_000)),
    "reply codes": () => mail(`${plain}plain`, "550 ".repeat(100_000)),
    "words of the rules": () => mail(`${plain}plain`, "user account mailbox domain host exceeded ".repeat(10_000)),
    "status groups": () =>
      notification("Final-Recipient: rfc822; a@b.example\nAction: failed\nStatus: 5.1.1\n\n".repeat(20_000)),
    "folded fields": () =>
      notification(`Final-Recipient: rfc822; a@b.example\nDiagnostic-Code: x\n${" y\n".repeat(100_000)}`),
    "400,000 empty lines": () => mail(`${plain}plain`, "\n".repeat(400_000)),
    JSON: () => mail(`${plain}plain`, '{"a":'.repeat(80_000)),
  };
  for (const [name, make] of Object.entries(BOMBS)) {
    it(`reads a mail of ${name} within bounds`, async () => {
      const raw = make();
      const readMs = cpuClock();
      const { recipients } = await classifyMail(raw);
      assert.ok(readMs() < MOST_MS, `took ${readMs()} ms`);
      assert.ok(recipients.length <= 100);
    });
  }

  it("reads the first 10,000 lines", async () => {
    const behind = (lines: number) => classifyMail(failed("5.1.1", "550 5.1.1 User unknown", "\n".repeat(lines)));
    assert.equal((await behind(9_000)).kind, "hard");
    // A report, by its sender and type, whose reason is not read any more.
    assert.equal((await behind(11_000)).kind, "soft");
  });

  it("reads a report whose returned mail is cut off", async () => {
    const report = failed("5.1.1", "550 5.1.1 User unknown")
      .toString()
      .replace("--b--", "--b\nContent-Type: message/rfc822\n");
    const raw = Buffer.concat([Buffer.from(report), Buffer.alloc(2 * MAX_READ_BYTES, "a line of the mail\r\n")]);
    assert.equal((await classifyMail(raw)).kind, "hard");
  });
});
