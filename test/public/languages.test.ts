import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { renderPage } from "../../api/public/page.ts";
import { LANGUAGES } from "../../db/entities/team.ts";
import { en } from "../../domain/languages/en.ts";
import { dateOf, wordsOf } from "../../domain/languages/words.ts";
import { confirmUrl, trackingUrl, unsubscribeUrl } from "../../domain/mail/links.ts";
import { api } from "../support/api.ts";
import { makeTeam, uniqueEmail } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { assertAccessible } from "./accessible.ts";
import { mailLetter } from "./ledger.ts";

/** Texts by their path, with names in place of values. */
function textsOf(words: object, path = ""): Map<string, string> {
  return new Map(
    Object.entries(words).flatMap(([name, value]: [string, unknown]) => {
      const at = `${path}${name}`;
      if (typeof value === "object" && value) return [...textsOf(value, `${at}.`)];
      return [[at, typeof value === "function" ? value("‹first›", "‹second›") : value] as [string, string]];
    }),
  );
}

const HOSTILE = `<img src=x onerror=alert(1)> & "Co" {{ x }}`;
const ESCAPED = "&lt;img src=x onerror=alert(1)&gt; &amp; &#34;Co&#34; {{ x }}";

describe("What the service says to recipients", () => {
  for (const language of LANGUAGES) {
    it(`is complete in ${language}, and names what it is about`, () => {
      const english = textsOf(en);
      const texts = textsOf(wordsOf(language));
      const namesIn = (text = "") => ["‹first›", "‹second›"].filter((name) => text.includes(name));
      for (const [at, text] of texts) {
        assert.ok(text.trim() && !/undefined|\s{2}/.test(text), at);
        assert.deepEqual(namesIn(text), namesIn(english.get(at)), at);
      }
      const same = [...texts].filter(([at, text]) => text === english.get(at)).map(([at]) => at);
      assert.ok(language === "en" || same.every((at) => at === "confirmation.unnamedList"), same.join());
    });
  }

  it("is in the team's language on every page, which escapes hostile names", async () => {
    const language = "fr";
    const { origin } = await stack();
    const team = await makeTeam();
    const client = api(team.keys.live);
    await team.em
      .fork()
      .execute("update teams set sender_name = ?, language = ?, logo_url = ?, accent_color = '#ffee00' where id = ?", [
        HOSTILE,
        language,
        `https://logo.example/a"onload="alert(1)`,
        team.team.id,
      ]);
    const mail = await mailLetter(team);
    const list = (await client.post("/lists", { name: HOSTILE, optin: "DOUBLE" })).body.data.id;
    await client.post(`/lists/${list}/subscribers`, { subscriber_ids: [mail.subscriberId] });
    const { email, subscriberId } = mail;
    const [leave, count, confirm] = [
      unsubscribeUrl(team.vault, origin, mail),
      trackingUrl(team.vault, origin, mail),
      confirmUrl(team.vault, origin, { listId: list, subscriberId, email }),
    ];
    const spent = confirmUrl(team.vault, origin, { listId: list, subscriberId, email: uniqueEmail() });
    const words = wordsOf(language);
    for (const [url, body, status, title] of [
      [confirm, undefined, 200, words.confirm.title(HOSTILE)],
      [confirm, "", 200, words.confirm.done],
      [confirm, undefined, 200, words.confirm.already],
      [spent, undefined, 404, words.confirm.spent],
      [leave, undefined, 200, words.optOut.title(HOSTILE)],
      [leave, "scope=lists", 200, words.optOut.done],
      [leave, undefined, 200, words.optOut.already],
      [leave, "scope=all", 200, words.optOut.done],
      [leave, "scope=undo", 200, words.undo.done],
      [confirm, undefined, 200, words.confirm.already],
      [count, undefined, 200, words.tracking.title(HOSTILE)],
      [count, "scope=deny", 200, words.tracking.done],
      [count, "scope=other", 400, words.broken.title],
    ] as const) {
      const headers = { "content-type": "application/x-www-form-urlencoded" };
      const answer = await fetch(url, body === undefined ? {} : { method: "POST", body, headers });
      const html = await answer.text();
      const at = `${url.slice(origin.length, origin.length + 3)} ${body}`;
      assert.equal(answer.status, status, at);
      assertAccessible(html);
      assert.ok(html.includes(`<html lang="${language}">`), at);
      assert.ok(html.includes(`<h1>${title.replace(HOSTILE, ESCAPED).replaceAll("'", "&#39;")}</h1>`), `${at} ${html}`);
      const logo = `<img src="https://logo.example/a&#34;onload=&#34;alert(1)" alt="${ESCAPED}">`;
      assert.equal(html.split("<img").length, 2, at);
      assert.ok(html.includes(logo), at);
      assert.match(
        answer.headers.get("content-security-policy") ?? "",
        /; img-src data: https:\/\/logo\.example; form/,
      );
    }
  });

  it("writes the first day of a month in French as an ordinal", () => {
    const days = ["2026-03-01T12:00:00Z", "2026-03-11T12:00:00Z"].map((at) => dateOf(wordsOf("fr"), at));
    assert.deepEqual(days, ["1er mars 2026", "11 mars 2026"]);
  });

  it("shows an image of the service's own store as the logo, also where that is of http:", () => {
    const logoUrl = "http://127.0.0.1:3000/i/a.b.c.png";
    const look = { teamName: "Team", language: "en", accentColor: "#000000", backgroundColor: "#ffffff" } as const;
    const { html, headers } = renderPage({ title: "Title", paragraphs: [] }, { ...look, font: "sans", logoUrl });
    assert.ok(html.includes(`<header><img src="${logoUrl}" alt="Team"></header>`), html);
    assert.match(headers["Content-Security-Policy"] ?? "", /; img-src data: 'self'; form/);
  });

  it("keeps a hostile look inside its page", () => {
    const look = { teamName: "Team", language: "en", logoUrl: null, font: "serif" } as const;
    const page = { title: "Title", paragraphs: ["Text"], buttons: [{ label: "Yes", isMain: true }] };
    for (const [accentColor, logoUrl] of [
      ["red}</style><script>alert(1)</script>", "http://logo.example/a.png"],
      ["#000;} body { background: url(https://a.example)", "https://a.example;script-src/*"],
      ["#12345", "https://a.example,script-src/"],
      ["#FFFFFF", "javascript:alert(1)"],
      ["#000000", "https://user:password@'unsafe-inline'/"],
      ["#777777", "not a URL"],
    ] as const) {
      const { html, headers } = renderPage(page, { ...look, accentColor, backgroundColor: accentColor, logoUrl });
      const ground = accentColor === "#000000" || accentColor === "#777777" ? accentColor : "#f4f4f2";
      assert.ok(html.includes(`color: #1f2328; background: ${ground};`), html);
      assertAccessible(html);
      const icon = /<link rel="icon" href="data:image\/svg\+xml,[^"<>]*">/.exec(html)?.[0] ?? "";
      assert.match(icon, /fill='%23[0-9a-f]{6}' stroke='none'/i, "the colour is none that closes the icon");
      assert.ok(!/<img|<script|url\(|https?:/.test(html.replace(icon, "")), html);
      const policy = headers["Content-Security-Policy"] ?? "";
      const style = /<style>([\s\S]*?)<\/style>/.exec(html)?.[1] ?? "";
      const hash = createHash("sha256").update(style).digest("base64");
      const others = "form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
      assert.equal(policy, `default-src 'none'; style-src 'sha256-${hash}'; img-src data:; ${others}`);
      assert.match(html, /Georgia[\s\S]*<header>Team<\/header>/);
    }
  });
});
