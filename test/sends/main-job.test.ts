import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { unsubscribeUrl } from "../../domain/links.ts";
import { app } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import {
  caughtMails,
  ledgerStates,
  makeSender,
  preview,
  readMail,
  sendAndWait,
  setFaults,
  slowAfter,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const body = (name: string) => readFileSync(`${import.meta.dirname}/../data/newsletters/${name}`, "utf8");

const FIRST_NAMES = ["Zoë", "Jürgen", "Łukasz", "李", "Amélie", "Søren", "Ναταλία", 'O\'Brien, "Bob"', "محمد", "Ada"];

describe("The main job", () => {
  it("imports 2,000 addresses from a CSV file and mails each eligible one once, and no other", async function () {
    this.timeout(240_000);
    const sender = await makeSender({
      recipients: 0,
      subject: "Für {{ first_name }}",
      body: body("responsive-plain.html").replace("Hi there", "Hi {{ first_name }} {{ last_name }}"),
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
      assert.ok(parsed.html?.includes(`Nº ${number}`));
      const headers = new Map(parsed.headers.map(({ key, value }) => [key, value]));
      assert.match(headers.get("list-unsubscribe") ?? "", new RegExp(`^<${origin}/u/[\\w.-]+>$`));
      assert.equal(headers.get("list-unsubscribe-post"), "List-Unsubscribe=One-Click");
      assert.ok(headers.has("date") && headers.has("message-id") && headers.has("mime-version"));
    }
  });

  it("names a real newsletter's unknown merge tags instead of mailing empty values", async () => {
    const sender = await makeSender({ body: body("welcome-merge-tags.html") });
    const answer = await preview(sender);
    assert.equal(answer.status, 409, answer.text);
    assert.equal(answer.body.error.code, "campaign_not_ready");
    for (const tag of ["name", "action_url", "support_email", "trial_end_date"]) {
      assert.ok(answer.body.error.message.includes(`{{ ${tag} }}`), answer.body.error.message);
    }
    assert.deepEqual(await caughtMails(sender), []);
  });

  it("applies an unsubscribe before the next sub-batch of a running send", async () => {
    const sender = await makeSender({ recipients: 400, account: { maxConnections: 1 } });
    await slowAfter(5, sender);
    try {
      const { data } = await startSend(sender);
      await eventually(async () => (await caughtMails(sender)).length > 0, { what: "the first mail" });
      // The last queued recipient opts out, by the link that their mail would carry.
      const { rows } = await sql<{ email: string }>`select email from send_recipients
        where send_id = ${data.id} order by seq desc limit 1`.execute(kysely(sender.em));
      const last = rows[0]?.email ?? "";
      const { origin } = await stack();
      const url = unsubscribeUrl(sender.vault, origin, { sendId: data.id, seq: 400 });
      assert.equal((await fetch(url)).status, 200);
      assert.equal(
        (await sender.client.get(`/suppressions/${encodeURIComponent(last)}`)).status,
        404,
        "GET changes nothing",
      );
      const answer = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/x-www-form-urlencoded" },
        body: "List-Unsubscribe=One-Click",
      });
      assert.equal(answer.status, 200);
      await setFaults([]);
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await ledgerStates(sender), { SENT: 399, SUPPRESSED: 1 });
      assert.ok(!(await caughtMails(sender)).some(({ to }) => to.includes(last)));
      const unsubscribes = await sender.client.get("/unsubscribes", { query: { email: last } });
      assert.equal(unsubscribes.body.data.length, 1);
      assert.equal(unsubscribes.body.data[0].campaign_id, sender.newsletterId);
    } finally {
      await setFaults([]);
    }
  });
});
