import { Parser } from "htmlparser2";
import { RAW_TEXT } from "./certain-link.ts";
import { plainCss } from "./css-text.ts";
import { flatten, MARKER } from "./flat-template.ts";
import { HARMLESS_ROOT, type HarmlessStyle, uncertainProperty } from "./harmless-style.ts";
import { withinLimits } from "./html-limits.ts";
import type { SourcePart } from "./liquid-source.ts";
import { decodeNumbers } from "./moved-end.ts";
import { demandsOn, FOOTER, type Root, toRoot } from "./selector-reach.ts";
import { refuseReach } from "./template-problem.ts";
import { isReadableViewport } from "./viewport.ts";

/** Most characters of all style sheets together, those in comments included. */
const MAX_SHEET_CHARS = 200_000;
/** Longest opening tag of html, body, style or link, in characters. */
const MAX_TAG_CHARS = 5_000;
/** Most elements html, body, style, link and meta. Real newsletters have up to twenty. */
const MAX_TAGS = 100;
/** Most elements html and body. Newsletters with others for Outlook have up to five. */
const MAX_ROOTS = 10;
/** Most blocks of a style sheet inside each other. */
const MAX_BLOCKS = 20;

/** What a meta element may stand for; others lead to another page, or keep the footer's style from being read. */
const HARMLESS_META =
  /^(?:content-(?:type|language|style-type|script-type)|x-ua-compatible|imagetoolbar|cleartype|msthemecompatible|x-dns-prefetch-control|pragma|expires|cache-control)$/i;

/** Style sheets of these hosts hold fonts only. */
const FONT_SHEET = /^(?:https?:)?\/\/(?:fonts\.googleapis\.com|fonts\.bunny\.net|use\.typekit\.net)\//i;

/** Attributes of html and body that leave the footer in sight. */
const HARMLESS_ATTRIBUTE =
  /^(?:style|class|id|lang|dir|xmlns|[a-z]+:[\w-]+|bgcolor|background|text|[av]?link|width|align|role|title|itemscope|itemtype|prefix|profile|version|override|offset|yahoo|aria-(?!hidden)[\w-]+|data-[\w-]+)$/;
const MARGIN_ATTRIBUTE = /^(?:(?:top|right|bottom|left)margin|(?:margin|padding)(?:width|height))$/;

/**
 * Refuses a body whose html or body element, or whose style sheets, may hide, move or cover a footer that is its first or
 * last element. It finds them by their text alone, also in comments: what one program ignores, another reads.
 * @param parts of the source, as `splitTemplate` returns them
 * @param isFirst the footer stands before all else, so that the rest may be painted above it
 * @throws {TemplateError} `hidden_link`, which names what to change
 */
export function assertOutOfReach(source: string, parts: readonly SourcePart[], isFirst: boolean): void {
  const html = flatten(source, parts);
  const roots: Record<string, string>[] = [];
  const sheets: string[] = [];
  let sheetChars = 0;
  let tags = 0;
  for (const { 0: start, index } of html.matchAll(/<(?:html|body|style|link|meta)(?![a-z0-9:_-])/gi)) {
    if (++tags > MAX_TAGS) refuseReach(`more than ${MAX_TAGS} elements html, body, style, link and meta; remove some`);
    const { name, attributes, length } = readTag(html.slice(index, index + MAX_TAG_CHARS)) ?? {};
    const written = start.slice(1).toLowerCase();
    if (name !== written || !attributes || length === undefined)
      refuseReach(`a tag "${written}" that does not end; close it`);
    if (html.slice(index, index + length).includes(MARKER)) refuseReach(`a template tag in "<${name}"; move it`);
    if (name === "link") assertHarmlessSheet(attributes);
    else if (name === "meta") assertHarmlessMeta(attributes);
    else if (name === "style") sheetChars += sheets[sheets.push(sheetAt(html, index + length)) - 1]?.length ?? 0;
    else if (roots.push(attributes) > MAX_ROOTS)
      refuseReach(`more than ${MAX_ROOTS} elements html and body; remove some`);
    if (sheetChars > MAX_SHEET_CHARS)
      refuseReach(`style sheets of more than ${MAX_SHEET_CHARS} characters; shorten them`);
  }
  if (sheets.some((sheet) => sheet.includes(MARKER)))
    refuseReach("a template tag in a style sheet; write what it prints");
  for (const attributes of roots) assertHarmlessRoot(attributes);
  const known = [FOOTER, toRoot(united(roots))];
  for (const sheet of sheets) assertHarmlessRules(sheet, known);
  assertPlainElements(html);
  if (isFirst) assertBelow(html);
  // A style that is printed may move the footer.
  else assertPlainAttributes(flatten(source, parts, false));
}

/** Refuses elements in which browsers read text in other ways than this does. */
function assertPlainElements(html: string): void {
  if (new RegExp(`<(?:!(?!--)|[/?])?[a-z0-9:_-]*${MARKER}`, "i").test(html)) {
    refuseReach('a template tag in the name of an element, or behind "<"; write what it prints, or "&lt;"');
  }
  if (/<template(?![a-z0-9:_-])/i.test(html)) refuseReach("an element template; remove it");
  // There, an entity in a style sheet is a character.
  const foreign = html.search(/<(?:svg|math)(?![a-z0-9:_-])/i);
  if (foreign >= 0 && /<style(?![a-z0-9:_-])/i.test(html.slice(foreign))) {
    refuseReach("a style sheet inside or behind an element svg or math; move it to the beginning");
  }
}

/** Refuses what may be painted above a footer that stands before it. */
function assertBelow(html: string): void {
  assertPlainAttributes(html);
  // Of the named entities, only this one stands for a character that matters here.
  const decoded = decodeNumbers(html.replace(/&bsol;/g, "\\"));
  for (const css of [html, decoded]) {
    // A backslash and digits are any character, but for "\\9" at the end of a value.
    if (/\\(?!9\s*[;}!])[0-9a-f]/i.test(css) || OVER_ALL.test(css.replaceAll("\\", ""))) {
      refuseReach('a "z-index" of more than 9 digits, or an escape; remove it');
    }
  }
}

/** A z-index that may be as high as the footer's */
const OVER_ALL = /z-index(?!\s*:\s*(?:auto|-?\d{1,9})\s*(?:!\s*important\s*)?[;}"'])/i;

/** Refuses template tags that may print a style, also in what may not be markup: comments, or the text of a title. */
function assertPlainAttributes(html: string, isAgain = false): void {
  let unread = "";
  let isRaw = false;
  const handler = withinLimits({
    onopentag(name) {
      isRaw = RAW_TEXT.has(name);
    },
    onclosetag() {
      isRaw = false;
    },
    onattribute(name, value, quote) {
      const isValue = Boolean(quote) && name !== "style";
      if (name.includes(MARKER) || (!isValue && value.includes(MARKER))) {
        refuseReach('a template tag in "style", or in a tag and not in quotes; write what it prints');
      }
    },
    ontext(text) {
      if (isRaw) unread += text;
    },
    oncomment(text) {
      unread += `${text}\n`;
    },
    onprocessinginstruction(_name, text) {
      unread += `${text}\n`;
    },
  });
  new Parser(handler).end(html);
  if (!unread.includes(MARKER)) return;
  if (isAgain) refuseReach("a template tag in a comment that has another in it; remove it");
  assertPlainAttributes(unread, true);
}

/** Reads the opening tag at the beginning of a text. */
function readTag(text: string): { name: string; attributes: Record<string, string>; length: number } | undefined {
  let tag: { name: string; attributes: Record<string, string>; length: number } | undefined;
  const parser = new Parser({
    onopentag(name, attributes) {
      tag ??= { name, attributes, length: parser.endIndex + 1 };
    },
  });
  // Up to each ">", because what follows is not needed.
  for (let from = 0; from >= 0 && tag === undefined; ) {
    const end = text.indexOf(">", from) + 1;
    if (end === 0) break;
    parser.write(text.slice(from, end));
    from = end;
  }
  return tag;
}

/** The sheet up to its end as browsers know it: "</stylex>" is none. */
function sheetAt(html: string, from: number): string {
  const text = html.slice(from, from + MAX_SHEET_CHARS + 1);
  const length = text.search(/<\/style[\t\n\f\r />]/i);
  return length < 0 ? text : text.slice(0, length);
}

function assertHarmlessSheet({ rel = "", href = "" }: Record<string, string>): void {
  const isSheet = !/^\s*(?:(?:shortcut |apple-touch-)?icon|preconnect|dns-prefetch|canonical|alternate)\s*$/i.test(rel);
  if (isSheet && !FONT_SHEET.test(href)) refuseReach("a style sheet of another host; write it into the mail");
}

function assertHarmlessMeta({ "http-equiv": equivalent, name = "", content = "" }: Record<string, string>): void {
  if (equivalent !== undefined && !HARMLESS_META.test(equivalent.trim())) {
    refuseReach('the attribute "http-equiv" of a meta element; remove the element');
  }
  if (/viewport/i.test(name) && !isReadableViewport(content)) {
    refuseReach('the viewport of a meta element; write "width=device-width, initial-scale=1"');
  }
}

/** Browsers give the attributes of a second body element to the first. */
function united(roots: readonly Record<string, string>[]): Record<string, string> {
  const all: Record<string, string> = {};
  for (const [name, value] of roots.flatMap(Object.entries<string>)) all[name] = `${all[name] ?? ""} ${value}`;
  return all;
}

function assertHarmlessRoot(attributes: Record<string, string>): void {
  for (const [name, value] of Object.entries(attributes)) {
    const isHarmless = MARGIN_ATTRIBUTE.test(name)
      ? /^(?:[1-4]?\d|50|)(?:px)?$/.test(value)
      : HARMLESS_ATTRIBUTE.test(name);
    const shown = /^[\w:-]{1,40}$/.test(name) ? `the attribute "${name}"` : "an attribute";
    if (!isHarmless) refuseReach(`${shown} of its html or body element; remove it`);
  }
  for (const declaration of plainCss(attributes["style"] ?? "").split(";")) {
    const property = uncertainProperty(declaration, HARMLESS_ROOT);
    if (property !== undefined) refuseReach(`"${property}" of its html or body element; remove it`);
  }
}

/** They hold no rules about elements. */
const OTHER_BLOCKS =
  /^@(?:-[a-z]+-)?(?:keyframes|font-face|page|viewport|property|counter-style|font-feature-values)\b/;
/** Rules inside them are about the same elements as outside. */
const CONDITIONAL_BLOCKS = /^@(?:media|supports|layer|container|starting-style|-moz-document)\b/;
/** They end without a block. */
const STATEMENTS = /^@(?:import|charset|layer|namespace)\b/;

interface Block {
  /** What stands before its brace */
  prelude: string;
  /** The rule that its declarations must keep */
  demands: readonly HarmlessStyle[];
}

function assertHarmlessRules(sheet: string, roots: readonly Root[]): void {
  for (const [, url = ""] of sheet.matchAll(/@import(?:\s+(?:url\(\s*)?["']?([^"')\s;]*))?/gi)) {
    if (!FONT_SHEET.test(url)) refuseReach('"@import" of another host; write the sheet into the mail');
  }
  // Its end closes what is open.
  const css = `${plainCss(sheet)}}`;
  const open: Block[] = [];
  let from = 0;
  let brackets = 0;
  for (const { 0: char, index } of css.matchAll(/[{};()[\]]/g)) {
    if (/[([]/.test(char)) brackets++;
    else if (/[)\]]/.test(char)) brackets = Math.max(brackets - 1, 0);
    else if (brackets > 0) {
      if (char !== ";") refuseReach("a style sheet with a brace inside of parentheses; close them");
    } else {
      const text = css.slice(from, index).trim();
      from = index + 1;
      if (char === "{") {
        if (open.length >= MAX_BLOCKS) {
          refuseReach(`blocks of a style sheet that are nested more than ${MAX_BLOCKS} deep`);
        }
        open.push(beginBlock(text, open.at(-1), roots));
      } else {
        assertHarmlessDeclaration(text, open.at(-1));
        if (char === "}") open.pop();
      }
    }
  }
}

function beginBlock(prelude: string, around: Block | undefined, roots: readonly Root[]): Block {
  if (CONDITIONAL_BLOCKS.test(prelude)) return { prelude, demands: around?.demands ?? [] };
  if (OTHER_BLOCKS.test(prelude) || OTHER_BLOCKS.test(around?.prelude ?? "")) return { prelude, demands: [] };
  return { prelude, demands: demandsOn(prelude, roots) };
}

function assertHarmlessDeclaration(text: string, block: Block | undefined): void {
  if (text.startsWith("@")) {
    if (text.includes("\\")) refuseReach("a backslash in a style sheet; remove it");
    if (!STATEMENTS.test(text)) refuseReach('an unknown rule that begins with "@"; remove it');
    return;
  }
  for (const demand of block?.demands ?? []) {
    const property = uncertainProperty(text, demand);
    if (property !== undefined)
      refuseReach(`"${property}" in the rule "${block?.prelude.slice(0, 60)}"; remove it, or change what it is about`);
  }
}
