import { flatten, MARKER } from "./flat-template.ts";
import type { SourcePart } from "./liquid-source.ts";

/** Names of properties and attributes, or parts of them, that move what follows their element down or up. */
const LAYOUT =
  /(?:line-height|margin|padding|inset|top|bottom|left|right|height|width|size|font|border|spac|gap|basis|flex|grid|rows|zoom|scale|translate|aspect|columns)[\w-]{0,30} ?(?:([:=])|\\|\/\*|&colon)/gi;
/** Names whose lengths move nothing that follows, unless they are very large. */
const SIDEWAYS = /^(?:(?:margin|padding|border)-(?:left|right)|left|right|width) ?[:=]$/i;
/** Longest value that is read, in characters. A longer one is uncertain. */
const MAX_VALUE_CHARS = 300;
const VALUE = new RegExp(`[^;{}<>"')]{0,${MAX_VALUE_CHARS}}`, "y");

/** The name of a property may be written with escapes; that of a class may be so, too. */
const ESCAPED_NAME = /(?<![.#\w\\:-])[\w-]{0,30}\\[\w\\ -]{0,60}:/;
/** The name of a property that a condition is part of. */
const DIVIDED_NAME = new RegExp(`[a-z-]${MARKER}+(?:[\\w-]{0,30}${MARKER}+)?[\\w-]{0,30} ?:`, "i");

/** Pixels from which a length may end beyond what a browser scrolls to. */
const MAX_LENGTH_PX = 5_000;
/** Pixels that a unit has at most, on large screens and with large letters. Of any other unit it is a guess, and generous. */
const UNIT_PX: Record<string, number> = {
  "": 1,
  px: 1,
  pt: 1.34,
  pc: 16,
  in: 96,
  cm: 38,
  mm: 4,
  q: 1,
  "%": 20,
  em: 40,
};
const OTHER_UNIT_PX = 40;

/**
 * Whether an element of a body may move its end far from what is before it: by a length that is negative, very large, or
 * not known. It reads text, not elements, so it may take a sentence for a style.
 * @param parts of the source, as `splitTemplate` returns them
 * @throws {TemplateError} `hidden_link` for a condition that opens or closes an element
 */
export function mayMoveEnd(source: string, parts: readonly SourcePart[]): boolean {
  const marked = flatten(source, parts);
  if (DIVIDED_NAME.test(marked)) return true;
  const html = marked.replaceAll(MARKER, "");
  return movesEnd(html) || (html.includes("&#") && movesEnd(decodeNumbers(html)));
}

/** A text with the characters that its numeric references stand for. */
export const decodeNumbers = (html: string): string =>
  html.replace(/&#(?:x([0-9a-f]{1,8})|(\d{1,8}));?/gi, (_, hex?: string, decimal?: string) =>
    String.fromCodePoint(Math.min(hex ? Number.parseInt(hex, 16) : Number(decimal), 0x10ffff)),
  );

function movesEnd(html: string): boolean {
  const text = html
    .replace(/\s+/g, " ")
    // Colors hold numbers, too.
    .replace(/#[0-9a-f]{3,8}(?![\w-])|(?:rgb|hsl)a?\([^()]{0,60}\)/gi, "color");
  if (ESCAPED_NAME.test(text)) return true;
  for (const { 0: name, 1: sign, index } of text.matchAll(LAYOUT)) {
    if (sign === undefined) return true;
    VALUE.lastIndex =
      index + name.length + (/^ ?["']/.exec(text.slice(index + name.length, index + name.length + 2))?.[0].length ?? 0);
    if (isFar(name, VALUE.exec(text)?.[0].toLowerCase() ?? "")) return true;
  }
  return false;
}

function isFar(name: string, value: string): boolean {
  if (value.length >= MAX_VALUE_CHARS) return true;
  const isSideways = SIDEWAYS.test(name);
  if (isSideways && /^ ?calc\([\d\s.+*/a-z%-]{0,60}$/.test(value)) return false;
  // Other functions, escapes, comments and entities are not read.
  if (/[(&]|\\(?!9 ?(?:!|$))|\/\*|\de[+-]?\d/.test(value)) return true;
  if (!isSideways && /(?:^|[ ,:])-(?!webkit-|moz-|ms-|o-|apple-)/.test(value)) return true;
  for (const [, size, unit = ""] of value.matchAll(/(\d+(?:\.\d+)?|\.\d+)([a-z%]{0,10})/g)) {
    const px = unit === "" && /^line-/i.test(name) ? OTHER_UNIT_PX : (UNIT_PX[unit] ?? OTHER_UNIT_PX);
    if (Number(size) * px > MAX_LENGTH_PX) return true;
  }
  return false;
}
