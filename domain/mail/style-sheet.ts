import { hidesAll, isInvisible, isTiny, parseStyle, withoutComments } from "./inline-style.ts";

/** The rules of a body's style sheets that hide elements, each by one name that such an element has. */
export interface HidingRules {
  /** Names that hide an element with all that is inside: `#id`, `.class`, a tag, or `*`. */
  readonly all: ReadonlySet<string>;
  /** Names that make the text of an element too small to be read. */
  readonly tiny: ReadonlySet<string>;
}

/** Characters of a selector that are read, from its end. */
const MAX_SELECTOR_CHARS = 200;

/** They depend on actions of a reader, or are no part of the document. */
const OTHER_STATES = /::|:(?:before|after|hover|active|focus|visited|target|checked)/;

/**
 * Finds the rules that may hide elements. It errs on the side of hiding: of a selector only one name of its last part is
 * read, and a rule counts for every size of the screen.
 */
export function hidingRules(sheet: string): HidingRules {
  const rules = { all: new Set<string>(), tiny: new Set<string>() };
  // A piece is the text before a brace: the selectors of a rule, or its declarations and their closing brace.
  let selectors = "";
  for (const piece of withoutComments(sheet).toLowerCase().split("{")) {
    const end = piece.indexOf("}");
    if (end >= 0) {
      const style = parseStyle(piece.slice(0, end));
      const into = hidesAll(style) || isInvisible(style) ? rules.all : isTiny(style, false) ? rules.tiny : undefined;
      for (const selector of into ? selectors.split(",") : []) {
        const name = nameOf(selector);
        if (name !== undefined) into?.add(name);
      }
    }
    selectors = piece.slice(piece.lastIndexOf("}") + 1);
  }
  return rules;
}

/** The most particular name of the last part of a selector; undefined for one that matches no element for good. */
function nameOf(selector: string): string | undefined {
  if (selector.includes("@") || OTHER_STATES.test(selector)) return undefined;
  const plain = selector
    .trim()
    .slice(-MAX_SELECTOR_CHARS)
    // [class~="x"] is a way to write .x
    .replace(/\[\s*class\s*[~*^|$]?=\s*["']?\s*([\w-]+)[^\]]*\]/g, ".$1")
    .replace(/\[[^\]]*\]/g, "[]");
  const last = plain.split(/[\s>+~]+/).at(-1) ?? "";
  const [id] = /#[\w-]+/.exec(last) ?? [];
  const [name] = /\.[\w-]+/.exec(last) ?? [];
  const [tag] = /^[a-z][\w-]*/.exec(last) ?? [];
  // An attribute alone: of a link, if it is about one.
  return id ?? name ?? tag ?? (last.startsWith("[]") ? "a" : last.startsWith("*") ? "*" : undefined);
}

/** Whether an element has one of the names. */
export function hasName(names: ReadonlySet<string>, tag: string, attributes: Record<string, string>): boolean {
  if (names.size === 0) return false;
  const { id, class: classes = "" } = attributes;
  return (
    names.has("*") ||
    names.has(tag) ||
    (id !== undefined && names.has(`#${id.toLowerCase()}`)) ||
    classes
      .toLowerCase()
      .split(/\s+/)
      .some((name) => names.has(`.${name}`))
  );
}
