import { splitValue } from "./inline-style.ts";
import { hasMarker } from "./marker.ts";

/** A length that is not negative, and a font size that can be read. */
const LENGTH = "(?:0|auto|(?:\\d{1,4}(?:\\.\\d{1,3})?|\\.\\d{1,3})(?:px|pt|em|rem|%)?)";
const WORD = "[a-z]+(?:-[a-z]+)*";
const COLOR =
  "(?:#[0-9a-f]{3}|#[0-9a-f]{6}|rgb\\(\\s*\\d{1,3}\\s*,\\s*\\d{1,3}\\s*,\\s*\\d{1,3}\\s*\\)|(?!transparent)[a-z]+)";
const whole = (pattern: string) => new RegExp(`^(?:${pattern})$`);
const LENGTHS = whole(`${LENGTH}(?:\\s+${LENGTH}){0,3}`);
const READABLE = whole("(?:[89]|[1-9]\\d)(?:\\.\\d{1,3})?(?:px|pt)|1(?:\\.\\d{1,3})?r?em|1\\d\\d%|100%");
const COLORS = whole(COLOR);
const PLAIN_WORD = whole(WORD);
const BOX = whole(`(?:${LENGTH}|${COLOR})(?:\\s+(?:${LENGTH}|${COLOR})){0,5}`);
const SIZE = whole("auto|100%|[1-9]\\d{2,3}px");

/** The values of each property that certainly leave an element in sight. Any other property is uncertain. */
const HARMLESS: readonly (readonly [RegExp, RegExp])[] = [
  [/^(?:color|background-color)$/, COLORS],
  [/^background$/, COLORS],
  [/^(?:margin|padding)(?:-(?:top|right|bottom|left))?$/, LENGTHS],
  [/^border(?:-(?:top|right|bottom|left|color|width|style|radius|collapse|spacing))*$/, BOX],
  [/^font-size$/, READABLE],
  [/^line-height$/, whole("normal|1(?:\\.\\d{1,3})?|2|1\\d\\d%|(?:[89]|[1-9]\\d)(?:\\.\\d+)?px")],
  [/^(?:width|max-width|min-width)$/, SIZE],
  [/^font-family$/, /^[\w\s,"'-]{1,200}$/],
  [/^font-(?:weight|style)$/, whole(`${WORD}|[1-9]00`)],
  [/^(?:text-(?:align|decoration|transform)|vertical-align|white-space|word-(?:break|wrap))$/, PLAIN_WORD],
  [/^(?:-webkit-font-smoothing|(?:-ms-|-webkit-)?text-size-adjust|mso-[a-z-]+)$/, whole(`${WORD}|100%|0pt`)],
  [/^(?:word|letter)-spacing$/, /^(?:normal|0)$/],
  [/^(?:min-)?height$/, /^(?:auto|100%)$/],
  [/^(?:-webkit-|-ms-)?text-size-adjust$/, /^(?:none|100%)$/],
  [/^direction$/, PLAIN_WORD],
  [/^box-sizing$/, PLAIN_WORD],
  [/^display$/, whole("block|inline|inline-block|table|table-row|table-cell")],
  [/^visibility$/, /^visible$/],
  [/^opacity$/, /^1$/],
  [/^all$/, /^initial$/],
];

/** Longest value that is read, in characters. A longer one is uncertain. */
const MAX_VALUE_CHARS = 300;

/** Whether declarations certainly leave their element in sight. Comments and escapes are not read: they are uncertain. */
export const isHarmless = (declarations: string): boolean =>
  declarations
    .toLowerCase()
    .split(";")
    .every((declaration) => {
      if (declaration.trim() === "") return true;
      const colon = declaration.indexOf(":");
      const name = declaration.slice(0, colon).trim();
      const { value } = splitValue(declaration.slice(colon + 1));
      return (
        value.length <= MAX_VALUE_CHARS && HARMLESS.some(([names, values]) => names.test(name) && values.test(value))
      );
    });

/** What the rules that may hide elements are about: `#id`, `.class` or a tag. */
export type SheetRules = ReadonlySet<string>;

/** It also matches a comment without an end: otherwise each further beginning would be searched for one. */
const COMMENT = /\/\*[\s\S]*?(?:\*\/|$)/g;

/** Reads style sheets. @returns undefined when it is uncertain what a rule is about */
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
    if (after.slice(0, -1).some((between) => between.trim() !== "")) return undefined;
    if (after.length > 0 && !isHarmless(declarations)) {
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
