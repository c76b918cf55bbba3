import { Parser } from "htmlparser2";
import { isHarmless, mayMatch, type SheetRules, sheetRules } from "./certain-style.ts";
import { withinLimits } from "./html-limits.ts";
import type { SourcePart } from "./liquid-source.ts";
import { ANY_MARKER, MARKERS, withoutMarkers } from "./marker.ts";

/** Stands for the URL in a skeleton. */
const LINK = "https://link.invalid/u";
/** Stands for text that differs between recipients: without markup, with closed elements, or with anything. */
const [TEXT, ELEMENTS, ANYTHING] = MARKERS;
/** Text that is the name of an element, or the beginning of another markup. */
const NAME_MARKERS = new RegExp(`(<[/!?]?)[${TEXT}${ELEMENTS}]`, "g");
const KNOWN_MARKERS = new RegExp(`[${TEXT}${ELEMENTS}]`, "g");

/** Elements whose content is shown wherever they are read; any other kind is uncertain. */
const SHOWING_ELEMENTS = new Set(
  `html body div p span a b i u em strong small big font center table tbody thead tfoot tr td th ul ol li dl dt dd h1 h2 h3
  h4 h5 h6 blockquote img br section article header footer main nav address sup sub s del ins code pre`.split(/\s+/),
);

/** Attributes that hide no element; with `style`, `class` and `id` it depends on the value. */
const HARMLESS_ATTRIBUTE =
  /^(?:style|class|id|href|target|rel|title|alt|src|width|height|align|valign|bgcolor|border|cellpadding|cellspacing|role|lang|dir|colspan|rowspan|face|xmlns(?::[a-z]+)?|aria-label|data-[a-z-]+)$/;

const RAW_TEXT = new Set(["style", "script", "title", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"]);
const CONDITIONS = new Set(["if", "unless", "case"]);
const BRANCHES = new Set(["else", "elsif", "when"]);
const SILENT = new Set(["assign", "#", "raw", "endraw"]);
const SILENT_BLOCKS = new Set(["comment", "capture"]);

/**
 * Whether a body certainly shows the unsubscribe link to every recipient, on every screen. What this does not know to be
 * harmless counts as hiding, so a `false` says nothing about the author's intention. Takes time in proportion to the body.
 * @param parts of the source, as `splitTemplate` returns them
 */
export function certainlyShowsLink(source: string, parts: readonly SourcePart[]): boolean {
  return showsUrl(source, parts, LINK, true);
}

/**
 * Whether nothing around a footer hides it, for any recipient. Style sheets are left to its own style, which overrules
 * them. The style of the html and body elements does not count: it would hide the whole mail.
 * @param source with a footer that leads to `url` instead of the unsubscribe link
 */
export function certainlyShowsFooter(source: string, parts: readonly SourcePart[], url: string): boolean {
  return showsUrl(source, parts, url, false);
}

function showsUrl(source: string, parts: readonly SourcePart[], url: string, withSheets: boolean): boolean {
  // Browsers leave elements open at these ends; without them, this reader does too.
  const html = skeletonOf(source, parts).replace(/<\/(?:body|html)\s*>/gi, " ");
  const rules = withSheets ? sheetRules(read(html, url, undefined, withSheets).sheets) : new Set<string>();
  return rules !== undefined && read(html, url, rules, withSheets).isShown;
}

/** The source with a marker for whatever differs between recipients. */
function skeletonOf(source: string, parts: readonly SourcePart[]): string {
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
        const rest = withoutMarkers(trimsNext ? text.trimStart() : text);
        const next = parts[i + 1];
        write(next && next.kind !== "text" && source[next.begin + 2] === "-" ? rest.trimEnd() : rest);
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
        write(markerOf([...(open.pop() ?? []), ...rest]));
      } else if (kind === "output") write(/^\{\{\s*unsubscribe_url\s*\}\}$/.test(text) ? LINK : TEXT);
      else if (!SILENT.has(name)) write(ANYTHING);
    }
    trimsNext = text.at(-3) === "-";
  }
  // After such a beginning, text is the name of an element.
  return (open[0]?.[0] ?? "").replace(NAME_MARKERS, `$1${ANYTHING}`);
}

function markerOf(branches: readonly string[]): string {
  if (branches.some((text) => text.includes(ANYTHING))) return ANYTHING;
  // Each branch may end the same attributes.
  const ends = branches.map(attributeEnds);
  const shared = Math.min(...ends.map(({ length }) => length));
  const rests = branches.map((text, i) => text.slice(ends[i]?.[shared - 1] ?? 0));
  return `${TEXT}">`.repeat(shared) + markerOfRests(rests);
}

/** Ends of the attributes with double quotes that a text ends one after the other, each with its element's tag. */
function attributeEnds(text: string): number[] {
  const ends: number[] = [];
  const next = /[^<>"']*">/y;
  while (next.test(text)) ends.push(next.lastIndex);
  return ends;
}

function markerOfRests(branches: readonly string[]): string {
  if (branches.every((text) => !/[<>"']/.test(text) && !text.includes(ELEMENTS))) return TEXT;
  return branches.every(isClosed) ? ELEMENTS : ANYTHING;
}

/** Whether a text with markup opens nothing that it does not close, and closes nothing else. */
function isClosed(text: string): boolean {
  if (/<[/!?]?$|<!|<\?|<\/?(?:style|body|html|base|link)\b/i.test(text)) return false;
  let depth = 0;
  let closes = 0;
  let isOrderly = true;
  let depthAtEnd = -1;
  const handler = withinLimits({
    onopentag(name) {
      if (name === "x-end") depthAtEnd = depth;
      else if (!SHOWING_ELEMENTS.has(name)) isOrderly = false;
      depth++;
    },
    onclosetag(name, isImplied) {
      depth--;
      if (depthAtEnd >= 0) return;
      if (isImplied && name !== "img" && name !== "br") isOrderly = false;
      if (!isImplied) closes++;
    },
  });
  new Parser(handler).end(`${text}<x-end>`);
  return isOrderly && depthAtEnd === 0 && closes === (text.match(/<\//g) ?? []).length;
}

interface Around {
  isCertain: boolean;
  isLink: boolean;
}

/** They hold the whole mail. */
const ROOTS = new Set(["html", "body"]);

/**
 * Reads a skeleton.
 * @param rules of its sheets; without them nothing is certain
 * @param withRoots whether the html and body elements may hide the link
 */
function read(
  html: string,
  url: string,
  rules: SheetRules | undefined,
  withRoots: boolean,
): { isShown: boolean; sheets: string } {
  const positions = [...html.matchAll(ANY_MARKER)].map(({ index }) => index);
  let passed = 0;
  let known = 0;
  let isShown = false;
  let isOrderly = rules !== undefined;
  let sheets = "";
  let quoted = 0;
  let raw: string | undefined;
  const open: Around[] = [];
  let current: Around = { isCertain: true, isLink: false };
  /** Whether all markers so far stand where they cannot change what follows. */
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
      const isCertain = isOrderly && isUnchanged(parser.startIndex);
      known += quoted;
      quoted = 0;
      open.push(current);
      current = {
        isCertain:
          current.isCertain &&
          isCertain &&
          rules !== undefined &&
          ((!withRoots && ROOTS.has(name)) || isShowing(name, attributes, rules)),
        isLink: current.isLink || (name === "a" && attributes["href"] === url),
      };
      if (RAW_TEXT.has(name)) raw = name;
      if (name === "link" || name === "base") sheets += "@import";
      const isImage = name === "img" && Boolean(attributes["src"]) && !/^\s*[01]\b/.test(attributes["width"] ?? "9");
      if (isImage && !/^\s*[01]\b/.test(attributes["height"] ?? "9")) isShown ||= current.isLink && current.isCertain;
    },
    ontext(text) {
      if (raw === "style") sheets += text;
      const isText = /[\p{L}\p{N}]/u.test(text);
      if (current.isLink && current.isCertain && isOrderly && isText && isUnchanged(parser.startIndex)) isShown = true;
      if (raw === undefined) known += (text.match(KNOWN_MARKERS) ?? []).length;
      else known += text.split(TEXT).length - 1;
    },
    onclosetag(name, isImplied) {
      // Browsers open some elements again that another's end closed.
      if (isImplied && !current.isCertain && !/^(?:img|br|meta|link|input|hr|col)$/.test(name)) isOrderly = false;
      if (name === raw) raw = undefined;
      current = open.pop() ?? current;
    },
  });
  const parser = new Parser(handler);
  parser.end(html);
  return { isShown, sheets };
}

function isShowing(name: string, attributes: Record<string, string>, rules: SheetRules): boolean {
  if (!SHOWING_ELEMENTS.has(name)) return false;
  if (!Object.keys(attributes).every((attribute) => HARMLESS_ATTRIBUTE.test(attribute))) return false;
  return isHarmless(attributes["style"] ?? "") && !mayMatch(rules, name, attributes);
}
