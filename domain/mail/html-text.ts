import { compile, type DomNode, type FormatCallback } from "html-to-text";
import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import { MAX_CHARS } from "./liquid-engine.ts";
import { limits } from "./template-problem.ts";

/** The converter fails above the first. */
const MAX_ROMAN = 3_999;
const MAX_START = 1_000_000_000;

const shownItems = (list: DomNode): DomNode[] => list.children.filter((item: DomNode) => !isHidden(item));

const unorderedList: FormatCallback = (list, walk, builder, options) => {
  list.children = shownItems(list);
  formatterOf(builder, "unorderedList")(list, walk, builder, options);
};

const orderedList: FormatCallback = (list, walk, builder, options) => {
  list.children = shownItems(list);
  const first = Number(list.attribs.start ?? 1);
  if (!(Math.abs(first) <= MAX_START)) delete list.attribs.start;
  if (/^i$/i.test(list.attribs.type ?? "") && !(first + list.children.length <= MAX_ROMAN)) delete list.attribs.type;
  formatterOf(builder, "orderedList")(list, walk, builder, options);
};

/** Its types leave `options` out. */
const formatterOf = (builder: Parameters<FormatCallback>[2], name: LibraryFormat): FormatCallback =>
  (builder as unknown as { options: { formatters: Record<LibraryFormat, FormatCallback> } }).options.formatters[name];
type LibraryFormat = "unorderedList" | "orderedList" | "anchor";

/** Without the subject and the body that a mail program would fill in. */
const link: FormatCallback = (anchor, walk, builder, options) => {
  const { href } = anchor.attribs;
  const [, address] = /^\s*mailto:([^?]*)/i.exec(href ?? "") ?? [];
  if (address !== undefined) anchor.attribs.href = address;
  formatterOf(builder, "anchor")(anchor, walk, builder, options);
};

/** A link of images is a link of words. */
const image: FormatCallback = ({ attribs }, _walk, builder) => builder.addInline(` ${attribs.alt ?? ""} `);

const cell: FormatCallback = ({ children }, walk, builder) => {
  builder.addInline(" ");
  walk(children, builder);
};

/** Formatted again as one without a style, unless it is hidden. */
const styled: FormatCallback = (element, walk, builder) => {
  if (isHidden(element)) return;
  delete element.attribs.style;
  walk([element], builder);
};

const isHidden = ({ attribs = {} }: DomNode): boolean => "hidden" in attribs || hides(attribs.style ?? "");

/** As a preview text at the top of a mail is hidden. A merge tag or a condition ends a declaration. */
function hides(style: string): boolean {
  const declarations = style
    .toLowerCase()
    .replace(/!\s*important|\s/g, "")
    .split(/;|[\u0080-\u009f]/);
  const css = new Map(declarations.map((each) => each.split(":", 2) as [string, string]));
  const is = (name: string, ...values: string[]) => values.includes(css.get(name) ?? "");
  const isZero = (name: string) => Number.parseFloat(css.get(name) ?? "") === 0;
  return (
    is("display", "none") ||
    is("visibility", "hidden") ||
    isZero("opacity") ||
    (isZero("max-height") && is("overflow", "hidden")) ||
    (is("font-size", "0", "0px", "1px") && is("mso-hide", "all"))
  );
}

/** Never shown: see the section "Rendering" of HTML. */
const UNSEEN = ["datalist", "head", "noembed", "noframes", "template", "title"];
/** Blocks that the converter takes for words of a line. */
const BLOCKS =
  "address caption center dd details dialog dl dt fieldset figcaption figure hgroup legend menu summary tr".split(" ");

const convert = compile({
  wordwrap: false, // the transfer encoding wraps lines
  formatters: { shownList: unorderedList, boundedList: orderedList, addressedLink: link, image, cell, styled },
  selectors: [
    {
      selector: "a",
      format: "addressedLink",
      options: { hideLinkHrefIfSameAsText: true, noAnchorUrl: true },
    },
    { selector: "ul", format: "shownList" },
    { selector: "ol", format: "boundedList" },
    ...["h1", "h2", "h3", "h4", "h5", "h6"].map((selector) => ({ selector, options: { uppercase: false } })),
    ...["td", "th"].map((selector) => ({ selector, format: "cell" })),
    ...BLOCKS.map((selector) => ({
      selector,
      format: "block",
      options: { leadingLineBreaks: 1, trailingLineBreaks: 1 },
    })),
    ...["[style]", "[hidden]"].map((selector) => ({ selector, format: "styled" })),
    ...UNSEEN.map((selector) => ({ selector, format: "skip" })),
  ],
});

/** Elements whose text the converter copies once more. */
const COPYING_ELEMENTS = new Set(["ul", "ol", "blockquote", "a"]);
/** Most characters that it copies: a body of 1 MiB may stand in three of these elements as a whole. */
const MAX_COPIED_CHARS = 4_000_000;

/**
 * Reads a document once before its conversion.
 * @param note takes each text with place 0, and each value of an attribute and each comment with a place of its own
 * @throws {TemplateError} `limits` for one whose conversion could fill the memory
 */
function assertConvertible(html: string, note: (text: string, place: number) => void): void {
  let places = 0;
  let copied = 0;
  let depth = 0;
  const copy = (text: string) => {
    copied += depth * text.length;
    if (copied > MAX_COPIED_CHARS) throw limits("its lists, quotations and links hold too much text inside each other");
  };
  const handler = withinLimits({
    onattribute: (_, value) => note(value, ++places),
    oncomment: (text) => note(text, ++places),
    onopentag(name, { alt = "", href = "" }) {
      if (COPYING_ELEMENTS.has(name)) depth++;
      copy(alt + href);
    },
    ontext(text) {
      note(text, 0);
      copy(text);
    },
    onclosetag(name) {
      if (COPYING_ELEMENTS.has(name)) depth--;
    },
  });
  new Parser(handler).end(html);
}

/** Of a layout's empty cells, and of the invisible characters that follow a preview text. */
const withoutBlankLines = (text: string): string =>
  text
    .split("\n")
    .map((line) => (/[^\s\p{Cf}\p{Mn}]/u.test(line) ? line : ""))
    .join("\n")
    .replace(/\n{3,}/g, "\n\n")
    .replace(/^\n+|\n+$/g, "");

/**
 * What a reader of an HTML document sees, as plain text.
 * @param note see `assertConvertible` @throws {TemplateError} `limits`
 */
export function htmlToText(html: string, note: (text: string, place: number) => void): string {
  assertConvertible(html, note);
  const text = withoutBlankLines(convert(html));
  if (text.length > MAX_CHARS) throw limits(`its text has more than ${MAX_CHARS} characters`);
  return text;
}
