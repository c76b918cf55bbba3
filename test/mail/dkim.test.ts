import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { type DkimAlgorithm, dkimSigner, type SignedField } from "../../domain/mail/dkim.ts";
import { composeMessage, type FilledMessage, type MessageContent } from "../../domain/mail/message.ts";
import { type Verified, verifyDkim } from "./dkim.ts";
import type { Fault } from "./smtp-sink.ts";
import { smtpSuite } from "./smtp-suite.ts";

const DOMAIN = "example.com";
/** All that a signature covers but Reply-To, which no newsletter has. */
const FIELDS = [
  "from",
  "to",
  "subject",
  "date",
  "message-id",
  "list-unsubscribe",
  "list-unsubscribe-post",
  "mime-version",
  "content-type",
];

const records = new Map<string, string>();
const keyOf = (algorithm: DkimAlgorithm) => {
  const { privateKey, publicKey } =
    algorithm === "rsa" ? generateKeyPairSync("rsa", { modulusLength: 2_048 }) : generateKeyPairSync("ed25519");
  const spki = publicKey.export({ format: "der", type: "spki" });
  const text = (algorithm === "rsa" ? spki : spki.subarray(-32)).toString("base64");
  records.set(`${algorithm}._domainkey.${DOMAIN}`, `v=DKIM1; k=${algorithm}; p=${text}`);
  return { domain: DOMAIN, selector: algorithm, algorithm, privateKey };
};
const KEYS = [keyOf("rsa"), keyOf("ed25519")];
const sign = dkimSigner(KEYS);

const content: MessageContent = {
  subject: "Hello {{ first_name }}",
  html: '<p>Dear {{ first_name }},</p><a href="{{ unsubscribe_url }}">Unsubscribe</a>',
  fromEmail: `news@${DOMAIN}`,
};

function compose(more: Partial<MessageContent> = {}, email = "jane@example.org", firstName = "Jane"): FilledMessage {
  return composeMessage({ ...content, ...more }).fill({
    email,
    firstName,
    unsubscribeUrl: `https://mail.example.com/u/${"long".repeat(50)}`,
    messageId: "row-1@mail.example.com",
    date: new Date(),
  });
}

describe("A signed mail", () => {
  const { sinkWith, poolAt } = smtpSuite(1);
  const withSignature = (filled: FilledMessage): FilledMessage => ({ ...filled, signature: sign(filled.message) });

  const passed = (fields: readonly string[] = FIELDS): Verified[] =>
    KEYS.map(({ selector, algorithm }) => ({
      result: "pass",
      selector,
      algorithm: `${algorithm}-sha256`,
      fields: fields.toSorted(),
    }));

  it("passes the verification of another program, with any content", async () => {
    const sink = await sinkWith();
    const pool = poolAt(sink.port);
    const mails = [
      compose(),
      compose({ fromName: "Bücher & Co", subject: "Größe  für {{ first_name }}" }, "jane@bücher.example", "Zoë   Ω"),
      compose({ subject: `Long ${"words ".repeat(60)}`, html: `<p>${"x".repeat(20_000)}</p>` }),
      compose({ html: `<p>.\r\n..\r\n\r\n\r\n  {{ first_name }}  \t\r\n</p>${"漢字".repeat(500)}\r\n\r\n\r\n` }),
      // Its address stands in the header as it is, with bytes that are no-break spaces in Latin-1.
      compose({}, "à@example.org"),
    ];
    for (const mail of mails) assert.equal((await pool.send(withSignature(mail))).outcome, "sent");
    assert.equal(sink.received.length, mails.length);
    for (const [i, { raw }] of sink.received.entries()) {
      assert.deepEqual(await verifyDkim(raw, records), passed(FIELDS), `mail ${i}`);
      // The signatures stand before the mail, which keeps every byte.
      assert.ok(
        raw
          .toString("latin1")
          .trimEnd()
          .endsWith(mails[i]?.message.toString("latin1").trimEnd() ?? "-"),
      );
      assert.ok(
        raw
          .toString("latin1")
          .split("\r\n")
          .every((line) => line.length <= 998),
      );
    }
  });

  it("fails verification when a part that it covers is changed, or added a second time", async () => {
    const filled = compose();
    const raw = Buffer.concat([await sign(filled.message), filled.message]).toString("latin1");
    const results = async (text: string) =>
      new Set((await verifyDkim(Buffer.from(text, "latin1"), records)).map(({ result }) => result));
    assert.deepEqual(await results(raw), new Set(["pass"]));
    for (const changed of [
      raw.replace("Subject: Hello Jane", "Subject: Hello Joe"),
      raw.replace("List-Unsubscribe: <https://mail", "List-Unsubscribe: <https://evil"),
      raw.replace("List-Unsubscribe=One-Click", "List-Unsubscribe=Two-Clicks"),
      raw.replace("Dear=20Jane", "Dear=20Joan"),
      raw.replace("To: jane", "Subject: Another\r\nTo: jane"),
      raw.replace("To: jane", "From: another@example.com\r\nTo: jane"),
      raw.replace("To: jane", "Reply-To: another@example.com\r\nTo: jane"),
    ]) {
      assert.notEqual(changed, raw);
      assert.ok(!(await results(changed)).has("pass"), changed.slice(0, 2_000));
    }
    // A relay may fold a header field anew, add its own, and take a provider's field away.
    const relayed = raw.replace("Subject: Hello Jane", "Subject:\r\n\t Hello   Jane");
    assert.deepEqual(await results(`Received: from x by y\r\n${relayed}`), new Set(["pass"]));
  });

  it("leaves out the fields that a provider replaces", async () => {
    const except: SignedField[] = ["Message-ID", "Date"];
    const { message } = compose();
    const raw = Buffer.concat([await dkimSigner(KEYS, except)(message), message]);
    const replaced = raw.toString("latin1").replace(/^Message-ID: .*$/m, "Message-ID: <other@provider.example>");
    const left = FIELDS.filter((name) => !/^(?:message-id|date)$/.test(name));
    assert.deepEqual(await verifyDkim(Buffer.from(replaced, "latin1"), records), passed(left));
  });

  it("is sent by a connection that a refused recipient or a lost server interrupted", async () => {
    let drops = 1;
    const sink = await sinkWith({
      rcpt: (address): Fault | undefined =>
        address.startsWith("gone") ? { code: 550, text: "5.1.1 Gone" } : undefined,
      mail: () => (drops-- > 0 ? "drop" : undefined),
    });
    const pool = poolAt(sink.port);
    const outcomes = ["jane", "gone", "joe"].map((name) =>
      pool.send(withSignature(compose({}, `${name}@example.org`))),
    );
    assert.deepEqual(
      (await Promise.all(outcomes)).map(({ outcome }) => outcome),
      ["sent", "rejected", "sent"],
    );
    for (const { raw } of sink.received) {
      assert.deepEqual(
        (await verifyDkim(raw, records)).map(({ result }) => result),
        ["pass", "pass"],
      );
    }
  });

  it("is deferred, and leaves no byte of its body, when it cannot be signed", async () => {
    const sink = await sinkWith();
    const pool = poolAt(sink.port);
    const signature = Promise.reject(new Error("no signature"));
    signature.catch(() => {});
    assert.equal((await pool.send({ ...compose(), signature })).outcome, "deferred");
    assert.equal(sink.received.length, 0);
    assert.equal((await pool.send(withSignature(compose()))).outcome, "sent");
  });
});
