import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { showMessage } from "../../domain/mail/message.ts";
import type { MergeValues } from "../../domain/mail/template.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { withFooter } from "../../domain/mail/unsubscribe-link.ts";

const newsletter = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

const LINK = '<p><a href="{{ unsubscribe_url }}">Leave</a></p>';
const URL_OF_LINK = "https://mail.example.com/u/abc";

/** Without the unsubscribe link. */
function textOf(html: string, values: MergeValues = { first_name: "Jane" }): string {
  const given = { ...values, unsubscribe_url: URL_OF_LINK };
  const { text } = showMessage({ subject: "News", html: html + LINK }, given);
  return text.split(`\n\nLeave [${URL_OF_LINK}]`)[0] ?? "";
}

/** Whether it is a body that shows an unsubscribe link at its end. */
function compiles(source: string): boolean {
  try {
    withFooter(source + LINK, {});
    return true;
  } catch {
    return false;
  }
}

const table = (...rows: string[]) => `<table role="presentation">${rows.join("")}</table>`;
const row = (...cells: string[]) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;

describe("The text part", () => {
  for (const [what, html, text] of [
    ["cells of a receipt", table(row("Order 4711", "12.50"), row("Postage", "3.00")), "Order 4711 12.50\nPostage 3.00"],
    [
      "rows that stand on lines of the source",
      "<table>\n<tr>\n<td>A</td>\n</tr>\n<tr>\n<td>B</td>\n</tr></table>",
      "A\nB",
    ],
    [
      "a header, a body and a caption",
      "<table><caption>Tea</caption><thead><tr><th>Name</th><th>Price</th></tr></thead><tbody><tr><td>Assam</td><td>4</td></tr></tbody></table>",
      "Tea\nName Price\nAssam 4",
    ],
    ["a row without a table", "<tr><td>a</td><td>b</td></tr>c", "a b\nc"],
    [
      "tables in cells, empty cells and cells that only keep a distance",
      table(
        row("&nbsp;"),
        row(""),
        row(table(row("&#8203;"), row("One", "Two"))),
        row("&nbsp;"),
        row(""),
        row("Three"),
      ),
      "One Two\n\nThree",
    ],
    ["definitions", "<dl><dt>When</dt><dd>Monday</dd><dt>Where</dt><dd>Rome</dd></dl>", "When\nMonday\nWhere\nRome"],
    [
      "other blocks",
      "<address>Street 1</address><figure>F<figcaption>Caption</figcaption></figure><center>Centre</center><details><summary>More</summary>Text</details><fieldset><legend>Legend</legend>x</fieldset>",
      "Street 1\nF\nCaption\nCentre\nMore\nText\nLegend\nx",
    ],
    ["words that elements of a line divide", "a<b>b</b><span>c</span><i>d</i>", "abcd"],
    ["an image", '<p>Readers:<img src="c.png" alt="12,000,\n a fifth more"></p>', "Readers: 12,000, a fifth more"],
    ["images that say nothing", '<p>a<img src="s.png" alt=""> b<img src="t.png"></p>', "a b"],
    ["images side by side", '<img alt="Logo"><img alt="Offer">', "Logo Offer"],
    [
      "an image that is a link",
      '<a href="https://shop.example/sale"><img src="b.png" alt="Summer sale: 20 %"></a>',
      "Summer sale: 20 % [https://shop.example/sale]",
    ],
    ["a merge tag in the words of an image", '<img alt="For {{ first_name }} & Co">', "For Jane & Co"],
    ["a document without a body", "<title>News</title><style>p{}</style><script>x</script><p>Hi</p>", "Hi"],
    [
      "items that are hidden",
      '<ol><li>a<li style="display:none">b<li hidden>c<li>d</ol><ul><li hidden>e<li>f</ul>',
      " 1. a\n 2. d\n\n * f",
    ],
  ] as const) {
    it(`shows ${what} as readers do`, () => assert.equal(textOf(html), text));
  }

  for (const style of [
    "display : none",
    "DISPLAY:NONE !important",
    "color:red;display:none",
    "visibility: hidden",
    "opacity:0",
    "max-height:0px;overflow:hidden",
    "font-size:1px;line-height:1px;color:#fff;mso-hide:all",
    "max-height:0;max-width:0;opacity:0;overflow:hidden;font-size:1px;mso-hide:all",
    "{% unless first_name %}display:none{% endunless %}",
  ]) {
    it(`leaves out what ${style} hides`, () => {
      assert.equal(textOf(`<div style="${style}">Preview {{ email }}<p style="color:red">more</p></div><p>x</p>`), "x");
      assert.equal(textOf(`<p>x <img style="${style}" alt="pixel">y</p>`), "x y");
    });
  }

  for (const style of [
    "backface-visibility:hidden",
    "mso-hide:all",
    "mso-hide:all;font-size:1em",
    "font-size:0",
    "opacity:0.9",
    "overflow:hidden;max-height:90px",
    "max-height:0",
    "display:block;visibility:visible",
    "background:url(display:none)",
  ]) {
    it(`keeps what ${style} does not hide`, () => assert.equal(textOf(`<div style="${style}">x</div>`), "x"));
  }

  it("leaves out elements that no program shows", () => {
    assert.equal(textOf("<template>a</template><noframes>b</noframes><datalist>c</datalist><p>x</p>"), "x");
    assert.equal(textOf("<!--[if mso]><p>Outlook</p><![endif]--><!--[if !mso]><!--><p>x</p><!--<![endif]-->"), "x");
  });

  for (const [where, html, named, unnamed] of [
    [
      "around rows",
      table(
        row("Before"),
        `{% if first_name %}${row("For", "{{ first_name }}")}{% else %}${row("Hello")}{% endif %}`,
        `{% if list_name %}${row("Never")}{% endif %}`,
        row("After"),
      ),
      "Before\nFor Jane\nAfter",
      "Before\nHello\nAfter",
    ],
    ["around cells", table("<tr>{% if first_name %}<td>a</td>{% endif %}<td>b</td></tr>"), "a b", "b"],
    ["around paragraphs", "<p>1</p>{% if first_name %}<p>2</p>{% endif %}<p>3</p>", "1\n\n2\n\n3", "1\n\n3"],
    [
      "within a sentence",
      "<p>Dear {% if first_name %}{{ first_name }}{% else %}reader{% endif %}!</p>",
      "Dear Jane!",
      "Dear reader!",
    ],
    [
      "in comments, where editors of HTML keep them",
      "<p>1</p><!-- {% if first_name %} --><p>2</p><!-- {% endif %} --><p>3</p>",
      "1\n\n2\n\n3",
      "1\n\n3",
    ],
    [
      "within an address and within its words",
      '<a href="https://x.example/{% if first_name %}a{% else %}b{% endif %}">{% if first_name %}A{% else %}B{% endif %}</a>',
      "A [https://x.example/a]",
      "B [https://x.example/b]",
    ],
    ["of an element's look", '<p {% if first_name %}class="{% if email %}a{% endif %}"{% endif %}>x</p>', "x", "x"],
    [
      "in something hidden",
      "<div hidden>{% if first_name %}a{% else %}b{% endif %}</div>x {{ email | upcase }}",
      "x",
      "x",
    ],
    ["around literal braces", "{% if first_name %}{% raw %}{{ a }}{% endraw %}{% endif %}", "{{ a }}", ""],
  ] as const) {
    it(`keeps conditions ${where}`, () => {
      assert.equal(textOf(html).trim(), named);
      assert.equal(textOf(html, {}).trim().replace(`Leave [${URL_OF_LINK}]`, ""), unnamed);
    });
  }

  for (const [what, html, text] of [
    ["an attribute", '<p class="{% if first_name %}a">A{% else %}b">B{% endif %}</p>', "A"],
    [
      "an address",
      '<a href="https://x.example/{% if first_name %}a">A</a>{% else %}b">B</a>{% endif %}',
      "A [https://x.example/a]",
    ],
    ["something hidden", "<div hidden>{% unless first_name %}</div>A{% else %}</div>B{% endunless %}", "A"],
    ["a case", '<p class="{% case first_name %}{% when "x" %}a">A{% when "Jane" %}b">B{% endcase %}</p>', "A"],
    [
      "an attribute, with a whole one inside",
      '<p class="{% if email %}a">A{% if first_name %}1{% else %}2{% endif %}{% else %}b">B{% endif %}</p>',
      "A1",
    ],
  ] as const) {
    it(`has the first branch alone of a condition that leaves ${what}`, () => {
      const whole = "{% if first_name == 'Jane' %}Jane{% else %}other{% endif %}";
      assert.equal(textOf(`${html}<p>${whole}</p>`), `${text}\n\nJane`);
      assert.equal(textOf(`${html}<p>${whole}</p>`, { first_name: "Ann" }), `${text}\n\nother`);
    });
  }

  it("can be filled wherever the conditions of a body stand", () => {
    const html = fc.constantFrom(
      ...['<a href="', '">', "<p class='", "'>", "</a>", "</p>", "<table><tr><td>", "</td></tr>", "<!--", "-->", "w "],
      ...["<div hidden>", "</div>", "<img alt='", "<ul><li>", "</ul>", "mailto:x?", "&#123;", "{", "\n"],
    );
    const tag = fc.constantFrom("{{ email }}", "{{ first_name | upcase }}", "{% echo y %}", "{% assign y = email %}");
    const { parts } = fc.letrec<{ parts: string; block: string }>((tie) => ({
      parts: fc
        .array(fc.oneof({ depthSize: "small" }, html, html, tag, tie("block")), { maxLength: 6 })
        .map((parts) => parts.join("")),
      block: fc
        .tuple(fc.constantFrom("if email", "unless first_name", "raw", "capture y"), tie("parts"), tie("parts"))
        .map(([begin, one, other]) => {
          const [name = ""] = begin.split(" ");
          return `{% ${begin} %}${one}${name === "if" ? "{% else %}" : ""}${other}{% end${name} %}`;
        }),
    }));
    fc.assert(
      fc.property(parts, (source) => {
        for (const values of [{}, { email: "a@b.example", first_name: "Ann" }]) {
          try {
            assert.doesNotMatch(textOf(source, values), /[\u0080-\u009f]/);
          } catch (error) {
            // Some of these bodies hide their end, or are no templates.
            if (!(error instanceof TemplateError) || compiles(source)) throw error;
          }
        }
      }),
      { numRuns: 1_000 },
    );
  });

  it("reads well of a real newsletter: no line run into the next, no rows of empty lines", () => {
    const plain = textOf(newsletter("responsive-plain.html"));
    assert.match(plain, /^Hi there\n\nSometimes .*\n\nCall To Action \[http:\/\/htmlemail\.io\]\n\nThis is /);
    assert.match(plain, /Belfast BT1 2NB\nDon't like these emails\? Unsubscribe \[.*\]\.\nPowered by /);
    const welcome = textOf(newsletter("welcome-merge-tags.html").replace(/\{\{[^}]*\}\}/g, "{{ first_name }}"));
    assert.match(welcome, /\n\nLogin Page: Jane\nUsername: Jane\n\n/);
    for (const text of [plain, welcome]) assert.doesNotMatch(text, /\n{3}|\n[\s\u200b]+\n\n/);
  });
});
