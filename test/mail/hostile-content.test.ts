import assert from "node:assert/strict";
import { runTask } from "../../domain/mail/examination-thread.ts";
import { checkContent } from "../../domain/mail/template.ts";
import { describeProblem, TemplateError } from "../../domain/mail/template-problem.ts";
import { cpuMs } from "../support/cpu.ts";

/** Reads a content as a preview does. @returns why it is refused; undefined when it can be mailed */
function refusalOf(html: string): string | undefined {
  const [problem] = checkContent({ subject: "News", html });
  if (problem) return describeProblem(problem);
  try {
    runTask({ task: "compose", content: { subject: "News", html, fromEmail: "news@example.com" } });
    return undefined;
  } catch (error) {
    if (error instanceof TemplateError) return error.message;
    throw error;
  }
}

const TOO_MANY_TAGS = /^it has more than 2000 tags$/;
const TOO_DEEP = /nested more than 200 deep/;
const TOO_MANY_ELEMENTS = /more than 20000 elements/;
/** Its template is read before its elements are counted. */
const TEXT = "<p>Some words of a newsletter.</p>\n".repeat(27_000);

const CONTENTS: [what: string, html: string, refusal?: RegExp][] = [
  ["50,000 outputs", "{{ email | upcase }}".repeat(50_000), TOO_MANY_TAGS],
  ["1,001 conditions", "{% if email %}{% endif %}".repeat(1_001), TOO_MANY_TAGS],
  ["80,000 braces in a row", "{".repeat(80_000), TOO_MANY_TAGS],
  ["a tag of 2,001 lines", `{% liquid\n${"echo email\n".repeat(2_001)}%}`, TOO_MANY_TAGS],
  ["2,000 tags behind a long text", TEXT + "{{ email | upcase }}".repeat(2_000), TOO_MANY_ELEMENTS],
  [
    "a condition of thousands of words",
    `${TEXT}{% if ${"email or ".repeat(10_000)}email %}x{% endif %}`,
    TOO_MANY_ELEMENTS,
  ],
  ["a name of thousands of names", `${TEXT}{{ email${".first".repeat(10_000)} }}`, /a merge tag is unknown/],
  [
    "lists that are compared with lists",
    `{% assign a = '${"a,".repeat(1_600)}' | split: ',' %}{% assign b = '${"a,".repeat(1_600)}' | split: ',' %}{% case a %}{% when ${"b,".repeat(20_000)}b %}{% endcase %}`,
  ],
  [
    "texts that are searched for texts",
    `{% assign a = '${"a".repeat(4_999)}' %}{% assign b = '${"a".repeat(2_500)}b' %}${"{{ a | replace: b, 'x' }}".repeat(1_900)}`,
    /cannot be filled/,
  ],
  [
    "a list that holds itself",
    `{% assign a = 'x,y' | split: ',' %}${"{% assign a = a | push: a %}".repeat(100)}{{ a }}`,
    /a list holds another list/,
  ],
  ["elements inside each other by the thousand", "<b>".repeat(100_000), TOO_DEEP],
  ["elements that never end, and ends alone", "<i>".repeat(100_000) + "</b>".repeat(100_000), TOO_DEEP],
  ["a hundred thousand elements", "<b>x</b>".repeat(100_000), TOO_MANY_ELEMENTS],
  [
    "lists inside each other around many lines",
    `${"<ul><li>".repeat(90)}<pre>${"x\n".repeat(480_000)}</pre>`,
    /lists, quotations and links hold too much text inside each other/,
  ],
  ["a text of 80,000 braces", `<p>${"{ ".repeat(80_000)}</p>`],
  ["a text of 140,000 braces behind a filter", `<p>{{ email | upcase }}${"&#123;&#123; ".repeat(70_000)}</p>`],
];

describe("A content that is costly to read", () => {
  for (const [what, html, refusal] of CONTENTS) {
    it(`is ${refusal ? "refused" : "composed"} within 1.5 s of CPU time: ${what}`, () => {
      let refused: string | undefined;
      const ms = cpuMs(() => {
        refused = refusalOf(html);
      });
      if (refusal) assert.match(refused ?? "", refusal);
      else assert.equal(refused, undefined);
      assert.ok(ms < 1_500, `took ${ms} ms`);
    });
  }
});

describe("The refusal of a template", () => {
  it("names line and column of an error and the right form, and quotes nothing of the template", () => {
    for (const [html, message] of [
      ["<p>\n  {{ secretword </p>", "line 2, column 3: this tag is not closed: write {{ first_name }}"],
      ["{{ email</p>", "line 1, column 1: this tag is not closed: write {{ email }}"],
      ["{{ last_nam secretword }", "line 1, column 1: this tag is not closed: write {{ last_name }}"],
      ["{{ 'secretword }}", "line 1, column 1: this tag is not closed: write {{ first_name }}"],
      ["{% if email %}\nsecretword", "line 1, column 1: this tag is not closed: write {% endif %} where it ends"],
      ["{%- unless email -%}", "line 1, column 1: this tag is not closed: write {% endunless %} where it ends"],
      ["{% if secretword", "line 1, column 1: this tag is not closed: write %} at its end"],
      ["{% secretword %}", "line 1, column 1: there is no such tag: the guide of merge tags names them"],
      ["{% iff secretword %}", "line 1, column 1: there is no such tag: write {% if %}"],
      ["{% if email %}x{% end if %}", "line 1, column 16: there is no such tag: write {% endif %}"],
      ["{% first_name %}", "line 1, column 1: there is no such tag: write {{ first_name }}"],
      ["x{% else %}", "line 1, column 2: this tag has no place here: it stands inside of another one"],
      ["ab{{ email | secretword }}", "line 1, column 3: there is no such filter: the guide of merge tags names them"],
      ["{{ email | Capitalise }}", 'line 1, column 1: there is no such filter: write "capitalize"'],
      ["{{ first name }}", "line 1, column 4: a name has no blanks: write {{ first_name }}"],
      ["{{ secretword secretword }}", "line 1, column 4: a name has no blanks: write {{ first_name }}"],
      ["{% if last name == 'x' %}{% endif %}", "line 1, column 7: a name has no blanks: write {{ last_name }}"],
      ["{{ | secretword }}", 'line 1, column 4: this cannot be read: write {{ first_name | default: "friend" }}'],
      [
        "{{ email | default: \u201csecretword\u201d }}",
        'line 1, column 21: this cannot be read: write {{ first_name | default: "friend" }}',
      ],
      [
        "{% if email = secretword %}{% endif %}",
        'line 1, column 14: this cannot be read: write {% if first_name == "Ada" %} … {% endif %}',
      ],
      [
        "{% assign secretword %}",
        'line 1, column 21: this cannot be read: write {% assign name = first_name | default: "friend" %}',
      ],
    ] as const) {
      assert.equal(refusalOf(html), message, html);
    }
  });

  it("names the merge tag that is meant by an unknown one, where that is clear", () => {
    const fields = ["city", "since"];
    for (const [tag, nearest] of [
      ...["FIRST_NAME", "firstname", "first-name", "frist_name", "first", "contact.first_name"].map(
        (tag) => [tag, "first_name"] as const,
      ),
      ["mail", "email"],
      ["unsubscribe", "unsubscribe_url"],
      ["city", "fields.city"],
      ["fields.City", "fields.city"],
      ["fields.email", "email"],
      ["name", undefined],
      ["fields", undefined],
      ["product.price", undefined],
      ["x".repeat(5_000), undefined],
    ] as const) {
      const [problem] = checkContent({ subject: "", html: `{{ ${tag} }}` }, fields);
      assert.ok(problem?.kind === "unknown_tag", tag);
      assert.equal(problem.nearest, nearest, tag);
      if (nearest)
        assert.equal(describeProblem(problem), `the merge tag {{ ${tag} }} is unknown: write {{ ${nearest} }}`);
    }
  });
});
