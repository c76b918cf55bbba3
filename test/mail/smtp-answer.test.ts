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
const ENVELOPE = { from: "news@sender.example", to: "reader@reader.example" };
const classified = (answer: SmtpAnswer) =>
  isOpening(answer) ? classifyOpening(answer) : classifyAnswer(answer, ENVELOPE);
const refusalOf = (answer: SmtpAnswer) => {
  const outcome = classified(answer);
  return "refusal" in outcome ? outcome.refusal : undefined;
};

/** Whom a refusal is about, and what follows from it. */
function flagsOf(answer: SmtpAnswer): string[] {
  const { suppress, retry, temporary, isSoftBounce } = { ...classified(answer) } as Record<string, unknown>;
  const { isAccounts, namesMailbox, mayBeGone } = refusalOf(answer) ?? {};
  const flags = {
    suppress: suppress === true && namesMailbox,
    "gone if others are accepted": mayBeGone && suppress !== true,
    "of the account": isAccounts,
    "counts as a soft bounce": isSoftBounce,
    retry,
    temporary,
  };
  return Object.entries(flags).flatMap(([flag, raised]) => (raised ? [flag] : []));
}

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
  "deferred temporary_refusal, counts as a soft bounce": "rcpt 450, rcpt 450 5.1.1, data 451, dot 452 4.3.1, dot 421",
  "deferred temporary_refusal": "rcpt 451 4.7.1",
  "deferred mailbox_full, counts as a soft bounce": "rcpt 452 4.2.2",
  "rejected mailbox_unknown, suppress": "rcpt 550 5.1.1, rcpt 553 5.1.6, rcpt 556 5.1.10",
  // It may be about the sender, too.
  "rejected mailbox_unknown, gone if others are accepted":
    "rcpt 550, rcpt 551, rcpt 553, rcpt 556, rcpt 550 5.1.0, rcpt 554 5.1.2",
  // A mailbox that takes no mail at present, at whatever stage
  "rejected mailbox_full, counts as a soft bounce": "rcpt 552, rcpt 552 5.2.2, dot 552 5.2.2",
  "rejected mailbox_disabled, counts as a soft bounce": "rcpt 550 5.2.1",
  // Some of these codes contradict their reply.
  "rejected recipient_refused, counts as a soft bounce":
    "rcpt 503, rcpt 550 5.4.1, rcpt 550 4.1.1, rcpt 550 5.1.5, rcpt 550 5.9.1",
  "rejected policy_refused": "rcpt 550 5.7.1, dot 554 5.7.1, dot 550 5.7.20",
  "rejected policy_refused, of the account": "rcpt 550 5.1.8, rcpt 553 5.1.7, rcpt 550 5.7.27, dot 550 5.7.13",
  "rejected content_refused": "data 554, dot 550, dot 550 5.1.1, rcpt 552 5.3.4",
  "account_failure connection_refused, temporary": "connect refused",
  "account_failure name_not_found, temporary": "connect name",
  "account_failure connection_timeout, temporary": "connect timeout",
  "account_failure tls_failed": "connect tls",
  "account_failure server_forbidden": "connect forbidden",
  "account_failure login_in_clear_text": "connect clear_text",
  "account_failure greeting_refused": "greeting 554",
  "account_failure helo_refused": "helo 550",
  "account_failure helo_refused, temporary": "helo 450",
  "account_failure server_closing, temporary": "greeting 421, helo 421 4.7.0",
  "account_failure login_refused": "auth 535 5.7.8",
  "account_failure login_refused, temporary": "auth 454 4.7.0",
  "account_failure sender_refused": "mail 550",
  "account_failure sender_refused, temporary": "mail 452",
  // The session ended before the dot: the mail was not accepted, and goes again.
  "deferred server_closing, retry": "mail 421, rcpt 421 4.7.0, data 421",
  "deferred connection_lost, retry": "rcpt lost",
  "deferred connection_timeout": "data timeout",
  "deferred protocol_error": "rcpt protocol, data 250",
  // The dot may have left, and no reply came.
  "unknown no_answer": "dot, dot lost, dot timeout, dot protocol, dot 354, dot 650",
};

describe("SMTP answers", () => {
  for (const [meaning, answers] of Object.entries(ANSWERS)) {
    it(`mean ${meaning}: ${answers}`, () => {
      for (const text of answers.split(", ")) {
        const { outcome, reason } = classified(answerOf(text));
        assert.equal([`${outcome} ${reason}`, ...flagsOf(answerOf(text))].join(", "), meaning, text);
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
        assert.notEqual(classified({ stage, network }).outcome, "unknown");
      }
      assert.equal(classifyAnswer({ stage: "dot", network }).outcome, "unknown");
    }
  });

  it("suppress for no code but that of a mailbox, or that of an address if others are accepted, and only after RCPT", () => {
    const about: Record<string, Set<string>> = { suppress: new Set(), "gone if others are accepted": new Set() };
    const codes = ["", ...Array.from({ length: 10 * 41 }, (_, i) => `5.${Math.floor(i / 41)}.${i % 41}`)];
    for (const stage of ["connect", "greeting", "auth", "mail", "rcpt", "data", "dot"] as const) {
      for (const enhanced of codes) {
        const [flag = ""] = flagsOf({ stage, code: 550, ...(enhanced && { enhanced }) });
        about[flag]?.add(`${stage} ${enhanced}`.trim());
      }
    }
    assert.deepEqual([...(about["suppress"] ?? [])].sort(), ["rcpt 5.1.1", "rcpt 5.1.10", "rcpt 5.1.6"]);
    const others = ["rcpt", "rcpt 5.1.0", "rcpt 5.1.2", "rcpt 5.1.3", "rcpt 5.1.4", "rcpt 5.4.4"];
    assert.deepEqual([...(about["gone if others are accepted"] ?? [])].sort(), others);
  });

  /** By what follows; a reply without a stage answers RCPT. */
  const TEXTS: Record<string, string> = {
    "of the account": `550 User news@sender.example is over its sending limit of 24 hours. 10 of 10 recipients allowed were used.
      550 You have exceeded your hourly sending limit
      550 SMTP AUTH is required on this port
      550 smtp auth required
      503 AUTH first (#5.5.1)
      550 5.1.0 <news@sender.example>: Sender address rejected: User unknown in virtual mailbox table
      550 5.1.1 <news@sender.example>: Sender address rejected: User unknown in local recipient table
      550 5.1.1 <NEWS@sender.example>: User unknown
      550 5.4.5 The daily sending quota of this user is used up
      550 5.1.90 The sender has reached the daily limit of recipients
      550 5.7.1 Client not allowed to send as this address
      550 Domain sender.example has exceeded the max emails per hour (100/100 (100%)) allowed. Message discarded.
      452 4.5.3 You have reached your hourly sending limit
      550 relay not permitted
      550 Relaying denied
      550 Sender verify failed
      553 5.7.1 <news@sender.example>: Sender address rejected: not owned by user news
      554 Message rejected: Email address is not verified.
      550 5.1.1 insufficient credits
      550 POP before SMTP required
      dot: 554 5.2.0 SubmissionQuotaExceeded: the message was not processed
      dot: 550 5.4.5 The daily sending quota of this user is used up`,
    "suppress, by words": `550 No such user here
      550 5.7.1 Recipient unknown
      550 Requested action not taken: mailbox unavailable
      550 Unrouteable address
      551 User not local
      553 sorry, that address is not in my validrcptto list`,
    "suppress, by code": `550 5.1.1 <reader@reader.example>: Recipient address rejected: User unknown
      550 5.1.1 no`,
    "gone if others are accepted": `550 unknown
      550 denied
      550 no`,
    "counts as a soft bounce": `550 Mailbox quota exceeded
      550 5.1.1 mailbox is full
      550 Account disabled
      552 5.2.2 The recipient is over quota`,
    nothing: `550 5.1.1 Absenderadresse unbekannt
      550 Adresse d'expéditeur inconnue
      550 发件人地址不存在
      550 5.1.1 From user unknown
      550 reverse-path mailbox does not exist
      550 5.1.1 Your SMTP account does not exist
      550 Blocked - see https://www.spamhaus.org/query/ip/192.0.2.1
      550 Message rejected due to the sender's reputation
      550 5.7.26 Messages without SPF must be authenticated
      550 5.7.1 The recipient's domain does not accept mail from your host
      dot: 550 5.1.1 No such user here`,
  };
  for (const [meaning, texts] of Object.entries(TEXTS)) {
    it(`are read by their words, whatever the code: ${meaning}`, () => {
      for (const text of texts.split(/\n +/)) {
        const [, stage = "rcpt", response = ""] = /^(?:(dot): )?(.*)/.exec(text) ?? [];
        const answer = { stage: stage as "rcpt" | "dot", ...parseReply(response), response };
        const [flag = "nothing"] = flagsOf(answer);
        const by = flag === "suppress" ? `, by ${refusalOf(answer)?.namesMailbox}` : "";
        assert.equal(`${flag}${by}`, meaning, text);
      }
    });
  }

  it("suppress no recipient for another address that they name: it may be an alias", () => {
    const suppressed = (response: string) => flagsOf({ stage: "rcpt", code: 550, enhanced: "5.1.1", response })[0];
    assert.notEqual(suppressed("550 5.1.1 <left@team.example>: User unknown"), "suppress");
    assert.equal(suppressed("550 5.1.1 <reader@mail.reader.example>: User unknown"), "suppress", "in another spelling");
    const returnPath = { from: "b-1@bounce.example", sender: "news@sender.example", to: "reader@reader.example" };
    const response = "550 5.1.1 <news@sender.example>: User unknown";
    const outcome = classifyAnswer({ stage: "rcpt", ...parseReply(response), response }, returnPath);
    assert.equal(outcome.outcome === "rejected" && outcome.suppress, false);
  });

  it("say the same where only addresses, domains, numbers and ids differ", () => {
    const keyOf = (response: string, enhanced?: string) =>
      refusalOf({ stage: "rcpt", code: 550, ...(enhanced && { enhanced }), response })?.key;
    const key = keyOf("550 5.7.1 <a@one.example>: refused by mx1.one.example (id 4F2A-11)", "5.7.1");
    assert.equal(keyOf("550 5.7.1 <b@two.example>: refused by mx7.two.example (id 9C0B-12)", "5.7.1"), key);
    assert.notEqual(keyOf("550 5.7.1 <b@two.example>: blocked by mx7.two.example (id 9C0B-12)", "5.7.1"), key);
    assert.equal(keyOf("550 Unknown user reader"), keyOf("550 Unknown user <reader@reader.example>"));
    assert.notEqual(keyOf("550 5.7.2 <b@two.example>: refused by mx7.two.example (id 9C0B-12)", "5.7.2"), key);
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
    ["550 not mailed to user jane.doe at example.com", "550 not mailed to user [address] at example.com"],
    ["550 see why?a=jane.doe=2Bnews=40example.com", "550 see why?a=[address]"],
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
