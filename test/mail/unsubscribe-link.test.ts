import assert from "node:assert/strict";
import { wordsOf } from "../../domain/languages/words.ts";
import { showMessage } from "../../domain/mail/message.ts";
import { withFooter } from "../../domain/mail/unsubscribe-link.ts";

const LINK = '<a href="{{ unsubscribe_url }}">Leave</a>';
const FOOTER =
  /<div style="all:initial[^>]*>You receive this email because you are on our mailing list.<br><a href="{{ unsubscribe_url }}"[^>]*>Unsubscribe<\/a><\/div>/;

const TRACKED = { tracking: { ownUrl: "https://mail.example" } };

/** The body with `FOOTER` in the place of its footer. */
const completed = (html: string) => withFooter(html, {}).source.replace(FOOTER, "FOOTER");

describe("A body", () => {
  for (const html of [
    LINK,
    "<A HREF={{unsubscribe_url}}>Leave</A>",
    "<a href=' {{- unsubscribe_url | escape -}} '><img src='x.png'></a>",
    '<a href="{{ unsubscribe_url | append: "?from=news" }}">Leave</a>',
    '<a href="{{ unsubscribe_url }}#top">Leave</a>',
    '<a class="{% if first_name %}a{% endif %}" href="{% echo unsubscribe_url %}">Leave</a>',
    "{% assign url = unsubscribe_url %}<a href='{{ url }}'>Leave</a>",
    `{% if first_name %}Dear {{ first_name }}{% else %}Hello{% endif %}${LINK}`,
    `<div style="display:none">${LINK}</div>`,
  ]) {
    it(`keeps its own link: ${html}`, () => assert.equal(completed(html), html));
  }

  for (const html of [
    "",
    "<p>News</p>",
    "<p>{{ unsubscribe_url }}</p>",
    '<img src="{{ unsubscribe_url }}"><area href="{{ unsubscribe_url }}">',
    '<a href="https://example.com/?next={{ unsubscribe_url }}" title="{{ unsubscribe_url }}">Leave</a>',
    '<a href="{{ unsubscribe_url | upcase }}">Leave</a>',
    "<a href='{{ first_name }}'>Leave</a>",
    // The token would be another one.
    '<a href="{{ unsubscribe_url }}.">Leave</a>',
    '<a href="{{ unsubscribe_url }}&x=1">Leave</a>',
    '<a href="{{ unsubscribe_url }}/ ?x=1">Leave</a>',
    ...["downcase", "truncate: 60", "slice: 0, 50", "prepend: first_name"].map(
      (filter) => `<a href="{{ unsubscribe_url | ${filter} }}">Leave</a>`,
    ),
    '<a href="{{ unsubscribe_url }}{{ first_name }}">Leave</a>',
    '<a href="{{ first_name | default: unsubscribe_url }}">Leave</a>',
    '<a href="{{ unsubscribe_url }}{% if first_name %}/x{% endif %}">Leave</a>',
    '<a {% if first_name %}href="https://shop.example/"{% endif %} href="{{ unsubscribe_url }}">Leave</a>',
    `{% if first_name %}<!-- {% endif %}${LINK}{% if first_name %} -->{% endif %}`,
    // Some recipients would have no link.
    `{% if first_name %}${LINK}{% endif %}`,
    `{% unless email contains "@gmail.com" %}${LINK}{% endunless %}`,
    '<a {% if first_name %}href="x"{% else %}href="{{ unsubscribe_url }}"{% endif %}>Leave</a>',
    `{% liquid\nif first_name\necho "x"\nendif %}{% case email %}{% when "a" %}${LINK}{% endcase %}`,
    // No recipient would have one.
    `<!-- ${LINK} --><!--[if mso]>${LINK}<![endif]-->`,
    `{% comment %}{% endif %}${LINK}{% endcomment %}{% capture x %}${LINK}{% endcapture %}`,
    `{% raw %}${LINK}{% endraw %}<textarea>${LINK}</textarea>`,
    // Its end is none of the document's.
    "<p>News</p><!-- </body> -->",
    "{% if false %}</body>{% endif %}",
  ]) {
    it(`gets a footer at its end: ${html}`, () => assert.equal(completed(html), `${html}FOOTER`));
  }

  for (const html of ["<p>x</p><!-- oops", "<p>x</p><!-- </body></html>", "<style>p{}<p>x</p>", "<title>x<p>y</p>"])
    it(`is refused when it swallows the footer: ${html}`, () =>
      assert.throws(() => completed(html), /its end is inside a comment or an element that shows no links/));

  for (const end of ["</body></html>", "</BODY >\r\n</html>\n", "</body>"]) {
    it(`gets its footer before ${JSON.stringify(end)}`, () => {
      // Lower case has more characters than upper case here.
      const html = `<html><body><p>${"İ".repeat(9)}</p>`;
      assert.equal(completed(html + end), `${html}FOOTER${end}`);
    });
  }

  describe("of a send that counts opens and clicks", () => {
    const CHOICE = '<a href="{{ tracking_url }}">Choose</a>';
    const linksIn = (html: string) =>
      [...withFooter(html, TRACKED).source.matchAll(/\{\{ (\w+_url) \}\}/g)].map(([, tag]) => tag);

    it("gets the links that it lacks in one footer", () => {
      for (const [html, links] of [
        ["<p>x</p>", ["unsubscribe_url", "tracking_url"]],
        [LINK, ["unsubscribe_url", "tracking_url"]],
        [CHOICE, ["tracking_url", "unsubscribe_url"]],
      ] as const) {
        assert.deepEqual(linksIn(html), links);
        assert.equal(withFooter(html, TRACKED).source.match(/<div/g)?.length, 1);
      }
      assert.equal(withFooter(LINK + CHOICE, TRACKED).source, LINK + CHOICE);
    });

    it("has the link to the choice at its beginning where its end shows no link", () => {
      const html = `${LINK}<style>p{}`;
      const { source } = withFooter(html, TRACKED);
      assert.ok(source.startsWith("<div ") && source.endsWith(html));
      assert.deepEqual(linksIn(html), ["tracking_url", "unsubscribe_url"]);
    });
  });

  it("names the list in each language, and links the page of a mail that will be on the web unless it does so itself", () => {
    for (const language of ["en", "de", "fr", "es"] as const) {
      const footer = { language, mailFooter: null, postalAddress: null, isToList: true, isOnWeb: true };
      const words = wordsOf(language).footer;
      const values = { list_name: "A & B", unsubscribe_url: "https://a.example/u", web_url: "https://a.example/v" };
      const { html, text } = showMessage({ subject: "", html: "<p>News</p>", footer }, values);
      assert.ok(html.includes(words.reasonOfList("A &amp; B")) && !html.includes(words.reason), html);
      assert.match(html, new RegExp(`<a href="https://a.example/v"[^>]*>${words.web}</a>`));
      const links = `${words.unsubscribe} [https://a.example/u] · ${words.web} [https://a.example/v]`;
      assert.equal(text.trim(), `News\n\n${words.reasonOfList("A & B")}\n${links}`);
      const own = '<a href="{{ web_url }}">Browser</a>';
      assert.equal(withFooter(own, { footer }).source.match(/web_url/g)?.length, 1);
      assert.equal(withFooter("<p>x</p>", { footer, isPublic: true }).source, "<p>x</p>");
    }
  });

  describe("of a team with a text and a postal address", () => {
    const footer = {
      ...{ language: "en" as const, mailFooter: "Rain {{ email }} or <b>shine\nYours, Ada" },
      postalAddress: "Example Ltd\n1 High Street, \nLondon",
    };
    const TEXT = "Rain &#123;&#123; email }} or &lt;b&gt;shine<br>Yours, Ada";
    const ADDRESS = "Example Ltd<br>1 High Street, <br>London";
    /** Of the footer, the lines before its links. */
    const lines = (html: string) =>
      withFooter(html, { footer })
        .source.slice(html.length)
        .match(/<div[^>]*>(.*?)(?:<br><br>You |<\/div>)/)?.[1];

    it("has both above its link, once each, as they were written", () => {
      assert.equal(lines("<p>News</p>"), `${TEXT}<br><br>${ADDRESS}`);
      assert.equal(lines(`<p>News</p>${LINK}`), `${TEXT}<br><br>${ADDRESS}`);
      const { html, text } = showMessage({ subject: "", html: `<p>News</p>${LINK}`, footer }, { email: "a@b.example" });
      assert.ok(
        html.includes(TEXT) && text.includes("Rain {{ email }} or <b>shine\nYours, Ada\n\nExample Ltd\n"),
        text,
      );
    });

    it("has no address twice: not one of its own text, in any layout, and not its merge tag", () => {
      const typed = "<td>EXAMPLE ltd</td><td>1&nbsp;High <b>Street</b></td> &middot; London";
      for (const html of [typed, "{{ postal_address }}", "{% if first_name %}Ada{% endif %}{{postal_address}}"]) {
        assert.equal(lines(html + LINK), TEXT, html);
      }
      for (const html of [
        ...[
          "<p>1 High Street</p>",
          `<style>${typed}</style>`,
          `<!-- ${typed} -->`,
          `<img alt="${footer.postalAddress}">`,
        ],
        "{% if first_name %}{{ postal_address }}{% endif %}",
      ]) {
        assert.equal(lines(html + LINK), `${TEXT}<br><br>${ADDRESS}`, html);
      }
      const shown = showMessage(
        { subject: "", html: `<p>{{ postal_address }}</p>${LINK}`, footer },
        { email: "a@b.example" },
      );
      assert.match(shown.html, /<p>Example Ltd, 1 High Street, London<\/p>/);
    });

    it("has a short text or address also where the body names it", () => {
      const short = { language: "en" as const, mailFooter: "Acme", postalAddress: "Paris" };
      const { source } = withFooter(`<p>Acme in Paris</p>${LINK}`, { footer: short });
      assert.match(source, />Acme<br><br>Paris</);
    });

    it("has the words of its links in the language of the team", () => {
      const { source } = withFooter("<p>Neues</p>", { footer: { ...footer, language: "de" } });
      assert.ok(source.includes(wordsOf("de").footer.reason) && !source.includes(wordsOf("en").footer.reason));
    });

    it("has them at its beginning where its end shows no text", () => {
      const html = `${LINK}<style>p{}`;
      assert.ok(withFooter(html, { footer }).source.endsWith(`${TEXT}<br><br>${ADDRESS}</div>${html}`));
    });
  });
});
