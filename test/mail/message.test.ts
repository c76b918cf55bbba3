import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import PostalMime from "postal-mime";
import { runTask } from "../../domain/mail/examination-thread.ts";
import { UnsendableError } from "../../domain/mail/header.ts";
import { composeMessage, type MessageContent, type MessageRecipient } from "../../domain/mail/message.ts";
import { compileTemplate, type MergeValues } from "../../domain/mail/template.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";

const newsletter = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

const content: MessageContent = {
  subject: "News",
  html: '<html><body><p>Hi {{ first_name }}</p><a href="{{ unsubscribe_url }}">Leave</a></body></html>',
  fromEmail: "news@example.com",
};
const LINK = '<a href="{{ unsubscribe_url }}">Leave</a>';
const recipient: MessageRecipient = {
  email: "jane@example.org",
  firstName: "Jane",
  lastName: "Doe",
  listName: "Weekly",
  unsubscribeUrl: "https://mail.example.com/u/abc?x=1&y=2",
  messageId: "row-1@mail.example.com",
  date: new Date("2026-01-05T09:30:00Z"),
};

const fill = (more: Partial<MessageContent> = {}, to: Partial<MessageRecipient> = {}) =>
  composeMessage({ ...content, ...more }).fill({ ...recipient, ...to });

const valuesOf = (to: MessageRecipient): MergeValues => ({
  email: to.email,
  first_name: to.firstName,
  last_name: to.lastName,
  list_name: to.listName,
  unsubscribe_url: to.unsubscribeUrl,
  fields: to.fields,
});

function assertWellFormed(message: Buffer) {
  const raw = message.toString("latin1");
  assert.ok(raw.endsWith("\r\n"));
  assert.doesNotMatch(raw, /[^\r]\n|\r[^\n]|\0/, "bare line break or NUL");
  for (const line of raw.split("\r\n")) {
    assert.ok(line.length <= 998, `line of ${line.length}`);
    assert.ok(!line.startsWith("."), "line starts with a dot");
  }
  const [, body = ""] = raw.split(/\r\n\r\n(.*)/s);
  for (const line of body.split("\r\n")) assert.ok(line.length <= 78, `body line of ${line.length}: ${line}`);
  assert.doesNotMatch(body, /[ \t]\r\n/, "a space at the end of a line");
}

const FOOTER_TEXT = `You receive this email because you are on our mailing list.\nUnsubscribe [${recipient.unsubscribeUrl}]`;
const lf = (text: string | undefined) => (text ?? "").replace(/\r\n|\r/g, "\n").trimEnd();

async function assertParsesBack(template: string, to: MessageRecipient) {
  const { message } = composeMessage({ ...content, html: template }).fill(to);
  assertWellFormed(message);
  const parsed = await PostalMime.parse(message);
  const expected = compileTemplate(template, { escape: true }).render(valuesOf(to));
  const html = lf(parsed.html);
  // A template without a link gets the footer in addition.
  assert.equal(html.replace(/<div style="all:initial!important.*?<\/div>/s, ""), lf(expected.toWellFormed()));
  assert.ok(lf(parsed.text).includes(to.unsubscribeUrl) && html.includes(to.unsubscribeUrl.replaceAll("&", "&amp;")));
  return parsed;
}

describe("A message", () => {
  it("has the headers for a one-click unsubscribe", async () => {
    const { envelope, message } = fill({
      fromName: "Weekly News",
      subject: "Hi {{first_name}}",
    });
    assertWellFormed(message);
    assert.deepEqual(envelope, { from: "news@example.com", to: "jane@example.org", smtpUtf8: false });
    const parsed = await PostalMime.parse(message);
    const header = (key: string) => parsed.headers.filter((each) => each.key === key).map(({ value }) => value);
    assert.deepEqual(header("from"), ['"Weekly News" <news@example.com>']);
    assert.deepEqual(header("to"), ["jane@example.org"]);
    assert.deepEqual(header("subject"), ["Hi Jane"]);
    assert.deepEqual(header("date"), ["Mon, 05 Jan 2026 09:30:00 +0000"]);
    assert.deepEqual(header("message-id"), ["<row-1@mail.example.com>"]);
    assert.deepEqual(header("list-unsubscribe"), ["<https://mail.example.com/u/abc?x=1&y=2>"]);
    assert.deepEqual(header("list-unsubscribe-post"), ["List-Unsubscribe=One-Click"]);
    assert.deepEqual(header("mime-version"), ["1.0"]);
    assert.equal(parsed.headers.length, 9);
  });

  it("has a mailto form beside the one-click form, and takes no other URL for it", async () => {
    const unsubscribeMailto = "mailto:u-abc-7-0f@bounces.example.com?subject=unsubscribe";
    const message = composeMessage(content).fill({ ...recipient, unsubscribeMailto }).message;
    assertWellFormed(message);
    const { headers } = await PostalMime.parse(message);
    const forms = headers.find(({ key }) => key === "list-unsubscribe")?.value ?? "";
    assert.match(forms, /^<https:[^<>]+>,\s+<mailto:u-abc-7-0f@bounces\.example\.com\?subject=unsubscribe>$/);
    for (const url of ["mailto:a>b@example.com?subject=x", "https://example.com/", "mailto:a@b\r\nX: y?subject=x"]) {
      assert.throws(() => composeMessage(content).fill({ ...recipient, unsubscribeMailto: url }), UnsendableError);
    }
  });

  it("carries a text part made from the HTML, with its merge tags filled and unescaped", async () => {
    const html =
      '<h1>Dear {{ first_name }}</h1><p>To {{email}} &amp; co: <a href="https://x.example/{{ list_name }}">read</a></p>' +
      '<img src="x.png"><p>&#123;&#123; email }}</p><a href="{{ unsubscribe_url }}">Leave</a>';
    const parsed = await PostalMime.parse(fill({ html }, { firstName: "Ann & <Bob>" }).message);
    assert.equal(
      lf(parsed.text),
      `Dear Ann & <Bob>\n\nTo jane@example.org & co: read [https://x.example/Weekly]\n\n{{ email }}\n\nLeave [${recipient.unsubscribeUrl}]`,
    );
  });

  it("keeps filters and conditions in the text part", async () => {
    const html =
      "<p>{% if first_name %}Dear {{ first_name | upcase }}{% else %}Hello{% endif %} &#123;% x %}</p>" +
      '<p>1 2 3 </p><a href="{{ unsubscribe_url }}">Leave</a>';
    const composed = composeMessage({ ...content, html });
    const text = async (firstName: string | null) =>
      lf((await PostalMime.parse(composed.fill({ ...recipient, firstName }).message)).text);
    assert.equal(await text("Zoë"), `Dear ZOË {% x %}\n\n1 2 3\n\nLeave [${recipient.unsubscribeUrl}]`);
    assert.equal(await text(null), `Hello {% x %}\n\n1 2 3\n\nLeave [${recipient.unsubscribeUrl}]`);
  });

  it("takes no character of a body for a place of a merge tag in the text part", async () => {
    const condition = '<i class="{% if first_name %}a">{% else %}b">{% endif %}</i>';
    for (const [begin, end] of [
      ["&#xE000;", "&#xE001;"],
      ["&#x86;", "&#x87;"],
      ["&#134;", "&#135;"],
      ["\u0086", "\u0087"],
      ['{{ "%C2%86" | url_decode }}', '{{ "%C2%87" | url_decode }}'],
    ]) {
      for (const more of ["", "{{ email | upcase }}", condition]) {
        const html = `<p>{{ first_name }}</p><p>(${begin}0${end}${begin}1${end})</p>${more}${LINK}`;
        const text = lf((await PostalMime.parse(fill({ html }).message)).text);
        assert.equal(text.split("Jane").length - 1, 1, text);
        assert.match(text, /\(.*\)/);
      }
    }
  });

  it("leaves conditions of attributes out of the text part, and keeps definitions of the head", async () => {
    const html =
      '<html><head>{% assign who = first_name | default: "you" %}</head><body><p class="{% if first_name %}a{% endif %}">' +
      "{% capture line %}Dear {{ who }}{% endcapture %}{{ line }}</p>" +
      '<img src="{% if first_name %}a{% else %}b{% endif %}.png"><a href="{{ unsubscribe_url }}">Leave</a></body></html>';
    const composed = composeMessage({ ...content, html });
    const text = async (firstName: string | null) =>
      lf((await PostalMime.parse(composed.fill({ ...recipient, firstName }).message)).text);
    assert.equal(await text("Zoë"), `Dear Zoë\n\nLeave [${recipient.unsubscribeUrl}]`);
    assert.equal(await text(null), `Dear you\n\nLeave [${recipient.unsubscribeUrl}]`);
  });

  it("takes the first branch into the text part of a condition that leaves an attribute", async () => {
    const html =
      '<p class="{% if first_name %}a">named {{ first_name }}{% else %}b">nameless{% endif %}</p><a href="{{ unsubscribe_url }}">Leave</a>';
    const parsed = await PostalMime.parse(fill({ html }).message);
    assert.equal(lf(parsed.text), `named Jane\n\nLeave [${recipient.unsubscribeUrl}]\n${FOOTER_TEXT}`);
  });

  it("shows the unsubscribe link in the text part where the HTML shows it in another way", async () => {
    const html = '<a href="{{ unsubscribe_url }}"><img src="{{ list_name }}.png" alt="Leave"></a>{{ email | upcase }}';
    const parsed = await PostalMime.parse(fill({ html }).message);
    assert.ok(lf(parsed.text).includes(recipient.unsubscribeUrl));
  });

  it("names that link in the language of the team where the text has lost it", async () => {
    const html = '<p>Hi</p><p hidden><a href="{{ unsubscribe_url }}">Leave</a></p>';
    for (const [language, name] of [
      ["fr", "Se désabonner"],
      ["de", "Abmelden"],
    ] as const) {
      const footer = { language, mailFooter: null, postalAddress: null };
      const parsed = await PostalMime.parse(fill({ html, footer }).message);
      assert.equal(lf(parsed.text), `Hi\n\n${name}\n${recipient.unsubscribeUrl}`);
    }
  });

  it("shows in the text part what a reader sees: no hidden element, and of a mailto link its address alone", async () => {
    const html =
      '<div style="display:none;max-height:0;overflow:hidden">Teaser &#847;&zwnj;&nbsp;&#847;&zwnj;{{ email }}</div>' +
      '<p hidden>hidden</p><span style="DISPLAY: None">unseen</span><b style="backface-visibility:hidden">Oh</b><p>Hi <i style="display: inline">Jane</i></p>' +
      '<p><a href="mailto:desk@example.com?subject=x&amp;body=y">Write</a>, <a href=" MAILTO:desk@example.com">desk@example.com</a>,' +
      ` <a href="mailto:?body=look">share</a></p><a style="display: none" href="https://x.example/">x</a>${LINK}`;
    const { text } = await PostalMime.parse(fill({ html }).message);
    assert.equal(
      lf(text),
      `Oh\n\nHi Jane\n\nWrite [desk@example.com], desk@example.com, share\n\nLeave [${recipient.unsubscribeUrl}]`,
    );
  });

  it("has the text of its footer in both parts", async () => {
    const { html = "", text = "" } = await PostalMime.parse(fill({ html: "<p>Hi</p>" }).message);
    const sentence = "You receive this email because you are on our mailing list.";
    assert.ok(html.includes(`>${sentence}<br>`) && /<p>Hi<\/p><div.*>Unsubscribe<\/a><\/div>\s*$/.test(html), html);
    assert.equal(lf(text), `Hi\n\n${sentence}\nUnsubscribe [${recipient.unsubscribeUrl}]`);
  });

  it("carries real newsletters without a change", async () => {
    await assertParsesBack(newsletter("responsive-plain.html"), recipient);
    const merged = newsletter("welcome-merge-tags.html").replaceAll("{{name}}", "{{ first_name }}");
    const known = merged.replace(/\{\{(?! first_name)[^}]*\}\}/g, "{{ email }}");
    await assertParsesBack(known, { ...recipient, firstName: "Żółć" });
    await assertParsesBack(known.replaceAll("{{ first_name }}", "{{ first_name | upcase }}"), recipient);
  });

  it("uses base64 where it is shorter", async () => {
    const html = `<p>{{ first_name }}, ${"Здравствуйте! ".repeat(50)}</p>`;
    const { message } = fill({ html });
    assert.equal(message.toString().match(/Content-Transfer-Encoding: base64/g)?.length, 2);
    await assertParsesBack(html, recipient);
    await assertParsesBack(html.replace("first_name", "first_name | upcase"), { ...recipient, firstName: "Юра" });
  });

  const awkward = fc.oneof(
    fc.string({ unit: "binary", maxLength: 100 }),
    fc.string({ unit: "grapheme", maxLength: 200 }),
    fc.constantFrom(
      ".",
      "..",
      ".\r\n.",
      " ",
      "x ",
      "=",
      "=\r\n",
      "\r\n",
      "\0",
      "é".repeat(80),
      "w".repeat(300),
      "\t",
      "From ",
    ),
  );

  it("parses back to the rendered text, for any text and any values", async () => {
    const names = MERGE_TAGS.filter((tag) => tag !== "unsubscribe_url");
    // Characters with a meaning in HTML or in templates have their own tests.
    const text = awkward.map((value) => value.replace(/[<>&{}%\0]/g, ""));
    const output = fc.constantFrom(...names).map((tag) => `{{ ${tag} }}`);
    const template = fc
      .array(fc.oneof(text, output, fc.constantFrom("\r\n", "\n", " \r\n", ".\n")), { maxLength: 20 })
      .map((parts) => parts.join(""));
    // A name holds no control character: a carriage return at its end would join with a line feed of the text.
    const value = fc.option(
      awkward.map((text) => text.replaceAll("\r", "")),
      { nil: null },
    );
    await fc.assert(
      fc.asyncProperty(template, value, value, value, fc.boolean(), async (source, first, last, list, plain) => {
        const html = plain ? source : `${source}{% if email %} {% endif %}`;
        await assertParsesBack(`<p>${html}</p>`, { ...recipient, firstName: first, lastName: last, listName: list });
      }),
      { numRuns: 500 },
    );
  });

  it("carries any subject and any display name without a change", async () => {
    const line = awkward.map((value) =>
      value
        .replace(/[\p{Cc}\u2028\u2029]+/gu, " ")
        .toWellFormed()
        .trim(),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(line, { maxLength: 6 }), line, async (words, name) => {
        const subject = words.join(" ").trim();
        const { message } = fill({ subject: "{{ first_name }}", fromName: name }, { firstName: subject });
        assertWellFormed(message);
        const parsed = await PostalMime.parse(message);
        assert.equal(parsed.subject ?? "", subject);
        assert.equal(parsed.from?.address, "news@example.com");
        for (const head of message.toString().split("\r\n\r\n")[0]?.split("\r\n") ?? []) {
          if (/=\?UTF-8/.test(head)) assert.ok(head.length <= 76, head);
        }
        if (/^[\w ]*$/.test(name)) assert.equal(parsed.from?.name ?? "", name);
      }),
      { numRuns: 500 },
    );
    assert.equal((await PostalMime.parse(fill({ fromName: 'Jürgen "J" Ö' }).message)).from?.name, 'Jürgen "J" Ö');
  });

  it("carries custom fields in its subject and in both parts, filled in any way", async () => {
    const fields = { city: "Köln <am> Rhein & Ruhr", orders: 12.5, vip: true, since: "2024-02-29" };
    const body =
      "<p>{{ fields.city }}, {{ fields.orders }}, {{ fields.vip }}, {{ fields.since }}{{ fields.none }}.</p>";
    const subject = "{{ fields.city }}: {{ fields.orders }}";
    for (const html of [
      body,
      // With a filter, and with a condition that leaves an attribute.
      `${body}{{ fields.orders | plus: 1 }}`,
      `${body}<a href="https://example.com/{% if fields.vip %}a">A</a>{% else %}b">B</a>{% endif %}`,
    ]) {
      const composed = composeMessage({ ...content, subject, html: html + LINK });
      const { message } = composed.fill({ ...recipient, fields });
      assertWellFormed(message);
      const parsed = await PostalMime.parse(message);
      assert.equal(parsed.subject, "Köln <am> Rhein & Ruhr: 12.5");
      assert.ok(parsed.html?.includes("<p>Köln &lt;am&gt; Rhein &amp; Ruhr, 12.5, true, 2024-02-29.</p>"), parsed.html);
      assert.ok(parsed.text?.includes("Köln <am> Rhein & Ruhr, 12.5, true, 2024-02-29."), parsed.text);
      const tags = ["fields.city", "fields.orders", "fields.vip", "fields.since", "fields.none"];
      assert.deepEqual([...composed.fieldTags].sort(), tags.toSorted());
      const without = await PostalMime.parse(composed.fill(recipient).message);
      assert.match(without.text ?? "", /, , , \./);
    }
  });

  it("has a link to unsubscribe whatever a custom field is", async () => {
    for (const html of [
      `{% if fields.vip %}Dear{% else %}${LINK}{% endif %}`,
      `{% if fields.vip %}${LINK}{% else %}Dear{% endif %}`,
      `{% unless fields.city == "Rom" %}${LINK}{% endunless %}`,
    ]) {
      for (const fields of [undefined, {}, { vip: true, city: "Rom" }, { vip: false, city: "Bonn" }]) {
        const { message } = fill({ html }, { fields });
        const { html: shown = "", text = "" } = await PostalMime.parse(message);
        assert.ok(shown.includes("https://mail.example.com/u/abc"), `${html} for ${JSON.stringify(fields)}`);
        assert.ok(text.includes("https://mail.example.com/u/abc"), `${html} for ${JSON.stringify(fields)}`);
      }
    }
  });

  it("lets no value begin a new header", async () => {
    const nasty = "x\r\nBcc: everyone@example.com\r\n\r\nbody\0";
    const { message } = fill({ subject: "{{ first_name }} {{ list_name }}" }, { firstName: nasty, listName: nasty });
    assertWellFormed(message);
    const parsed = await PostalMime.parse(message);
    assert.equal(parsed.bcc, undefined);
    assert.equal(parsed.subject, "x Bcc: everyone@example.com body  x Bcc: everyone@example.com body");
    for (const bad of [nasty, "a\nb", "a\rb", "a\0b"]) {
      assert.throws(() => fill({}, { email: `${bad}@example.com` }), UnsendableError);
      assert.throws(() => fill({}, { email: `jane@${bad}.com` }), UnsendableError);
      assert.throws(() => fill({}, { messageId: `${bad}@example.com` }), UnsendableError);
      assert.throws(() => fill({}, { unsubscribeUrl: `https://x.example/${bad}` }), UnsendableError);
      assert.throws(() => fill({ fromName: bad }), UnsendableError);
      assert.throws(() => fill({ fromEmail: `${bad}@example.com` }), UnsendableError);
    }
  });

  it("refuses addresses that a server could misread", () => {
    for (const email of [
      "",
      "jane",
      "@x.com",
      "jane@",
      "a b@x.com",
      "<a@x.com>",
      "a,b@x.com",
      '"a"@x.com',
      "a@x.com>",
      "a@x y.com",
      "a@b@c d",
    ]) {
      assert.throws(() => fill({}, { email }), UnsendableError, email);
    }
  });

  it("writes international domains as punycode and reports when SMTPUTF8 is needed", async () => {
    const domain = fill({ fromEmail: "post@bücher.example" }, { email: "jane@münchen.de" });
    assert.deepEqual(domain.envelope, {
      from: "post@xn--bcher-kva.example",
      to: "jane@xn--mnchen-3ya.de",
      smtpUtf8: false,
    });
    const local = fill({}, { email: "jané@例え.jp" });
    assert.deepEqual(local.envelope, { from: "news@example.com", to: "jané@xn--r8jz45g.jp", smtpUtf8: true });
    assert.equal((await PostalMime.parse(local.message)).to?.[0]?.address, "jané@xn--r8jz45g.jp");
  });

  it("cannot be composed from a broken template", () => {
    assert.throws(() => composeMessage({ ...content, html: "{{ email" }), TemplateError);
    assert.throws(() => composeMessage({ ...content, subject: "{% include 'x' %}" }), TemplateError);
  });

  it("is refused only for the recipient whom it would be larger than 4 MB for", () => {
    const large = "名".repeat(700);
    for (const [more, firstName] of [
      ["", large],
      ["{% if email %} {% endif %}", large],
      ["я".repeat(300_000), "é".repeat(1_000)],
    ] as const) {
      const composed = composeMessage({ ...content, html: `<p>${"{{ first_name }}".repeat(1_990)}</p>${more}${LINK}` });
      assertWellFormed(composed.fill(recipient).message);
      assert.throws(
        () => composed.fill({ ...recipient, firstName }),
        (error) => error instanceof UnsendableError && /more than 4000000 bytes|more than 2000000/.test(error.message),
      );
    }
  });

  it("is refused as a template when each recipient's, or one with the longest fields, would be larger than 4 MB", () => {
    for (const html of [
      `{% capture x %}${"я".repeat(40_000)}{% endcapture %}<p>${"{{ x }}".repeat(45)}</p>`,
      `<p>${"{{ fields.about }} ".repeat(1_500)}</p>`,
    ]) {
      assert.throws(
        () => runTask({ task: "compose", content: { ...content, html } }),
        (error) => error instanceof TemplateError && /one message has more than 4000000 bytes/.test(error.message),
      );
    }
  });

  it("is refused as a template when a sample takes more time than a busy machine may add to", () => {
    const html = `{% assign a = '${"Aé".repeat(1_000)}' %}${"{{ a | slugify: 'latin' | size }}".repeat(1_900)}${LINK}`;
    assert.throws(
      () => runTask({ task: "compose", content: { ...content, html } }),
      (error) => error instanceof TemplateError && /one message takes more than \d+ ms to compose/.test(error.message),
    );
  });

  it("is refused only for the recipient whose rendering exceeds the limits", () => {
    const doubling = "{% assign x = x | append: x %}".repeat(99);
    const html = `{% assign x = "abcdefgh" %}{% if first_name == "boom" %}${doubling}{% endif %}{{ unsubscribe_url }}`;
    const composed = composeMessage({ ...content, html });
    assert.doesNotThrow(() => composed.fill(recipient));
    assert.throws(() => composed.fill({ ...recipient, firstName: "boom" }), UnsendableError);
  });
});
