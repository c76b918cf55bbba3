import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { classifyMail } from "../../domain/reports/classify.ts";
import type { ReportKind } from "../../domain/reports/report.ts";
import { ORDINARY_MAILS } from "./ordinary-mails.ts";
import { eximReport, PROGRAM_MAILS, postfixReport, qmailReport, USER } from "./programs.ts";

/** Replies of mail servers: test/data/replies. */
const replies = (name: string): string[] =>
  readFileSync(`${import.meta.dirname}/../data/replies/${name}.txt`, "utf8")
    .trim()
    .split("\n");

/** What each recipient of a mail has come to, in order. */
async function readMail(raw: string | Buffer): Promise<[address: string, kind: ReportKind][]> {
  const { recipients } = await classifyMail(Buffer.from(raw));
  return recipients.map(({ address, kind }) => [address, kind]);
}

const inLines = (base64: string) => base64.replace(/.{76}/g, "$&\n");
const base64Of = (text: string, encoding: BufferEncoding = "utf8") =>
  inLines(Buffer.from(text, encoding).toString("base64"));
const quotedPrintable = (text: string) =>
  text
    .split("\n")
    .map((line) =>
      Array.from(Buffer.from(line), (byte) =>
        byte > 126 || byte < 32 || byte === 61
          ? `=${byte.toString(16).toUpperCase().padStart(2, "0")}`
          : String.fromCharCode(byte),
      ).join(""),
    )
    .join("=0A=\n");
const escaped = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&#62;");

const isMultipart = (raw: string) => /^Content-Type: multipart/im.test(raw);
/** The mail with its text in another encoding: of a multipart mail, the text and the status part. */
function encoded(raw: string, encoding: string, encode: (text: string) => string): string {
  if (isMultipart(raw)) {
    const part = /(--=_b\nContent-Type: (?:text|message\/delivery)[^\n]*)\n\n([\s\S]*?)(?=\n--=_b)/g;
    return raw.replace(
      part,
      (_, lines: string, text: string) => `${lines}\nContent-Transfer-Encoding: ${encoding}\n\n${encode(text)}`,
    );
  }
  const type = /text\/html/.test(raw) ? "text/html" : "text/plain";
  return withBody(raw, `${type}; charset=utf-8`, encoding, encode);
}

function withBody(raw: string, type: string, encoding: string, encode: (text: string) => string): string {
  const end = raw.indexOf("\n\n");
  const header = raw
    .slice(0, end)
    .replace(/^Content-.*\n?/gim, "")
    .trimEnd();
  const text = encode(raw.slice(end + 2));
  return `${header}\nContent-Type: ${type}\nContent-Transfer-Encoding: ${encoding}\n\n${text}`;
}

/** A mail as a gateway passes it on: attached to a mail of its own. */
const wrapped = (raw: string, boundary: string) =>
  `From: postmaster@gw.sender.example\nSubject: Scanned\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="${boundary}"\n\n--${boundary}\nContent-Type: text/plain\n\nThis mail was scanned.\n--${boundary}\nContent-Type: message/rfc822\n\n${raw}\n--${boundary}--\n`;

/** A change of a report's form that keeps what it says; undefined where a report has no such form. */
const FORMS: Record<string, (raw: string) => string | undefined> = {
  "with CRLF": (raw) => raw.replaceAll("\n", "\r\n"),
  "in base64": (raw) => encoded(raw, "base64", base64Of),
  "in quoted-printable": (raw) => encoded(raw, "quoted-printable", quotedPrintable),
  "in UTF-16": (raw) =>
    /Content-Type: (?:multipart|text\/html)/.test(raw)
      ? undefined
      : withBody(raw, "text/plain; charset=utf-16", "base64", (text) =>
          inLines(Buffer.from(`\ufeff${text}`, "utf16le").swap16().toString("base64")),
        ),
  "as HTML": (raw) =>
    /Content-Type: (?:multipart|text\/html)/.test(raw)
      ? undefined
      : withBody(raw, "text/html; charset=utf-8", "8bit", (text) => `<html><pre>${escaped(text)}</pre></html>`),
  "with folded headers": (raw) =>
    raw
      .replace(/^From: /m, "From:\n ")
      .replace(/^(Diagnostic-Code:.{30}\S*) /m, "$1\n ")
      .replace(/^Action: f/m, "ACTION:F")
      .replace(/^Final-Recipient: /m, "final-recipient:"),
  "without the returned mail": (raw) =>
    // A complaint's recipient may be named by the returned mail alone.
    /feedback-report/.test(raw)
      ? undefined
      : raw.replace(/\n--=_b\nContent-Type: message\/rfc822[\s\S]*/, "\n--=_b--\n"),
  "of a mailbox file": (raw) => `From MAILER-DAEMON Thu Apr 29 23:34:45 2010\n${raw}`,
  "in the mail of a gateway, in that of another": (raw) => wrapped(wrapped(raw, "gateway"), "scanner"),
  "behind more lines of a header": (raw) => `Received: by gw.sender.example; Thu, 29 Apr 2010 23:34:46 +0900\n\n${raw}`,
  "without a return path": (raw) => raw.replace("Return-Path: <>\n", ""),
  "from an address that tells nothing": (raw) =>
    raw.replace(/^From: .*$/m, 'From: "Mail Delivery System" <no-reply@mx.relay.example>'),
};

describe("reports as mail programs write them", () => {
  it("are read with their recipients", async () => {
    for (const [name, { raw, wanted }] of Object.entries(PROGRAM_MAILS)) {
      assert.deepEqual(await readMail(raw), wanted, name);
    }
  });

  for (const [form, change] of Object.entries(FORMS)) {
    it(`are read the same ${form}`, async () => {
      for (const [name, { raw, wanted }] of Object.entries(PROGRAM_MAILS)) {
        const changed = change(raw);
        if (changed !== undefined) assert.deepEqual(await readMail(changed), wanted, name);
      }
    });
  }

  const PROGRAMS = { Postfix: postfixReport, qmail: qmailReport, Exim: eximReport };
  for (const [program, report] of Object.entries(PROGRAMS)) {
    it(`of ${program} tell an unknown address from any other reason, in the words of many servers`, async () => {
      const read = async (replies: readonly string[], kind: ReportKind) => {
        for (const reply of replies) {
          const mail = report(reply.replaceAll("%s", USER));
          assert.deepEqual(await readMail(mail), [[USER, kind]], reply);
        }
      };
      await read(replies("unknown-address"), "hard");
      await read(replies("other-refusals"), "soft");
    });
  }
});

describe("mail that is no report", () => {
  for (const path of ["<>", "<ann@example.net>"]) {
    it(`is none with the return path ${path}, in many languages`, async () => {
      for (const [from, subject, text, more] of ORDINARY_MAILS) {
        const header = `Return-Path: ${path}\nFrom: ${from}\nTo: bounce@sender.example\nSubject: =?utf-8?B?${Buffer.from(subject).toString("base64")}?=\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8${more === undefined ? "" : `\n${more}`}`;
        assert.deepEqual(await readMail(`${header}\n\n${text}\n`), [], `${from}: ${subject}`);
      }
    });
  }
});
