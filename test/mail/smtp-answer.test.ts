import assert from "node:assert/strict";
import { classOfStatus } from "../../domain/mail/enhanced-status.ts";
import type { MailOutcome } from "../../domain/mail/outcome.ts";
import { classifyAnswer, parseReply, type SmtpAnswer, scrubResponse } from "../../domain/mail/smtp-answer.ts";

interface Expected extends Pick<MailOutcome, "outcome"> {
  reason?: MailOutcome["reason"];
  suppress?: boolean;
  policy?: boolean;
  retry?: boolean;
  temporary?: boolean;
}

/** The classification with every flag: one that its kind of outcome does not have is not raised. */
const classified = (answer: SmtpAnswer) => ({
  suppress: false,
  policy: false,
  retry: false,
  temporary: false,
  ...classifyAnswer(answer),
});

const cases: [SmtpAnswer, Expected][] = [
  [
    { stage: "dot", code: 250 },
    { outcome: "sent", reason: "accepted" },
  ],

  // A recipient's failure that may pass
  [
    { stage: "rcpt", code: 450 },
    { outcome: "deferred", reason: "temporary_refusal" },
  ],
  [
    { stage: "rcpt", code: 451, enhanced: "4.7.1" },
    { outcome: "deferred", policy: false },
  ],
  [{ stage: "rcpt", code: 452, enhanced: "4.2.2" }, { outcome: "deferred" }],
  [
    { stage: "rcpt", code: 450, enhanced: "5.1.1" },
    { outcome: "deferred", suppress: false },
  ],
  [{ stage: "data", code: 451 }, { outcome: "deferred" }],
  [
    { stage: "dot", code: 452, enhanced: "4.3.1" },
    { outcome: "deferred", reason: "temporary_refusal", retry: false },
  ],
  [
    { stage: "dot", code: 421 },
    { outcome: "deferred", retry: false },
  ],

  // Hard bounces
  [
    { stage: "rcpt", code: 550 },
    { outcome: "rejected", suppress: true, reason: "mailbox_unknown" },
  ],
  [
    { stage: "rcpt", code: 551 },
    { outcome: "rejected", suppress: true },
  ],
  [
    { stage: "rcpt", code: 553 },
    { outcome: "rejected", suppress: true },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.1.1" },
    { outcome: "rejected", suppress: true, policy: false },
  ],
  [
    { stage: "rcpt", code: 554, enhanced: "5.1.2" },
    { outcome: "rejected", suppress: true },
  ],
  [
    { stage: "rcpt", code: 556, enhanced: "5.1.10" },
    { outcome: "rejected", suppress: true },
  ],

  // Refusals that do not suppress the recipient
  [
    { stage: "rcpt", code: 552, enhanced: "5.2.2" },
    { outcome: "rejected", suppress: false, policy: false },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.2.1" },
    { outcome: "rejected", suppress: false, policy: false },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.7.1" },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.1.8" },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "rcpt", code: 553, enhanced: "5.1.7" },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.4.1" },
    { outcome: "rejected", suppress: false, policy: false },
  ],
  [
    { stage: "rcpt", code: 552 },
    { outcome: "rejected", reason: "mailbox_full", suppress: false, policy: false },
  ],
  [
    { stage: "rcpt", code: 556 },
    { outcome: "rejected", reason: "mailbox_unknown", suppress: true },
  ],
  [
    { stage: "rcpt", code: 554 },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "data", code: 554 },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "dot", code: 550 },
    { outcome: "rejected", suppress: false, policy: true, reason: "content_refused" },
  ],
  [
    { stage: "dot", code: 550, enhanced: "5.1.1" },
    { outcome: "rejected", suppress: false, policy: true },
  ],
  [
    { stage: "dot", code: 554, enhanced: "5.7.1" },
    { outcome: "rejected", policy: true, reason: "policy_refused" },
  ],

  // A mailbox that takes no mail at present, at whatever stage
  [
    { stage: "rcpt", code: 552, enhanced: "5.2.2" },
    { outcome: "rejected", reason: "mailbox_full" },
  ],
  [
    { stage: "dot", code: 552, enhanced: "5.2.2" },
    { outcome: "rejected", reason: "mailbox_full", suppress: false, policy: false },
  ],
  [
    { stage: "rcpt", code: 452, enhanced: "4.2.2" },
    { outcome: "deferred", reason: "mailbox_full" },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.2.1" },
    { outcome: "rejected", reason: "mailbox_disabled" },
  ],

  // Codes that contradict their reply
  [
    { stage: "rcpt", code: 550, enhanced: "4.1.1" },
    { outcome: "rejected", reason: "recipient_refused", suppress: false },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.1.5" },
    { outcome: "rejected", reason: "recipient_refused", suppress: false },
  ],
  [
    { stage: "rcpt", code: 550, enhanced: "5.9.1" },
    { outcome: "rejected", reason: "recipient_refused", suppress: false },
  ],

  // Senders and messages that are refused
  [
    { stage: "rcpt", code: 550, enhanced: "5.7.27" },
    { outcome: "rejected", reason: "policy_refused", policy: true },
  ],
  [
    { stage: "dot", code: 550, enhanced: "5.7.20" },
    { outcome: "rejected", reason: "policy_refused", policy: true },
  ],
  [
    { stage: "rcpt", code: 552, enhanced: "5.3.4" },
    { outcome: "rejected", reason: "content_refused", policy: true },
  ],

  // Account failures
  [
    { stage: "connect", network: "refused" },
    { outcome: "account_failure", reason: "connection_refused", temporary: true },
  ],
  [
    { stage: "connect", network: "name" },
    { outcome: "account_failure", reason: "name_not_found" },
  ],
  [
    { stage: "connect", network: "timeout" },
    { outcome: "account_failure", reason: "connection_timeout", temporary: true },
  ],
  [
    { stage: "connect", network: "tls" },
    { outcome: "account_failure", reason: "tls_failed", temporary: false },
  ],
  [
    { stage: "connect", network: "forbidden" },
    { outcome: "account_failure", reason: "server_forbidden", temporary: false },
  ],
  [
    { stage: "connect", network: "clear_text" },
    { outcome: "account_failure", reason: "login_in_clear_text", temporary: false },
  ],
  [
    { stage: "greeting", code: 554 },
    { outcome: "account_failure", reason: "greeting_refused", temporary: false },
  ],
  [
    { stage: "greeting", code: 421 },
    { outcome: "account_failure", reason: "server_closing", temporary: true },
  ],
  [
    { stage: "auth", code: 535, enhanced: "5.7.8" },
    { outcome: "account_failure", reason: "login_refused", temporary: false },
  ],
  [
    { stage: "auth", code: 454, enhanced: "4.7.0" },
    { outcome: "account_failure", reason: "login_refused", temporary: true },
  ],
  [
    { stage: "mail", code: 550 },
    { outcome: "account_failure", reason: "sender_refused", suppress: false, temporary: false },
  ],
  [
    { stage: "mail", code: 452 },
    { outcome: "account_failure", reason: "sender_refused", temporary: true },
  ],

  // The session ended before the dot: not accepted, goes again
  [
    { stage: "mail", code: 421 },
    { outcome: "deferred", reason: "server_closing", retry: true },
  ],
  [
    { stage: "rcpt", code: 421, enhanced: "4.7.0" },
    { outcome: "deferred", reason: "server_closing", retry: true },
  ],
  [
    { stage: "data", code: 421 },
    { outcome: "deferred", reason: "server_closing", retry: true },
  ],
  [
    { stage: "rcpt", network: "lost" },
    { outcome: "deferred", reason: "connection_lost", retry: true },
  ],
  [
    { stage: "data", network: "timeout" },
    { outcome: "deferred", reason: "connection_timeout", retry: false },
  ],
  [
    { stage: "rcpt", network: "protocol" },
    { outcome: "deferred", reason: "protocol_error" },
  ],
  [
    { stage: "data", code: 250 },
    { outcome: "deferred", reason: "protocol_error" },
  ],

  // The dot may have left, and no reply came
  [
    { stage: "dot", network: "lost" },
    { outcome: "unknown", reason: "no_answer", retry: false },
  ],
  [
    { stage: "dot", network: "timeout" },
    { outcome: "unknown", retry: false },
  ],
  [{ stage: "dot", network: "protocol" }, { outcome: "unknown" }],
  [{ stage: "dot" }, { outcome: "unknown" }],
  [{ stage: "dot", code: 354 }, { outcome: "unknown" }],
  [{ stage: "dot", code: 650 }, { outcome: "unknown" }],
];

describe("SMTP answers", () => {
  for (const [answer, expected] of cases) {
    it(`${JSON.stringify(answer)} means ${expected.outcome}`, () => {
      const outcome = classified(answer);
      assert.deepEqual({ ...outcome, ...expected }, outcome);
    });
  }

  it("are never `unknown` before the final dot, and without an answer always after it", () => {
    const networks = ["refused", "name", "tls", "timeout", "lost", "protocol", undefined] as const;
    for (const network of networks) {
      for (const stage of ["connect", "greeting", "auth", "mail", "rcpt", "data"] as const) {
        assert.notEqual(classifyAnswer({ stage, network }).outcome, "unknown");
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
    const reasonsOf = (code: number, ...texts: string[]) =>
      texts.map((text) => {
        const outcome = classified({ stage: "rcpt", code, response: `${code} ${text}` });
        return `${outcome.reason}${outcome.suppress ? " suppress" : ""}`;
      });
    const same = (reason: string, count: number) => Array.from({ length: count }, () => reason);
    assert.deepEqual(
      reasonsOf(
        550,
        "relay not permitted",
        "Relaying denied",
        "Blocked - see https://www.spamhaus.org/query/ip/192.0.2.1",
        "Message rejected due to the sender's reputation",
        "Sender verify failed",
        "authentication required",
      ),
      same("policy_refused", 6),
    );
    assert.deepEqual(
      reasonsOf(550, "Mailbox quota exceeded", "mailbox is full", "Account disabled"),
      same("recipient_refused", 3),
    );
    assert.deepEqual(
      [
        ...reasonsOf(
          550,
          "No such user here",
          "Requested action not taken: mailbox unavailable",
          "Unrouteable address",
          "unknown",
          "no",
        ),
        ...reasonsOf(551, "User not local"),
        ...reasonsOf(553, "sorry, that address is not in my validrcptto list"),
      ],
      same("mailbox_unknown suppress", 7),
    );
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
