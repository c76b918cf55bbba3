import assert from "node:assert/strict";
import { caniemail } from "caniemail";
import { compileBlocks } from "../../domain/mail/blocks/compile.ts";
import { blockDocument } from "../../domain/mail/blocks/schema.ts";
import { OWN_TEMPLATES } from "../../domain/mail/templates/own.ts";
import { BRAND, button, columns, document, linkTo, list, type Node, paragraph, tag, words } from "../support/blocks.ts";

/** Features that some programs do not support, and why no reader of a mail misses each. */
const ACCEPTED: Readonly<Record<string, string>> = {
  "color-scheme CSS property": "every text states its colour, and every area its background",
  "color-scheme meta tag": "as the property",
  "<style> element": "it holds the dark mode and the columns of phones alone",
  "@media": "columns stay beside each other, or a program has colours of its own for the dark",
  "<body> element": "the table inside it has the same background",
  "border-radius": "a button or an image has corners",
  "display:none": "the preheader is hidden in several ways",
  "max-height property": "as display:none",
  overflow: "as display:none",
  opacity: "as display:none",
  "role attribute": "a table is read as one",
};

const STYLES = ["bold", "italic", "underline", "strike", "code"].map((type) => ({ type }));
const ALIGNMENTS = [null, "left", "center", "right"];
const aligned = (node: Node, name: string, align: string | null): Node => ({
  ...node,
  attrs: { ...node.attrs, [name]: align },
});
const image = (width: number | null, href: string | null): Node => ({
  type: "image",
  attrs: { src: "https://example.com/a.png", alt: "A cat", width, href },
});
const heading = (level: number): Node => ({ type: "heading", attrs: { level }, content: [words("Heading")] });
const quote: Node = {
  type: "blockquote",
  content: [paragraph("Said"), list([paragraph("and"), list([paragraph("done")])])],
};
const social: Node = {
  type: "socialLinks",
  attrs: { links: ["x", "website"].map((network) => ({ network, href: `https://${network}.example/` })) },
};
const others: Node[] = [{ type: "divider" }, { type: "spacer", attrs: { height: 40 } }, quote, social];

const OUTLINE: Node = { type: "button", attrs: { label: "Read", href: "tel:1", look: "outline", align: "full" } };

const BLOCKS: Node[] = [
  OUTLINE,
  ...[1, 2, 3].map(heading),
  ...ALIGNMENTS.map((align) =>
    aligned(paragraph("Text ", words("link", linkTo("https://example.com"))), "textAlign", align),
  ),
  paragraph(words("styles", ...STYLES), { type: "hardBreak" }, tag("first_name", "you")),
  list([paragraph("one"), { ...list([paragraph("inner")]), type: "orderedList" }], [paragraph("two")]),
  ...ALIGNMENTS.map((align) => aligned(image(200, null), "align", align)),
  ...[null, 2_000].map((width) => image(width, "https://example.com")),
  ...ALIGNMENTS.map((align) => aligned(button("Read", "https://example.com"), "align", align)),
  button("Later", ""),
  ...others,
];
const SAMPLES: Node[][] = [
  ...BLOCKS.map((block) => [block]),
  columns([heading(1), image(null, null)], [paragraph("Right"), ...others]),
  { ...columns([image(null, null)], [paragraph("2"), button("Read", "tel:1")]), attrs: { widths: "1:2" } },
  { ...columns([paragraph(words("On it", linkTo("tel:1"))), ...others, OUTLINE]), attrs: { background: "#0b3d91" } },
  columns([paragraph("1")], [button("2", "tel:1")], [list([paragraph("3")])]),
  ...others.map((block) => columns([block], [image(null, null)])),
  BLOCKS,
  [],
].map((content) => [content].flat());

const DOCUMENTS = [
  ...SAMPLES.map((content) => blockDocument.parse(document(...content))),
  ...[...OWN_TEMPLATES.values()].map(({ blocks }) => blocks),
];

describe("Compiled blocks", () => {
  it(`use nothing that Gmail, Outlook and Apple Mail lack, but what no reader misses, in ${DOCUMENTS.length} samples`, () => {
    assert.ok(DOCUMENTS.length >= 30);
    const lacking = new Map<string, Set<string>>();
    for (const blocks of DOCUMENTS) {
      const html = compileBlocks({ blocks, preheader: "In short", brand: { ...BRAND, backgroundColor: "#f4f4f2" } });
      const { issues } = caniemail({ clients: ["gmail.*", "outlook.*", "apple-mail.*"], html });
      for (const [client, found] of issues.errors) {
        for (const { title } of found) lacking.set(title, (lacking.get(title) ?? new Set()).add(client));
      }
    }
    const unknown = [...lacking].filter(([title]) => !Object.hasOwn(ACCEPTED, title));
    assert.deepEqual(
      unknown.map(([title, clients]) => `${title}: ${[...clients].join(", ")}`),
      [],
    );
    assert.deepEqual(
      Object.keys(ACCEPTED).filter((title) => !lacking.has(title)),
      [],
    );
  });
});
