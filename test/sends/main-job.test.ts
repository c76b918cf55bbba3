import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { app } from "../support/command.ts";
import { caughtMails, makeSender, preview, readMail, sendAndWait } from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const body = (name: string) => readFileSync(`${import.meta.dirname}/../data/newsletters/${name}`, "utf8");

const FIRST_NAMES = ["Zoë", "Jürgen", "Łukasz", "李", "Amélie", "Søren", "Ναταλία", 'O\'Brien, "Bob"', "محمد", "Ada"];

describe("The main job", () => {
  it("imports 2,000 addresses from a CSV file and mails each eligible one once, and no other", async function () {
    this.timeout(240_000);
    const sender = await makeSender({
      recipients: 0,
      subject: "Für {{ first_name }}",
      body: body("responsive-plain.html").replace("Hi there", "Hi {{ first_name }} {{ last_name }} of {{ list_name }}"),
      credits: 2_000,
      dailySendCap: 2_000,
    });
    const { client, audience, listId } = sender;

    const folder = mkdtempSync(join(tmpdir(), "mailkeel-csv-"));
    const file = join(folder, "people.csv");
    const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;
    const lines = Array.from({ length: 2_000 }, (_, i) =>
      [`  Person${i}@${audience.toUpperCase()} `, quoted(FIRST_NAMES[i % FIRST_NAMES.length] ?? ""), `Nº ${i}`].join(
        ",",
      ),
    );
    writeFileSync(file, `\u{FEFF}Email,First Name,Last Name\r\n${lines.join("\r\n")}\r\nno address,x,y\r\n`);
    const report = await app("import", file, "--team", sender.team.id, "--list", listId, "--json");
    rmSync(folder, { recursive: true });
    assert.equal(report.code, 0, report.stderr);
    assert.equal(report.json?.["created"], 2_000);
    assert.equal(report.json?.["refused"], 1);

    // Every tenth address is suppressed, every seventh never opted in, every thirteenth opted out of the list.
    const suppressed = Array.from({ length: 200 }, (_, i) => `person${i * 10}@${audience}`);
    for (let i = 0; i < suppressed.length; i += 100) {
      await client.post("/suppressions", { emails: suppressed.slice(i, i + 100) });
    }
    const db = kysely(sender.em);
    for (const [status, step] of [
      ["PENDING", 7],
      ["UNSUBSCRIBED", 13],
    ] as const) {
      await sql`update subscriptions set status = ${status} where list_id = ${listId} and subscriber_id in (
        select id from subscribers where team_id = ${sender.team.id}
          and substring(email from 'person([0-9]+)@')::int % ${step}::int = 0)`.execute(db);
    }
    const numbers = Array.from({ length: 2_000 }, (_, i) => i);
    const notOptedIn = numbers.filter((i) => i % 7 === 0 || i % 13 === 0);
    const eligible = numbers.filter((i) => i % 7 !== 0 && i % 13 !== 0 && i % 10 !== 0);

    const planned = await preview(sender);
    assert.deepEqual(planned.body.data.recipients, {
      total: 2_000,
      not_opted_in: notOptedIn.length,
      suppressed: 2_000 - notOptedIn.length - eligible.length,
      eligible: eligible.length,
      tracked: 0,
    });
    const done = await sendAndWait(sender);
    assert.equal(done.status, "SENT");
    assert.equal(done.recipients.sent, eligible.length);

    const mails = await caughtMails(sender);
    assert.deepEqual(mails.flatMap(({ to }) => to).sort(), eligible.map((i) => `person${i}@${audience}`).sort());
    assert.equal(new Set(mails.map(({ messageId }) => messageId)).size, mails.length, "a Message-ID of its own each");

    const { origin } = await stack();
    for (const mail of mails.filter((_, i) => i % 150 === 0)) {
      const number = Number(/person(\d+)@/.exec(mail.to[0] ?? "")?.[1]);
      const name = FIRST_NAMES[number % FIRST_NAMES.length] ?? "";
      const parsed = await readMail(mail.id);
      assert.equal(parsed.subject, `Für ${name}`);
      assert.equal(parsed.from?.address, sender.fromEmail);
      assert.deepEqual(
        parsed.to?.map(({ address }) => address),
        mail.to,
      );
      assert.match(parsed.text ?? "", new RegExp(`Nº ${number}\\b`));
      assert.ok(parsed.html?.includes(`Nº ${number} of Readers`));
      const headers = new Map(parsed.headers.map(({ key, value }) => [key, value]));
      const link = /^<(.*)>$/.exec(headers.get("list-unsubscribe") ?? "")?.[1] ?? "";
      assert.match(link, new RegExp(`^${origin}/u/[\\w.-]+$`));
      assert.ok(parsed.html?.includes(link) && parsed.text?.includes(link), "the link is visible");
      assert.equal(headers.get("list-unsubscribe-post"), "List-Unsubscribe=One-Click");
      assert.ok(headers.has("date") && headers.has("message-id") && headers.has("mime-version"));
    }
  });
});
