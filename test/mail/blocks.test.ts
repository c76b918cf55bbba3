import assert from "node:assert/strict";
import fc from "fast-check";
import { Parser } from "htmlparser2";
import { compileBlocks, isOfBrand, type MailBrand } from "../../domain/mail/blocks/compile.ts";
import { logoBlocks } from "../../domain/mail/blocks/logo.ts";
import { BLOCK_LIMITS, blockDocument } from "../../domain/mail/blocks/schema.ts";
import { showMessage } from "../../domain/mail/message.ts";
import { checkContent, compileTemplate, type MergeValues } from "../../domain/mail/template.ts";
import { contrast, textOn } from "../../lib/mail-style.ts";
import { BRAND, button, columns, document, linkTo, list, type Node, paragraph, tag, words } from "../support/blocks.ts";

const compile = (content: Node, preheader = "", brand: Partial<MailBrand> = {}): string =>
  compileBlocks({ blocks: blockDocument.parse(content), preheader, brand: { ...BRAND, ...brand } });

const PERSON = { email: "ada@example.com", first_name: "Ada", unsubscribe_url: "https://example.com/u/1" };

/** The mail of one person. */
const show = (content: Node, values: MergeValues = PERSON, preheader?: string) =>
  showMessage({ subject: "", html: compile(content, preheader) }, values);

/** As a mail program shows it. */
function firstParagraph(html: string): string {
  const [, source = ""] = /<p [^>]*>(.*?)<\/p>/s.exec(html) ?? [];
  let shown = "";
  new Parser({ ontext: (text) => (shown += text) }).end(source);
  return shown;
}

/** Places of what is refused. */
const refusedAt = (content: unknown): string[] => {
  const { error } = blockDocument.safeParse(content);
  return (error?.issues ?? []).map(({ path, message }) => path.join(".") || message);
};

describe("Blocks", () => {
  it("compile to a text of each kind, which the text part shows too", () => {
    const content = document(
      { type: "heading", attrs: { level: 1, textAlign: "center" }, content: [words("News")] },
      paragraph(
        "Plain, ",
        words("bold", { type: "bold" }),
        ", ",
        words("a link", linkTo("https://example.com/?a=1&b=2")),
      ),
      list([paragraph("one"), list([paragraph("inner")])], [paragraph("two")]),
      { type: "blockquote", content: [paragraph("Said")] },
      { type: "image", attrs: { src: "https://example.com/a.png", alt: 'A "cat"', width: 9_999, href: null } },
      button("Read", "https://example.com/read"),
      columns([paragraph("left")], [paragraph("right")]),
      { type: "divider" },
      { type: "spacer", attrs: { height: 40 } },
      { type: "socialLinks", attrs: { links: [{ network: "mastodon", href: "https://example.social/@a" }] } },
      { type: "html", attrs: { html: "<p>Raw {{ first_name }}</p>" } },
    );
    const { html, text } = show(content);
    assert.match(html, /<h1 style="[^"]*text-align:center">News<\/h1>/);
    assert.match(html, /<strong>bold<\/strong>/);
    assert.match(html, /<a href="https:\/\/example\.com\/\?a=1&amp;b=2"[^>]*>a link<\/a>/);
    assert.match(html, /alt="A &#34;cat&#34;" width="552"/);
    assert.match(html, /<div class="column" style="[^"]*max-width:288px/);
    const lines = text.split("\n").filter((line) => line.trim() !== "");
    assert.deepEqual(lines.map((line) => line.trim()).slice(0, 13), [
      ...["News", "Plain, bold, a link [https://example.com/?a=1&b=2]", "* one", "* inner", "* two", "> Said"],
      ...['A "cat"', "Read [https://example.com/read]", "left", "right"],
      ...[
        "Mastodon [https://example.social/@a]",
        "Raw Ada",
        "You receive this email because you are on our mailing list.",
      ],
    ]);
  });

  it("give columns thirds and a background, on which all texts can be read, also in the dark", () => {
    const inside = [paragraph("On it ", words("link", linkTo("https://example.com"))), { type: "divider" }];
    for (const background of ["#0b3d91", "#ffd54f", "#777777"]) {
      const area = { ...columns(inside), attrs: { background } };
      const html = compile(document(area), "", { accentColor: background });
      const [, body = ""] = html.split("<body");
      assert.ok(body.includes(`bgcolor="${background}"`));
      const colors = [...body.matchAll(/[;"]color:(#\w{6})/g)].map(([, color = ""]) => color);
      assert.ok(colors.length >= 2 && colors.every((color) => contrast(color, background) >= 4.5), colors.join());
      assert.doesNotMatch(body, /class="(area|text|link|rule)"/, "the dark changes neither");
    }
    const pale = { ...columns(inside), attrs: { background: "#fff4d6" } };
    const own = compile(document(pale), "", { accentColor: "#0b3d91" });
    assert.ok(own.includes('class="area" bgcolor="#fff4d6"'));
    const dark = (name: string, property: string) =>
      new RegExp(`\\.${name}\\{${property}:(#\\w{6})`).exec(own)?.[1] ?? "";
    for (const name of ["text", "link"])
      assert.ok(contrast(dark(name, "color"), dark("area", "background-color")) >= 4.5, name);
    const html = compile(document({ ...columns([paragraph("a")], [paragraph("b")]), attrs: { widths: "1:2" } }));
    assert.deepEqual(
      [...html.matchAll(/class="column"[^>]*max-width:(\d+)px/g)].map(([, px]) => px),
      ["192", "384"],
    );
    assert.deepEqual(
      [...html.matchAll(/<td width="(\d+)" valign/g)].map(([, px]) => px),
      ["192", "384"],
    );
    for (const attrs of [{ background: "red;x:y" }, { widths: "1:9" }])
      assert.equal(refusedAt(document({ ...columns([], []), attrs })).length, 1);
  });

  it("let nothing white stand between two areas, or between one and the side of the card", () => {
    const area = { ...columns([paragraph("On it")]), attrs: { background: "#0b3d91" } };
    const spaces = (...blocks: Parameters<typeof document>) =>
      [...compile(document(...blocks)).matchAll(/<td height="(\d+)"/g)].map(([, px]) => px);
    assert.deepEqual(spaces(area, area), []);
    assert.deepEqual(spaces(paragraph("a"), area, paragraph("b")), ["24", "16", "8"]);
  });

  it("leave as much room between rows of columns as between columns on a phone, and none of a line below an image", () => {
    const image = { type: "image", attrs: { src: "https://example.com/a.png", shape: "round" } };
    const html = compile(document(columns([image], [button("Read", "")])));
    assert.match(
      html,
      /<div class="column" style="[^"]*padding:0 0 8px;.*<div class="column" style="[^"]*padding:0 0 8px;/s,
    );
    assert.match(html, /<img [^>]*style="[^"]*vertical-align:bottom;[^"]*border-radius:50%"/);
    assert.equal(refusedAt(document({ ...image, attrs: { ...image.attrs, shape: "star" } })).length, 1);
  });

  it("leave out the empty lines at the end, and give images a white ground in the dark", () => {
    const picture = { type: "image", attrs: { src: "https://example.com/a.png", alt: "A" } };
    assert.equal(
      compile(document(paragraph(), picture, paragraph(), paragraph())),
      compile(document(paragraph(), picture)),
    );
    assert.equal(
      compile(document(columns([picture, paragraph()], [button("Read", ""), paragraph(), paragraph()], [paragraph()]))),
      compile(document(columns([picture], [button("Read", "")], [paragraph()]))),
    );
    const html = compile(document(picture));
    assert.ok(html.includes('<img class="wide image" src="https://example.com/a.png"'));
    assert.match(html, /prefers-color-scheme:dark.*\.image\{background-color:#ffffff!important\}/s);
    const [logo] = logoBlocks({ logoUrl: "https://example.com/a.png", teamName: "A" }) as [Node];
    assert.ok(compile(document(logo)).includes('<img class="image logo" src='), "with an edge of it");
    assert.ok(
      compile(document(paragraph(), logo)).includes('<img class="image" src='),
      "a picture of the text has none",
    );
    const face = { ...logo, attrs: { ...logo.attrs, shape: "round" } };
    assert.ok(compile(document(face)).includes('<img class="image" src='));
    const onDark = { ...columns([picture]), attrs: { background: "#0b3d91" } };
    assert.doesNotMatch(compile(document(onDark)), /class="[^"]*image/);
  });

  it("show a button as an outline, and over the whole width", () => {
    const attrs = { label: "Go", href: "https://example.com/", look: "outline", align: "full" };
    const html = compile(document({ type: "button", attrs }));
    assert.match(
      html,
      /width="100%"><tr><td align="center" class="link" style="border:2px solid #0b57d0[^>]*><a [^>]*class="link"/,
    );
    assert.match(html, /<a [^>]*display:block;[^>]*color:#0b57d0/);
    assert.doesNotMatch(html, /bgcolor="#0b57d0"/);
  });

  it("print what a writer types, and fill merge tags alone", () => {
    const typed = '{{ first_name }} {% if x %} {{{ <b> & "quoted" \' {';
    const { html, text } = show(document(paragraph(typed, tag("first_name"), "}} {%")));
    assert.equal(text.split("\n")[0], `${typed}Ada}} {%`);
    assert.doesNotMatch(html, /<b>/);
    for (const fallback of ["there", `"}} {{ email }} {% raw %}`, "\\", "l'ami <b>&\n{"]) {
      const filled = show(document(paragraph("Hi ", tag("first_name", fallback), "!")), {
        ...PERSON,
        first_name: null,
      });
      assert.equal(filled.text.split("\n\n")[0], `Hi ${fallback}!`);
      assert.doesNotMatch(filled.html, /<b>/);
      assert.equal(show(document(paragraph(tag("first_name", fallback)))).text.split("\n")[0], "Ada");
    }
    const links = ["{{ unsubscribe_url }}", "https://example.com/{{email}}?a=1&b={{ first_name }}"];
    const hrefs = show(document(...links.map((href) => button("Go", href))), { ...PERSON, first_name: "Ada & Bo" });
    assert.match(hrefs.html, /href="https:\/\/example\.com\/u\/1"/);
    assert.match(hrefs.html, /href="https:\/\/example\.com\/ada%40example\.com\?a=1&amp;b=Ada%20%26%20Bo"/);
    assert.doesNotMatch(hrefs.html, /mailing list/, "no footer beside an own link");
  });

  it("leave a merge tag that there is not to the check of the template", () => {
    const link = button("Go", "https://example.com/{{frist_name}}?a={{ fields.no.field }}");
    const html = compile(document(paragraph("Welcome, ", tag("name", "you"), tag("constructor")), link));
    const found = checkContent({ subject: "", html });
    assert.deepEqual(
      found.map((problem) => [problem.kind, problem.kind === "unknown_tag" && problem.tag]),
      ["name", "constructor", "frist_name", "fields.no.field"].map((name) => ["unknown_tag", name]),
    );
  });

  it("put a preheader before the text, hidden, which is a template", () => {
    const { html, text } = show(document(paragraph("Text")), PERSON, "Hi {{ first_name }} & <b>");
    assert.match(html, /<body[^>]*>\n<div style="display:none[^"]*">Hi Ada &amp; &lt;b&gt;&zwnj;/);
    assert.ok(text.startsWith("Text"));
    assert.throws(() => compile(document(), "Hi {{ first_name"), /not closed/);
  });

  it("make one link of neighbours with the same address", () => {
    const link = linkTo("https://example.com/");
    const html = compile(document(paragraph(words("a", link), words("b", { type: "bold" }, link), words("c"))));
    assert.equal(html.match(/<a /g)?.length, 1);
  });

  it("are refused at their place: unknown nodes, marks and attributes, and URLs that are no links", () => {
    const inside = (node: Node) => columns([list([paragraph("a"), list([node])])], [paragraph()]);
    const place = "content.0.content.0.content.0.content.0.content.1.content.0.content.0";
    const cases: [Node, string][] = [
      [{ type: "video" }, `${place}.type`],
      [{ type: "divider" }, `${place}.type`],
      [paragraph(words("a", { type: "blink" })), `${place}.content.0.marks.0.type`],
      [{ ...paragraph(), attrs: { onclick: "x" } }, `${place}.attrs`],
      [paragraph(words("a", linkTo("javascript:alert(1)"))), `${place}.content.0.marks.0.attrs.href`],
      [paragraph(tag("fields..a")), `${place}.content.0.attrs.name`],
      [paragraph(tag("first_name }}{% x")), `${place}.content.0.attrs.name`],
      ...["true", "nil", "not", "blank.x"].map((name): (typeof cases)[number] => [
        paragraph(tag(name)),
        `${place}.content.0.attrs.name`,
      ]),
    ];
    for (const [node, at] of cases) assert.deepEqual(refusedAt(document(inside(node))), [at]);
    const hrefs = [
      "java\nscript:x",
      " javascript:x",
      "data:text/html,x",
      "vbscript:x",
      "//example.com",
      "example.com",
      "#a",
    ];
    hrefs.push(
      "https://example.com/ a",
      "https:\\\\example.com",
      "{{ first_name }}",
      "{{ unsubscribe_url }}x",
      "https://{{ fields.server }}/",
      `https://example.com/${"x".repeat(2_000)}`,
      "https://example.com/?a={{ first_name | upcase }}",
      "https://",
    );
    for (const href of hrefs) {
      assert.deepEqual(refusedAt(document(button("a", href))), ["content.0.attrs.href"], href);
      const image = { type: "image", attrs: { src: href, alt: "" } };
      assert.deepEqual(refusedAt(document(image)), ["content.0.attrs.src"], href);
    }
    for (const href of ["", "http://example.com", "MAILTO:a@example.com", "tel:+43", "{{fields.url}}"]) {
      assert.deepEqual(refusedAt(document(button("a", href))), [], href);
    }
    for (const name of ["nothing", "nota.b", "True"]) assert.deepEqual(refusedAt(document(paragraph(tag(name)))), []);
    assert.deepEqual(refusedAt(document(columns([], [columns([], [])]))), ["content.0.content.1.content.0.type"]);
    for (const value of [null, [], "doc", 1, { type: "doc" }, document({} as Node)]) {
      assert.equal(refusedAt(value).length, 1, JSON.stringify(value));
    }
  });

  it("are refused by their depth, their number and their size before anything else", () => {
    let deep: Node = { type: "x" };
    for (let i = 0; i < 100_000; i++) deep = { type: "x", content: [deep] };
    assert.deepEqual(refusedAt(deep), [`is nested over ${BLOCK_LIMITS.depth} nodes deep`]);
    let inner: Node = list([paragraph("a")]);
    for (let i = 0; i < 4; i++) inner = list([inner]);
    assert.deepEqual(refusedAt(document(inner)).length, 1);
    const many = document(...Array.from({ length: BLOCK_LIMITS.nodes }, () => ({ type: "divider", x: 1 }) as Node));
    assert.deepEqual(refusedAt(many), [`may have ${BLOCK_LIMITS.nodes} nodes at most`]);
    const large = document(...Array.from({ length: 6 }, () => paragraph("x".repeat(99_000))));
    assert.deepEqual(refusedAt(large), [`may have ${BLOCK_LIMITS.bytes} bytes at most`]);
  });

  it("leave no problem of a template, however they are written", () => {
    const content = document(paragraph("{{", tag("first_name", "{{"), "}}"), button("{%", "https://example.com/{%"));
    assert.deepEqual(checkContent({ subject: "", html: compile(content) }), []);
    const piece = fc.constantFrom(
      "{",
      "}",
      "{{",
      "{%",
      "%}",
      "<",
      '"',
      "'",
      "\\",
      "&",
      "a",
      " ",
      "|",
      "-",
      "raw",
      "\u0080",
    );
    const text = fc.array(piece, { minLength: 1, maxLength: 12 }).map((pieces) => pieces.join(""));
    fc.assert(
      fc.property(text, text, text, (before, fallback, alt) => {
        const image = { type: "image", attrs: { src: "https://example.com/a.png", alt } };
        const html = compile(document(paragraph(before, tag("first_name", fallback), before), image, button(alt, "")));
        assert.deepEqual(checkContent({ subject: "", html }), []);
        const shown = compileTemplate(html, { escape: true });
        assert.deepEqual([...shown.variables], ["first_name"]);
        assert.equal(firstParagraph(shown.render({})), `${before}${fallback}${before}`);
      }),
    );
  });
});

describe("Blocks in the brand of a team", () => {
  const content = document(
    paragraph(words("a link", linkTo("https://example.com/"))),
    button("Read", "https://example.com/read"),
  );
  const dark = (html: string) => /\.link\{color:(#\w{6})/.exec(html)?.[1] ?? "";
  const light = (html: string) => /class="link" style="color:(#\w{6})/.exec(html)?.[1] ?? "";

  it("have its language, font and background, and tell when it is another one", () => {
    const brand = { language: "de" as const, font: "serif" as const, backgroundColor: "#123456" };
    const html = compile(content, "", brand);
    assert.match(html, /<html lang="de">/);
    assert.match(html, /<body class="page" style="[^"]*background-color:#123456"/);
    assert.match(html, /font:16px\/24px Georgia,'Times New Roman',serif/);
    assert.ok(isOfBrand(html, { ...BRAND, ...brand }));
    for (const other of [{ language: "fr" as const }, { font: "mono" as const }, { accentColor: "#000000" }]) {
      assert.ok(!isOfBrand(html, { ...BRAND, ...brand, ...other }));
    }
    assert.ok(!isOfBrand(html, { ...BRAND, ...brand, backgroundColor: "#ffffff" }));
  });

  it("stand on a card, apart from a window that is wider where their background has another colour", () => {
    const onWhite = compile(content, "", { backgroundColor: "#FFFFFF" });
    assert.doesNotMatch(onWhite, /min-width/);
    const card = "@media (min-width:624px){.card{margin-top:24px!important;border-radius:8px;overflow:hidden}}";
    assert.equal(compile(content, "", { backgroundColor: "#f4f4f2" }).split(card).length, 2);
  });

  it("have the footer of their page: readable on any, also in the dark, in their column, and not to be hidden by styles", () => {
    const colors = fc.integer({ min: 0, max: 0xffffff }).map((value) => `#${value.toString(16).padStart(6, "0")}`);
    fc.assert(
      fc.property(colors, (backgroundColor) => {
        const html = compile(content, "", { backgroundColor, font: "serif" });
        const { html: shown } = showMessage({ subject: "", html }, PERSON);
        const [, style = "", inner] =
          /<div class="page footer" style="([^"]*)">.*?<div style="([^"]*)">You /.exec(shown) ?? [];
        const [page, text, ...others] = style.split(";");
        assert.equal(page, `background-color:${backgroundColor}`);
        assert.ok(contrast(String(text).slice("color:".length), backgroundColor) >= 4.5, text);
        assert.match(others.join(), /^font:12px\/18px Georgia.*display:block/);
        for (const one of [...others, ...String(inner).split(";")]) assert.match(one, /!important$/);
        assert.match(String(inner), /max-width:552px!important;.*padding:24px!important$/);
      }),
      { numRuns: 20 },
    );
    for (const [backgroundColor, isOfCard] of [
      ["#FFFFFF", true],
      ["#f4f4f2", false],
    ] as const) {
      const [, page = "", card = "", text = ""] =
        /\.page\{background-color:(#\w{6}).*?\.card\{background-color:(#\w{6}).*?\.footer\{color:(#\w{6})/s.exec(
          compile(content, "", { backgroundColor }),
        ) ?? [];
      assert.ok(contrast(page, text) >= 4.5);
      assert.equal(page === card, isOfCard, "in the dark as in the light");
    }
  });

  it("keep its accent for buttons, with the text that can be read, and for links where that can be read", () => {
    const blue = compile(content);
    assert.equal(light(blue), "#0b57d0");
    assert.match(blue, /background-color:#0b57d0[^>]*><a [^>]*;color:#ffffff;/);
    const yellow = compile(content, "", { accentColor: "#ffeb3b" });
    assert.equal(dark(yellow), "#ffeb3b");
    assert.match(yellow, /background-color:#ffeb3b[^>]*><a [^>]*;color:#1f2328;/);
    const color = fc.integer({ min: 0, max: 0xffffff }).map((value) => `#${value.toString(16).padStart(6, "0")}`);
    fc.assert(
      fc.property(color, (accentColor) => {
        const html = compile(content, "", { accentColor });
        assert.ok(contrast(light(html), "#ffffff") >= 4.5 && contrast(dark(html), "#22252b") >= 4.5);
        assert.ok(contrast(textOn(accentColor), accentColor) >= 4.5);
      }),
    );
  });
});
