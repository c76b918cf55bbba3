import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { classifyMail } from "../../domain/reports/classify.ts";
import type { ReportKind } from "../../domain/reports/report.ts";
import { ORDINARY_MAILS } from "./ordinary-mails.ts";
import { eximReport, PROGRAM_MAILS, postfixReport, qmailReport, USER } from "./programs.ts";

const replies = (name: string): string[] =>
  readFileSync(`${import.meta.dirname}/../data/replies/${name}.txt`, "utf8")
    .trim()
    .split("\n");

async function readMail(raw: string | Buffer): Promise<[address: string, kind: ReportKind][]> {
  const { recipients } = await classifyMail(Buffer.from(raw));
  return recipients.map(({ address, kind }) => [address, kind]);
}

/** A mail as a gateway passes it on: attached to a mail of its own. */
const wrapped = (raw: string, boundary: string) =>
  `From: postmaster@gw.sender.example\nSubject: Scanned\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="${boundary}"\n\n--${boundary}\nContent-Type: text/plain\n\nThis mail was scanned.\n--${boundary}\nContent-Type: message/rfc822\n\n${raw}\n--${boundary}--\n`;

/** A change of a report's form that keeps what it says; undefined where a report has no such form. */
const FORMS: Record<string, (raw: string) => string | undefined> = {
  "without the returned mail": (raw) =>
    // A complaint's recipient may be named by the returned mail alone.
    /feedback-report/.test(raw)
      ? undefined
      : raw.replace(/\n--=_b\nContent-Type: message\/rfc822[\s\S]*/, "\n--=_b--\n"),
  "in the mail of a gateway, in that of another": (raw) => wrapped(wrapped(raw, "gateway"), "scanner"),
  "behind more lines of a header": (raw) => `Received: by gw.sender.example; Thu, 29 Apr 2010 23:34:46 +0900\n\n${raw}`,
  "behind empty lines": (raw) => `   \n\n${raw}`,
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
