/** Longest value of a declaration that is read: those that hide an element are short. */
const MAX_VALUE_CHARS = 200;

/** Declarations by name, in lower case. */
export type Style = ReadonlyMap<string, { value: string; important: boolean }>;

/** Reads declarations: of an inline style, or of a rule of a style sheet. The last of a name counts. */
export function parseStyle(text: string): Style {
  const style = new Map<string, { value: string; important: boolean }>();
  if (text === "") return style;
  for (const declaration of withoutEscapes(withoutComments(text)).toLowerCase().split(";")) {
    const colon = declaration.indexOf(":");
    if (colon < 0) continue;
    const name = declaration.slice(0, colon).trim();
    const { value, important } = splitValue(declaration.slice(colon + 1));
    if (style.get(name)?.important && !important) continue;
    style.set(name, { value: value.slice(0, MAX_VALUE_CHARS), important });
  }
  return style;
}

/** Splits the text after the colon of a declaration into its value and whether `!important` ends it. In linear time. */
export function splitValue(text: string): { value: string; important: boolean } {
  const mark = text.lastIndexOf("!");
  const important = mark >= 0 && text.slice(mark + 1).trim() === "important";
  return { value: (important ? text.slice(0, mark) : text).trim(), important };
}

export function withoutComments(style: string): string {
  const [start = "", ...comments] = style.split("/*");
  const after = comments.map((text) => (text.includes("*/") ? text.slice(text.indexOf("*/") + 2) : ""));
  return start + after.join("");
}

/** "\64isplay" is "display". */
const withoutEscapes = (style: string): string =>
  style.replace(/\\([0-9a-f]{1,6})\s?/gi, (_, hex: string) =>
    String.fromCodePoint(Math.min(Number.parseInt(hex, 16), 0x10ffff)),
  );

/** A number with its unit; undefined for words. Percent are divided by a hundred. */
function parseSize(value: string | undefined): { size: number; unit: string } | undefined {
  const [, digits, unit = ""] = /^([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)([a-z%]*)$/.exec(value ?? "") ?? [];
  if (digits === undefined) return undefined;
  return unit === "%" ? { size: Number(digits) / 100, unit } : { size: Number(digits), unit };
}

/** Whether a style makes text visible or invisible, which elements inside may change; undefined when it does neither. */
export function isInvisible(style: Style): boolean | undefined {
  const visibility = style.get("visibility")?.value;
  return visibility === undefined ? undefined : /^(?:hidden|collapse)$/.test(visibility);
}

/**
 * Whether a style makes text too small to be read, which elements inside may change; undefined when it sets no size.
 * @param isTinyAround relative units are of the size around
 */
export function isTiny(style: Style, isTinyAround: boolean): boolean | undefined {
  const value = style.get("font-size")?.value ?? sizeOfFont(style.get("font")?.value);
  if (value === undefined) return undefined;
  if (value === "inherit" || value === "unset") return isTinyAround;
  const parsed = parseSize(value);
  if (!parsed) return /^(?:calc|min|clamp)\(/.test(value);
  if (["em", "%", "ex", "ch"].includes(parsed.unit)) return isTinyAround || parsed.size < 0.1;
  return parsed.size < (["", "px", "pt"].includes(parsed.unit) ? 2 : 0.1);
}

/** The size in a `font` shorthand, which may begin with a weight: "bold 0/0 a" has 0. */
const sizeOfFont = (font: string | undefined): string | undefined =>
  font
    ?.split(/\s+/)
    .map((word) => word.split("/")[0] ?? "")
    .find((word) => /^[+-]?\.?\d/.test(word) && !/^[1-9]00$/.test(word));

/** Whether a style hides its element with all that is inside. */
export function hidesAll(style: Style): boolean {
  const sizeOf = (name: string) => parseSize(style.get(name)?.value);
  const isCut = /^(?:hidden|clip)/.test(style.get("overflow")?.value ?? "");
  const isMoved = ["left", "top", "right", "bottom", "text-indent", "margin-left", "margin-top"].some((name) => {
    const { size, unit } = sizeOf(name) ?? { size: 0, unit: "" };
    return size <= (unit === "em" || unit === "rem" ? -60 : -900);
  });
  return (
    style.get("display")?.value === "none" ||
    (sizeOf("opacity")?.size ?? 1) < 0.1 ||
    (isCut && ["height", "max-height", "width", "max-width"].some((name) => (sizeOf(name)?.size ?? 1) <= 0)) ||
    isMoved ||
    /scale[xy]?\(\s*0/.test(style.get("transform")?.value ?? "")
  );
}
