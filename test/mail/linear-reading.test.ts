import assert from "node:assert/strict";
import fc from "fast-check";
import { EXAMINATION_CPU_MS } from "../../domain/mail/examination.ts";
import { runTask } from "../../domain/mail/examination-task.ts";
import { UnsendableError } from "../../domain/mail/header.ts";
import { TemplateError } from "../../domain/mail/template-problem.ts";
import { cpuMs } from "../support/cpu.ts";

const MARKUP =
  "<b>|</b>|<i|</|<p>|</p>|<br>|<pre>|</pre>|<ul>|<li>|</ul>|<ol type=i>|<blockquote>|</blockquote>|<tr><td>|<a href=x>|" +
  "</a>|<a href='|<p style=\"|<style>|</style>|<script>|<textarea>|<svg>|<title>|<template>|<hr>|<img src=x>|</body>|" +
  "</html  |<!|<!--|-->|--|<![CDATA[|]]>|<?|</ |/>|\">|'>|&amp;|&lt|&#|&#x86;|&#xE000;1&#xE001;|&#123;|&not|/*|*/|url(|" +
  "{display:none}|display:none;|          |Some words |a\n";
const FRAGMENTS = [..."<>\"'{}&;:#-=!/*%\\ \n\t\u200b\u00a0aé\u{1f400}\u0086\ue000", ...MARKUP.split("|")];
const TAGS = [
  ...["", "{", "{{ first_name }}", " {{- email }}", "{{ email -}} ", "{{ email | upcase }}", "{%- # -%}"],
  ...[
    "{% if first_name %}",
    "{% else %}",
    "{% endif %}",
    "{% comment %}",
    "{% endcomment %}",
    "{% raw %}",
    "{% endraw %}",
  ],
  ...["{% if email %}x{% else %}<b>{% endif %}", "{% capture x %}", "{% endcapture %}"],
  '{% if email %}">{% else %}x">{% endif %}',
];
const LINK = '<a href="{{ unsubscribe_url }}">Leave</a>';

/** What stands before and behind the repeated pieces. */
const AROUND: readonly (readonly [string, string])[] = [
  ["", ""],
  [`${LINK}<p>`, "</p>"],
  ['<a href="{{ unsubscribe_url }}" style="color:a', 'b">Leave</a>'],
  [`${LINK}<style>`, "</style>"],
  ["{% if email %}<div>{% endif %}", "{{ email }}"],
  [`${LINK}{% if first_name %}a`, "b{% endif %}"],
  ["<ul><li>".repeat(90), "a".concat("</li></ul>".repeat(90))],
  [`${"<ul><li>".repeat(90)}<pre>`, "a</pre>"],
  ["<blockquote>".repeat(190), "</blockquote>".repeat(190)],
  ["<ul><li><blockquote>".repeat(3), ""],
  ["<a href=x>".repeat(190), ""],
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
  "tags that trim a long text": `${LINK}<p>${"x".repeat(900_000)}${" {{- email }}".repeat(1_900)}</p>`,
  "nested lists around lines": `${"<ul><li>".repeat(90)}<pre>${"x\n".repeat(480_000)}</pre>`,
  "nested quotations": `${"<blockquote>".repeat(190)}${`${"a ".repeat(200)}<br>`.repeat(2_300)}`,
  "nested links around words": `${"<a href=x>".repeat(190)}${"a ".repeat(400_000)}`,
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

  it("is below the limit of the thread that reads it, for bodies that were above it once", () => {
    for (const [what, body] of Object.entries(KNOWN)) {
      const ms = readingMs(body);
      assert.ok(ms < EXAMINATION_CPU_MS, `${what}: took ${ms} ms`);
    }
  });
});
