import assert from "node:assert/strict";
import { compileBlocks } from "../../domain/mail/blocks/compile.ts";
import { cutInboxText, excerptOf, inboxText, MAX_READ } from "../../domain/mail/inbox-text.ts";

const BRAND = { language: "en", accentColor: "#0b57d0", backgroundColor: "#ffffff", font: "sans" } as const;
const compile = (preheader: string | null) => {
  const content = [{ type: "paragraph" as const, content: [{ type: "text" as const, text: "The text" }] }];
  return compileBlocks({ blocks: { type: "doc", content }, preheader, brand: BRAND });
};

describe("What an inbox shows after the subject", () => {
  it("is the preheader alone, with its tags, or the beginning of the text", () => {
    assert.equal(
      inboxText(compile('For {{ first_name | default: "you" }} & 3 > 2')),
      'For {{ first_name | default: "you" }} & 3 > 2',
    );
    assert.equal(inboxText(compile(null)), "The text");
  });

  it("joins blocks by a space, and parts of a word by none", () => {
    const html =
      "<title>T</title><style>p{}</style><!-- c --><h1>News</h1><p>Of <b>Ber</b>lin</p><script>x</script><p>One<br>two";
    assert.equal(inboxText(html), "News Of Berlin One two");
    assert.equal(inboxText("<p>A family 👨‍👩‍👧 of emojis</p>"), "A family 👨‍👩‍👧 of emojis");
  });

  it("ends at a block, with whole tags, and is cut to what is shown once they are filled", () => {
    const tag = '{{ first_name | default: "x" }} ';
    const text = inboxText(`<p>${tag.repeat(9)}</p><p>Not read</p>`);
    assert.equal(text, tag.repeat(9).trim());
    assert.equal(cutInboxText("é".repeat(150)), "é".repeat(150));
    assert.equal(cutInboxText(`${"😀".repeat(149)} more`), `${"😀".repeat(149)}…`);
  });

  it("reads no more than the beginning of the HTML", () => {
    assert.equal(inboxText(`<style>${"x".repeat(MAX_READ)}</style><p>Text</p>`), "");
  });
});

describe("The excerpt of a mail below its title", () => {
  it("is its preheader, or begins after headings and a paragraph that only greets, and ends at the next heading", () => {
    const rest = "<h2>Skating <em>opens</em></h2><p>On Saturday</p>";
    for (const greeting of [
      ...["Hello there,", "Hi {{ first_name | default: 'you, dear' }}!", "Dear readers", "Hey 👋", "Chère Zoé,"],
      ...["Liebe Ada, ", "Hallo {{ first_name }},", "Sehr geehrte Frau Lovelace,", "Bonjour {{ name }} !", "¡Hola!"],
      ...["Estimada Ada:", "{% if first_name %}Dear {{ first_name }}{% else %}Hello{% endif %},"],
    ]) {
      const html = `<h1>The <br>winter letter</h1><p>${greeting}</p><p>Forty people swim.</p><p>We asked why.</p>${rest}`;
      assert.equal(excerptOf(html), "Forty people swim. We asked why.", greeting);
      assert.ok(inboxText(html).startsWith("The winter letter"));
    }
    for (const text of ["Hello Ada, this is the news.", "Hi-fi for all", "Hello Kitty opens in Berlin.", "Hiking"])
      assert.equal(excerptOf(`<h1>News</h1><p>${text}</p>${rest}`), text);
    assert.equal(excerptOf(compile("Hello {{ first_name }}: the news")), "Hello {{ first_name }}: the news");
    assert.equal(excerptOf(`<h1>News</h1>${rest}`), "On Saturday");
    const greetings = "{% if first_name %}<p>Hi {{ first_name }},</p>{% else %}<p>Hi,</p>{% endif %}";
    assert.match(excerptOf(`${greetings}${rest}`), /^\{% if first_name %\} \{% else %\} \{% endif %\} On Saturday$/);
    assert.equal(excerptOf("<h1>News</h1><p>Hello,</p>"), "");
  });
});
