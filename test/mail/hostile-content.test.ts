import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import PostalMime from "postal-mime";
import { kysely } from "../../db/orm.ts";
import { composeMessage } from "../../domain/mail/message.ts";
import { type ApiAnswer, type ApiClient, api } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";
import {
  addSubscribers,
  ledgerStates,
  makeSender,
  preview,
  type Sender,
  startSend,
  untilStatus,
} from "../support/sending.ts";
import { stack } from "../support/stack.ts";

const file = (name: string) => readFileSync(new URL(`../data/newsletters/${name}`, import.meta.url), "utf8");

const LINK = '<a href="{{ unsubscribe_url }}">Leave</a>';
/** Longer than a request may be delayed by anything, shorter than each of the defects that are looked for. */
const PATIENCE_MS = 4_000;

/** Runs `work`, and asks the API something else all the time. @returns the longest wait for such an answer, in ms */
async function longestWait<T>(work: () => Promise<T>): Promise<{ result: T; waitedMs: number }> {
  const url = new URL("/healthz", (await stack()).origin);
  let waitedMs = 0;
  let isDone = false;
  const ask = async () => {
    while (!isDone) {
      const since = performance.now();
      assert.equal((await fetch(url)).status, 200);
      waitedMs = Math.max(waitedMs, performance.now() - since);
    }
  };
  const [result] = await Promise.all([
    work().finally(() => {
      isDone = true;
    }),
    ask(),
  ]);
  return { result, waitedMs };
}

const create = (client: ApiClient, body: string, subject = "News"): Promise<ApiAnswer> =>
  client.post("/newsletters", { name: "n", subject, body });

describe("The API, while a template is read", () => {
  let client: ApiClient;
  before(async () => {
    client = api((await makeTeam()).keys.live);
  });

  const text = "<p>Some words of a newsletter.</p>\n".repeat(27_000);

  it("refuses more than 2,000 tags at once", async () => {
    for (const body of [
      "{{ email | upcase }}".repeat(50_000),
      "{% if email %}{% endif %}".repeat(1_001),
      "{".repeat(80_000),
      `{% liquid\n${"echo email\n".repeat(2_001)}%}`,
    ]) {
      const since = performance.now();
      const answer = await create(client, body);
      assert.equal(answer.status, 400, answer.text);
      assert.equal(answer.body.error.param, "body");
      assert.match(answer.body.error.message, /more than 2000 tags/);
      assert.ok(performance.now() - since < PATIENCE_MS);
    }
  });

  it("takes 2,000 tags", async () => {
    assert.equal((await create(client, "{{ email | upcase }}".repeat(2_000))).status, 201);
  });

  const CONTENTS: Record<string, string> = {
    "2,000 tags behind a long text": text + "{{ email | upcase }}".repeat(2_000),
    "conditions of thousands of words": `${text}{% if ${"email or ".repeat(10_000)}email %}x{% endif %}`,
    "names of thousands of names": `${text}{{ email${".first".repeat(10_000)} }}`,
    "lists that are compared with lists": `{% assign a = '${"a,".repeat(1_600)}' | split: ',' %}{% assign b = '${"a,".repeat(1_600)}' | split: ',' %}{% case a %}{% when ${"b,".repeat(20_000)}b %}{% endcase %}`,
    "texts that are searched for texts": `{% assign a = '${"a".repeat(4_999)}' %}{% assign b = '${"a".repeat(2_500)}b' %}${"{{ a | replace: b, 'x' }}".repeat(1_900)}`,
    "a list that holds itself": `{% assign a = 'x,y' | split: ',' %}${"{% assign a = a | push: a %}".repeat(100)}{{ a }}`,
  };
  for (const [what, body] of Object.entries(CONTENTS)) {
    it(`serves others meanwhile: ${what}`, async () => {
      const { result, waitedMs } = await longestWait(() =>
        Promise.all(Array.from({ length: 4 }, () => create(client, body))),
      );
      for (const answer of result) assert.ok([201, 400].includes(answer.status), answer.text);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    });
  }

  it("names line and column of an error, and quotes nothing of the template", async () => {
    for (const [body, message] of [
      ["<p>\n  {{ secretword </p>", /line 2, column 3: this tag is not closed/],
      ["{% secretword %}", /line 1, column 1: there is no such tag/],
      ["ab{{ email | secretword }}", /line 1, column 3: there is no such filter/],
      ["{% if email %}\nsecretword", /line 1, column 1: this tag is not closed/],
      ["{{ 'secretword }}", /line 1, column 1: this tag is not closed/],
      ["{{ | secretword }}", /line 1, column \d+: this cannot be read/],
    ] as const) {
      const { status, body: answer, text: raw } = await create(client, body);
      assert.equal(status, 400, body);
      assert.match(answer.error.message, message, body);
      assert.doesNotMatch(raw, /secretword/);
    }
  });
});

describe("A preview", () => {
  let sender: Sender;
  before(async () => {
    sender = await makeSender();
  });

  const previewOf = async (body: string): Promise<ApiAnswer> => {
    const changed = await sender.client.patch(`/newsletters/${sender.newsletterId}`, { body });
    assert.equal(changed.status, 200, changed.text);
    return preview(sender);
  };
  const refused = (answer: ApiAnswer, message: RegExp) => {
    assert.equal(answer.status, 409, answer.text);
    assert.equal(answer.body.error.code, "campaign_not_ready");
    assert.match(answer.body.error.message, message);
  };

  const BODIES: Record<string, [string, RegExp]> = {
    "elements inside each other by the thousand": ["<b>".repeat(100_000), /nested more than 200 deep/],
    "elements that never end, and ends without a beginning": [
      "<i>".repeat(100_000) + "</b>".repeat(100_000),
      /nested more than 200 deep/,
    ],
    "a hundred thousand elements": ["<b>x</b>".repeat(100_000), /more than 20000 elements/],
    "lists inside each other around many lines": [
      `${"<ul><li>".repeat(90)}<pre>${"x\n".repeat(480_000)}</pre>`,
      /lists, quotations and links hold too much text inside each other/,
    ],
    "a style of nothing but comments": [
      `<p style="${"/*a".repeat(300_000)}">x<div style="display:none">`,
      /unsubscribe link/,
    ],
  };
  for (const [what, [body, message]] of Object.entries(BODIES)) {
    it(`refuses ${what}, and serves others meanwhile`, async () => {
      const { result, waitedMs } = await longestWait(() => previewOf(body));
      refused(result, message);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    });
  }

  it("does not delay another team's draft while it reads what once took ten seconds", async () => {
    const other = api((await makeTeam()).keys.live);
    for (const body of [
      `<a href="{{ unsubscribe_url }}" style="color:a${" ".repeat(100_000)}b">Leave</a>`,
      `<style>${"/* ".repeat(60_000)}</style>${LINK}`,
      `<p>${"x".repeat(500_000)}${" {{- email }}".repeat(1_500)}</p>`,
      `${LINK}{% if first_name %}a${'">'.repeat(240_000)}{% else %}b${'">'.repeat(240_000)}{% endif %}`,
    ]) {
      assert.equal((await sender.client.patch(`/newsletters/${sender.newsletterId}`, { body })).status, 200);
      const since = performance.now();
      const isPreviewed = preview(sender);
      assert.equal((await create(other, "<p>News</p>")).status, 201);
      const waitedMs = performance.now() - since;
      assert.ok(waitedMs < 2 * PATIENCE_MS, `the draft waited ${waitedMs} ms`);
      const previewed = await isPreviewed;
      assert.equal(previewed.status, 200, previewed.text);
    }
  });

  it("composes a text of 80,000 braces, and serves others meanwhile", async () => {
    for (const body of ["{ ".repeat(80_000), `{{ email | upcase }}${"&#123;&#123; ".repeat(70_000)}`]) {
      const { result, waitedMs } = await longestWait(() => previewOf(`<p>${body}</p>`));
      assert.equal(result.status, 200, result.text);
      assert.ok(waitedMs < PATIENCE_MS, `others waited ${waitedMs} ms`);
    }
  });

  for (const css of [
    ".leave{display:none}",
    "p .x, div>.leave { color: red; visibility: hidden !important }",
    "@media (min-width: 1px) { .leave { font-size: 0 } }",
    '[class~="leave"]{opacity:0}',
    "a{display:none!important}",
  ]) {
    it(`adds a footer where a style sheet may hide the link: ${css}`, async () => {
      const link = '<a class="leave" href="{{ unsubscribe_url }}">Leave</a>';
      const composed = composeMessage({
        subject: "News",
        html: `<head><style>${css}</style></head><body><p>News</p>${link}</body>`,
        fromEmail: "news@example.com",
      });
      const recipient = { email: "jane@example.org", messageId: "1@example.com", date: new Date() };
      const { message } = composed.fill({ ...recipient, unsubscribeUrl: "https://example.com/u/1" });
      assert.match((await PostalMime.parse(message)).html ?? "", /display:inline!important.*>Unsubscribe<\/a>/);
    });
  }

  const link = '<a href="{{ unsubscribe_url }}">Leave</a>';
  const styled = (style: string) => `<p>News</p><div style="${style}">${link}</div>`;
  const sheet = (css: string) => `<head><style>${css}</style></head><body><p>News</p>${link}</body>`;
  for (const html of [
    `{% unless email contains "@gmail.com" %}${link}{% endunless %}`,
    `{% if email contains ".com" %}${link}{% endif %}`,
    `{% if first_name and last_name == blank %}{% else %}${link}{% endif %}`,
    `<div style="{% if email contains '@gmail.com' %}display:none{% endif %}">${link}</div>`,
    `{% if email contains "@gmail.com" %}<!--{% endif %}${link}<p>News</p><!-- -->`,
    `{% if email contains "@gmail.com" %}<div style="display:none">{% endif %}${link}`,
    ...["&#xE000;", "&#x86;&#x87;", "\u0086\u0087"].map(
      (marker) => `{% if email contains "@gmail.com" %}<div style="display:none">{% endif %}<p>${marker}</p>${link}`,
    ),
    sheet("{% if email contains '@gmail.com' %}a{display:none}{% endif %}"),
    styled("d\\isplay:none"),
    ...[
      ":link{display:none}",
      "a:not(.k){display:none}",
      "a:not(:hover){display:none}",
      '@charset "x";a{display:none}',
    ].map(sheet),
    ...["filter:opacity(0)", "opacity:calc(0)", "clip-path:inset(50%)", "height:1px;overflow-y:hidden"].map(styled),
    ...["max-height:0.1px;overflow:hidden", "color:transparent", "transform:translate(-9999px)"].map(styled),
    `<details><summary>More</summary>${link}</details>`,
    `<div style="filter:opacity(0)">{% comment %}{% endcapture %}</div>{% endcomment %}${link}`,
    `<div style="filter:opacity(0)">{% comment %}{% endcomment %}< {% # %}{%- # -%} /div>${link}`,
    `<p><b style="filter:opacity(0)"></p>${link}`,
    `<html><body style="min-height:100vh;filter:none" v:link="x">${styled("filter:blur(0)")}</body></html>`,
    // A browser ends the first link, which is empty.
    '<a href="{{ unsubscribe_url }}"><a href="https://evil.example/">Leave</a></a>',
    `<a href="{{ unsubscribe_url }}">{% if first_name %}<a href="https://evil.example/">x</a>{% endif %}Leave</a>`,
    // Too little contrast: of text, background, or both.
    `<div style="background-color:#ffffff"><a href="{{ unsubscribe_url }}" style="color:#ffffff">Leave</a></div>`,
    `<a href="{{ unsubscribe_url }}" style="color:#fefefe">Leave</a>`,
    `<a href="{{ unsubscribe_url }}"><font color="#ffffff">Leave</font></a>`,
    `<a href="{{ unsubscribe_url }}"><span style="color:#FFF">Leave</span></a>`,
    `<table bgcolor="#0000ee"><tr><td>${link}</td></tr></table>`,
    `<body text="#ffffff" link="#ffffff">${link}</body>`,
    `<a href="{{ unsubscribe_url }}" style="color:#ffffff;color:#000000!important;background:#000000">Leave</a>`,
    sheet("a{color:#fff}"),
    sheet("body{background-color:#0000ee}"),
    ...["background:#00e", "background:url(x.png)", "margin-left:9999px", "margin-top:9999rem"].map(styled),
    ...["text-indent:9999px", "padding-left:900px", "mso-hide:all", "direction:rtl", "line-height:0"].map(styled),
    ...["position:relative;left:999em", "text-align:right;width:9999px"].map(styled),
    "<div style='margin-left:90px'>".repeat(20) + link + "</div>".repeat(20),
    `<table width="99999"><tr><td align="right">${link}</td></tr></table>`,
    `<!--[if !mso]><!-->${link}<!--<![endif]-->`,
    `<!--[if mso]><div style="mso-hide:all"><![endif]-->${link}<!--[if mso]></div><![endif]-->`,
    '<a href="{{ unsubscribe_url }}"><img src="data:," width="100" height="20"></a>',
    '<a href="{{ unsubscribe_url }}"><img src="https://x.example/none.png" alt="Leave"></a>',
    ...["&#x3164;&#x3164;", "&#x115F;&#x1160;", "&#xFFA0;&#xFFA0;", "&#x2800;&#x2800;", "&nbsp;&zwnj;&shy;", "…"].map(
      (text) =>
        `<a href="{{ unsubscribe_url }}">${text}</a><a href="{{ unsubscribe_url }}" style="color:transparent">x</a>`,
    ),
    // One letter in a word that looks like the text around it
    'Welc<a href="{{ unsubscribe_url }}" style="color:#000000;text-decoration:none">om</a>e',
    // Something else covers it.
    `${link}<div style="position:fixed;top:0;left:0;width:100%;height:100%;background:#fff">News</div>`,
    `${link}<div style="margin-top:-90px;background:#fff">News</div>`,
    `${link}{% if first_name %}<div style="margin-top:-90px;background:#fff">News</div>{% endif %}`,
    `<p style="font-size:8px;line-height:8px">${link}<br><span style="font-size:39px;line-height:8px">█████</span></p>`,
    // Lower case has more characters than upper case here.
    `<p>${"İ".repeat(40)}</p><p title="a">News</p></body>`,
    '<a href="https://evil.example/?{{ unsubscribe_url }}">Leave</a>',
    // Cells lie over each other.
    `<table><tr><td>a</td></tr><tr><td rowspan="2">${link}</td></tr><tr><td colspan="2"><div style="background:#fff">News</div></td></tr></table>`,
    // Far to the right
    `<p>${"&nbsp;".repeat(90)}${link}</p>`,
    `<p>{{ "${"\u00a0".repeat(90)}" }}${link}</p>`,
    `<p>{% if first_name %}${"&nbsp;".repeat(90)}{% endif %}${link}</p>`,
    `<p>{% if email %}${"{% if first_name %}&nbsp;{% endif %}".repeat(30)}{% endif %}${link}</p>`,
    `<table><tr>${'<td><img src="x.png" alt="" width="600"></td>'.repeat(5)}<td>${link}</td></tr></table>`,
    `<p>${'<img src="x.png" alt="" width="600">&nbsp;'.repeat(5)}${link}</p>`,
    `<div style="text-align:center;display:inline-block"><img src="x.png" alt=""><br>${link}</div>`,
    ...["display:table-cell", "width:999px", "text-align:right;width:600px", "min-width:900px"].map(styled),
    '<div style="border-left:90px solid #fff">'.repeat(20) + link + "</div>".repeat(20),
    '<table cellpadding="90"><tr><td>'.repeat(9) + link + "</td></tr></table>".repeat(9),
    // Dark on dark
    `<head><meta name="color-scheme" content="dark"></head><a href="{{ unsubscribe_url }}" style="color:#000">Leave</a>`,
    `<head><meta name="supported-color-schemes" content="dark"></head>${link}`,
    // Beside what covers it, or under it
    `<table align="right" width="90%"><tr><td>${link}</td></tr></table><div style="background:#fff">News</div>`,
    `<img src="x.png" alt="" width="600" align="left">${link}`,
    `${link}<p>${`a${"\u0305\u0333\u0304\u0302\u0308".repeat(9)}`.repeat(9)}</p>`,
    `${link}<p>${`a${"&#x305;&#x333;".repeat(9)}`.repeat(9)}</p>`,
    // No letters, or not in their order
    styled("font-family:Wingdings"),
    '<a href="{{ unsubscribe_url }}">&#x202e;evaeL</a>',
    // A rule inside of another
    `<style>.a{display:none; .b{width:1px}}</style><p class="a">${link}</p>`,
    // Higher than its line
    `<p style="margin:0">${link}</p><p style="margin:0"><span style="padding:40px;background:#ffffff">News</span></p>`,
    `<p style="margin:0">${link}</p><p style="margin:0"><span style="border:9px solid #ffffff">News</span></p>`,
    `<p style="margin:0">${link}</p><div style="display:inline;padding:0 0 40px;background:#ffffff">News</div>`,
    sheet("span{padding-top:40px}span{border:9px solid #fff}").replace("News", "<span>News</span>"),
    `<div style="display:inline-block;width:100px">WWWWWWWWWWW${link}</div><div style="display:inline-block;width:200px;background:#ffffff">News</div>`,
    `<div style="height:100%">${"<p>News</p>".repeat(50)}${link}</div>`,
    `<table><tr><td align="center">${link}<img src="x.png" alt="" width="auto"></td></tr></table>`,
    `<p style="word-break:keep-all">${"退订".repeat(150)}${link}</p>`,
    `<p>${"退\u2060".repeat(150)}${link}</p>`,
    `<p style="font-size:39px">${"W".repeat(50)}${link}</p>`,
  ]) {
    it(`adds a footer where the link is not certain to be seen: ${html}`, async () => {
      const composed = composeMessage({ subject: "News", html, fromEmail: "news@example.com" });
      const recipient = { email: "jane@gmail.com", messageId: "1@example.com", date: new Date() };
      const { message } = composed.fill({ ...recipient, unsubscribeUrl: "https://example.com/u/1" });
      const sent = (await PostalMime.parse(message)).html ?? "";
      const footer = sent.indexOf('<a href="https://example.com/u/1" style="all:initial!important');
      assert.ok(footer >= 0, sent);
      // What only some recipients get stands behind it, or is closed before it.
      if (/<!--{%|%}<!--|%}<div style="dis/.test(html)) assert.ok(footer < sent.indexOf("Leave"));
    });
  }

  for (const html of [
    link,
    `<table width="100%"><tr><td align="center" style="padding:0 8px;color:#333;font-size:12px">${link}</td></tr></table>`,
    `{% if first_name %}<p>Dear {{ first_name }}</p>{% else %}<p>Hello</p>{% endif %}${link}`,
    sheet(".card{display:none}h1:hover{opacity:0}@media(max-width:9px){.card{width:1px}}"),
    `<p style="color:#fff;background:#222"><a href="{{ unsubscribe_url }}" style="color:#ccc">Leave</a></p>`,
    `<html lang="en"><head><title>News</title><meta charset="utf-8"></head><body bgcolor="#f4f5f6">${link}</body></html>`,
    '<p><img src="x.png" width="600" alt=""></p><a href="{{ unsubscribe_url }}">退订</a>',
    `<head><meta name="viewport" content="width=device-width, initial-scale=1.0"></head><p>Dear {{ first_name | default: "friend" }}</p>${link}`,
    `<div style="max-width:600px;margin:0 auto;padding:0 24px;font-family:'Segoe UI',Arial,sans-serif">${link}</div>`,
    `<p>${"退订".repeat(90)}</p>${link}`,
  ]) {
    it(`adds no footer where the link is certain to be seen: ${html}`, () => {
      const composed = composeMessage({ subject: "News", html, fromEmail: "news@example.com" });
      const recipient = { email: "jane@gmail.com", messageId: "1@example.com", date: new Date() };
      const { message } = composed.fill({ ...recipient, unsubscribeUrl: "https://example.com/u/1" });
      assert.doesNotMatch(message.toString(), /all:initial/);
    });
  }

  const composed = (html: string) => composeMessage({ subject: "News", html, fromEmail: "news@example.com" });
  const inHead = (css: string) =>
    `<html><head><style>${css}</style></head><body class="main"><p>News</p></body></html>`;
  const CLIPS = "body{max-height:1px;overflow:hidden}html{overflow:auto}";
  const COVER = 'content:"";position:absolute;left:0;right:0;top:0;bottom:0;background:#fff';
  const OUT_OF_REACH: Record<string, string[]> = {
    '"transform"': [
      inHead("body:not(:visited:not(i)){transform:scale(0)}"),
      `<body style="transform:translateY(-5000px)"><div style="transform:translateY(5000px)">News</div></body>`,
      inHead("body{transform:scale(0)}"),
      inHead("p{color:red}html>body.main{transform:scale(0)}"),
      inHead(`p::after{content:"/*"}body{transform:scale(0)}p::after{content:"*/"}`),
      inHead("@media screen{@supports(color:red){[class]{transform:scale(0)}}}"),
      inHead("@keyframes x{from{color:red}}.main{transform:scale(0)}"),
      inHead(":is(body){transform:scale(0)}"),
      inHead("/*</style><style>body{transform:scale(0)}"),
      inHead("@keyframes x{</style><style>body{transform:scale(0)"),
      inHead(".\\6d ain{transform:scale(0)}"),
      inHead("{% if email contains 'gmail' %}body{transform:scale(0)}{% endif %}"),
      `<!--[if mso]><style>body{transform:scale(0)}</style><![endif]--><p>News</p>`,
      `<p title="<style>">News</p><style>body{transform:scale(0)}</style>`,
      `<svg><title><style>body{transform:scale(0)}</style></title></svg>`,
      `{% if first_name %}<body style="transform:scale(0)">{% else %}<body>{% endif %}News</body>`,
    ],
    '"transition"': [
      inHead("body{margin-top:50px;transition:margin-top 9s linear(-999,-999)}@starting-style{body{margin-top:0}}"),
    ],
    '"max-width"': [inHead("body{max-width:20rem}")],
    '"opacity"': [
      `<html style="opacity:.1"><body>News</body></html>`,
      inHead("*{opacity:0}"),
      inHead("div{opacity:0}"),
    ],
    '"filter"': [`<body style="filter:opacity(0)"><p>News</p></body>`],
    '"overflow"': [`<body style="overflow:hidden"><p>News</p></body>`, inHead("body{overflow:hidden}")],
    '"position"': [
      `<body style="position:absolute;left:-9000px"><div style="position:absolute;left:9000px">News</div></body>`,
      inHead(`body::after{position:fixed;content:"";left:0;right:0;bottom:0;height:120px;background:#fff}`),
      inHead(`a:before{position:absolute;content:""}`),
      inHead(`p~div:after{position:absolute;content:""}`),
      inHead(`a[href*="/u/"]::after{${COVER}}`),
      inHead(`div[style*="initial"]::after{${COVER}}`),
      inHead(`@media all{div[style^="all"]:before{${COVER}}}`),
      inHead(`a:not([href^="https://shop"])::after{${COVER}}`),
      inHead(`a:not(.button)::after{${COVER}}`),
      inHead(`a/**/::after{${COVER}}`),
      inHead(`p{a&::after{${COVER}}}`),
    ],
    '"box-shadow"': [inHead(`a::after{content:"";display:inline-block;box-shadow:-60px 0 0 60px #fff}`)],
    '"outline"': [inHead(`a::after{content:"";display:inline-block;outline:99px solid #fff}`)],
    '"padding"': [inHead(`*::before{content:"";display:block;padding:299px}`), inHead("html{padding:0 0 0 49%}")],
    '"margin"': [`<html style="margin:0 0 0 49%"><body style="margin:0 0 0 299px">News</body></html>`],
    '"font-size"': [inHead("html{font-size:99px}body{padding-left:1.9em}"), inHead("div::first-line{font-size:1px}")],
    '"width"': [
      inHead("html{overflow:auto}body{font-size:0;width:20em;overflow:auto}"),
      `<body style="width:99em"><p>News</p></body>`,
      `<html style="overflow-x:auto"><body style="width:0;overflow-y:auto">News</body></html>`,
    ],
    '"overflow-x"': [
      `<html style="height:100%;overflow-x:hidden"><body>News</body></html>`,
      inHead("body{overflow-x:hidden}"),
    ],
    '"content"': [inHead(`a::after{content:"█████"}`)],
    '"display"': [
      `<body style="display:inline-block"><p>News</p></body>`,
      inHead("body{display:table}"),
      `<body style="display:flex;width:600px"><p>News</p></body>`,
      inHead("body>*{display:none!important}"),
    ],
    '"padding-left"': [`<body style="padding-left:9999px"><p>News</p></body>`],
    '"border-left"': [`<body style="border-left:9999px solid #fff"><p>News</p></body>`],
    '"height"': [`<body style="height:600px;overflow:hidden"><p>News</p></body>`],
    '"max-height"': [
      inHead("body:not(:link:is(.x)){max-height:1px;overflow:hidden}"),
      `<head><style>#b.main{max-height:1px;overflow:hidden}</style></head><body class="main"><body id="b"><p>News</p>`,
      inHead("bo\u180e{%- # -%}dy{max-height:1px;overflow:hidden}"),
      `<st\u180e{%- # -%}yle>${CLIPS}</style><p>News</p>`,
      inHead("/\ufeff{%- # -%}* {} body{max-height:1px;overflow:hidden} /**/"),
      inHead("body{max-height:1px;overflow-x:hidden}"),
      inHead(`</stylex>p{}${CLIPS}`),
      inHead(`</style\u00a0>p{}${CLIPS}`),
      inHead(`p{color:"\f}${CLIPS}q{color:"}`),
      inHead(`p{color:"\r}${CLIPS}q{color:"}`),
      inHead(`p{background:u\\rl(/*)}${CLIPS}p{background:u\\rl(*/)}`),
      inHead("@scope (body){max-height:1px;overflow:hidden}"),
      inHead("@unknown .x{max-height:1px}"),
      inHead("body:not(.x){max-height:1px}"),
      inHead("html:not(:link){max-height:1px}"),
      inHead("body{color:red;&{max-height:1px}}"),
      `<st{% comment %}x{% endcomment %}yle>${CLIPS}</style>News`,
      `<style>bo{% capture x %}x{% endcapture %}dy{max-height:1px;overflow:hidden}</style>News`,
    ],
    "a template tag in the name of an element": [
      `<{{ "body" }} style="max-height:1px;overflow:hidden"><p>News</p>`,
      `<{{ "style" }}>${CLIPS}</style><p>News</p>`,
      `<st{{ "" }}yle>${CLIPS}</style><p>News</p>`,
      `<{{ "style" }}>{% if email contains "gmail" %}${CLIPS}{% endif %}</style><p>News</p>`,
      `<{% if email contains "gmail" %}body style="max-height:1px"{% endif %}><p>News</p>`,
    ],
    "an element svg or math": [
      `<svg width="0" height="0"><style>b&#111;dy{max-height:1px;overflow:hidden}</style></svg><p>News</p>`,
      `<svg width="0" height="0"><style>b<!-- -->ody{max-height:1px;overflow:hidden}</style></svg><p>News</p>`,
      `<svg><style>.x{z-&#105;ndex:2147483647}</style></svg><p class="x" style="position:fixed">News</p>`,
    ],
    "an element template": [`<template shadowrootmode="open">News</template><p>News</p>`],
    "the viewport": [
      `<meta name="viewport" content="width=10000,maximum-scale=0.04,user-scalable=no"><p>News</p>`,
      `<meta name="viewport" content="initial-scale = 0.05"><p>News</p>`,
    ],
    '"http-equiv"': [
      `<meta http-equiv="Content-Security-Policy" content="style-src 'none'"><p>News</p>`,
      `<meta http-equiv="refresh" content="0;url=https://evil.example/"><p>News</p>`,
    ],
    '"animation"': [inHead("body{animation:x 1s forwards}@keyframes x{to{opacity:0}}")],
    "a declaration without a name": [inHead("body{o\\70 acity:0}")],
    'the attribute "inert"': [`<body inert><p>News</p></body>`],
    'the attribute "leftmargin"': [`<body leftmargin="9999"><p>News</p></body>`],
    "a template tag in": [
      "<body {{ first_name }}><p>News</p></body>",
      `<body style="{{ first_name }}"><p>News</p></body>`,
      inHead("p{color:{{ first_name }}}"),
      inHead("bo{% if first_name %}dy{opacity:0}{% endif %}"),
      inHead("{% if first_name %}/*;{% endif %}body{opacity:0}/**/"),
    ],
    "a condition that opens or closes": [inHead("{% if first_name %}</style>{% endif %}body{opacity:0}</style>")],
    "@import": [inHead("@import url(https://evil.example/x.css);"), inHead("@import'https://evil.example/x.css'")],
    "a style sheet of another host": [`<link rel="stylesheet" href="https://evil.example/x.css"><p>News</p>`],
    "a brace inside of parentheses": [inHead("@keyframes x({){from{}}body{opacity:0}")],
    '"z-index"': [
      `{% if first_name %}<div>{% endif %}<p style="position:fixed;z-index:2147483647">News</p>`,
      `{% if first_name %}<div>{% endif %}<p style="position:fixed;z-&#105;ndex:2147483647">News</p>`,
      `{% if first_name %}<div>{% endif %}<p style="position:fixed;z&bsol;2dindex:2147483647">News</p>`,
    ],
    'a template tag in "style"': [
      `<p style="{{ 'margin-bottom:-9999px' }}">News</p>`,
      `<p style="mar{% if first_name %}gin{% else %}x{% endif %}-bottom:-9999px">News</p>`,
      `{% if first_name %}<div>{% endif %}<p style="position:fixed;z-{{ 'index' }}:2147483647">News</p>`,
      `{% if first_name %}<div>{% endif %}<p {{ "style=position:fixed;z-index:2147483647" }}>News</p>`,
      `{% if first_name %}<div>{% endif %}<p sty{{ "le" }}="position:fixed">News</p>`,
      `{% if first_name %}<div>{% endif %}<!--><p style="{{ 'z-index:2147483647' }}">News</p>-->`,
      `{% if first_name %}<div>{% endif %}<title></title/><p style="{{ 'z-index:2147483647' }}">News</p></title>`,
    ],
    "aria-hidden": [`<body aria-hidden="true"><p>News</p></body>`],
  };
  for (const [what, bodies] of Object.entries(OUT_OF_REACH)) {
    for (const html of bodies) {
      it(`refuses ${what}, which may hide the footer: ${html}`, () => {
        assert.throws(
          () => composed(html),
          (error: Error) => error.message.includes("unsubscribe link that is added") && error.message.includes(what),
        );
      });
    }
  }

  for (const html of [
    `<body style="margin:0;padding:0;width:100%!important;height:100%;-webkit-text-size-adjust:none;background:url(x.png)">`,
    `<body leftmargin="0" marginwidth="0" topmargin="0" marginheight="0" offset="0" yahoo="fix" bgcolor="#eeeeee">`,
    inHead("*[class~=hide],.hide,#main,body.other,table div.x{display:none!important}.card *{opacity:0}"),
    inHead("@import url(https://fonts.googleapis.com/css?family=Lato:400;700);body{font-family:Lato}"),
    inHead(
      "@media only screen and (max-width:600px){.w{position:absolute;left:0}.w::after{content:'{';position:fixed}}",
    ),
    inHead("body{ {% if first_name %}color:red;{% endif %}margin:0 auto}{% if first_name %}p{opacity:0}{% endif %}"),
    `{% assign accent = "#ff0000" %}${inHead("body{background:{{ accent }}}")}`,
    `<head><link rel="stylesheet" href="https://fonts.googleapis.com/css?family=Lato"></head><p>News</p>`,
    `<!--[if mso]><table><tr><td><![endif]--><p>News</p><!--[if mso]></td></tr></table><![endif]-->`,
    `<table><tr><td><p>News<td class="w">News</table><style>.w{opacity:0}</style>`,
    `<p>News</p><div style="position:fixed;top:0;left:0;width:100%;height:100%;background:#fff;z-index:9">News</div>`,
    inHead("*:before,*:after{box-sizing:border-box}.sm\\:hidden{display:none}/* } */a:hover{color:red}"),
    inHead("#main::after,.button:not(:hover)::before,a.button::after{position:absolute}img:not(.x){opacity:0}"),
    inHead("body{width:100%\\9;padding:0 20px;font:14px/1.5 'Open Sans',Arial;max-width:1200px}@page{margin:0}"),
    inHead("@media (min-width:600px) and (max-width:900px){.w-1\\/2{border:1px solid #999999;width:100%!important}}"),
    `<head><meta name="viewport" content="width=device-width, initial-scale=1.0, maximum-scale=1" /></head><p>News</p>`,
  ]) {
    it(`puts the footer last, above all else: ${html}`, () => {
      const { message } = composed(html).fill({
        email: "jane@gmail.com",
        messageId: "1@example.com",
        date: new Date(),
        unsubscribeUrl: "https://example.com/u/1",
      });
      const sent = message.toString().replaceAll("=\r\n", "");
      assert.match(sent, /z-index:2147483647!important.*>Unsubscribe<\/a><\/div>(?:<\/body><\/html>)?\s*--=_mailkeel/s);
    });
  }

  for (const html of [
    `<style>.x{clip-path:inset(50%)}</style><div class="x"><p>News</p>`,
    `<span><table><tr><td style="clip-path:inset(50%)"></span>`,
    `<p>News</p><!--[if mso]><div style="mso-hide:all"><![endif]-->`,
    `<p>News</p><!--><div style="clip-path:inset(50%)">-->`,
    `<frameset></frameset>`,
    `<![CDATA[><div style="clip-path:inset(50%)">]]>`,
    `<td><v:a style="display:block;clip-path:inset(50%)"></td>`,
    `<ul><table><tr><td><li style="clip-path:inset(50%)"></ul>`,
    `<p>News</p><a href="https://evil.example/">`,
    `<p>News</p><table><tr><td style="padding:0">`,
    `<p>News</p><svg width="9" height="9"></svg>`,
    // Its end may be cut off, or is too far away.
    `<p>${"News ".repeat(18_001)}</p>`,
    `<p>${"News ".repeat(16_000)}${"é".repeat(5_000)}</p>`,
    `{% assign x = "${"News ".repeat(990)}" %}<p>${"{{ x }}".repeat(20)}</p>`,
    `<p>News</p>${"<br>".repeat(301)}`,
    `<p>News</p>${"<br>".repeat(301)}${link}`,
    // It may be moved.
    `<p style="margin-bottom:-9999px">News</p>`,
    `<p style="margin-bottom:calc(0px - 9999px)">News</p>`,
    `<p style="margin-block-end:-9999px">News</p>`,
    `<p style="margin-bottom&colon;-9999px">News</p>`,
    `<p style="margin-bottom:&#45;9999px">News</p>`,
    `<p style="margin-bottom/**/:-9999px">News</p>`,
    `<p style="mar\\gin-bottom:/**/-9999px">News</p>`,
    `<table style="margin-bottom:-99em"><tr><td>News</td></tr></table>`,
    inHead("p{color:#999999;margin:0 0 -9999px}"),
    `<div style="height:99999999px">News</div>`,
    `<table height="99999999"><tr><td>News</td></tr></table>`,
    `<p style="line-height:9999">News</p>`,
  ]) {
    it(`puts the footer first where its end is uncertain: ${html.slice(0, 200)}`, () => {
      const { message } = composed(html).fill({
        email: "jane@gmail.com",
        messageId: "1@example.com",
        date: new Date(),
        unsubscribeUrl: "https://example.com/u/1",
      });
      const sent = message.toString();
      assert.match(
        sent.slice(sent.indexOf("text/html")),
        /\r\n\r\n<div style=3D"all:initial|\r\n\r\n<div style="all:initial/,
      );
    });
  }

  it("lets no style sheet change the order of the footer's letters, or make its line break cover the link", () => {
    const css = `a,div{unicode-bidi:bidi-override;direction:rtl}p br{${COVER}}br{${COVER}}`;
    const { message } = composed(inHead(`${css.replace("a,div", "a")}`)).fill({
      email: "jane@gmail.com",
      messageId: "1@example.com",
      date: new Date(),
      unsubscribeUrl: "https://example.com/u/1",
    });
    const sent = message.toString().replaceAll("=\r\n", "").replaceAll("=3D", "=");
    assert.match(
      sent,
      /<a href="https:\/\/example\.com\/u\/1" style="[^"]*direction:ltr!important;unicode-bidi:plaintext!/,
    );
    assert.match(sent, /<br style="all:initial!important">/);
  });

  it("refuses a base, which may divert the link", async () => {
    refused(await previewOf(`<base href="https://evil.example/">${link}`), /unsubscribe link/);
  });

  it("takes real newsletters", async () => {
    const known = file("welcome-merge-tags.html").replace(/\{\{[^}]*\}\}/g, "{{ email }}");
    for (const body of [file("responsive-plain.html"), known, known.replace("{{ email }}", "{{ email | upcase }}")]) {
      assert.equal((await previewOf(body)).status, 200);
    }
  });

  const hidden = (style: string) => `<p>News</p><div style="${style}"><p>${LINK}</p></div>`;
  for (const body of [
    hidden("display: none"),
    hidden("DISPLAY:/**/NONE !important; color: red"),
    hidden("d\\69splay: none"),
    hidden("visibility: hidden"),
    hidden("font-size: 0"),
    hidden("font: 0/0 a"),
    hidden("font-size: 1px"),
    hidden("opacity: 0"),
    hidden("opacity: 0.0"),
    hidden("max-height: 0; overflow: hidden"),
    hidden("position: absolute; left: -9999px"),
    hidden("{% if first_name %}display: none{% endif %}"),
    hidden("{% unless first_name %}display: none{% endunless %}"),
    `<a href="{{ unsubscribe_url }}" style="display:none">Leave</a>`,
    `<a href="{{ unsubscribe_url }}"><span style="font-size:0">Leave</span></a>`,
    `<div hidden>${LINK}</div>`,
    `<template>${LINK}</template>`,
    `<p>News</p><!-- ${LINK}`,
    "<p>News</p><!--",
    `<p>News</p>{% if first_name %}<!--{% endif %}`,
    `<p>News</p><div style="display:none">`,
    `<p>News</p><div style="opacity:0">`,
    `<p>News</p><textarea>`,
    `<p>News</p><style>`,
    `<p>News</p><a title='`,
  ]) {
    it(`refuses an unsubscribe link that is hidden: ${body}`, async () => {
      refused(await previewOf(body), /unsubscribe link/);
    });
  }

  for (const tag of ["{% break %}", "{% continue %}", "{% if first_name %}{% break %}{% endif %}"]) {
    it(`has no body with ${tag}, which would cut off the footer`, async () => {
      const { status, body } = await create(sender.client, `<p>News</p>${tag}`);
      assert.equal(status, 400);
      assert.match(body.error.message, /the tag "(break|continue)" is not allowed/);
    });
  }

  for (const body of [
    "<p>No link</p>",
    `<div style="display:none">Preheader ${LINK}</div><p>News</p>${LINK}`,
    `<div style="display:none">Preheader</div><p>News</p>`,
    `<td style="font-size:0"><a href="{{ unsubscribe_url }}" style="font-size:14px">Leave</a></td>`,
    `<td style="visibility:hidden"><a href="{{ unsubscribe_url }}" style="visibility:visible">Leave</a></td>`,
    `<!--[if mso]><table><tr><td><![endif]--><p>News</p>${LINK}<!--[if mso]></td></tr></table><![endif]-->`,
    `<!--[if !mso]><!-->${LINK}<!--<![endif]-->`,
    `<a href="{{ unsubscribe_url }}"><img src="x.png" alt="Leave"></a>`,
    `<p>News</p><!-- ${LINK} -->`,
    '<img src="{% if first_name %}a{% else %}b{% endif %}.png">{% assign x = email | upcase %}{{ x }}',
  ]) {
    it(`takes ${body}`, async () => {
      const answer = await previewOf(body);
      assert.equal(answer.status, 200, answer.text);
    });
  }
});

describe("A recipient whose message takes too long to compose, or is too large", () => {
  // Only a recipient of this name renders it.
  const costly = `{% if first_name == "Costly" %}{% assign a = '${"Aé".repeat(2_490)}' %}${"{{ a | slugify: 'latin' | slugify: 'latin' | size }}".repeat(1_500)}{% endif %}<p>News</p>`;
  const people = (names: readonly string[], audience: string) =>
    names.map((firstName, i) => ({ email: `p${i}@${audience}`, firstName }));

  for (const [what, body, name] of [
    ["takes too long", costly, "Costly"],
    ["is too large", `<p>${"{{ first_name }}".repeat(1_990)}</p>`, "é".repeat(200)],
  ] as const) {
    it(`is rejected as unsendable when it ${what}, and the others get their mail`, async () => {
      const sender = await makeSender({ recipients: 0, body });
      await addSubscribers(sender, sender.listId, people(["Ann", name, "Bob", name, "Cid"], sender.audience));
      await startSend(sender);
      await untilStatus(sender, ["SENT"]);
      assert.deepEqual(await ledgerStates(sender), { SENT: 3, REJECTED: 2 });
      const rejected = await kysely(sender.em)
        .selectFrom("send_recipients")
        .innerJoin("newsletters", "newsletters.send_id", "send_recipients.send_id")
        .where("newsletters.id", "=", sender.newsletterId)
        .where("state", "=", "REJECTED")
        .select("reason")
        .execute();
      assert.deepEqual(rejected, [{ reason: "unsendable" }, { reason: "unsendable" }]);
    });
  }

  it("pauses the send when there are twenty in a row", async () => {
    const sender = await makeSender({ recipients: 0, body: costly });
    await addSubscribers(sender, sender.listId, people(Array(60).fill("Costly"), sender.audience));
    const { data } = await startSend(sender);
    await untilStatus(sender, ["PAUSED"]);
    const { pause_reason } = await kysely(sender.em)
      .selectFrom("sends")
      .select("pause_reason")
      .where("id", "=", data.id)
      .executeTakeFirstOrThrow();
    assert.equal(pause_reason, "policy_refusals");
    const states = await ledgerStates(sender);
    assert.deepEqual(states, { REJECTED: 20, QUEUED: 40 });
  });
});
