import { Parser } from "htmlparser2";
import { Flow, isNarrow } from "./certain-flow.ts";
import {
  contrast,
  DEFAULT_PAINT,
  isHarmless,
  mayMatch,
  type Paint,
  paintInside,
  type SheetRules,
  sheetRules,
} from "./certain-style.ts";
import { withinLimits } from "./html-limits.ts";
import { type SourcePart, trimmedEnd, trimmedStart } from "./liquid-source.ts";
import { ANY_MARKER, MARKERS, withoutMarkers } from "./marker.ts";
import { isReadableViewport } from "./viewport.ts";

/** Stands for the URL in a skeleton. */
const LINK = "https://link.invalid/u";
/** Stands for text that differs between recipients: without markup, with closed elements, or with anything. */
const [TEXT, ELEMENTS, ANYTHING] = MARKERS;
/** Text that is the name of an element, or the beginning of another markup. */
const NAME_MARKERS = new RegExp(`(<[/!?]?)[${TEXT}${ELEMENTS}]`, "g");
const KNOWN_MARKERS = new RegExp(`[${TEXT}${ELEMENTS}]`, "g");

/** Elements whose content is shown wherever they are read; any other kind is uncertain. */
const SHOWING_ELEMENTS = new Set(
  `html body div p span a b i u em strong center table tbody thead tfoot tr td th ul ol li dl dt dd h1 h2 h3 h4 h5 h6
  blockquote img br hr section article header footer main nav address`.split(/\s+/),
);
/** They close where their end says so, in every browser. */
const ORDERLY_ELEMENTS = new Set([...SHOWING_ELEMENTS, ..."small big font sup sub s del ins code pre".split(" ")]);
/** They show nothing, and hide nothing but by a style sheet, which is read. */
const HEAD_ELEMENTS = new Set(["head", "title", "meta", "style"]);
/** Browsers read the text after them in ways of their own. */
const PECULIAR_ELEMENTS = new Set(
  `svg math template select textarea frameset noframes noembed noscript iframe object applet marquee dialog xmp
  plaintext`.split(/\s+/),
);

/** The values of each attribute that hide nothing. Any other attribute is uncertain. */
const HARMLESS_ATTRIBUTES: readonly (readonly [RegExp, RegExp])[] = [
  // Read for their declarations, or for the rules that they match.
  [/^(?:style|class|id)$/, /^/],
  [/^(?:href|target|rel|title|alt|src|role|lang|xmlns(?::[a-z]+)?|data-[a-z-]+)$/, /^/],
  [/^dir$/, /^ltr$/i],
  [/^(?:width|height)$/, /^(?:100%|[1-9]\d?%|(?:[1-9]\d?|[1-5]\d{2}|600)(?:px)?)$/],
  [/^(?:border|cellpadding|cellspacing)$/, /^(?:1?\d|20)$/],
  // Cells of several rows and columns may cover each other.
  [/^(?:colspan|rowspan)$/, /^1$/],
  [/^align$/, /^(?:left|center)$/i],
  [/^valign$/, /^(?:top|middle|bottom|baseline)$/i],
  [/^bgcolor$/, /^#[0-9a-f]{6}$/i],
  [/^(?:charset|name|content|type|media)$/, /^/],
];

/** A link in an element that floats stands beside the elements that follow, and they may cover it. */
const FLOATING = new Set(["table", "img", "hr"]);
/** Of others, some turn colors around. */
const HARMLESS_META =
  /^(?:|viewport|format-detection|generator|author|description|keywords|robots|x-apple-disable-message-reformatting)$/i;

/** Contrast of text and background from which WCAG 2 calls a text readable (level AA). */
const MIN_CONTRAST = 4.5;
/** Most pixels on both sides of an element's content together: every screen shows it. */
const MAX_ASIDE_PX = 300;
/** Letters of scripts that every device has; the excluded ones show nothing. */
const READABLE_TEXT =
  /(?:(?!\p{Default_Ignorable_Code_Point})(?=\p{L})[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Thai}\p{Script=Devanagari}]){2}/u;

/** Elements in which there is no other element. */
export const RAW_TEXT = new Set([
  "style",
  "script",
  "title",
  "textarea",
  "xmp",
  "iframe",
  "noembed",
  "noframes",
  "plaintext",
]);
const CONDITIONS = new Set(["if", "unless", "case"]);
const BRANCHES = new Set(["else", "elsif", "when"]);
const SILENT = new Set(["assign", "#", "raw", "endraw"]);
const SILENT_BLOCKS = new Set(["comment", "capture"]);

/**
 * Whether a body certainly shows the unsubscribe link to every recipient, on every screen. What this does not know to be
 * harmless counts as hiding, wherever it stands: an element elsewhere may cover the link. So a `false` says nothing about
 * the author's intention. Takes time in proportion to the body.
 * @param parts of the source, as `splitTemplate` returns them
 */
export function certainlyShowsLink(source: string, parts: readonly SourcePart[]): boolean {
  const html = readable(source, parts, true);
  const rules = sheetRules(read(html, LINK, undefined).sheets);
  const { isShown, isPlain } = read(html, LINK, rules);
  return isShown && isPlain;
}

/**
 * Whether no element around a link hides it from any recipient, in Outlook or elsewhere. The html and body elements do not
 * count.
 * @param source with a link that leads to `url`, and nowhere else
 */
export function isInTheOpen(source: string, parts: readonly SourcePart[], url: string): boolean {
  const html = readable(source, parts, false);
  const { sheets } = read(html, url, undefined);
  if (!read(html, url, sheetRules(sheets)).isInTheOpen) return false;
  const revealed = withOutlookParts(html);
  return revealed === html || read(revealed, url, undefined, true).isInTheOpen;
}

/** Browsers leave elements open at the ends of body and html; without these ends, this reader does too. */
const readable = (source: string, parts: readonly SourcePart[], isStrict: boolean): string =>
  skeletonOf(source, parts, isStrict).replace(/<\/(?:body|html)\s*>/gi, " ");

/** Outlook reads the content of conditional comments. */
const withOutlookParts = (html: string): string =>
  html.replace(/<!--\[if[^\]<>]*\]>(?:\s*<!-->|-->)?|(?:<!--\s*)?<!\[endif\]-->|<!\[(?:if[^\]<>]*|endif)\]>/gi, "");

/** Text of a recipient's, or a short one of the author's */
const RECIPIENT_TAG =
  /^\{\{-?\s*(?:email|first_name|last_name|list_name)\s*(?:\|\s*(?:upcase|downcase|capitalize|strip|escape|default:\s*["'][\w ]{0,30}["'])\s*)*-?\}\}$/;

/** The source with a marker for each part that differs between recipients. */
function skeletonOf(source: string, parts: readonly SourcePart[], isStrict: boolean): string {
  // Of each condition that is open, the branches so far.
  const open: string[][] = [[""]];
  /** Depths of the conditions that have an `else`. */
  const complete = new Set<number>();
  /** The open blocks that print nothing. */
  const silent: string[] = [];
  let trimsNext = false;
  const write = (text: string) => {
    const branches = open.at(-1);
    branches?.push((branches.pop() ?? "") + text);
  };
  for (const [i, { begin, end, kind, name }] of parts.entries()) {
    const text = source.slice(begin, end);
    if (kind === "text") {
      if (silent.length === 0) {
        // A tag trims the text that it touches.
        const rest = withoutMarkers(trimsNext ? trimmedStart(text) : text);
        const next = parts[i + 1];
        write(next && next.kind !== "text" && source[next.begin + 2] === "-" ? trimmedEnd(rest) : rest);
      }
      trimsNext = false;
      continue;
    }
    // In a comment, only its end is a tag.
    if (SILENT_BLOCKS.has(name) && silent.at(-1) !== "comment") silent.push(name);
    else if (silent.length > 0 && name === `end${silent.at(-1)}`) silent.pop();
    else if (silent.length === 0) {
      if (CONDITIONS.has(name)) {
        open.push([""]);
        complete.delete(open.length);
      } else if (BRANCHES.has(name)) {
        open.at(-1)?.push("");
        if (name === "else") complete.add(open.length);
      } else if (/^end(?:if|unless|case)$/.test(name)) {
        // Without an `else`, nothing may be printed.
        const rest = complete.has(open.length) ? [] : [""];
        write(markerOf([...(open.pop() ?? []), ...rest], isStrict));
      } else if (/^\{\{\s*unsubscribe_url\s*\}\}$/.test(text)) write(LINK);
      else if (kind === "output") write(isStrict && !RECIPIENT_TAG.test(text) ? ANYTHING : TEXT);
      else if (!SILENT.has(name)) write(ANYTHING);
    }
    trimsNext = text.at(-3) === "-";
  }
  // After such a beginning, text is the name of an element.
  return (open[0]?.[0] ?? "").replace(NAME_MARKERS, `$1${ANYTHING}`);
}

function markerOf(branches: readonly string[], isStrict: boolean): string {
  if (branches.some((text) => text.includes(ANYTHING) || (isStrict && !isNarrow(text)))) return ANYTHING;
  // Each branch may end the same attributes.
  const ends = branches.map(attributeEnds);
  const shared = Math.min(...ends.map(({ length }) => length));
  const rests = branches.map((text, i) => text.slice(ends[i]?.[shared - 1] ?? 0));
  return `${TEXT}">`.repeat(shared) + markerOfRests(rests, isStrict);
}

/** Ends of the attributes with double quotes that a text ends one after the other, each with its element's tag. */
function attributeEnds(text: string): number[] {
  const ends: number[] = [];
  const next = /[^<>"']*">/y;
  while (next.test(text)) ends.push(next.lastIndex);
  return ends;
}

function markerOfRests(branches: readonly string[], isStrict: boolean): string {
  if (branches.every((text) => !/[<>"']/.test(text) && !text.includes(ELEMENTS))) return TEXT;
  return branches.every((text) => isClosed(text, isStrict)) ? ELEMENTS : ANYTHING;
}

/**
 * Whether a text with markup opens nothing that it does not close, and closes nothing else.
 * @param isStrict whether it may not hide anything either
 */
function isClosed(text: string, isStrict: boolean): boolean {
  if (/<[/!?]?$|<!|<\?|<\/?(?:style|body|html|base|link)\b/i.test(text)) return false;
  let depth = 0;
  let closes = 0;
  let isOrderly = true;
  let depthAtEnd = -1;
  const handler = withinLimits({
    onopentag(name, attributes) {
      if (name === "x-end") depthAtEnd = depth;
      else if (isStrict ? !isPlainElement(name, attributes) : !ORDERLY_ELEMENTS.has(name)) isOrderly = false;
      depth++;
    },
    onclosetag(name, isImplied) {
      depth--;
      if (depthAtEnd >= 0) return;
      if (isImplied && name !== "img" && name !== "br" && name !== "hr") isOrderly = false;
      if (!isImplied) closes++;
    },
  });
  new Parser(handler).end(`${text}<x-end>`);
  return isOrderly && depthAtEnd === 0 && closes === (text.match(/<\//g) ?? []).length;
}

interface Around {
  /** It and all elements around it show their text. */
  isCertain: boolean;
  /** All of them but the html and body elements do, and a browser moves nothing out of them, as it does from tables. */
  isOpen: boolean;
  isLink: boolean;
  /** Undefined when the colors, or the place, cannot be known. */
  paint: Paint | undefined;
}

/** They hold the whole mail. */
const ROOTS = new Set(["html", "body"]);
const NO_RULES: SheetRules = new Set();

interface Reading {
  /** The link has readable text of its own, and the elements around it show it. */
  isShown: boolean;
  /** The same, without regard to the html and body elements. */
  isInTheOpen: boolean;
  /** The whole document has nothing that may hide or cover anything. */
  isPlain: boolean;
  sheets: string;
}

/**
 * Reads a skeleton.
 * @param rules of its sheets; without them no element but html and body is certain
 * @param forOutlook the skeleton is of the source as Outlook reads it: it knows no peculiar elements
 */
function read(html: string, url: string, rules: SheetRules | undefined, forOutlook = false): Reading {
  const positions = [...html.matchAll(ANY_MARKER)].map(({ index }) => index);
  let passed = 0;
  let known = 0;
  let isOrderly = true;
  let quoted = 0;
  let raw: string | undefined;
  const reading = { isShown: false, isInTheOpen: false, isPlain: true, sheets: "" };
  const open: Around[] = [];
  const flow = new Flow();
  let current: Around = { isCertain: true, isOpen: true, isLink: false, paint: DEFAULT_PAINT };
  /** Whether all markers so far stand where they cannot change the reading of the text after them. */
  const isUnchanged = (until: number) => {
    while ((positions[passed] ?? Number.POSITIVE_INFINITY) < until) passed++;
    return passed === known;
  };
  const handler = withinLimits({
    onattribute(_name, value, quote) {
      // Text alone cannot end an attribute in quotes.
      if (quote) quoted += value.split(TEXT).length - 1;
    },
    onopentag(name, attributes) {
      if ((PECULIAR_ELEMENTS.has(name) && !forOutlook) || (name === "a" && current.isLink)) isOrderly = false;
      const isKnown = isOrderly && isUnchanged(parser.startIndex);
      known += quoted;
      quoted = 0;
      const isCertain = isKnown && rules !== undefined && isShowing(name, attributes, rules);
      if (!isCertain && !isHarmlessHead(name, attributes)) reading.isPlain = false;
      const isLink = name === "a" && attributes["href"] === url;
      open.push(current);
      flow.open(name, attributes, open.length);
      current = {
        isCertain: current.isCertain && isCertain,
        isOpen: current.isOpen && isKnown && (ROOTS.has(name) || isLink || (isCertain && !/^(?:a|table)$/.test(name))),
        isLink: current.isLink || isLink,
        paint: current.paint && paintInside(current.paint, name, attributes),
      };
      if ((current.paint?.asidePx ?? 0) > MAX_ASIDE_PX) reading.isPlain = false;
      if (RAW_TEXT.has(name)) raw = name;
      if (name === "link" || name === "base") reading.sheets += "@import";
    },
    ontext(text) {
      if (raw === "style") reading.sheets += text;
      else if (raw === undefined) flow.text(text);
      if (current.isLink && text.includes(ELEMENTS)) isOrderly = false;
      if (
        current.isLink &&
        isOrderly &&
        READABLE_TEXT.test(text.replace(ANY_MARKER, " ")) &&
        isUnchanged(parser.startIndex)
      ) {
        reading.isInTheOpen ||= current.isOpen;
        reading.isShown ||= current.isCertain && isReadable(current.paint);
      }
      if (raw === undefined) known += (text.match(KNOWN_MARKERS) ?? []).length;
      else known += text.split(TEXT).length - 1;
    },
    oncomment(text) {
      // Outlook reads such a comment, or browsers end it elsewhere.
      if (/^(?:\[|<!|-?>)|--!>|\[endif\]$/.test(text)) reading.isPlain = false;
      if (/^(?:-?>|\[CDATA)|--!>/.test(text)) isOrderly = false;
    },
    onprocessinginstruction(name) {
      if (name !== "!doctype") reading.isPlain = false;
    },
    onclosetag(name, isImplied) {
      const isUncertain = !current.isCertain || TABLE_PARTS.has(name);
      const isOutlook = forOutlook && name.includes(":");
      if (isImplied && isUncertain && !isOutlook && !endsAlike(name, html, parser.startIndex)) isOrderly = false;
      if (name === raw) raw = undefined;
      flow.close(name);
      current = open.pop() ?? current;
    },
  });
  const parser = new Parser(handler);
  parser.end(html);
  reading.isPlain &&= isOrderly && flow.isBounded && isUnchanged(html.length);
  return reading;
}

/** The ends, and beginnings, of other elements that end one without an end of its own in every browser. */
const ROWS_END = /^<(?:tbody|tfoot|\/table)\b/i;
const ENDED_BY: Record<string, RegExp> = {
  td: /^<(?:td|th|\/?(?:tr|tbody|thead|tfoot)|\/table)\b/i,
  th: /^<(?:td|th|\/?(?:tr|tbody|thead|tfoot)|\/table)\b/i,
  tr: /^<(?:tr|\/?(?:tbody|thead|tfoot)|\/table)\b/i,
  tbody: ROWS_END,
  thead: ROWS_END,
  tfoot: ROWS_END,
  li: /^<(?:li|\/[uo]l)\b/i,
  p: /^<(?:[a-z]|\/(?:div|center|td|th|li|ul|ol|section|article|header|footer|main|blockquote)\b)/i,
};

/** Browsers ignore the end of an element around a table while a part of the table is open. */
const TABLE_PARTS = new Set(["table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th"]);

/**
 * Whether all browsers end an element here that has no end of its own. They ignore other ends, and open some elements
 * again that another's end closed.
 */
function endsAlike(name: string, html: string, index: number): boolean {
  if (/^(?:img|br|meta|link|input|hr|col)$/.test(name)) return true;
  return ENDED_BY[name]?.test(html.slice(index, index + 20)) ?? false;
}

const isReadable = (paint: Paint | undefined): boolean =>
  paint !== undefined && contrast(paint.color, paint.background) >= MIN_CONTRAST;

const isPlainElement = (name: string, attributes: Record<string, string>): boolean =>
  isShowing(name, attributes, NO_RULES) && !("class" in attributes || "id" in attributes);

const hasHarmlessAttributes = (attributes: Record<string, string>): boolean =>
  Object.entries(attributes).every(([name, value]) =>
    HARMLESS_ATTRIBUTES.some(([names, values]) => names.test(name) && values.test(value)),
  );

function isShowing(name: string, attributes: Record<string, string>, rules: SheetRules): boolean {
  if (!SHOWING_ELEMENTS.has(name) || !hasHarmlessAttributes(attributes)) return false;
  if (FLOATING.has(name) && !/^(?:|center)$/i.test(attributes["align"] ?? "")) return false;
  return isHarmless(attributes["style"] ?? "", name) && !mayMatch(rules, name, attributes);
}

const isHarmlessHead = (name: string, { "http-equiv": equivalent, ...attributes }: Record<string, string>): boolean =>
  HEAD_ELEMENTS.has(name) &&
  HARMLESS_META.test(attributes["name"] ?? "") &&
  (!/^viewport$/i.test(attributes["name"] ?? "") || isReadableViewport(attributes["content"] ?? "")) &&
  /^(?:|content-type|x-ua-compatible)$/i.test(equivalent ?? "") &&
  attributes["style"] === undefined &&
  hasHarmlessAttributes(attributes);
