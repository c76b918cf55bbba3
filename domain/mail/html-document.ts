import { Parser } from "htmlparser2";
import { TemplateError } from "./template-problem.ts";

/** Most elements of a body. Real newsletters have a few thousand. */
const MAX_ELEMENTS = 20_000;
/** Most elements inside each other. Newsletters of nested tables have about fifty. */
const MAX_DEPTH = 200;

/** What a mail program does not show as part of the text, even when it stands in the body. */
const HIDING_ELEMENTS = new Set(
  `head title style script template noscript textarea select option datalist iframe noframes noembed xmp plaintext object
  audio video canvas svg math dialog`.split(/\s+/),
);

/** How one element and those around it show their text. */
interface Shown {
  /** Nothing inside it can be seen, whatever its style. */
  hidden: boolean;
  /** Inherited: an element inside can be visible again, or have a font size again. */
  invisible: boolean;
  tiny: boolean;
  /** It is the link, or inside it. */
  link: boolean;
}

/** Whether a link can be seen: `hidden` when it exists, and its style or an element around it hides it. */
export type LinkState = "shown" | "hidden" | "absent";

/**
 * Reads an HTML document once, in time proportional to its length.
 * @param url of a link to look for; it counts as shown where a visible `a` leads to it, or where visible text holds it
 * @throws {TemplateError} `limits` for too many or too deeply nested elements, before anything is built of them
 */
export function findLink(html: string, url: string): LinkState {
  let elements = 0;
  let state: LinkState = "absent";
  const open: Shown[] = [];
  let current: Shown = { hidden: false, invisible: false, tiny: false, link: false };
  const found = (isShown: boolean) => {
    if (isShown) state = "shown";
    else if (state === "absent") state = "hidden";
  };
  const parser = new Parser({
    onopentag(name, attributes) {
      if (++elements > MAX_ELEMENTS) throw limits(`its body has more than ${MAX_ELEMENTS} elements`);
      if (open.length >= MAX_DEPTH) throw limits(`the elements of its body are nested more than ${MAX_DEPTH} deep`);
      open.push(current);
      current = showInside(current, name, attributes);
      current.link ||= name === "a" && (attributes["href"] ?? "").includes(url);
      if (current.link && (current.hidden || current.invisible)) found(false);
      if (current.link && isVisibleImage(name, attributes)) found(!current.hidden && !current.invisible);
    },
    ontext(text) {
      if (!VISIBLE_TEXT.test(text) || !(current.link || text.includes(url))) return;
      found(!(current.hidden || current.invisible || current.tiny));
    },
    onclosetag() {
      current = open.pop() ?? current;
    },
  });
  parser.write(html);
  parser.end();
  return state;
}

/** @throws {TemplateError} `limits` as `findLink` */
export function assertHtmlSize(html: string): void {
  findLink(html, "https://none.invalid/");
}

const limits = (message: string) => new TemplateError({ kind: "limits", message });

/** More than blanks and characters without width. */
const VISIBLE_TEXT = /[^\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]/u;

type Attributes = Record<string, string>;

/** An image of more than one pixel, or with a text instead of it. */
const isVisibleImage = (name: string, { src, width, height }: Attributes): boolean =>
  name === "img" && Boolean(src) && ![width, height].some((size) => size !== undefined && Number.parseFloat(size) <= 1);

function showInside(around: Shown, name: string, attributes: Attributes): Shown {
  const style = parseStyle(attributes["style"] ?? "");
  const inside = { ...around };
  const visibility = style.get("visibility");
  if (visibility !== undefined) inside.invisible = /^(?:hidden|collapse)$/.test(visibility);
  const fontSize = style.get("font-size") ?? sizeOfFont(style.get("font"));
  if (fontSize !== undefined) inside.tiny = isTiny(fontSize, around.tiny);
  inside.hidden ||= HIDING_ELEMENTS.has(name) || "hidden" in attributes || hides(style);
  return inside;
}

function withoutComments(style: string): string {
  const [start = "", ...comments] = style.split("/*");
  const after = comments.map((text) => (text.includes("*/") ? text.slice(text.indexOf("*/") + 2) : ""));
  return start + after.join("");
}

/** Longest value of a declaration that is read: those that hide an element are short. */
const MAX_VALUE_CHARS = 200;

/** An inline style as names and values, lower case and without `!important`; the last of a name counts. */
function parseStyle(text: string): Map<string, string> {
  if (text === "") return new Map();
  const plain = withoutComments(text)
    .replace(/\\([0-9a-f]{1,6})\s?/gi, (_, hex: string) =>
      String.fromCodePoint(Math.min(Number.parseInt(hex, 16), 0x10ffff)),
    )
    .toLowerCase();
  const declarations = new Map<string, string>();
  const important = new Set<string>();
  for (const declaration of plain.split(";")) {
    const colon = declaration.indexOf(":");
    if (colon < 0) continue;
    const name = declaration.slice(0, colon).trim();
    const value = declaration
      .slice(colon + 1)
      .trim()
      .slice(0, MAX_VALUE_CHARS);
    const isImportant = /!\s*important$/.test(value);
    if (important.has(name) && !isImportant) continue;
    if (isImportant) important.add(name);
    declarations.set(name, value.replace(/\s*!\s*important$/, ""));
  }
  return declarations;
}

/** A number with its unit; undefined for words. Percent are divided by a hundred. */
function parseSize(value: string | undefined): { size: number; unit: string } | undefined {
  const [, digits, unit = ""] = /^([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)([a-z%]*)$/.exec(value ?? "") ?? [];
  if (digits === undefined) return undefined;
  return unit === "%" ? { size: Number(digits) / 100, unit } : { size: Number(digits), unit };
}

/** Relative units are of the size around, which may be tiny itself. */
function isTiny(value: string, isTinyAround: boolean): boolean {
  const { size, unit } = parseSize(value) ?? { size: 1, unit: "" };
  if (value === "inherit" || value === "unset") return isTinyAround;
  if (["em", "%", "ex", "ch"].includes(unit)) return isTinyAround || size < 0.1;
  if (parseSize(value) === undefined) return /^(?:calc|min|clamp)\(/.test(value);
  return size < (["", "px", "pt"].includes(unit) ? 2 : 0.1);
}

/** The size in a `font` shorthand: "bold 0/0 a" has 0. */
const sizeOfFont = (font: string | undefined): string | undefined =>
  font
    ?.split(/\s+/)
    .map((word) => word.split("/")[0] ?? "")
    .find((word) => /^[+-]?\.?\d/.test(word) && !/^[1-9]00$/.test(word));

const isNothing = (value: string | undefined) => (parseSize(value)?.size ?? 1) <= 0;

/** Whether a style hides its element with all that is inside. */
function hides(style: ReadonlyMap<string, string>): boolean {
  const isCut = /^(?:hidden|clip)/.test(style.get("overflow") ?? "");
  const isMoved = ["left", "top", "right", "bottom", "text-indent", "margin-left", "margin-top"].some((name) => {
    const { size, unit } = parseSize(style.get(name)) ?? { size: 0, unit: "" };
    return size <= (unit === "em" || unit === "rem" ? -60 : -900);
  });
  return (
    style.get("display") === "none" ||
    (parseSize(style.get("opacity"))?.size ?? 1) < 0.1 ||
    (isCut && ["height", "max-height", "width", "max-width"].some((name) => isNothing(style.get(name)))) ||
    isMoved ||
    /scale[xy]?\(\s*0/.test(style.get("transform") ?? "")
  );
}
