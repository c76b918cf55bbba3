import assert from "node:assert/strict";
import { sql } from "kysely";
import type { ConsentStatus } from "../../db/entities/audience.ts";
import type { TrackingMode } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { setConsents } from "../../domain/audience/tracking-consents.ts";
import { makePlaceholder } from "../../domain/erasure/erased-addresses.ts";
import { type MailRef, trackingUrl, unsubscribeUrl } from "../../domain/mail/links.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { accept, makeLedger } from "../analytics/ledger.ts";
import { api } from "../support/api.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { makeCampaignSender, makeSender, preview, sendAndWait } from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { snapshotTables } from "../support/tables.ts";
import { assertAccessible } from "./accessible.ts";
import { type MailedLetter, mailLetter } from "./ledger.ts";
import { engagementsOf, hit, letTimePass, mailsOf, markedHitsOf, settleAll } from "./tracking.ts";

const BODY = '<p>Dear {{ first_name }}, <a href="https://shop.example/">shop</a></p>';
const ALLOW = "scope=allow";
const DENY = "scope=deny";

const post = (url: string, body: string) =>
  fetch(url, { method: "POST", body, headers: { "content-type": "application/x-www-form-urlencoded" } });

const say = ({ em, vault, team }: TestTeam, email: string, status: ConsentStatus) =>
  transaction(em.fork(), (tx) =>
    setConsents(tx, vault, { teamId: team.id, environment: "LIVE" }, [{ email, status }], "API"),
  );

async function answerOf({ em, team }: TestTeam, email: string) {
  const { rows } = await sql<{ status: string; way: string; words: string }>`
    select status, way, words from tracking_consents
    where team_id = ${team.id} and environment = 'LIVE' and email = ${email}`.execute(kysely(em.fork()));
  return rows[0];
}

describe("Consent to be tracked", () => {
  describe("in a send", () => {
    /** Of three recipients the first agreed, the second denied, and the third said nothing. */
    async function send(mode: TrackingMode, make: typeof makeSender | typeof makeCampaignSender = makeSender) {
      const sender = await make({ body: BODY, recipients: 3 });
      await sender.em.fork().execute("update teams set tracking = ? where id = ?", [mode, sender.team.id]);
      const [agreed, denied] = ["0", "1"].map((n) => `person${n}@${sender.audience}`);
      await say(sender, agreed ?? "", "GRANTED");
      await say(sender, denied ?? "", "DENIED");
      const previewed = (await preview(sender)).body.data;
      await sendAndWait(sender);
      return { sender, previewed, mails: await mailsOf(sender) };
    }
    const tracked = (mails: Awaited<ReturnType<typeof mailsOf>>) =>
      mails.map(({ pixel, links }) => (pixel ? links.length : 0));

    for (const [mode, make, expected] of [
      ["AGREED", makeSender, [1, 0, 0]],
      ["ALL", makeSender, [1, 0, 1]],
      ["AGREED", makeCampaignSender, [1, 0, 0]],
    ] as const) {
      it(`counts of ${mode === "ALL" ? "all but those who denied it" : "those alone who agreed"}, by ${make.name}`, async () => {
        const { mails, sender, previewed } = await send(mode, make);
        assert.equal(previewed.recipients.tracked, expected.filter(Boolean).length);
        assert.deepEqual(tracked(mails), expected);
        const untracked = mails[1];
        assert.match(untracked?.html ?? "", /href="https:\/\/shop.example\/"/);
        for (const { hrefs, text } of mails) {
          const link = hrefs.find((href) => /\/t\/[0-9a-z]{26}\.\d\.[\w-]{22}$/.test(href)) ?? "";
          assert.equal((await fetch(link)).status, 200);
          assert.ok(text.includes(link), "the text part has the link too");
        }
        const { rows } = await sql<{ tracked: boolean }>`
          select r.tracked from send_recipients r join sends s on s.id = r.send_id
          where s.team_id = ${sender.team.id} order by r.email`.execute(kysely(sender.em.fork()));
        assert.deepEqual(
          rows.map((row) => Number(row.tracked)),
          expected,
        );
        const { totals, rates } = (await api(sender.keys.live).get("/analytics/overview")).body.data;
        assert.deepEqual([totals.sent, totals.tracked, rates.opened], [3, expected.filter(Boolean).length, 0]);
      });
    }

    it("does not count what a person does who denies it later, and answers their requests", async () => {
      const { sender, mails } = await send("AGREED");
      assert.ok("newsletterId" in sender);
      await letTimePass(sender);
      const [mail] = mails;
      await post(mail?.hrefs.find((href) => href.includes("/t/")) ?? "", DENY);
      assert.equal((await hit(mail?.links[0] ?? "")).headers.get("location"), "https://shop.example/");
      assert.equal((await hit(mail?.pixel ?? "")).status, 200);
      const { rows } = await sql<MailRef & { email: string }>`
        select r.send_id as "sendId", r.seq, r.email from send_recipients r join sends s on s.id = r.send_id
        where s.resource_id = ${sender.newsletterId}`.execute(kysely(sender.em.fork()));
      const opened = { kind: "opened", at: Date.now(), url: null, rule: null, early: false, source: null } as const;
      await recordHits(
        sender.em.fork(),
        rows.flatMap((row) => [
          { ...row, ...opened },
          { ...row, ...opened, rule: "head" as const, source: "other" },
        ]),
      );
      await settleAll(sender.em, rows[0]?.sendId ?? "");
      const byLast = `person2@${sender.audience}`;
      assert.deepEqual(
        (await engagementsOf(sender)).map(({ email, count }) => [email, count]),
        [[byLast, 1]],
      );
      assert.deepEqual(
        (await markedHitsOf(sender)).map(({ count }) => count),
        [1],
      );
    });
  });

  it("lets hits of a person who denied it, or was erased, leave no row and no sum", async () => {
    const team = await makeTeam();
    const ledger = await makeLedger(team, 3, { tracked: true });
    const em = team.em.fork();
    await accept(em, ledger, [1, 2, 3], "2026-03-01T10:00:00Z");
    await say(team, "1@example.com", "DENIED");
    const { sendId } = ledger;
    await sql`update send_recipients set email = ${makePlaceholder()} where send_id = ${sendId} and seq = 2`.execute(
      kysely(em),
    );
    const [at, url] = [Date.parse("2026-03-01T12:00:00Z"), "https://shop.example/"];
    const hits = [1, 2, 3].flatMap((seq) => {
      const click = { sendId, seq, kind: "clicked", at, url, rule: null, early: false, source: "s" } as const;
      return [click, { ...click, rule: "head", source: "other" } as const];
    });
    await recordHits(em, hits);
    await settleAll(em, sendId);
    for (const table of ["engagements", "marked_hits", "link_clicks"]) {
      const { rows } = await sql<{ seq: number }>`
        select distinct seq from ${sql.table(table)} where send_id = ${sendId}`.execute(kysely(em));
      assert.deepEqual(rows, [{ seq: 3 }], table);
    }
    const { data } = (await api(team.keys.live).get(`/newsletters/${ledger.newsletterId}/links`)).body;
    assert.deepEqual([data.length, data[0].clicks, data[0].clickers, data[0].clicks_machine], [1, 1, 1, 1]);
  });

  describe("/t/{token}", () => {
    let origin: string;
    let team: TestTeam;
    let mail: MailedLetter;
    before(async () => {
      ({ origin } = await stack());
      team = await makeTeam();
    });
    beforeEach(async () => {
      mail = await mailLetter(team);
    });
    const link = () => trackingUrl(team.vault, origin, mail);
    const page = async (answer: Response, status = 200) => {
      assert.equal(answer.status, status);
      assert.match(answer.headers.get("content-security-policy") ?? "", /^default-src 'none';/);
      assert.match(answer.headers.get("x-robots-tag") ?? "", /noindex/);
      const html = await answer.text();
      assertAccessible(html);
      assert.ok(!html.includes(mail.email));
      return html;
    };

    it("asks, and changes nothing when it is opened", async () => {
      const before = await snapshotTables(team.em, team.team.id);
      const html = await page(await fetch(`${link()}?scope=allow`));
      assert.match(
        html,
        /May .* record when you open its emails and which links in them you click[\s\S]*You have not answered yet\. Opens and clicks in this email are not counted/,
      );
      assert.match(html, /value="allow">Allow<[\s\S]*value="deny">Do not allow</);
      await fetch(link(), { method: "HEAD" });
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
    });

    it("keeps each answer with the question", async () => {
      assert.match(await page(await post(link(), ALLOW)), /Your answer is recorded[\s\S]*You said yes on/);
      const granted = await answerOf(team, mail.email);
      assert.deepEqual([granted?.status, granted?.way], ["GRANTED", "PAGE"]);
      assert.match(granted?.words ?? "", /^May .* click\?$/);
      assert.match(await page(await post(link(), DENY)), /You said no on/);
      assert.equal((await answerOf(team, mail.email))?.status, "DENIED");
      assert.match(await page(await fetch(link())), /You said no on/);
    });

    it("takes no other answer", async () => {
      const others = ["", "scope=all", "scope=toString", "scope=__proto__", "List-Unsubscribe=One-Click"];
      for (const body of others) await page(await post(link(), body), 400);
      assert.equal(await answerOf(team, mail.email), undefined);
    });

    it("denies it for the present address too, and allows it for that of the mail alone", async () => {
      const present = `new.${mail.email}`;
      await api(team.keys.live).patch(`/subscribers/${mail.subscriberId}`, { email: present });
      await post(link(), DENY);
      assert.equal((await answerOf(team, present))?.status, "DENIED");
      await post(link(), ALLOW);
      assert.deepEqual(
        [(await answerOf(team, present))?.status, (await answerOf(team, mail.email))?.status],
        ["DENIED", "GRANTED"],
      );
    });

    it("is of no other page, and knows no erased person", async () => {
      await page(await fetch(unsubscribeUrl(team.vault, origin, mail).replace("/u/", "/t/")), 404);
      await page(await post(`${link()}x`, ALLOW), 404);
      await kysely(team.em)
        .updateTable("send_recipients")
        .set({ email: makePlaceholder() })
        .where("send_id", "=", mail.sendId)
        .execute();
      for (const answer of [await fetch(link()), await post(link(), ALLOW)]) {
        assert.match(await page(answer), /Your data was erased/);
      }
    });
  });
});
