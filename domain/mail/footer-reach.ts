import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import type { SourcePart } from "./liquid-source.ts";
import { MARKERS, withoutMarkers } from "./marker.ts";
import { TemplateError } from "./template-problem.ts";

/** Stands for a part that differs between recipients. */
const [MARKER] = MARKERS;
/** Most characters of all style sheets together, those in comments included. */
const MAX_SHEET_CHARS = 200_000;
/** Longest opening tag of html, body, style or link, in characters. */
const MAX_TAG_CHARS = 5_000;
/** Most elements html, body, style, link and meta. Real newsletters have up to twenty. */
const MAX_TAGS = 100;
/** Most elements html and body. Newsletters with others for Outlook have up to five. */
const MAX_ROOTS = 10;
/** Longest selector and longest value that are read: a longer one is uncertain. */
const MAX_READ_CHARS = 1_000;
/** Most blocks of a style sheet inside each other. */
const MAX_BLOCKS = 20;

const ANY = /^/;
const whole = (pattern: string) => new RegExp(`^(?:${pattern})$`);
const LENGTH = "(?:0|auto|[12]?\\d{0,2}(?:\\.\\d{1,4})?(?:px|pt)?|[0-4]?(?:\\.\\d{1,4})?r?em|[1-4]?\\d%)";
const SIZE =
  "auto|none|inherit|initial|(?:min|max|fit)-content|0|100(?:%|vh|vw)|\\d{1,2}(?:\\.\\d+)?(?:em|rem|%|vh|vw)";
const LINE = "[a-z]+|0|\\d{1,2}(?:\\.\\d{1,4})?(?:px|pt)|#[0-9a-f]{3,8}|rgba?\\([\\d\\s.,%/]*\\)";

/**
 * The values of each property that leave the footer in sight and in its place, when the html or body element has them. The
 * footer sets all that is inherited itself, so that those are harmless here.
 */
const HARMLESS: readonly (readonly [RegExp, RegExp])[] = [
  [/^(?:color|color-scheme|supported-color-schemes|direction|visibility|cursor|hyphens|quotes|tab-size)$/, ANY],
  [/^(?:font|letter|word|text|list-style|caption|background)(?:-[a-z]+)*$/, ANY],
  [/^(?:line-height|vertical-align|table-layout|white-space|overflow-wrap|empty-cells|clear|orphans|widows)$/, ANY],
  [/^(?:(?:-webkit-|-moz-)?box-(?:sizing|shadow)|scroll-behavior)$/, ANY],
  [/^-(?:webkit|moz|moz-osx|ms|o)-(?:text|font|hyphens|tap|interpolation)(?:-[a-z]+)*$/, ANY],
  // A value on the way between two harmless ones is harmless.
  [/^(?:-webkit-|-moz-)?transition(?:-[a-z]+)*$/, ANY],
  // Read by programs that prepare a mail, never by those that show it.
  [/^(?:--|-premailer-)/, ANY],
  [/^mso-(?!hide|element|special)/, ANY],
  [/^(?:margin|padding)(?:-(?:top|right|bottom|left))?$/, whole(`${LENGTH}(?:\\s+${LENGTH}){0,3}`)],
  [/^(?:border(?:-[a-z]+)*|outline(?:-[a-z]+)?)$/, whole(`(?:${LINE})(?:\\s+(?:${LINE})){0,5}`)],
  [/^(?:(?:min-|max-)?width|min-height)$/, whole(`${SIZE}|\\d{1,3}(?:\\.\\d+)?(?:px|pt)?`)],
  // Together with overflow-x, a height in pixels cuts off the text below it.
  [/^(?:max-)?height$/, whole("auto|none|inherit|initial|100%|100vh")],
  [/^overflow(?:-y)?$/, whole("visible|auto|scroll")],
  [/^overflow-x$/, whole("visible|auto|scroll|hidden")],
  [/^display$/, whole("block|inline-block|inline|table|table-cell|flow-root")],
  [/^position$/, whole("static|relative")],
  [/^opacity$/, whole("1|1\\.0|100%")],
  [/^zoom$/, whole("1|100%|normal")],
  [/^(?:-webkit-|-ms-)?(?:transform|filter|float|clip|clip-path)$/, whole("none|auto")],
  [/^content$/, whole('none|normal|""')],
];

/** Kinds of meta elements that are harmless; others lead to another page, or keep the footer's style from being read. */
const HARMLESS_META =
  /^(?:content-(?:type|language|style-type|script-type)|x-ua-compatible|imagetoolbar|cleartype|msthemecompatible|x-dns-prefetch-control|pragma|expires|cache-control)$/i;

/** Style sheets of these hosts hold fonts only. */
const FONT_SHEET = /^(?:https?:)?\/\/(?:fonts\.googleapis\.com|fonts\.bunny\.net|use\.typekit\.net)\//i;

/**
 * Refuses a body whose html or body element, or whose style sheets, may hide, move or cover a footer that is its first or
 * last element. It finds them by their text alone, also in comments: one program ignores a comment that another reads.
 * @param parts of the source, as `splitTemplate` returns them
 * @param isFirst the footer stands before all else, so that the rest may be painted above it
 * @throws {TemplateError} `hidden_link`, which names the part to change
 */
export function assertOutOfReach(source: string, parts: readonly SourcePart[], isFirst: boolean): void {
  const html = flatten(source, parts);
  const roots: Record<string, string>[] = [];
  const sheets: string[] = [];
  let sheetChars = 0;
  let tags = 0;
  for (const { 0: start, index } of html.matchAll(/<(?:html|body|style|link|meta)(?![a-z0-9:_-])/gi)) {
    if (++tags > MAX_TAGS) refuse(`more than ${MAX_TAGS} elements html, body, style, link and meta; remove some`);
    const { name, attributes, length } = readTag(html.slice(index, index + MAX_TAG_CHARS)) ?? {};
    const written = start.slice(1).toLowerCase();
    if (name !== written || !attributes || length === undefined)
      refuse(`a tag "${written}" that does not end; close it`);
    if (html.slice(index, index + length).includes(MARKER)) refuse(`a template tag in "<${name}"; move it`);
    if (name === "link") assertHarmlessSheet(attributes);
    else if (name === "meta") assertHarmlessMeta(attributes);
    else if (name === "style") sheetChars += sheets[sheets.push(sheetAt(html, index + length)) - 1]?.length ?? 0;
    else if (roots.push(attributes) > MAX_ROOTS) refuse(`more than ${MAX_ROOTS} elements html and body; remove some`);
    if (sheetChars > MAX_SHEET_CHARS) refuse(`style sheets of more than ${MAX_SHEET_CHARS} characters; shorten them`);
  }
  if (sheets.some((sheet) => sheet.includes(MARKER))) refuse("a template tag in a style sheet; write its value");
  for (const attributes of roots) assertHarmlessRoot(attributes);
  if (isFirst) assertBelow(html);
  const known = [{ style: "", href: "" }, ...roots].map(toRoot);
  for (const sheet of sheets) assertHarmlessRules(sheet, known);
}

/** Refuses declarations that may paint an element above a footer that stands before it. */
function assertBelow(html: string): void {
  let styles = "";
  const handler = withinLimits({
    onattribute(name, value) {
      if (name === "style") styles += `${value};`;
    },
  });
  new Parser(handler).end(html);
  for (const css of [html, styles]) {
    // A backslash and digits are any character, but for "\\9" at the end of a value.
    if (/\\(?!9\s*[;}!])[0-9a-f]/i.test(css) || OVER_ALL.test(css.replaceAll("\\", ""))) {
      refuse('a "z-index" of more than 9 digits, or an escape; remove it');
    }
  }
}

/** A z-index that may be as high as the footer's */
const OVER_ALL = /z-index(?!\s*:\s*(?:auto|-?\d{1,9})\s*(?:!\s*important\s*)?[;}"'])/i;

function refuse(what: string): never {
  const message = `the unsubscribe link that is added may be hidden, moved or covered by ${what}`;
  throw new TemplateError({ kind: "hidden_link", message });
}

const CONDITION = /^(?:if|unless|case|else|elsif|when|endif|endunless|endcase)$/;
const SILENT = new Set(["#", "comment", "endcomment", "assign", "capture", "endcapture"]);

/** All text of a template, with every branch of its conditions, and a marker where the text may differ otherwise. */
function flatten(source: string, parts: readonly SourcePart[]): string {
  const constants = constantsOf(source, parts);
  const pieces: string[] = [];
  /** The piece that the open branch begins with. */
  let branch: number | undefined;
  let depth = 0;
  let trimsNext = false;
  for (const { begin, end, kind, name } of parts) {
    const text = source.slice(begin, end);
    if (kind === "text") {
      pieces.push(withoutMarkers(trimsNext ? text.trimStart() : text));
      trimsNext = false;
      continue;
    }
    if (text[2] === "-") pieces.push(pieces.pop()?.trimEnd() ?? "");
    trimsNext = text.at(-3) === "-";
    if (kind === "output") {
      pieces.push(constants.get(/^\{\{-?\s*(\w+)\s*-?\}\}$/.exec(text)?.[1] ?? "") ?? MARKER);
    } else if (CONDITION.test(name)) {
      const written = branch === undefined ? "" : pieces.slice(branch).join("");
      assertWholeElements(written);
      // The text after it begins anew in every combination of branches only if each part before it has ended.
      const last = pieces.findLast((piece) => piece.trim() !== "")?.trimEnd();
      if (!/^[{};>]?$/.test(last?.at(-1) ?? "") || !isWhole(written)) pieces.push(MARKER);
      depth += name.startsWith("end") ? -1 : /^(?:if|unless|case)$/.test(name) ? 1 : 0;
      branch = depth > 0 ? pieces.length : undefined;
    } else if (!SILENT.has(name)) pieces.push(MARKER);
  }
  return pieces.join("");
}

/** A branch is read as rules or declarations of its own if it leaves nothing open. */
function isWhole(branch: string): boolean {
  const open: string[] = [];
  for (const [bracket] of branch.matchAll(/[{}()[\]]/g)) {
    if (/[{([]/.test(bracket)) open.push(bracket);
    else if (!["{}", "()", "[]"].includes(`${open.pop()}${bracket}`)) return false;
  }
  return open.length === 0 && !/["'\\]|\/\*|\*\//.test(branch);
}

function assertWholeElements(branch: string): void {
  const tags = [...branch.matchAll(/<(\/?)style/gi)].map(([, slash]) => slash);
  const isPaired = tags.every((slash, i) => (slash === "/") === (i % 2 === 1)) && tags.length % 2 === 0;
  if (!isPaired || /<\/?[a-z]*$/i.test(branch))
    refuse("a condition that opens or closes an element; put the whole into it");
}

/** Names that have the same plain value for every recipient, wherever they are printed. */
function constantsOf(source: string, parts: readonly SourcePart[]): Map<string, string> {
  const constants = new Map<string, string>();
  const isSimple = parts.every(({ kind, name }) => kind !== "tag" || name === "assign" || CONDITION.test(name));
  if (!isSimple) return constants;
  const assigned = new Set<string>();
  const printed = new Set<string>();
  let depth = 0;
  for (const { begin, end, kind, name } of parts) {
    if (kind === "text") continue;
    const text = source.slice(begin, end);
    if (/^(?:if|unless|case)$/.test(name)) depth++;
    else if (name.startsWith("end")) depth--;
    if (kind === "output") for (const [word] of text.matchAll(/\w+/g)) printed.add(word);
    if (name !== "assign") continue;
    const variable = /^\{%-?\s*assign\s+([\w-]+)/.exec(text)?.[1] ?? "";
    const value = /^\{%-?\s*assign\s+\w+\s*=\s*(?:"([\w#(),.% -]*)"|'([\w#(),.% -]*)')\s*-?%\}$/.exec(text);
    // Printed before, it is empty; assigned twice, it has two values.
    const isConstant = depth === 0 && value && !assigned.has(variable) && !printed.has(variable);
    if (isConstant) constants.set(variable, value[1] ?? value[2] ?? "");
    else constants.delete(variable);
    assigned.add(variable);
  }
  return constants;
}

/** Reads the opening tag at the beginning of a text. */
function readTag(text: string): { name: string; attributes: Record<string, string>; length: number } | undefined {
  let tag: { name: string; attributes: Record<string, string>; length: number } | undefined;
  const parser = new Parser({
    onopentag(name, attributes) {
      tag ??= { name, attributes, length: parser.endIndex + 1 };
    },
  });
  // Up to each ">", because the text after it is not needed.
  for (let from = 0; from >= 0 && tag === undefined; ) {
    const end = text.indexOf(">", from) + 1;
    if (end === 0) break;
    parser.write(text.slice(from, end));
    from = end;
  }
  return tag;
}

function sheetAt(html: string, from: number): string {
  const length = html.slice(from, from + MAX_SHEET_CHARS + 1).search(/<\/style/i);
  return length < 0 ? html.slice(from, from + MAX_SHEET_CHARS + 1) : html.slice(from, from + length);
}

function assertHarmlessSheet({ rel = "", href = "" }: Record<string, string>): void {
  const isSheet = !/^\s*(?:(?:shortcut |apple-touch-)?icon|preconnect|dns-prefetch|canonical|alternate)\s*$/i.test(rel);
  if (isSheet && !FONT_SHEET.test(href)) refuse("a style sheet of another host; write it into the mail");
}

function assertHarmlessMeta({ "http-equiv": equivalent }: Record<string, string>): void {
  if (equivalent !== undefined && !HARMLESS_META.test(equivalent.trim())) {
    refuse('the attribute "http-equiv" of a meta element; remove the element');
  }
}

function assertHarmlessRoot(attributes: Record<string, string>): void {
  for (const [name, value] of Object.entries(attributes)) {
    const isHiding = /^(?:hidden|inert|popover|contenteditable)$/.test(name);
    const isMoving = /margin/.test(name) && !/^[12]?\d{0,2}(?:px)?$/.test(value);
    if (isHiding || isMoving) refuse(`the attribute "${name}" of its html or body element; remove it`);
  }
  const property = uncertainProperty(withoutStrings(attributes["style"] ?? "").split(";"));
  if (property !== undefined) refuse(`"${property}" of its html or body element; remove it`);
}

/** The first property whose value is not known to be harmless. */
function uncertainProperty(declarations: readonly string[]): string | undefined {
  for (const declaration of declarations) {
    if (declaration.trim() === "") continue;
    const colon = declaration.indexOf(":");
    const name = declaration
      .slice(0, Math.max(colon, 0))
      .trim()
      .toLowerCase()
      // An old Internet Explorer reads them, others do not.
      .replace(/^[*_]/, "");
    const value = (declaration.length > MAX_READ_CHARS ? "too long" : declaration.slice(colon + 1))
      .trim()
      .toLowerCase()
      .replace(/\s*!\s*(?:important|ie)$/, "")
      .replace(/\\9$/, "");
    if (!HARMLESS.some(([names, values]) => names.test(name) && values.test(value))) {
      return /^[\w-]{1,40}$/.test(name) ? name : "a declaration without a name";
    }
  }
  return undefined;
}

const TOKENS =
  /\/\*[\s\S]*?(?:\*\/|$)|<!--|-->|"(?:\\[\s\S]|[^"\\\n])*(?:"|\\?$|(?=\n))|'(?:\\[\s\S]|[^'\\\n])*(?:'|\\?$|(?=\n))|(?<![\w-])url\(\s*(?!["'\s])(?:\\[\s\S]|[^)\\])*(?:\)|\\?$)|\\[^0-9a-f\n]/gi;

/** Without comments, and with strings and addresses that hold nothing which means anything outside of them. */
const withoutStrings = (css: string): string =>
  css.replace(TOKENS, (token) => {
    if (/^["']/.test(token)) return `"${token.slice(1, /["']$/.test(token) ? -1 : undefined).replace(/[^\w-]/g, "_")}"`;
    if (/^url/i.test(token)) return "url()";
    // Such a character is part of a name.
    return token.startsWith("\\") ? "_" : " ";
  });

/** They hold no rules about elements. */
const OTHER_BLOCKS =
  /^@(?:-[a-z]+-)?(?:keyframes|font-face|page|viewport|property|counter-style|font-feature-values)\b/;
const MEDIA = /^@(?:media|supports|layer|container|scope|starting-style)\b/;

/** Attributes of an html or body element by name, as strings of a style sheet are read. */
type Root = ReadonlyMap<string, { value: string; words: string }>;

interface Block {
  /** The text before its brace */
  prelude: string;
  /** Its declarations may be about something that matters. */
  isReaching: boolean;
}

function assertHarmlessRules(sheet: string, roots: readonly Root[]): void {
  for (const [, url = ""] of sheet.matchAll(/@import(?:\s+(?:url\(\s*)?["']?([^"')\s;]*))?/gi)) {
    if (!FONT_SHEET.test(url)) refuse('"@import" of another host; write the sheet into the mail');
  }
  // Its end closes the elements that are open.
  const css = `${withoutStrings(sheet).toLowerCase()}}`;
  const open: Block[] = [];
  let from = 0;
  let brackets = 0;
  for (const { 0: char, index } of css.matchAll(/[{};()[\]]/g)) {
    if (/[([]/.test(char)) brackets++;
    else if (/[)\]]/.test(char)) brackets = Math.max(brackets - 1, 0);
    else if (brackets > 0) {
      if (char !== ";") refuse("a style sheet with a brace inside of parentheses; close them");
    } else {
      const text = css.slice(from, index).trim();
      from = index + 1;
      if (char === "{") {
        if (open.length >= MAX_BLOCKS) refuse(`blocks of a style sheet that are nested more than ${MAX_BLOCKS} deep`);
        open.push(beginBlock(text, open.at(-1), roots));
      } else {
        assertHarmlessDeclaration(text, open.at(-1));
        if (char === "}") open.pop();
      }
    }
  }
}

function beginBlock(prelude: string, around: Block | undefined, roots: readonly Root[]): Block {
  if (MEDIA.test(prelude)) return { prelude, isReaching: around?.isReaching ?? false };
  if (OTHER_BLOCKS.test(prelude) || OTHER_BLOCKS.test(around?.prelude ?? "")) return { prelude, isReaching: false };
  return { prelude, isReaching: prelude.split(",").some((selector) => mayReach(selector, roots)) };
}

function assertHarmlessDeclaration(text: string, block: Block | undefined): void {
  if (text.startsWith("@")) {
    // Escaped, it may be an import.
    if (text.includes("\\")) refuse("a backslash in a style sheet; remove it");
  } else if (block?.isReaching) {
    const property = uncertainProperty([text]);
    if (property !== undefined)
      refuse(
        `"${property}" in the rule "${block.prelude.slice(0, 60)}"; remove it, or let the rule select other elements`,
      );
  }
}

const COMPOUND = /^(\*|[a-z][\w-]*)?((?:[.#][\w-]+|\[[^\][]*\]|::?[a-z-]+(?:\([^()]*\))?)*)$/;
/** Webmail shows a body element as a div. */
const ROOT_TAGS = new Set(["", "*", "html", "body", "div"]);
/** The footer's elements. No rule changes them, but it may put something into them. */
const FOOTER_TAGS = new Set([...ROOT_TAGS, "a"]);

/** Whether a selector may be about the html or body element, or about something put into them or into the footer. */
function mayReach(selector: string, roots: readonly Root[]): boolean {
  if (selector.length > MAX_READ_CHARS || /[&\\]/.test(selector)) return true;
  const [subject = "", ...around] = selector
    .replace(/\[[^\]]*\]/g, (attribute) => attribute.replace(/[\s>+~]/g, ""))
    .trim()
    // Names and the text between them, in turns
    .split(/\s*([\s>+~])\s*/)
    .reverse();
  const isAddition = /:(?:before|after)\b/.test(subject);
  // Neither of these elements is a link.
  if (!isAddition && /:(?:any-)?link\b|:visited\b/.test(subject)) return false;
  if (!mayBe(subject, isAddition ? FOOTER_TAGS : ROOT_TAGS, roots)) return false;
  for (let i = 0; i + 1 < around.length; i += 2) {
    // Any element may stand beside them.
    if (/[+~]/.test(around[i] ?? "")) return true;
    if (!mayBe(around[i + 1] ?? "", ROOT_TAGS, roots)) return false;
  }
  return true;
}

/** Whether a part of a selector may be about one of the roots, or about the footer, which has but two attributes. */
function mayBe(compound: string, tags: ReadonlySet<string>, roots: readonly Root[]): boolean {
  const [, tag = "", rest = ""] = COMPOUND.exec(compound) ?? [];
  if (tag + rest !== compound) return true;
  if (!tags.has(tag)) return false;
  const pieces = rest.match(/[.#][\w-]+|\[[^\]]*\]/g) ?? [];
  return roots.some((attributes) => pieces.every((piece) => mayHave(attributes, piece)));
}

const toRoot = (attributes: Record<string, string>): Root =>
  new Map(
    Object.entries(attributes).map(([name, text]) => {
      const plain = text.toLowerCase().replace(/[^\w\s-]/g, "_");
      return [name, { value: plain.replace(/\s/g, "_"), words: ` ${plain.replace(/\s+/g, " ")} ` }];
    }),
  );

function mayHave(root: Root, piece: string): boolean {
  if (!piece.startsWith("[")) {
    return root.get(piece.startsWith("#") ? "id" : "class")?.words.includes(` ${piece.slice(1)} `) ?? false;
  }
  const [, name, operator, value = ""] = /^\[([\w-]+)(?:([~|^$*]?=)"?([\w-]*)"?)?\]$/.exec(piece) ?? [];
  if (name === undefined) return true;
  const actual = root.get(name);
  // With every operator, the value is part of the attribute.
  return actual !== undefined && (operator === undefined || actual.value.includes(value));
}
