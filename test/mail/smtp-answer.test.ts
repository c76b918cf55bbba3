import assert from "node:assert/strict";
import { classOfStatus } from "../../domain/mail/enhanced-status.ts";
import {
  classifyAnswer,
  classifyOpening,
  type MessageAnswer,
  type OpeningAnswer,
  parseReply,
  scrubResponse,
} from "../../domain/mail/smtp-answer.ts";

type SmtpAnswer = OpeningAnswer | MessageAnswer;
const isOpening = (answer: SmtpAnswer): answer is OpeningAnswer =>
  ["connect", "greeting", "helo", "auth"].includes(answer.stage);
const classify = (answer: SmtpAnswer) => (isOpening(answer) ? classifyOpening(answer) : classifyAnswer(answer));

/** The classification with every flag: one that its kind of outcome does not have is not raised. */
const classified = (answer: SmtpAnswer) => ({
  suppress: false,
  policy: false,
  retry: false,
  temporary: false,
  ...classify(answer),
});

/** An answer as "STAGE REPLY", where the reply is codes or what happened to the connection. */
function answerOf(text: string): SmtpAnswer {
  const [stage, reply = "", enhanced] = text.split(" ") as [SmtpAnswer["stage"], string?, string?];
  return /^\d/.test(reply)
    ? { stage, code: Number(reply), ...(enhanced === undefined ? {} : { enhanced }) }
    : { stage, network: (reply || undefined) as SmtpAnswer["network"] };
}

/** Answers by the outcome, the reason and the flags that they have. */
const ANSWERS: Record<string, string> = {
  "sent accepted": "dot 250",
  // A recipient's failure that may pass
  "deferred temporary_refusal": "rcpt 450, rcpt 451 4.7.1, rcpt 450 5.1.1, data 451, dot 452 4.3.1, dot 421",
  "deferred mailbox_full": "rcpt 452 4.2.2",
  "rejected mailbox_unknown suppress":
    "rcpt 550, rcpt 551, rcpt 553, rcpt 556, rcpt 550 5.1.1, rcpt 554 5.1.2, rcpt 556 5.1.10",
  // A mailbox that takes no mail at present, at whatever stage
  "rejected mailbox_full": "rcpt 552, rcpt 552 5.2.2, dot 552 5.2.2",
  "rejected mailbox_disabled": "rcpt 550 5.2.1",
  // Some of these codes contradict their reply.
  "rejected recipient_refused": "rcpt 550 5.4.1, rcpt 550 4.1.1, rcpt 550 5.1.5, rcpt 550 5.9.1",
  "rejected policy_refused policy":
    "rcpt 554, rcpt 550 5.7.1, rcpt 550 5.1.8, rcpt 553 5.1.7, rcpt 550 5.7.27, dot 554 5.7.1, dot 550 5.7.20",
  "rejected content_refused policy": "data 554, dot 550, dot 550 5.1.1, rcpt 552 5.3.4",
  "account_failure connection_refused temporary": "connect refused",
  "account_failure name_not_found temporary": "connect name",
  "account_failure connection_timeout temporary": "connect timeout",
  "account_failure tls_failed": "connect tls",
  "account_failure server_forbidden": "connect forbidden",
  "account_failure login_in_clear_text": "connect clear_text",
  "account_failure greeting_refused": "greeting 554",
  "account_failure helo_refused": "helo 550",
  "account_failure helo_refused temporary": "helo 450",
  "account_failure server_closing temporary": "greeting 421, helo 421 4.7.0",
  "account_failure login_refused": "auth 535 5.7.8",
  "account_failure login_refused temporary": "auth 454 4.7.0",
  "account_failure sender_refused": "mail 550",
  "account_failure sender_refused temporary": "mail 452",
  // The session ended before the dot: the mail was not accepted, and goes again.
  "deferred server_closing retry": "mail 421, rcpt 421 4.7.0, data 421",
  "deferred connection_lost retry": "rcpt lost",
  "deferred connection_timeout": "data timeout",
  "deferred protocol_error": "rcpt protocol, data 250",
  // The dot may have left, and no reply came.
  "unknown no_answer": "dot, dot lost, dot timeout, dot protocol, dot 354, dot 650",
};

describe("SMTP answers", () => {
  for (const [meaning, answers] of Object.entries(ANSWERS)) {
    it(`mean ${meaning}: ${answers}`, () => {
      for (const text of answers.split(", ")) {
        const { outcome, reason, ...flags } = classified(answerOf(text));
        const raised = Object.entries(flags).flatMap(([flag, isRaised]) => (isRaised === true ? [flag] : []));
        assert.equal([outcome, reason, ...raised].join(" "), meaning, text);
      }
    });
  }

  it("tell the refusal of a name in EHLO from a busy server, both with 421", () => {
    const reasonOf = (response: string) => classifyOpening({ stage: "helo", code: 421, response }).reason;
    assert.equal(reasonOf("421 4.7.0 Try again later, closing connection. (EHLO)"), "helo_refused");
    assert.equal(reasonOf("421 4.3.2 Too many connections"), "server_closing");
  });

  it("are never `unknown` before the final dot, and without an answer always after it", () => {
    const networks = ["refused", "name", "tls", "timeout", "lost", "protocol", undefined] as const;
    for (const network of networks) {
      for (const stage of ["connect", "greeting", "auth", "mail", "rcpt", "data"] as const) {
        assert.notEqual(classify({ stage, network }).outcome, "unknown");
      }
      assert.equal(classifyAnswer({ stage: "dot", network }).outcome, "unknown");
    }
  });

  it("suppress only with a 5xx to RCPT", () => {
    const suppressing: string[] = [];
    for (const stage of ["connect", "greeting", "auth", "mail", "rcpt", "data", "dot"] as const) {
      for (let code = 200; code < 600; code++) {
        if (classified({ stage, code }).suppress) suppressing.push(`${stage} ${code}`);
      }
    }
    assert.deepEqual(suppressing, ["rcpt 550", "rcpt 551", "rcpt 553", "rcpt 556"]);
  });

  it("suppress without an enhanced code unless the words are about the sender, or a mailbox that exists", () => {
    const TEXTS: Record<string, string> = {
      policy_refused: `550 relay not permitted
        550 Relaying denied
        550 Blocked - see https://www.spamhaus.org/query/ip/192.0.2.1
        550 Message rejected due to the sender's reputation
        550 Sender verify failed
        550 authentication required`,
      recipient_refused: `550 Mailbox quota exceeded
        550 mailbox is full
        550 Account disabled`,
      "mailbox_unknown suppress": `550 No such user here
        550 Requested action not taken: mailbox unavailable
        550 Unrouteable address
        550 unknown
        550 no
        551 User not local
        553 sorry, that address is not in my validrcptto list`,
    };
    for (const [meaning, texts] of Object.entries(TEXTS)) {
      for (const response of texts.split(/\n +/)) {
        const { reason, suppress } = classified({ stage: "rcpt", code: Number(response.slice(0, 3)), response });
        assert.equal(`${reason}${suppress ? " suppress" : ""}`, meaning, response);
      }
    }
  });

  it("suppress for no enhanced code but those of an address without a mailbox", () => {
    const suppressing = new Set<string>();
    for (let subject = 0; subject <= 9; subject++) {
      for (let detail = 0; detail <= 40; detail++) {
        const enhanced = `5.${subject}.${detail}`;
        for (const stage of ["mail", "rcpt", "data", "dot"] as const) {
          const { suppress } = classified({ stage, code: 550, enhanced });
          if (suppress) suppressing.add(`${stage} ${enhanced}`);
        }
      }
    }
    const registered = ["5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.1.6", "5.1.10"];
    for (const enhanced of registered) assert.ok(suppressing.has(`rcpt ${enhanced}`), enhanced);
    assert.equal(suppressing.size, registered.length);
    for (const one of ["5.1.5", "5.1.7", "5.1.8", "5.1.9"]) assert.ok(!suppressing.has(`rcpt ${one}`), one);
  });

  it("have the class of their subject where the registry lists no such code", () => {
    assert.equal(classOfStatus("5.4.310"), "system");
    assert.equal(classOfStatus("5.7.515"), "policy");
    assert.equal(classOfStatus("5.1.90"), "system");
    assert.equal(classOfStatus("4.2.99"), "disabled");
    for (const text of ["5.8.1", "6.1.1", "5.1", "5.1.1.1", "constructor", "5.1.*"]) {
      assert.equal(classOfStatus(text), undefined, text);
    }
  });

  it("are read with and without an enhanced code", () => {
    assert.deepEqual(parseReply("550 5.1.1 No such user"), { code: 550, enhanced: "5.1.1" });
    assert.deepEqual(parseReply("550-5.7.26 This mail\n550 5.7.26 is unauthenticated"), {
      code: 550,
      enhanced: "5.7.26",
    });
    assert.deepEqual(parseReply("250 OK 1.2.3"), { code: 250 });
    assert.deepEqual(parseReply("550 5.1.1.9 is no code"), { code: 550 });
    assert.deepEqual(parseReply("hello"), {});
  });
});

describe("A server's reply", () => {
  const to = "jane.doe+news@example.com";
  for (const [reply, kept] of [
    ["550 5.1.1 <jane.doe+news@example.com>: no such user", "550 5.1.1 [address]: no such user"],
    ["550 JANE.DOE+NEWS@EXAMPLE.COM unknown", "550 [address] unknown"],
    ["550 jane.doe+news unknown here", "550 [address] unknown here"],
    [
      "550 see https://mx.example/why?a=jane.doe%2Bnews%40example.com&c=1",
      "550 see https://mx.example/why?a=[address]&c=1",
    ],
    ["550-first\r\n550 second", "550-first 550 second"],
    ["250 2.0.0 Ok: queued as 4F2A", "250 2.0.0 Ok: queued as 4F2A"],
    ["550 5.1.1 jané@bücher.example\u0000gone", "550 5.1.1 [address] gone"],
  ] as const) {
    it(`${JSON.stringify(reply)} is kept without addresses`, () => assert.equal(scrubResponse(reply, to), kept));
  }

  it("is cut at 200 characters", () => {
    assert.equal(scrubResponse(`550 ${"x".repeat(5_000)}`, to).length, 200);
  });
});
