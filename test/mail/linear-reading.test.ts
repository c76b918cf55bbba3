import assert from "node:assert/strict";
import fc from "fast-check";
import { EXAMINATION_CPU_MS } from "../../domain/mail/examination.ts";
import { runTask } from "../../domain/mail/examination-task.ts";
import { UnsendableError } from "../../domain/mail/header.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { cpuMs } from "../support/cpu.ts";

const FRAGMENTS = [
  ..."<>\"'{}&;:#-=!/*%\\ \n\t\u200b\u00a0aé\u{1f400}\u0086\ue000",
  ..."<b>|</b>|<i|</|<p>|</p>|<br>|<pre>|</pre>|<ul>|<li>|</ul>|<ol type=i>|<blockquote>|</blockquote>|<table><td>".split(
    "|",
  ),
  ..."<a href=x>|</a>|<a href='|<p style=\"|<style>|</style>|<script>|<textarea>|<svg>|<title>|<hr>|<img src=x>".split(
    "|",
  ),
  ..."<body>|</body>|</html  |<!|<!--|-->|--|<![CDATA[|]]>|<?|</ |/>|class=x |style=color:a|\">|'>".split("|"),
  ..."&amp;|&lt|&#|&#x86;|&#xE000;1&#xE001;|&#123;|&not|&#0".split("|"),
  ..."/*|*/|/* |{display:none}|.a,|a{|}|@media|@import|!important|! |;a:b|url(|\\64|[class=x]|::".split("|"),
  ...":not(|a::after|/**/|@scope|\f|\u0305|&nbsp;|font:1px a,|margin:0 |</stylex>|<svg>|<template>|&bsol;|z-index:".split(
    "|",
  ),
  ..."<meta name=viewport content=|<tr><td>|<title>".split("|"),
  "          ",
  "Some words ",
  "a\n",
  "display:none;",
];
const TAGS = [
  "",
  "{{ first_name }}",
  " {{- email }}",
  "{{ email -}} ",
  "{{ email | upcase }}",
  "{% if first_name %}",
  "{% else %}",
  "{% endif %}",
  "{% if email %}x{% else %}<b>{% endif %}",
  '{% if email %}">{% else %}x">{% endif %}',
  "{% comment %}",
  "{% endcomment %}",
  "{% raw %}",
  "{% endraw %}",
  "{%- # -%}",
  "{% capture x %}",
  "{% endcapture %}",
  "{",
];
const LINK = '<a href="{{ unsubscribe_url }}">Leave</a>';

/** What stands before and behind the repeated pieces. */
const AROUND: readonly (readonly [string, string])[] = [
  ["", ""],
  [`${LINK}<p>`, "</p>"],
  ['<a href="{{ unsubscribe_url }}" style="color:a', 'b">Leave</a>'],
  [`${LINK}<p style="`, '">News</p>'],
  [`${LINK}<p class="`, '">News</p>'],
  [`${LINK}<style>`, "</style>"],
  ["<style>body{", "}</style>"],
  ["{% if email %}<div>{% endif %}", "{{ email }}"],
  ['<meta name="viewport" content="', '">'],
  [`${LINK}{% if first_name %}a`, "b{% endif %}"],
  ["<ul><li>".repeat(90), "a".concat("</li></ul>".repeat(90))],
  [`${"<ul><li>".repeat(90)}<pre>`, "a</pre>"],
  ["<blockquote>".repeat(190), "</blockquote>".repeat(190)],
  ["<ul><li><blockquote>".repeat(3), ""],
  ["<a href=x>".repeat(190), ""],
  ["<b>".repeat(190), ""],
  ["{% capture x %}", "{% endcapture %}{{ x }}"],
  ["<!--", "-->"],
];

const hostile = fc.record({
  around: fc.constantFrom(...AROUND),
  piece: fc.array(fc.constantFrom(...FRAGMENTS), { minLength: 1, maxLength: 3 }).map((parts) => parts.join("")),
  tag: fc.constantFrom(...TAGS),
  tags: fc.constantFrom(1, 1, 40, 600),
  hasBranches: fc.boolean(),
});

type Hostile = typeof hostile extends fc.Arbitrary<infer Value> ? Value : never;

/** A body of about so many characters. */
function bodyOf({ around: [before, after], piece, tag, tags, hasBranches }: Hostile, chars: number): string {
  const copies = Math.ceil(chars / tags / piece.length / (hasBranches ? 2 : 1));
  const inside = `${piece.repeat(copies)}${tag}`.repeat(tags);
  const branches = `{% if first_name %}a${inside}{% else %}b${inside}{% endif %}`;
  return before + (hasBranches ? branches : inside) + after;
}

/** Bodies of up to 1 MiB, each of which once took many seconds. */
const KNOWN: Record<string, string> = {
  "spaces in a style": `<a href="{{ unsubscribe_url }}" style="color:a${" ".repeat(900_000)}b">Leave</a>`,
  "comments in a style sheet": `${LINK}<style>${"/* ".repeat(60_000)}</style>`,
  "tags that trim a long text": `${LINK}<p>${"x".repeat(900_000)}${" {{- email }}".repeat(1_900)}</p>`,
  "nested lists around lines": `${"<ul><li>".repeat(90)}<pre>${"x\n".repeat(480_000)}</pre>`,
  "nested quotations": `${"<blockquote>".repeat(190)}${`${"a ".repeat(200)}<br>`.repeat(2_300)}`,
  "nested links around words": `${"<a href=x>".repeat(190)}${"a ".repeat(400_000)}`,
  "ends of attributes in two branches": `${LINK}{% if first_name %}a${'">'.repeat(240_000)}{% else %}b${'">'.repeat(240_000)}{% endif %}`,
  "viewports of spaces": `<meta name="viewport" content="${" ".repeat(4_900)}">`.repeat(90),
  "rules with long selectors": `<style>${"a:not(.b).c>[d],".repeat(11_000)}x{}</style>`,
  "shorthands that are no fonts": `<style>${`body{font:${"a ".repeat(240)}!;}`.repeat(390)}</style>`,
  "elements in a branch that no sample takes": `${LINK}{% if first_name == "x" %}${"<b>".repeat(300_000)}{% endif %}`,
};

/** CPU time of all that a draft's check and a preview do with a body, in ms. */
function readingMs(html: string): number {
  return cpuMs(() => {
    for (const run of [
      () => runTask({ task: "check", content: { subject: "News", html } }),
      () => runTask({ task: "compose", content: { subject: "News", html, fromEmail: "news@example.com" } }),
    ]) {
      try {
        run();
      } catch (error) {
        if (!(error instanceof TemplateError || error instanceof UnsendableError)) throw error;
      }
    }
  });
}

/** Chars of the smaller body; the larger one has four times as many. What takes quadratic time takes 16 times as long. */
const CHARS = 40_000;

function assertLinear(body: (chars: number) => string): void {
  let measured = "";
  // A collection of garbage may come in between.
  for (let attempt = 0; attempt < 3; attempt++) {
    const [small, large] = [readingMs(body(CHARS)), readingMs(body(4 * CHARS))];
    if (large <= 8 * small + 100) return;
    measured = `${small} ms, and ${large} ms for four times as many characters`;
  }
  throw new Error(`took ${measured}`);
}

describe("The time to read a body", () => {
  it("grows no faster than the body, whatever it repeats", () => {
    fc.assert(
      fc.property(hostile, (value) => assertLinear((chars) => bodyOf(value, chars))),
      { numRuns: 60 },
    );
  });

  for (const [what, body] of Object.entries(KNOWN)) {
    it(`is below the limit of the thread that reads it: ${what}`, () => {
      const ms = readingMs(body);
      assert.ok(ms < EXAMINATION_CPU_MS, `took ${ms} ms`);
    });
  }
});
