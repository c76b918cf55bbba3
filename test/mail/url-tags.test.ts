import assert from "node:assert/strict";
import { showMessage } from "../../domain/mail/message.ts";
import { compileTemplate, type MergeValues } from "../../domain/mail/template.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { encodeUrlValues } from "../../domain/mail/url-tags.ts";
import { cpuMs } from "../support/cpu.ts";

const ADA: MergeValues = {
  email: "ada+news@example.com",
  first_name: "Ada & Co #1",
  unsubscribe_url: "https://mail.example.com/u/abc",
  fields: { page: "https://shop.example/sale?id=7&x=8", path: "a/b" },
};
const [EMAIL, NAME] = ["ada%2Bnews%40example.com", "Ada%20%26%20Co%20%231"];

const rendered = (source: string) => compileTemplate(encodeUrlValues(source), { escape: true }).render(ADA);
const link = (url: string) => `<a href="${url}">x</a>`;

describe("A merge tag in a URL", () => {
  for (const [where, url, expected] of [
    ["in a query", "?email={{ email }}&name={{ first_name }}&x=1", `?email=${EMAIL}&name=${NAME}&x=1`],
    ["behind the entity of an ampersand", "?a=1&amp;b={{ email }}", `?a=1&amp;b=${EMAIL}`],
    ["in a part of a value", "?id=news-{{first_name}}-{{ email }}", `?id=news-${NAME}-${EMAIL}`],
    ["with filters", "?n={{ last_name | default: first_name | upcase }}", "?n=ADA%20%26%20CO%20%231"],
    ["with blanks cut off", "?n={{- first_name -}}", `?n=${NAME}`],
    [
      "in a branch",
      "?n={% if first_name %}{{ first_name }}{% else %}x{% endif %}&e={{ email }}",
      `?n=${NAME}&e=${EMAIL}`,
    ],
    ["in the route of a page", "#/welcome?email={{ email }}", `#/welcome?email=${EMAIL}`],
    ["that is a URL", "?to={{ unsubscribe_url }}", "?to=https%3A%2F%2Fmail.example.com%2Fu%2Fabc"],
    ["by a name of its own", "?p={{ fields['path'] }}", "?p=a%2Fb"],
  ] as const) {
    it(`is encoded ${where}`, () =>
      assert.equal(rendered(link(`https://x.example/${url}`)), link(`https://x.example/${expected}`)));
  }

  for (const [what, url, expected] of [
    ["a whole URL", "{{ fields.page }}", "https://shop.example/sale?id=7&amp;x=8"],
    ["a path", "https://x.example/{{ fields.path }}/", "https://x.example/a/b/"],
    ["a whole query", "https://x.example/?{{ fields.path }}", "https://x.example/?a/b"],
    ["a parameter's name", "https://x.example/?a=1&{{ fields.path }}=1", "https://x.example/?a=1&a/b=1"],
    ["a fragment", "https://x.example/?a=1#{{ fields.path }}", "https://x.example/?a=1#a/b"],
    ["an encoded value", "https://x.example/?a={{ email | url_encode }}", `https://x.example/?a=${EMAIL}`],
    [
      "a value encoded in another way",
      "https://x.example/?a={{ email | escape }}",
      "https://x.example/?a=ada+news@example.com",
    ],
    ["a variable", "{% assign e = email | url_encode %}https://x.example/?a={{ e }}", `https://x.example/?a=${EMAIL}`],
  ] as const) {
    it(`is left as it is where it stands for ${what}`, () => assert.equal(rendered(link(url)), link(expected)));
  }

  it("is encoded behind a whole URL, in each attribute that holds one, with quotes or without", () => {
    assert.equal(
      rendered(link("{{ unsubscribe_url }}?why={{ first_name }}")),
      link(`${ADA.unsubscribe_url}?why=${NAME}`),
    );
    for (const [open, close] of [
      ["<a class='{{ email }}' href='", "'>"],
      ["<a\nHREF = ", " {% if email %}class=a{% endif %}>"],
      ['<form action="', '">'],
      ["<img alt='' src=", ">"],
    ] as const) {
      const html = rendered(`${open}https://x.example/?n={{ first_name }}&e={{ email }}${close}`);
      assert.ok(html.includes(`https://x.example/?n=${NAME}&e=${EMAIL}`), html);
    }
  });

  it("is encoded in what Outlook alone reads, and nowhere else", () => {
    const url = "https://x.example/?e={{ email }}";
    const button = `<!--[if mso]><v:roundrect href="${url}"><![endif]--><!--[if !mso]><!-->${link(url)}<!--<![endif]-->`;
    assert.equal(rendered(button).split(EMAIL).length - 1, 2);
    for (const text of [
      `<p>${url}</p>`,
      `<p title="${url}">x</p>`,
      `<style>a{${url}}</style>`,
      `<!-- ${link(url)} -->`,
    ]) {
      assert.equal(encodeUrlValues(text), text);
    }
  });

  it("is encoded for mailto in a way that mail programs show as it was", () => {
    const html = rendered(link("mailto:desk@example.com?subject=From%20{{ first_name }}"));
    const [, subject = ""] = /subject=([^"]*)/.exec(html) ?? [];
    assert.equal(decodeURIComponent(subject), `From ${ADA.first_name}`);
  });

  it("is the same in the text part", () => {
    for (const more of ["", "{{ email | upcase }}"]) {
      const html = link("https://x.example/?e={{ email }}&n={{ first_name }}") + more;
      const { text } = showMessage({ subject: "s", html }, ADA);
      assert.ok(text.startsWith(`x [https://x.example/?e=${EMAIL}&n=${NAME}]`), text);
    }
  });

  it("can hold any text", () => {
    const source = encodeUrlValues(link("https://x.example/?n={{ first_name }}"));
    for (const html of [source, `${source}{{ email | upcase }}`]) {
      const { render } = compileTemplate(html, { escape: true });
      for (const first_name of ["O'Brien", '"><b>', "a\ud800b", "", "100 %", "{{ email }}"]) {
        const [, value = ""] = /\?n=([^"]*)"/.exec(render({ first_name })) ?? [];
        assert.equal(decodeURIComponent(value.replaceAll("&#39;", "'")), first_name.toWellFormed());
      }
    }
  });

  it("costs no filter of its own for each recipient", () => {
    const source = encodeUrlValues(link("https://x.example/?e={{ email }}&c={{ fields.city }}"));
    const { plain, variables } = compileTemplate(source, { escape: true });
    assert.equal(plain?.tags.length, 2);
    assert.deepEqual([...variables], ["email", "fields.city"]);
  });

  it("is found in linear time", () => {
    for (const piece of ["?a=", "&a", "=#", '<a href="?', "<!--[if", "x", " "]) {
      const url = piece.repeat(900_000 / piece.length);
      const ms = cpuMs(() => {
        try {
          encodeUrlValues(link(`https://x.example/?${url}${"{{ email }}".repeat(1_900)}`));
        } catch (error) {
          assert.ok(error instanceof TemplateError);
        }
      });
      assert.ok(ms < 1_500, `${piece} took ${ms} ms`);
    }
  });
});
