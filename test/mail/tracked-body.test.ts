import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import PostalMime from "postal-mime";
import { composeMessage, type MessageRecipient, prepareContent } from "../../domain/mail/message.ts";
import { splitTemplate } from "../../domain/mail/template.ts";
import { findBodyLinks, type TrackedUrls } from "../../domain/mail/tracked-body.ts";
import { cpuMs } from "../support/cpu.ts";

const newsletter = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

const OWN_URL = "https://mail.example.com/";
const urls: TrackedUrls = {
  placeholder: "trackplaceholder",
  openUrl: `${OWN_URL}o/send.trackplaceholder`,
  clickUrl: (url) => `${OWN_URL}l/send.trackplaceholder/${Buffer.from(url).toString("base64url")}`,
};
const recipient: MessageRecipient = {
  email: "jane@example.org",
  firstName: "Jane",
  unsubscribeUrl: `${OWN_URL}u/abc`,
  trackingUrl: `${OWN_URL}t/abc`,
  mailToken: "1.token",
  messageId: "row-1@mail.example.com",
  date: new Date("2026-01-05T09:30:00Z"),
};

async function htmls(html: string): Promise<{ plain: string; tracked: string }> {
  const content = { subject: "News", html, fromEmail: "news@example.com", tracking: { ownUrl: OWN_URL } };
  const { fill } = composeMessage(content, prepareContent(content), urls);
  const read = async (message: Buffer) => (await PostalMime.parse(message)).html ?? "";
  return {
    plain: await read(fill({ ...recipient, mailToken: undefined }).message),
    tracked: await read(fill(recipient).message),
  };
}

const PIXEL = new RegExp(`<img src="${OWN_URL}o/send\\.1\\.token"[^>]*>`);
const LINK = new RegExp(`${OWN_URL}l/send\\.1\\.token/([\\w-]+)`, "g");

const untracked = (html: string) =>
  html.replace(PIXEL, "").replace(LINK, (_, url) => Buffer.from(url, "base64url").toString().replaceAll("&", "&amp;"));

describe("A tracked body", () => {
  for (const name of ["responsive-plain.html", "welcome-merge-tags.html"]) {
    it(`differs from the author's by its links and the pixel alone: ${name}`, async () => {
      const { plain, tracked } = await htmls(newsletter(name));
      assert.match(tracked, PIXEL);
      assert.ok((tracked.match(LINK) ?? []).length > 0);
      const links = /(href=["'])\s*(https?:[^"']*)/g;
      const normal = (html: string) =>
        html.replace(links, (_, name, url) => name + new URL(url.replaceAll("&amp;", "&")).href);
      assert.equal(normal(untracked(tracked)), normal(plain));
    });
  }

  for (const [kind, body] of [
    ["of merge tags", "<p>{{ first_name }}</p>"],
    ["of conditions", '{% if first_name == "Jane" %}<p>Jane</p>{% endif %}'],
    ["in base64", `<p>${"\u043f\u0440\u0438\u0432\u0435\u0442 ".repeat(200)}</p>`],
    [
      "in base64, of conditions",
      `{% if first_name %}${"\u043f\u0440\u0438\u0432\u0435\u0442 ".repeat(200)}{% endif %}`,
    ],
  ]) {
    it(`has each recipient's own part in every URL: ${kind}`, async () => {
      const links = ["https://a.example/1", "https://a.example/2"];
      const { plain, tracked } = await htmls(`${body}${links.map((url) => `<a href="${url}">x</a>`).join("")}`);
      assert.equal(untracked(tracked), plain);
      const found = [...tracked.matchAll(LINK)].map(([, url = ""]) => Buffer.from(url, "base64url").toString());
      assert.deepEqual(found, links);
      assert.ok(!tracked.includes(urls.placeholder));
    });
  }

  it("leaves links of other elements and in comments, captured ones and an author's own tag of that name alone", async () => {
    const body =
      '<!--[if mso]><v:roundrect href="https://vml.example/?a=1&amp;b=2"><![endif]--><v:rect href="https://vml.example/">' +
      '{% capture x %}<a href="https://captured.example/">{% endcapture %}{% raw %}<a href="https://raw.example/">{{ y }}</a>{% endraw %}';
    const { plain, tracked } = await htmls(body);
    assert.equal(untracked(tracked), plain);
    assert.deepEqual(
      [...tracked.matchAll(LINK)].map(([, url = ""]) => Buffer.from(url, "base64url").toString()),
      ["https://raw.example/"],
    );
  });

  it("leaves links with a merge tag alone, its value encoded, also without quotes", async () => {
    const body =
      '<a href="https://a.example/?e={{ email }}">x</a><a href=https://b.example/{{ email }}>x</a><a href="https://c.example/">x</a>' +
      "<a href=https://d.example/{% if email %}1{% endif %}>x</a>";
    const { plain, tracked } = await htmls(body);
    assert.ok(plain.includes('"https://a.example/?e=jane%40example.org"'), plain);
    assert.equal(untracked(tracked), plain);
    const found = [...tracked.matchAll(LINK)].map(([, url = ""]) => Buffer.from(url, "base64url").toString());
    assert.deepEqual(found, ["https://c.example/"]);
  });

  it("stays as short as mail programs show it: the last links are the author's then", async () => {
    const link = '<a href="https://a.example/">x</a>\n';
    const { plain, tracked } = await htmls(`<body>${link.repeat(2_400)}</body>`);
    assert.ok(Buffer.byteLength(plain) < 90_000 && Buffer.byteLength(tracked) < 92_000);
    assert.ok(tracked.match(LINK)?.length);
    assert.ok(tracked.includes(link));
    assert.equal(untracked(tracked), plain);
  });

  it("of any length that is composed without tracking is composed with it", async () => {
    for (const length of [95_000, 500_000, 1_000_000]) {
      const { plain, tracked } = await htmls(
        `<p>${'<a href="https://a.example/">x</a>\n'.repeat(300)}${"x ".repeat(length / 2)}</p>`,
      );
      assert.match(tracked, PIXEL);
      assert.equal(untracked(tracked), plain);
    }
  });

  it("has the places of links found whatever stands around them", () => {
    const piece = fc.oneof(
      fc.constantFrom(
        "<a ",
        "href=",
        '"',
        "'",
        "https://a.example/?b=c&amp;d",
        "{{ email }}",
        "{% if email %}",
        "{% endif %}",
      ),
      fc.constantFrom(">", "</a>", "<!--", "-->", "<style>", "</style>", " ", "=", "<area href=https://b.example/>"),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 25 }), (pieces) => {
        const source = pieces.join("");
        let parts: ReturnType<typeof splitTemplate>;
        try {
          parts = splitTemplate(source);
        } catch {
          return;
        }
        let at = 0;
        for (const { begin, end, url } of findBodyLinks(source, parts, OWN_URL)) {
          assert.ok(begin >= at && end > begin);
          const value = source.slice(begin, end);
          assert.ok(!/\{[{%]/.test(value), value);
          assert.equal(new URL(value.replaceAll("&amp;", "&")).href, url);
          at = end;
        }
      }),
      { numRuns: 3_000 },
    );
  });

  it("is read in linear time", () => {
    const hostile = ['<a href="', "<a href=https://a", '<a href="https://a.example/"', "<", "&amp;", "</body>", " "];
    for (const piece of hostile) {
      const source = piece.repeat(1_000_000 / piece.length);
      const whole = { begin: 0, end: source.length, kind: "text", name: "" } as const;
      const ms = cpuMs(() => findBodyLinks(source, [whole], OWN_URL));
      assert.ok(ms < 5_000, `${piece} took ${ms} ms`);
    }
  });
});
