import { compileBlocks } from "../domain/mail/blocks/compile.ts";
import { blockDocument } from "../domain/mail/blocks/schema.ts";
import { BRAND } from "../test/support/blocks.ts";
import { type BenchReport, median, type Row, round } from "./report.ts";

const words = (text: string, href?: string) => ({
  type: "text",
  text,
  ...(href !== undefined && { marks: [{ type: "link", attrs: { href } }] }),
});
const paragraph = (...content: object[]) => ({ type: "paragraph", content });
const LOREM = "lorem ipsum dolor ".repeat(30);

/** A picture, a heading, a text, a button and two columns. */
const section = (i: number) => [
  { type: "image", attrs: { src: `https://example.com/${i}.png`, alt: "A picture" } },
  { type: "heading", attrs: { level: 2 }, content: [words(`Title ${i}`)] },
  paragraph(words("Some text with "), words("a link", `https://example.com/${i}`), words(LOREM)),
  { type: "button", attrs: { label: "Read", href: "https://example.com" } },
  {
    type: "columns",
    content: ["left", "right"].map((text) => ({ type: "column", content: [paragraph(words(text))] })),
  },
];

const CONTENTS = {
  newsletter: Array.from({ length: 6 }, (_, i) => section(i)).flat(),
  "the longest text": Array.from({ length: 2_499 }, (_, i) => paragraph(words(`${i} ${"lorem ".repeat(20)}`))),
};

/** Measures the check and the compiler of documents of blocks, in this process. */
export function benchBlocks({ repeat }: { repeat: number }): BenchReport {
  const rows = Object.entries(CONTENTS).map(([name, content]): Row => {
    const source = { type: "doc", content };
    const times = Array.from({ length: repeat }, () => {
      const begin = performance.now();
      const blocks = blockDocument.parse(source);
      const checked = performance.now();
      const html = compileBlocks({ blocks, preheader: "In short", brand: BRAND });
      return { check: checked - begin, compile: performance.now() - checked, bytes: Buffer.byteLength(html) };
    });
    return {
      document: name,
      "JSON, KB": round(Buffer.byteLength(JSON.stringify(source)) / 1_000),
      "HTML, KB": round((times[0]?.bytes ?? 0) / 1_000),
      "check, ms": round(median(times.map(({ check }) => check)), 1),
      "compile, ms": round(median(times.map(({ compile }) => compile)), 1),
      "longest, ms": round(Math.max(...times.map(({ compile }) => compile)), 1),
    };
  });
  return { bench: "blocks", options: { repeat }, tables: { "Documents of blocks": rows }, problems: [] };
}
