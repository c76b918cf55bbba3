import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { sql } from "kysely";
import { claimPort } from "../../config/ports.ts";
import { kysely } from "../../db/orm.ts";
import {
  type MailRef,
  readMailAddress,
  returnPath,
  unsubscribeAddress,
  unsubscribeUrl,
} from "../../domain/mail/links.ts";
import { LEDGERS } from "../../domain/retention/ledgers.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { type MailedLetter, mailLetter } from "../public/ledger.ts";
import { api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { openNamespace } from "../support/namespace.ts";
import { startWorker, type TestWorker } from "../support/processes.ts";
import { bounce, COMPLAINT, complaint, HARD, RETURN_PATH_DOMAIN, SOFT } from "../support/reports.ts";
import { LEAST_LEDGER_DAYS, prune } from "../support/retention.ts";
import { caughtMails, makeSender, readMail, sendAndWait } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { snapshotTables } from "../support/tables.ts";
import { giveMail, mailed, mailTo, reasonOf, recordedKinds } from "./mails.ts";

const { it, longIt } = testsOf();

const AWAY = `From: someone@elsewhere.example
Subject: Automatic reply: Hello
Auto-Submitted: auto-replied

I am out of the office; your mail could not be delivered to me, user unknown.
`;
const AWAY_IN_SLOVENE = `From: Ana <ana@elsewhere.example>
Subject: Samodejni odgovor: Undelivered
Auto-Submitted: auto-replied

Na dopustu sem; it could not be delivered.

-----Original Message-----
Received: by elsewhere.example
`;

describe("The intake of reports", () => {
  let team: TestTeam;
  let worker: TestWorker;
  let port: number;
  let pathOf: (ref: MailRef) => string;
  let healthPort: number;
  const settings = () => ({ RETURN_PATH_DOMAIN, INTAKE_SMTP_PORT: String(port), HEALTH_PORT: String(healthPort) });
  const reportsCounted = async (outcome: string): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text();
    const [, count] =
      new RegExp(`^mailkeel_intake_reports_total\\{.*outcome="${outcome}".*\\} (\\d+)$`, "m").exec(text) ?? [];
    return Number(count);
  };

  before(async () => {
    team = await makeTeam();
    port = await claimPort();
    healthPort = await claimPort();
    worker = await startWorker("intake", settings());
    const vault = openVault((await stack()).env);
    pathOf = (ref) => returnPath(vault, RETURN_PATH_DOMAIN, ref);
  });
  after(() => worker.stop());

  const give = (to: string, raw: string | Buffer, from?: string) => giveMail(port, to, raw, { from });

  it("records a hard bounce that comes to a mail's return path, also behind a second header, and suppresses its address", async () => {
    for (const raw of [
      HARD,
      `Received: by gateway.example; Thu, 29 Apr 2010 23:34:46 +0900\n\nReceived: by x\n${HARD}`,
    ]) {
      const email = `${unique("hard")}@to.example`;
      const ref = await mailTo(team, email);
      assert.equal(await give(pathOf(ref), raw), 250);
      assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
      assert.equal(await reasonOf(team, email), "bounce:hard");
    }
  });

  it("records a soft bounce, and a complaint of an unknown reporter", async () => {
    const emails = [unique("soft"), unique("spam")].map((name) => `${name}@to.example`);
    const { sendId } = await mailed(team, emails);
    assert.equal(await give(pathOf({ sendId, seq: 1 }), SOFT), 250);
    assert.equal(await give(pathOf({ sendId, seq: 2 }), COMPLAINT), 250);
    assert.deepEqual(await recordedKinds(team, sendId), ["1 bounce:soft", "2 complaint:unknown"]);
    assert.equal(await reasonOf(team, emails[0] ?? ""), undefined);
    assert.equal(await reasonOf(team, emails[1] ?? ""), "bounce:complaint");
  });

  it("records a soft bounce where another address failed than the one that was mailed", async () => {
    const [alias, own] = [`${unique("team")}@to.example`, "someone@elsewhere.example"];
    for (const [to, kind] of [
      [alias, "bounce:soft"],
      [own, "bounce:hard"],
    ]) {
      const ref = await mailTo(team, alias);
      const raw = bounce("5.1.1", "550 5.1.1 User unknown", `Subject: Hello\nTo: <${to}>\n`);
      assert.equal(await give(pathOf(ref), raw), 250);
      assert.deepEqual(await recordedKinds(team, ref.sendId), [`1 ${kind}`]);
    }
  });

  describe("that gets mails to unsubscribe", () => {
    const REQUEST = "From: Reader <reader@elsewhere.example>\nSubject: unsubscribe\n\n";
    const READER = "reader@elsewhere.example";
    const addressOf = (mail: MailRef) => unsubscribeAddress(team.vault, RETURN_PATH_DOMAIN, mail);
    const client = () => api(team.keys.live);
    const statusesOf = async ({ subscriberId }: MailedLetter): Promise<string[]> =>
      (await client().get(`/subscribers/${subscriberId}`)).body.data.subscriptions.map(({ status }: Json) => status);
    const unsubscribesOf = async ({ email }: { email: string }): Promise<Json[]> =>
      (await client().get("/unsubscribes", { query: { email } })).body.data;

    it("opts the recipient out of the lists of the mail, once", async () => {
      const mail = await mailLetter(team);
      const codes = await Promise.all(Array.from({ length: 6 }, () => give(addressOf(mail), REQUEST, READER)));
      assert.deepEqual(new Set(codes), new Set([250]));
      assert.equal(await give(addressOf(mail).toUpperCase(), REQUEST, READER), 250);
      assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
      assert.equal(await reasonOf(team, mail.email), undefined);
      const [row, ...more] = await unsubscribesOf(mail);
      assert.deepEqual(more, []);
      assert.deepEqual([row.source, row.campaign_id], ["mailto", mail.newsletterId]);
    });

    it("opts a recipient out whose ledger has lost its names, for 13 months", async () => {
      const mail = await mailLetter(team);
      await sql`update sends set completed_at = now() - make_interval(days => ${LEAST_LEDGER_DAYS - 1}::int)
        where id = ${mail.sendId}`.execute(kysely(team.em));
      await prune({ LEDGER_DAYS: LEAST_LEDGER_DAYS }, { prunings: LEDGERS });
      assert.equal(await give(addressOf(mail), REQUEST, READER), 250);
      assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"]);
      assert.deepEqual(
        (await unsubscribesOf(mail)).map(({ source }) => source),
        ["mailto"],
      );
    });

    it("suppresses the recipient of a campaign", async () => {
      const campaignId: string = (await client().post("/campaigns", { name: "Campaign" })).body.data.id;
      const email = `${unique("campaign")}@to.example`;
      const mail = await mailTo(team, email);
      await sql`update sends set resource_type = 'campaign', resource_id = ${campaignId}
        where id = ${mail.sendId}`.execute(kysely(team.em));
      assert.equal(await give(addressOf(mail), REQUEST, READER), 250);
      assert.equal(await reasonOf(team, email), "UNSUBSCRIBED");
      assert.deepEqual(
        (await unsubscribesOf({ email })).map(({ source, campaign_id }) => [source, campaign_id]),
        [["mailto", campaignId]],
      );
    });

    it("takes any mail of a person, also one that its mail program generated", async () => {
      for (const raw of [
        "From: reader@elsewhere.example\nSubject: please stop\n\nNo more of this, thank you.\n",
        `Auto-Submitted: auto-generated\n${REQUEST}`,
        `Auto-Submitted: no\n${REQUEST}`,
        "",
      ]) {
        const mail = await mailLetter(team);
        assert.equal(await give(addressOf(mail), raw, READER), 250);
        assert.deepEqual(await statusesOf(mail), ["UNSUBSCRIBED", "UNSUBSCRIBED"], raw);
      }
    });

    it("changes nothing for automatic answers, reports and forged addresses", async () => {
      const mail = await mailLetter(team);
      const own = addressOf(mail);
      const before = await snapshotTables(team.em, team.team.id);
      assert.equal(await give(own, REQUEST, ""), 250, "without a sender");
      for (const raw of [
        HARD,
        COMPLAINT,
        AWAY,
        `Auto-Submitted: auto-replied (vacation)\n${REQUEST}`,
        `Auto-Submitted: auto-generated\n${REQUEST.replace("unsubscribe", "Re: unsubscribe")}`,
        `Precedence: bulk\n${REQUEST}`,
        `X-Autoreply: yes\n${REQUEST}`,
        REQUEST.replace("unsubscribe", "Automatic reply: unsubscribe"),
        REQUEST.replace("unsubscribe", "Out of the office"),
        `Content-Type: multipart/report; report-type=disposition-notification; boundary=b\n${REQUEST}`,
      ]) {
        assert.equal(await give(own, raw, READER), 250);
      }
      for (const forged of [
        own.replace(/-[0-9a-f]{24}@/, `-${"0".repeat(24)}@`),
        own.replace(/-7-/, "-8-"),
        returnPath(team.vault, RETURN_PATH_DOMAIN, mail).replace(/^b-/, "u-"),
        own.replace(/^u-/, "b-"),
        own.replace(RETURN_PATH_DOMAIN, "elsewhere.example"),
      ]) {
        assert.equal(await give(forged, REQUEST, READER), 550, forged);
      }
      assert.equal(await give(pathOf(mail), REQUEST, READER), 250, "a return path is no unsubscribe address");
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });
  });

  it("takes automatic answers, delays and successes, and records nothing", async () => {
    const ref = await mailTo(team, `${unique("away")}@to.example`);
    const delayed = HARD.replace("Action: failed", "Action: delayed");
    for (const raw of [AWAY, AWAY_IN_SLOVENE, delayed, bounce("2.0.0", "250 2.0.0 OK"), "", "\0\xff\r\n.", "Hello"]) {
      assert.equal(await give(pathOf(ref), raw), 250);
    }
    assert.deepEqual(await recordedKinds(team, ref.sendId), []);
  });

  it("refuses an address that is not signed, altered, or of another domain", async () => {
    const ref = await mailTo(team, `${unique("forged")}@to.example`);
    const own = pathOf(ref);
    const other = pathOf({ ...ref, seq: 2 });
    const forged = [
      own.replace(/-[0-9a-f]{24}@/, `-${"0".repeat(24)}@`),
      other.replace(/-2-/, "-1-"),
      own.replace(/-[0-9a-f]{24}@/, "@"),
      own.replace(RETURN_PATH_DOMAIN, "elsewhere.example"),
      `anyone@${RETURN_PATH_DOMAIN}`,
    ];
    for (const address of forged) assert.equal(await give(address, HARD), 550, address);
    assert.deepEqual(await recordedKinds(team, ref.sendId), []);
  });

  it("asks to come again while the mail's own outcome is not written", async () => {
    const ref = await mailTo(team, `${unique("sending")}@to.example`, "SENDING");
    assert.equal(await give(pathOf(ref), HARD), 451);
    await sql`update send_recipients set state = 'SENT' where send_id = ${ref.sendId}`.execute(kysely(team.em));
    assert.equal(await give(pathOf(ref), HARD), 250);
    assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
  });

  it("finds a mail by the signed link of the mail that a report to a plain address returns, and by nothing else", async () => {
    const { env } = await stack();
    const { sendId } = await mailed(team, [`${unique("plain")}@to.example`, `${unique("plain")}@to.example`]);
    const link = (seq: number) => unsubscribeUrl(openVault(env), env.PUBLIC_URL, { sendId, seq });
    const returned = (url: string) => `Message-ID: <2.${sendId}@from.example>\nList-Unsubscribe: <${url}>\n`;
    const forged = link(2).replace(/[\w-]{22}$/, "a".repeat(22));
    assert.equal(
      await give(`complaints@${RETURN_PATH_DOMAIN}`, bounce("5.1.1", "550 5.1.1 User unknown", returned(forged))),
      250,
    );
    assert.deepEqual(await recordedKinds(team, sendId), []);
    assert.equal(
      await give(`bounces@${RETURN_PATH_DOMAIN}`, bounce("5.1.1", "550 5.1.1 User unknown", returned(link(1)))),
      250,
    );
    assert.deepEqual(await recordedKinds(team, sendId), ["1 bounce:hard"]);
  });

  it("finds the mail of a complaint whose recipient is redacted by any signed part of it, and counts one without any", async () => {
    const emails = Array.from({ length: 6 }, () => `${unique("redacted")}@to.example`);
    const { sendId } = await mailed(team, emails);
    const { env } = await stack();
    const vault = openVault(env);
    const path = (seq: number) => pathOf({ sendId, seq });
    const optOut = (seq: number) => unsubscribeAddress(vault, RETURN_PATH_DOMAIN, { sendId, seq });
    const wrong = path(6).replace(/[0-9a-f]{24}@/, `${"a".repeat(24)}@`);
    // The fields of AOL and Yahoo: of the recipient, AOL leaves the domain.
    const aol = "User-Agent: AOL SComp\nRedacted-Address: redacted\nRedacted-Address: redacted@\n";
    const returned = (line: string) =>
      `${line}\nMessage-ID: <6.${sendId}@from.example>\nTo: redacted@aol.com\nSubject: Hello\n`;
    const folded = `List-Unsubscribe: <${unsubscribeUrl(vault, env.PUBLIC_URL, { sendId, seq: 4 })}>,\n <mailto:${optOut(4)}>`;
    const reports = [
      complaint(aol, returned(`Return-Path: <${path(1)}>`)),
      complaint(`User-Agent: Yahoo!-Mail-Feedback/2.0\nOriginal-Mail-From: <${path(2)}>\n`, returned("X-Redacted: 1")),
      complaint(aol, returned(`List-Unsubscribe: <mailto:${optOut(3).toUpperCase()}?subject=unsubscribe>`)),
      complaint(aol, returned(folded)),
      complaint(`Original-Rcpt-To: person5\nOriginal-Envelope-Id: ${path(5)}\n`, returned("X-Redacted: 1")),
    ];
    for (const report of reports) assert.equal(await give(`complaints@${RETURN_PATH_DOMAIN}`, report), 250);
    const found = [1, 2, 3, 4, 5].map((seq) => `${seq} complaint:unknown`);
    assert.deepEqual(await recordedKinds(team, sendId), found);

    const counted = await reportsCounted("unidentified");
    for (const report of [
      complaint(aol, returned(`Return-Path: <${wrong}>`)),
      complaint(`Original-Rcpt-To: ${emails[5]}\nOriginal-Mail-From: <news@from.example>\n`, returned("X-Redacted: 1")),
      COMPLAINT,
    ]) {
      assert.equal(await give(`complaints@${RETURN_PATH_DOMAIN}`, report), 250);
    }
    assert.deepEqual(await recordedKinds(team, sendId), found, "nothing is guessed from the address or the Message-ID");
    assert.equal(await reasonOf(team, emails[5] ?? ""), undefined);
    assert.equal(await reportsCounted("unidentified"), counted + 3);
    const none = await reportsCounted("none");
    assert.equal(await give(`complaints@${RETURN_PATH_DOMAIN}`, AWAY), 250);
    assert.equal(await reportsCounted("none"), none + 1, "other mail is no report");
  });

  it("asks the return path, not what the report returns", async () => {
    const { env } = await stack();
    const { sendId } = await mailed(team, [`${unique("path")}@to.example`, `${unique("path")}@to.example`]);
    const link = unsubscribeUrl(openVault(env), env.PUBLIC_URL, { sendId, seq: 2 });
    const raw = bounce("5.1.1", "550 5.1.1 User unknown", `List-Unsubscribe: <${link}>\n`);
    assert.equal(await give(pathOf({ sendId, seq: 1 }), raw), 250);
    assert.deepEqual(await recordedKinds(team, sendId), ["1 bounce:hard"]);
  });

  it("has recorded the report of every mail that it answered with 250 when it is killed", async () => {
    const count = 200;
    const { sendId, newsletterId } = await mailed(
      team,
      Array.from({ length: count }, (_, i) => `${unique("killed")}${i}@to.example`),
    );
    const left = Array.from({ length: count }, (_, i) => i + 1);
    const answered: number[] = [];
    let killAt: number | undefined = 1 + Math.floor((Math.random() * count) / 2);
    let restarting: Promise<unknown> = Promise.resolve();
    const lane = async () => {
      for (let seq = left.shift(); seq !== undefined; seq = left.shift()) {
        if ((await give(pathOf({ sendId, seq }), HARD)) !== 250) {
          // Its client sends the mail again.
          left.push(seq);
          await restarting;
          continue;
        }
        answered.push(seq);
        if (killAt === undefined || answered.length < killAt) continue;
        killAt = undefined;
        worker.signal("SIGKILL");
        restarting = (async () => {
          const recorded = await recordedKinds(team, sendId);
          const missing = answered.filter((each) => !recorded.includes(`${each} bounce:hard`));
          worker = await startWorker("intake", settings());
          assert.deepEqual(missing, [], "answered and not recorded");
        })();
        await restarting;
      }
    };
    await Promise.all(Array.from({ length: 20 }, lane));
    assert.equal(killAt, undefined);
    assert.equal((await recordedKinds(team, sendId)).length, count);
    const figures = await api(team.keys.live).get("/analytics/overview", { query: { resource_id: newsletterId } });
    assert.equal(figures.body.data.totals.bounced_hard, count, "each is counted once");
  });

  it("reads a mail of 30 MB, refuses one of 40 MB, and lives on", async () => {
    const ref = await mailTo(team, `${unique("large")}@to.example`);
    const line = `${"x".repeat(998)}\r\n`;
    assert.equal(await give(pathOf(ref), `${HARD}${line.repeat(30_000)}`), 250);
    assert.equal(await give(pathOf(ref), `${HARD}${line.repeat(40_000)}`), 552);
    assert.deepEqual(await recordedKinds(team, ref.sendId), ["1 bounce:hard"]);
  });

  it("survives bytes that are no SMTP, and clients that hang up", async () => {
    for (const bytes of [
      "\0\0\0\0\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "EHLO x\r\nMAIL FROM:<>\r\n",
      `EHLO ${"x".repeat(200_000)}`,
    ]) {
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => {});
      await once(socket, "data");
      socket.write(bytes);
      socket.end();
      socket.resume();
      await once(socket, "close");
    }
    const ref = await mailTo(team, `${unique("after")}@to.example`);
    assert.equal(await give(pathOf(ref), HARD), 250);
  });

  longIt("gets the report about a mail whose envelope sender a dispatch worker made", async () => {
    const namespace = await openNamespace();
    try {
      await namespace.startWorker("sends");
      await namespace.startWorker("dispatch", { RETURN_PATH_DOMAIN });
      const sender = namespace.within(await makeSender({ recipients: 3 }));
      await sendAndWait(sender);
      const mails = await caughtMails(sender);
      assert.equal(new Set(mails.map(({ from }) => from)).size, 3);
      const [first] = mails;
      assert.ok(first);
      assert.equal(first.from.split("@")[1], RETURN_PATH_DOMAIN);
      const { from } = await readMail(first.id);
      assert.equal(from?.address, sender.fromEmail);
      assert.equal(await give(first.from, HARD), 250);
      assert.equal(await reasonOf(sender, first.to[0] ?? ""), "bounce:hard");
      const { headers } = await readMail(mails[1]?.id ?? Number.NaN);
      const forms = headers.find(({ key }) => key === "list-unsubscribe")?.value ?? "";
      const [, mailto = ""] =
        /^<http[^<>]+>,\s+<mailto:([^<>]+)\?subject=unsubscribe>$/.exec(forms) ?? assert.fail(forms);
      assert.equal(await give(mailto, "Subject: unsubscribe\n\n", "reader@elsewhere.example"), 250);
      const left = await sender.client.get("/unsubscribes", { query: { email: mails[1]?.to[0] ?? "" } });
      assert.deepEqual(
        left.body.data.map(({ source }: Json) => source),
        ["mailto"],
      );
    } finally {
      await namespace.close();
    }
  });
});

describe("Return paths", () => {
  it("fit a local part, and name their mail whatever its number", async () => {
    const vault = openVault((await stack()).env);
    const { sendId } = await mailTo(await makeTeam(), `${unique("path")}@to.example`);
    for (const seq of [1, 35, 36, 2 ** 31 - 1]) {
      const [localPart = ""] = returnPath(vault, RETURN_PATH_DOMAIN, { sendId, seq }).split("@");
      assert.ok(localPart.length <= 64, localPart);
      assert.deepEqual(readMailAddress(vault, localPart), { use: "report", ref: { sendId, seq } });
      const [other = ""] = unsubscribeAddress(vault, RETURN_PATH_DOMAIN, { sendId, seq }).split("@");
      assert.deepEqual(readMailAddress(vault, other), { use: "unsubscribe", ref: { sendId, seq } });
      assert.equal(readMailAddress(vault, `${localPart}0`), undefined);
      assert.equal(readMailAddress(vault, localPart.replace(/^b/, "u")), undefined);
    }
  });
});
