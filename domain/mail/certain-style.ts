import { hasMarker } from "./marker.ts";

/** A length that is not negative, and moves nothing out of sight. */
const LENGTH = "(?:0|auto|(?:\\d{1,2}(?:\\.\\d{1,3})?|\\.\\d{1,3})(?:px|pt)|[0-4]?\\.\\d{1,3}em|[0-4]em|\\d%)";
const WORD = "[a-z]+(?:-[a-z]+)*";
const COLOR = "(?:#[0-9a-f]{3}|#[0-9a-f]{6}|white|black)";
const whole = (pattern: string) => new RegExp(`^(?:${pattern})$`);
const LENGTHS = whole(`${LENGTH}(?:\\s+${LENGTH}){0,3}`);
const COLORS = whole(COLOR);
const LINE = "(?:\\d(?:\\.\\d{1,3})?(?:px|pt)|0|#[0-9a-f]{3}|#[0-9a-f]{6}|[a-z]+)";
/** Others may hold symbols instead of letters. */
const FONT =
  "(?:arial(?: black)?|helvetica(?: neue)?|verdana|geneva|tahoma|trebuchet ms|georgia|times(?: new roman)?|palatino|" +
  "courier(?: new)?|lucida (?:grande|sans|console)|monaco|menlo|consolas|calibri|cambria|segoe ui|roboto|open sans|lato|" +
  "noto sans|ubuntu|sans-serif|serif|monospace|system-ui|-apple-system|blinkmacsystemfont|inherit)";
const FONTS = `(?:"${FONT}"|'${FONT}'|${FONT})`;

/** The values of each property that certainly leave an element in sight, and the others too. Any other is uncertain. */
const HARMLESS: readonly (readonly [RegExp, RegExp])[] = [
  [/^(?:color|background|background-color)$/, COLORS],
  [/^(?:margin|padding)(?:-(?:top|right|bottom|left))?$/, LENGTHS],
  [/^border(?:-(?:top|right|bottom|left|color|width|style|collapse|spacing))*$/, whole(`${LINE}(?:\\s+${LINE}){0,5}`)],
  [/^border-radius$/, LENGTHS],
  [/^font-size$/, whole("(?:[89]|[1-3]\\d)(?:\\.\\d{1,3})?(?:px|pt)|1r?em|100%")],
  // A number: a length would be inherited by larger letters, whose lines would overlap.
  [/^line-height$/, whole("normal|[12](?:\\.\\d{1,3})?")],
  [/^(?:width|max-width|min-width)$/, whole("auto|100%|[1-5]\\d{2}px|600px")],
  [/^font-family$/, whole(`${FONTS}(?:\\s*,\\s*${FONTS}){0,9}`)],
  [/^font-(?:weight|style)$/, whole(`${WORD}|[1-9]00`)],
  [/^text-align$/, /^(?:left|center)$/],
  // Without its line, a link may look like the text around it.
  [/^text-decoration$/, /^underline$/],
  [/^text-transform$/, whole(WORD)],
  [/^vertical-align$/, /^(?:top|middle|bottom|baseline)$/],
  [/^white-space$/, /^normal$/],
  // Others forbid line breaks.
  [/^word-(?:break|wrap)$/, /^(?:normal|break-word|break-all)$/],
  [/^-(?:webkit|moz-osx)-font-smoothing$/, whole(WORD)],
  [/^(?:-webkit-|-ms-)?text-size-adjust$/, /^(?:none|100%)$/],
  [/^mso-(?:table-[lr]space|line-height-rule)$/, whole(`${WORD}|0(?:pt)?`)],
  [/^(?:word|letter)-spacing$/, /^(?:normal|0)$/],
  // A share of what is around it would be less than its content, which may then be covered.
  [/^(?:min-)?height$/, /^auto$/],
  [/^direction$/, /^ltr$/],
  [/^box-sizing$/, whole(WORD)],
  [/^display$/, whole("block|inline|inline-block")],
  [/^visibility$/, /^visible$/],
  [/^opacity$/, /^1$/],
];

/** Longest value that is read, in characters. A longer one is uncertain. */
const MAX_VALUE_CHARS = 300;

/** In a sheet they are uncertain, because it is not followed which element they are about. */
const PAINT =
  /^(?:display|color|background|background-color|font-size|margin(?:-left|-right)?|padding(?:-[a-z]+)?|(?:(?:min|max)-)?width)$/;

/** Name and value of each declaration. Comments, escapes and semicolons in quotes are not read: they make names unknown. */
const declarationsOf = (declarations: string): { name: string; value: string }[] =>
  declarations
    .toLowerCase()
    .split(";")
    .filter((declaration) => declaration.trim() !== "")
    .map((declaration) => {
      const colon = declaration.indexOf(":");
      const value = declaration.slice(colon + 1).trim();
      return {
        name: declaration.slice(0, Math.max(colon, 0)).trim(),
        value: value.endsWith("important") ? value.slice(0, value.lastIndexOf("!")).trim() : value,
      };
    });

/** Elements that are inline where no style changes it. */
const INLINE = new Set(["span", "a", "b", "i", "u", "em", "strong"]);
const NO_LINE = /^(?:0(?:px|pt)?|none)(?:\s|$)/;

/**
 * Whether declarations certainly leave their element, and all others, in sight.
 * @param tag of the element; without it, it is uncertain only what is so for every element
 */
export function isHarmless(declarations: string, tag = ""): boolean {
  const all = declarationsOf(declarations);
  const isKnown = all.every(
    ({ name, value }) =>
      value.length <= MAX_VALUE_CHARS && HARMLESS.some(([names, values]) => names.test(name) && values.test(value)),
  );
  if (!isKnown) return false;
  const displays = all.filter(({ name }) => name === "display").map(({ value }) => value);
  // Content that is wider than its box is covered by the next box of the line.
  if (displays.includes("inline-block") && all.some(({ name }) => /(?:width|height)$/.test(name))) return false;
  const isInline = displays.includes("inline") || (INLINE.has(tag) && displays.length === 0);
  return !isInline || !all.some(isAboveLine);
}

/** Whether an inline element with this declaration is higher than its line, and may be painted over others. */
function isAboveLine({ name, value }: { name: string; value: string }): boolean {
  const [top = "", , bottom = "0"] = value.split(/\s+/);
  if (name === "padding") return !(NO_LINE.test(top) && NO_LINE.test(bottom));
  if (/^padding-(?:top|bottom)$/.test(name)) return !NO_LINE.test(value);
  return /^border(?:-(?:top|bottom|width|style))*$/.test(name) && !NO_LINE.test(value);
}

type Color = readonly [red: number, green: number, blue: number];

/** How the text of an element is painted. */
export interface Paint {
  color: Color;
  background: Color;
  /** What the elements around it leave free on both sides */
  asidePx: number;
}

/** Around the document. */
export const DEFAULT_PAINT: Paint = { color: [0, 0, 0], background: [255, 255, 255], asidePx: 0 };

const LINK_COLOR: Color = [0, 0, 238];
/** Elements that browsers indent. */
const INDENTED = new Set(["ul", "ol", "dd", "blockquote"]);
const INDENT_PX = 40;

/** @returns undefined when the declarations contradict each other */
export function paintInside(around: Paint, name: string, attributes: Record<string, string>): Paint | undefined {
  const declarations = declarationsOf(attributes["style"] ?? "");
  const valuesOf = (names: RegExp) => declarations.filter(({ name }) => names.test(name)).map(({ value }) => value);
  const backgrounds = [...valuesOf(/^background/), ...(attributes["bgcolor"] ? [attributes["bgcolor"]] : [])];
  const colors = valuesOf(/^color$/);
  if (new Set(backgrounds).size > 1 || new Set(colors).size > 1) return undefined;
  const background = backgrounds[0] === undefined ? around.background : parseColor(backgrounds[0]);
  const inherited = name === "a" ? LINK_COLOR : around.color;
  const color = colors[0] === undefined ? inherited : parseColor(colors[0]);
  if (!background || !color) return undefined;
  const asides = [
    ...valuesOf(/^(?:margin|padding)$/).flatMap(sidesOf),
    ...valuesOf(/^(?:margin|padding)-(?:left|right)$/),
  ];
  const asidePx = asides.reduce((sum, length) => sum + toPx(length), INDENTED.has(name) ? INDENT_PX : 0);
  return { color, background, asidePx: around.asidePx + asidePx };
}

/** Of the one to four lengths of a shorthand, the right and the left one. */
function sidesOf(value: string): string[] {
  const [top = "0", right = top, , left = right] = value.split(/\s+/);
  return [right, left];
}

/** Rounded up: letters have at most 40 px, and a screen at most 2,000. */
function toPx(length: string): number {
  const size = Number.parseFloat(length);
  if (!Number.isFinite(size)) return 0;
  return size * (length.endsWith("em") ? 40 : length.endsWith("%") ? 20 : 4 / 3);
}

function parseColor(value: string): Color | undefined {
  const named = value === "white" ? "#fff" : value === "black" ? "#000" : value.toLowerCase();
  const digits = /^#([0-9a-f]{3}|[0-9a-f]{6})$/.exec(named)?.[1];
  if (digits === undefined) return undefined;
  const size = digits.length / 3;
  const channel = (i: number) => Number.parseInt(digits.slice(i * size, (i + 1) * size).repeat(2 / size), 16);
  return [channel(0), channel(1), channel(2)];
}

/** The contrast ratio of WCAG 2, from 1 for equal colors to 21 for black and white. */
export function contrast(one: Color, other: Color): number {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

/** Relative luminance, from 0 to 1, as WCAG 2 defines it. */
function luminance(color: Color): number {
  const [red = 0, green = 0, blue = 0] = color.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The targets of the rules that may hide elements: `#id`, `.class` or a tag. */
export type SheetRules = ReadonlySet<string>;

/** It also matches a comment without an end: otherwise each further beginning would be searched for one. */
const COMMENT = /\/\*[\s\S]*?(?:\*\/|$)/g;

/** Reads style sheets. @returns undefined when the targets of a rule are uncertain */
export function sheetRules(sheet: string): SheetRules | undefined {
  const rules = new Set<string>();
  const comments = sheet.match(COMMENT) ?? [];
  const text = sheet.replace(COMMENT, " ").toLowerCase();
  if (hasMarker(text) || /\\|@import|<!|-->/.test(text)) return undefined;
  if (comments.some((comment) => comment.length < 4 || !comment.endsWith("*/") || /["'{]/.test(comment)))
    return undefined;
  let selectors = "";
  for (const piece of text.split("{")) {
    const [declarations = "", ...after] = piece.split("}");
    // A rule inside of another: declarations stand before it.
    if ((after.at(-1) ?? piece).includes(";")) return undefined;
    if (after.slice(0, -1).some((between) => between.trim() !== "")) return undefined;
    const isUncertain =
      !isHarmless(declarations) ||
      declarationsOf(declarations).some((each) => PAINT.test(each.name) || isAboveLine(each));
    if (after.length > 0 && isUncertain) {
      for (const selector of selectors.split(",")) {
        const subject =
          selector
            .trim()
            .split(/[\s>+~]+/)
            .at(-1) ?? "";
        // A tag, a class or an id; `:hover` and the like make it narrower.
        const [, tag = "", names = ""] =
          /^([a-z][a-z0-9]*)?((?:[.#][a-z_-][\w-]*)*)(?::(?:hover|active|visited|focus))?$/.exec(subject) ?? [];
        const about = /[.#][\w-]+$/.exec(names)?.[0] ?? tag;
        if (about === "" || /[@[("']/.test(selector)) return undefined;
        rules.add(about);
      }
    }
    selectors = after.at(-1) ?? piece;
  }
  return rules;
}

/** Whether a rule may be about an element. */
export function mayMatch(rules: SheetRules, tag: string, { id, class: classes = "" }: Record<string, string>): boolean {
  if (rules.size === 0) return false;
  if (/&/.test(classes + (id ?? "")) || hasMarker(classes + (id ?? ""))) return true;
  const names = classes.toLowerCase().split(/\s+/);
  return rules.has(tag) || rules.has(`#${id?.toLowerCase()}`) || names.some((name) => rules.has(`.${name}`));
}
