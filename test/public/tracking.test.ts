import assert from "node:assert/strict";
import { sql } from "kysely";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import type { TrackingMode } from "../../db/entities/team.ts";
import { kysely } from "../../db/orm.ts";
import { recordHits, recordReported } from "../../domain/tracking/record.ts";
import { findingOf, type HitRequest } from "../../domain/tracking/rules.ts";
import { settleHits } from "../../domain/tracking/settle.ts";
import { accept, makeLedger } from "../analytics/ledger.ts";
import { api } from "../support/api.ts";
import { refused, run } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { openReceiver } from "../support/receiver.ts";
import {
  type AnySender,
  anotherNewsletter,
  makeCampaignSender,
  makeSender,
  type Sender,
  type SenderOptions,
  sendAndWait,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";
import { makeEndpoint } from "../support/webhooks.ts";
import {
  BROWSER,
  engagementsOf,
  hit,
  letTimePass,
  mailsOf,
  markedHitsOf,
  pendingOf,
  type ReceivedMail,
  settleAll,
} from "./tracking.ts";

const { it, longIt } = testsOf();

const BODY = `<html><body><p>Dear {{ first_name }}, <a href="https://shop.example/news?a=1&amp;b=2#top">read</a>
  <a href="https://shop.example/">shop</a></p></body></html>`;
const SHOP = "https://shop.example/news?a=1&b=2#top";

const setTracking = (sender: AnySender, tracking: TrackingMode) =>
  sender.em.fork().execute("update teams set tracking = ? where id = ?", [tracking, sender.team.id]);

/** A sender whose newsletter was sent with tracking, an hour ago. */
async function sentTracked(options: SenderOptions = {}): Promise<{ sender: Sender; mails: ReceivedMail[] }> {
  const sender = await makeSender({ body: BODY, ...options });
  await setTracking(sender, "ALL");
  await sendAndWait(sender);
  await letTimePass(sender);
  return { sender, mails: await mailsOf(sender) };
}

const first = <T>([item]: readonly T[]): T => {
  assert.ok(item !== undefined);
  return item;
};
const pixelOf = ({ pixel }: ReceivedMail): string => {
  assert.ok(pixel !== undefined, "the mail has a pixel");
  return pixel;
};

describe("Tracking of opens and clicks", () => {
  const counts = async (sender: Sender) =>
    (await engagementsOf(sender)).map(({ email, kind, count }) => [email.split("@")[0], kind, count]);
  const untilCounts = (sender: Sender, expected: unknown[]) =>
    eventually(
      async () => {
        assert.deepEqual(await counts(sender), expected);
        return true;
      },
      { what: "the counts" },
    );
  const untilMarked = (sender: Sender, expected: unknown[]) =>
    eventually(
      async () => {
        const hits = (await markedHitsOf(sender)).map(({ kind, rule, count }) => [kind, rule, count]);
        assert.deepEqual(hits, expected);
        return true;
      },
      { what: "the marked hits" },
    );

  describe("the switch", () => {
    const isTracked = async (sender: AnySender): Promise<boolean> => {
      await sendAndWait(sender);
      const mail = first(await mailsOf(sender));
      assert.equal(mail.pixel !== undefined, mail.links.length > 0);
      return mail.pixel !== undefined;
    };

    it("is off by default: links are the author's, and there is no pixel", async () => {
      const sender = await makeSender({ body: BODY, recipients: 1 });
      assert.equal(await isTracked(sender), false);
      assert.deepEqual(first(await mailsOf(sender)).hrefs.slice(0, 2), [SHOP, "https://shop.example/"]);
    });

    longIt("is turned on for a team, and by a newsletter or a campaign either way", async () => {
      const on = await makeSender({ body: BODY, recipients: 1 });
      assert.deepEqual((await run("team:tracking", "ALL", "--team", on.team.id)).team.tracking, "ALL");
      const off = await makeSender({ body: BODY, recipients: 1 });
      await run("newsletter:tracking", "on", "--newsletter", off.newsletterId);
      assert.deepEqual([await isTracked(on), await isTracked(off)], [true, true]);

      const exempt = await makeSender({ body: BODY, recipients: 1 });
      await setTracking(exempt, "ALL");
      await run("newsletter:tracking", "off", "--newsletter", exempt.newsletterId);
      assert.equal(await isTracked(exempt), false);

      const left = await makeSender({ body: BODY, recipients: 1 });
      await run("newsletter:tracking", "on", "--newsletter", left.newsletterId);
      assert.equal((await run("newsletter:tracking", "team", "--newsletter", left.newsletterId)).tracking, null);
      assert.equal(await isTracked(left), false);

      const campaign = await makeCampaignSender({ body: BODY, recipients: 1 });
      await setTracking(campaign, "ALL");
      assert.equal((await run("campaign:tracking", "off", "--campaign", campaign.campaignId)).tracking, false);
      assert.equal(await isTracked(campaign), false);
      const trackedCampaign = await makeCampaignSender({ body: BODY, recipients: 1 });
      await run("campaign:tracking", "on", "--campaign", trackedCampaign.campaignId);
      assert.equal(await isTracked(trackedCampaign), true);

      await refused(/only a draft/, "newsletter:tracking", "off", "--newsletter", on.newsletterId);
    });
  });

  describe("links", () => {
    it("lead to exactly the author's address", async () => {
      const addresses: [href: string, target: string][] = [
        ["https://shop.example/news?a=1&amp;b=2#top", SHOP],
        ["http://shop.example", "http://shop.example/"],
        [
          "https://shop.example/caf\u00e9/\u65e5\u672c?q=\u00fc#\u00e9",
          "https://shop.example/caf%C3%A9/%E6%97%A5%E6%9C%AC?q=%C3%BC#%C3%A9",
        ],
        ["https://b\u00fccher.example/%7Ea", "https://xn--bcher-kva.example/%7Ea"],
        ["https://user@shop.example:8443/a;b,c(d)?e='f'&lt;", "https://user@shop.example:8443/a;b,c(d)?e=%27f%27%3C"],
        [" HTTPS://Shop.Example/a b\t", "https://shop.example/a%20b"],
        [
          "https://shop.example/?r=https://other.example/%0d%0aX: y",
          "https://shop.example/?r=https://other.example/%0d%0aX:%20y",
        ],
      ];
      const body = `<p>${addresses.map(([href]) => `<a href="${href}">x</a>`).join("\n")}</p>
        <a href='https://single.example/'>x</a> <A HREF=https://bare.example/?a=b>x</A><map><area href="https://area.example/"></map>
        {% if first_name == "First0" %}<a href="https://zero.example/">0</a>{% else %}<a href="https://other.example/">1</a>{% endif %}`;
      const { mails } = await sentTracked({ body, recipients: 2 });
      const targets = addresses.map(([, target]) => target);
      const plain = ["https://single.example/", "https://bare.example/?a=b", "https://area.example/"];
      const [zero, other] = mails;
      assert.ok(zero && other);
      for (const [mail, last] of [
        [zero, "https://zero.example/"],
        [other, "https://other.example/"],
      ] as const) {
        const answers = await Promise.all(mail.links.map((link) => hit(link)));
        assert.deepEqual(
          answers.map(({ status, headers }) => [status, headers.get("location")]),
          [...targets, ...plain, last].map((target) => [302, target]),
        );
      }
    });

    it("stay as they are where they lead to no fixed page, and in the text part", async () => {
      const { origin } = await stack();
      const body = `<a href="{{ unsubscribe_url }}">Leave</a> <a href="mailto:a@b.example">mail</a> <a href="tel:+49">tel</a>
        <a href="#top">top</a> <a href="/relative">relative</a> <a href="https://shop.example/?to={{ email }}">yours</a>
        <a href="javascript:alert(1)">js</a> <a href="${origin}/u/x.y.z">own</a>
        <a href="https://shop.example/">shop</a> <!-- <a href="https://comment.example/">x</a> -->`;
      const { mails } = await sentTracked({ body, recipients: 1 });
      const { email, html, text, hrefs, links } = first(mails);
      assert.equal(links.length, 1);
      assert.equal((await hit(first(links))).headers.get("location"), "https://shop.example/");
      const untouched = hrefs.filter((href) => !links.includes(href));
      const [leave = "", ...others] = untouched;
      assert.match(leave, /\/u\/[0-9a-z]{26}\.1\.[\w-]{22}$/);
      assert.deepEqual(others.slice(0, 7), [
        "mailto:a@b.example",
        "tel:+49",
        "#top",
        "/relative",
        `https://shop.example/?to=${encodeURIComponent(email)}`,
        "javascript:alert(1)",
        `${origin}/u/x.y.z`,
      ]);
      assert.ok(html.includes('<!-- <a href="https://comment.example/">x</a> -->'));
      assert.ok(text.includes("https://shop.example/") && !text.includes("/l/"), text);
    });

    it("answer without a cookie, storing or a referrer, and tell no page of the mail", async () => {
      const { mails } = await sentTracked({ recipients: 1 });
      const mail = first(mails);
      for (const url of [pixelOf(mail), first(mail.links)]) {
        const { headers } = await hit(url);
        assert.equal(headers.get("set-cookie"), null);
        assert.equal(headers.get("cache-control"), "no-store");
        assert.equal(headers.get("referrer-policy"), "no-referrer");
        assert.equal(headers.get("cross-origin-resource-policy"), "cross-origin");
        assert.ok(!url.includes("@") && !url.includes("person"), "the URL holds no address");
      }
      const pixel = await hit(pixelOf(mail));
      assert.equal(pixel.headers.get("content-type"), "image/gif");
      const gif = Buffer.from(await pixel.arrayBuffer());
      assert.equal(gif.toString("latin1", 0, 6), "GIF89a");
      assert.deepEqual([gif.readUInt16LE(6), gif.readUInt16LE(8)], [1, 1]);
    });

    it("lead nowhere when a part of them is changed, or of another mail, send or page", async () => {
      const { sender, mails } = await sentTracked({ recipients: 2 });
      const [one, two] = mails;
      assert.ok(one && two);
      const link = new URL(first(one.links));
      const [, , mail = "", target = ""] = link.pathname.split("/");
      const [send = "", row = "", signature = ""] = mail.split(".");
      const [linkSignature = "", encoded = ""] = target.split(".");
      const [, , foreign = ""] = new URL(
        first((await sentTracked({ recipients: 1 })).mails.flatMap(({ links }) => links)),
      ).pathname.split("/");
      const encode = (url: string) => Buffer.from(url).toString("base64url");
      const flipped = (text: string) => (text.startsWith("A") ? "B" : "A") + text.slice(1);
      for (const path of [
        `/l/${mail}/${linkSignature}.${encode("https://evil.example/")}`,
        `/l/${mail}/${flipped(linkSignature)}.${encoded}`,
        `/l/${send}.${row}.${flipped(signature)}/${target}`,
        `/l/${send}.2.${signature}/${target}`,
        `/l/${send}.${row}/${target}`,
        `/l/${foreign}/${target}`,
        `/l/${mail}/${target}.x`,
        `/l/${mail}/.${encoded}`,
        `/l/${mail}/${linkSignature}`,
        `/l/${mail}/${encoded}`,
        `/l/${mail}/%E0%A4%A`,
        `/l/${mail}/${signature}.${encode("javascript:alert(1)")}`,
        `/l/${mail}/${linkSignature}.${encode("https://a.example/\r\nX: y")}`,
        `/o/${send}.${row}.${flipped(signature)}`,
        `/o/${send}.${row}`,
        "/o/x",
        "/l/x",
        "/l/x/",
      ]) {
        const answer = await hit(`${link.origin}${path}`);
        assert.equal(answer.status, 404, path);
        assert.equal(answer.headers.get("location"), null);
        assert.match(answer.headers.get("content-type") ?? "", /^text\/html/);
        assert.ok(!(await answer.text()).includes("evil"));
      }
      // An unsubscribe link cannot be made of a tracked one.
      assert.equal((await fetch(`${link.origin}/u/${mail}`)).status, 404);
      await hit(pixelOf(two));
      await untilCounts(sender, [["person1", "opened", 1]]);
      assert.deepEqual(await markedHitsOf(sender), []);
    });
  });

  describe("the pixel", () => {
    it("is the last in the body, behind the footer, and leaves the mail otherwise as it is", async () => {
      const sender = await makeSender({ body: BODY, recipients: 1 });
      await sendAndWait(sender);
      const tracked = await anotherNewsletter(sender);
      await sender.em
        .fork()
        .execute("update newsletters set body = ?, tracking = true where id = ?", [BODY, tracked.newsletterId]);
      await sendAndWait(tracked);
      const [plain, other] = await mailsOf(sender);
      assert.ok(plain && other);
      const before = plain.pixel ? other : plain;
      const after = plain.pixel ? plain : other;
      const neutral = ({ html }: ReceivedMail) =>
        html
          .replace(/\/u\/[\w.-]+/g, "/u/")
          .replace(/ &middot; <a href="[^"]*\/t\/[^>]*>[^<]*<\/a>/, "")
          .replace(/<img src="[^"]*\/o\/[^>]*>/, "");
      const [link = "", shop = ""] = after.links;
      const back = neutral(after).replace(link, SHOP.replace("&", "&amp;")).replace(shop, "https://shop.example/");
      assert.equal(back, neutral(before));
      assert.match(after.html, /are counted<\/a><\/div><img src="[^"]*\/o\/[^>]*><\/body>/);
    });
  });

  describe("counts", () => {
    it("hold each recipient's opens and clicks, and each becomes an event", async () => {
      const receiver = await openReceiver();
      try {
        const { sender, mails } = await sentTracked({ recipients: 2 });
        await makeEndpoint(sender, { url: `${receiver.origin}/hooks`, events: ["event.tracked"] });
        const [one, two] = mails;
        assert.ok(one && two);
        for (const url of [pixelOf(one), pixelOf(one), first(one.links), pixelOf(two)]) await hit(url);
        await untilCounts(sender, [
          ["person0", "opened", 2],
          ["person0", "clicked", 1],
          ["person1", "opened", 1],
        ]);
        await hit(first(one.links));
        await untilCounts(sender, [
          ["person0", "opened", 2],
          ["person0", "clicked", 2],
          ["person1", "opened", 1],
        ]);
        for (const { first_at, last_at } of await engagementsOf(sender)) assert.ok(first_at <= last_at);
        const { totals, rates } = (await api(sender.keys.live).get("/analytics/overview")).body.data;
        const { sent, opened, opened_unique, clicked, clicked_unique } = totals;
        assert.deepEqual(
          { sent, opened, opened_unique, clicked, clicked_unique },
          { sent: 2, opened: 3, opened_unique: 2, clicked: 2, clicked_unique: 1 },
        );
        assert.deepEqual([rates.opened, rates.clicked], [1, 0.5]);

        const events = (await receiver.until("/hooks", 5)).map(({ body }) => JSON.parse(body).data.object);
        const { rows } = await sql<{ id: string }>`
          select seq || '.' || send_id as id from engagements where resource_id = ${sender.newsletterId} and kind = 'clicked'`.execute(
          kysely(sender.em),
        );
        assert.deepEqual(events.map(({ kind, email, url }) => `${kind} ${email.split("@")[0]} ${url}`).sort(), [
          `click person0 ${SHOP}`,
          `click person0 ${SHOP}`,
          "open person0 null",
          "open person0 null",
          "open person1 null",
        ]);
        const click = events.find(({ kind }) => kind === "click");
        assert.match(click.id, /^trk_/);
        assert.equal(new Set(events.map(({ id }) => id)).size, 5);
        assert.match(click.created_at, /^\d{4}-.*Z$/);
        assert.deepEqual(
          { ...click, id: "", created_at: "" },
          {
            object: "event",
            id: "",
            kind: "click",
            email_id: rows[0]?.id,
            newsletter_id: sender.newsletterId,
            campaign_id: null,
            email: one.email,
            url: SHOP,
            by: "human",
            created_at: "",
          },
        );
      } finally {
        await receiver.close();
      }
    });

    it("leave out the links that a program follows at once, and hold the open that a lone click proves", async () => {
      const links = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `<a href="https://shop.example/${n}">${n}</a>`).join(" ");
      const receiver = await openReceiver();
      try {
        const sender = await makeSender({ body: links, recipients: 3 });
        await setTracking(sender, "ALL");
        await sendAndWait(sender);
        await makeEndpoint(sender, { url: `${receiver.origin}/hooks`, events: ["event.tracked"] });
        await sender.em
          .fork()
          .execute(
            "update send_recipients set updated_at = now() - interval '4 seconds' where send_id in (select id from sends where resource_id = ?)",
            [sender.newsletterId],
          );
        const [reader, atOnce, inTurns] = await mailsOf(sender);
        assert.ok(reader && atOnce && inTurns);
        await hit(first(reader.links));
        await Promise.all(atOnce.links.map((link) => hit(link)));
        for (const link of inTurns.links) await hit(link);
        await eventually(async () => (await pendingOf(sender)) === 17, { what: "the stored hits" });
        await untilMarked(sender, [
          ["opened", "first_minutes", 1],
          ["clicked", "burst", 16],
          ["clicked", "first_minutes", 1],
        ]);
        assert.deepEqual(await counts(sender), [["person0", "opened", 1]]);
        const { totals } = (await api(sender.keys.live).get("/analytics/overview")).body.data;
        const { opened, opened_unknown, clicked, clicked_unknown, clicked_machine } = totals;
        assert.deepEqual([opened, opened_unknown, clicked, clicked_unknown, clicked_machine], [1, 1, 0, 1, 16]);
        const events = (await receiver.until("/hooks", 1)).map(({ body }) => JSON.parse(body).data.object);
        assert.deepEqual(
          events.map(({ kind, by, email }) => [kind, by, email]),
          [["click", "unknown", reader.email]],
        );
      } finally {
        await receiver.close();
      }
    });

    it("are made once a mail is quiet, and change by no report of a provider about another team's mail", async () => {
      const team = await makeTeam();
      const ledger = await makeLedger(team, 1);
      const { sendId, tenant } = ledger;
      const em = team.em.fork();
      await accept(em, ledger, [1], "2026-03-01T10:00:00Z");
      const at = Date.parse("2026-03-01T12:00:00Z");
      const open = { sendId, seq: 1, kind: "opened", at, url: null, rule: null, early: false, source: "s" } as const;
      await recordHits(em, [open]);
      await settleHits(team.em.fork(), 1_000);
      const rowsOf = async (table: "pending_hits" | "engagements" | "marked_hits") =>
        (await sql`select from ${sql.table(table)} where send_id = ${sendId}`.execute(kysely(em))).rows.length;
      assert.deepEqual([await rowsOf("pending_hits"), await rowsOf("engagements")], [1, 0]);

      const word = { sendId, seq: 1, machine: "opened", at: at + 3_000 } as const;
      await recordReported(em, { ...tenant, environment: "TEST" }, [word]);
      assert.equal(await rowsOf("pending_hits"), 1);
      await recordReported(em, tenant, [word]);
      await settleAll(team.em, sendId);
      assert.deepEqual([await rowsOf("engagements"), await rowsOf("marked_hits")], [0, 1]);
    });

    it("leave out a click that comes within a second of the acceptance, but no open", async () => {
      const sender = await makeSender({ body: BODY, recipients: 1 });
      await setTracking(sender, "ALL");
      await sendAndWait(sender);
      // As if the server had taken the mail just now, however long the test has taken.
      await sender.em
        .fork()
        .execute(
          "update send_recipients set updated_at = now() + interval '1 minute' where send_id in (select id from sends where resource_id = ?)",
          [sender.newsletterId],
        );
      const mail = first(await mailsOf(sender));
      await hit(first(mail.links));
      await hit(pixelOf(mail));
      await untilMarked(sender, [["clicked", "too_soon", 1]]);
      await untilCounts(sender, [["person0", "opened", 1]]);
    });

    it("hold hits of people who unsubscribed or were deleted since", async () => {
      const { sender, mails } = await sentTracked({ recipients: 2 });
      const [one, two] = mails;
      assert.ok(one && two);
      const leave = first(one.hrefs.filter((href) => href.includes("/u/")));
      assert.equal((await fetch(leave, { method: "POST" })).status, 200);
      await sender.em
        .fork()
        .execute("delete from subscribers where team_id = ? and email = ?", [sender.team.id, two.email]);
      for (const { links } of [one, two]) assert.equal((await hit(first(links))).headers.get("location"), SHOP);
      await untilCounts(sender, [
        ["person0", "opened", 1],
        ["person0", "clicked", 1],
        ["person1", "opened", 1],
        ["person1", "clicked", 1],
      ]);
    });
  });

  describe("requests of programs", () => {
    const GMAIL_PREFETCH =
      "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/42.0.2311.135 Safari/537.36 Edge/12.246 Mozilla/5.0";
    type Case = [what: string, kinds: "both" | EngagementKind, rule: string | null, request: HitRequest];
    const sent = (headers: Record<string, string> = {}) => ({
      method: "GET",
      headers: { "user-agent": BROWSER, ...headers },
      clientAddress: null,
    });
    const agent = (name: string) => sent({ "user-agent": name });
    const CASES: Case[] = [
      ["a browser", "both", null, agent(BROWSER)],
      ["Outlook", "both", null, agent("Mozilla/4.0 (compatible; ms-office; MSOffice 16)")],
      [
        "Thunderbird",
        "both",
        null,
        agent("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Thunderbird/128.4.0"),
      ],
      [
        "Gmail's image proxy",
        "opened",
        null,
        agent("Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"),
      ],
      [
        "Yahoo's image proxy",
        "opened",
        null,
        agent("YahooMailProxy; https://help.yahoo.com/kb/yahoo-mail-proxy-SLN28749.html"),
      ],
      ["a mail program that names itself shortly", "opened", null, agent("Airmail 3 rv:(6.0)")],
      ["HEAD", "both", "head", { ...sent(), method: "HEAD" }],
      ["Sec-Purpose", "both", "prefetch", sent({ "sec-purpose": "prefetch;prerender" })],
      ["Purpose", "both", "prefetch", sent({ purpose: "prefetch" })],
      ["X-Purpose", "both", "prefetch", sent({ "x-purpose": "preview" })],
      ["X-Moz", "both", "prefetch", sent({ "x-moz": "prefetch" })],
      ["Gmail ahead of its reader", "both", "prefetch", agent(GMAIL_PREFETCH)],
      ["Apple's Mail Privacy Protection", "opened", "privacy_proxy", agent("Mozilla/5.0")],
      ["no name", "both", "program", agent(" ")],
      ["a gateway", "both", "program", agent("Mozilla/5.0 (compatible; Barracuda Sentinel (EE))")],
      ["a library", "both", "program", agent("python-requests/2.31.0")],
      ["a browser without a screen", "both", "program", agent(BROWSER.replace("Chrome/", "HeadlessChrome/"))],
      [
        "a crawler",
        "clicked",
        "program",
        agent("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"),
      ],
      ["a name of 60,000 characters", "opened", null, agent(`Mozilla/5.0 ${"(a".repeat(30_000)}`)],
    ];

    it("are recognised by the sign that they show", () => {
      for (const [what, kinds, rule, request] of CASES) {
        for (const kind of kinds === "both" ? (["opened", "clicked"] as const) : [kinds]) {
          assert.equal(findingOf(kind, request)?.rule ?? null, rule, `${what}: ${kind}`);
        }
      }
    });

    it("are answered like others, and recorded by that sign", async () => {
      const { sender, mails } = await sentTracked({ recipients: 1 });
      const mail = first(mails);
      assert.equal((await hit(pixelOf(mail), { method: "HEAD" })).status, 200);
      assert.equal((await hit(first(mail.links), { method: "HEAD" })).headers.get("location"), SHOP);
      await untilMarked(sender, [
        ["opened", "head", 1],
        ["clicked", "head", 1],
      ]);
      assert.deepEqual(await counts(sender), []);
    });
  });
});
