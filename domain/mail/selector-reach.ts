import { HARMLESS_ADDITION, HARMLESS_ROOT, type HarmlessStyle } from "./harmless-style.ts";

/** Longest selector that is read, in characters: a longer one is uncertain. */
const MAX_SELECTOR_CHARS = 1_000;

/** Attributes of an html or body element, or of the footer, by name, as `plainCss` writes strings. */
export type Root = ReadonlyMap<string, { value: string; words: string }>;

/** The footer has attributes whose values mail programs change; so may those of html and body. */
const CHANGED_ATTRIBUTES = ["style", "href"];

export const FOOTER: Root = new Map(CHANGED_ATTRIBUTES.map((name) => [name, { value: "", words: "" }]));

export const toRoot = (attributes: Record<string, string>): Root =>
  new Map(
    Object.entries(attributes).map(([name, text]) => {
      const plain = text.toLowerCase().replace(/[^\w\s-]/g, "_");
      return [name, { value: plain.replace(/\s/g, "_"), words: ` ${plain.replace(/\s+/g, " ")} ` }];
    }),
  );

const COMPOUND = /^(\*|[a-z][\w-]*)?((?:[.#][\w-]+|\[[^\][]*\]|::?[a-z-]+(?:\(\))?)*)$/;
/** Webmail shows a body element as a div. */
const ROOT_TAGS = new Set(["", "*", "html", "body", "div"]);
/** The footer's elements. No rule changes them, but it may put something into them. */
const FOOTER_TAGS = new Set([...ROOT_TAGS, "a"]);
/** What is no element: a rule may make one of `::before`, and style a part of the text by others. */
const ADDITION = /::|:(?:before|after|first-line|first-letter)\b/;
/** Parts of elements that the footer does not have. */
const OTHER_PARTS = /::(?:-[a-z]+-)?(?:selection|placeholder|input-placeholder|focus-inner|search-[a-z-]+)$/;

/**
 * What the declarations of a rule must be by what its selectors may be about: the html or body element, or what is put
 * into them or into the footer. Empty if about none of them.
 * @param prelude all selectors of a rule, as `plainCss` writes them
 * @param roots the footer and the html and body elements
 */
export function demandsOn(prelude: string, roots: readonly Root[]): HarmlessStyle[] {
  // What stands in parentheses makes a selector narrower, or is another selector's name for the same element.
  const selectors = prelude.replace(/\([^()]*\)/g, "()").split(",");
  const isUncertain = /[&\\@]|\([^()]*\(/.test(prelude);
  if (isUncertain) return [HARMLESS_ROOT, ...(ADDITION.test(prelude) ? [HARMLESS_ADDITION] : [])];
  const reaching = selectors.filter((selector) => mayReach(selector, roots)).map((selector) => ADDITION.test(selector));
  return [
    ...(reaching.includes(false) ? [HARMLESS_ROOT] : []),
    ...(reaching.includes(true) ? [HARMLESS_ADDITION] : []),
  ];
}

function mayReach(selector: string, roots: readonly Root[]): boolean {
  if (selector.length > MAX_SELECTOR_CHARS) return true;
  const [subject = "", ...around] = selector
    .replace(/\[[^\]]*\]/g, (attribute) => attribute.replace(/[\s>+~]/g, ""))
    .trim()
    // Names and what stands between them in turns
    .split(/\s*([\s>+~])\s*/)
    .reverse();
  const isAddition = ADDITION.test(subject);
  if (OTHER_PARTS.test(subject)) return false;
  // Html and body are no links.
  if (!isAddition && /:(?:any-)?link\b|:visited\b/.test(subject)) return false;
  if (!mayBe(subject, isAddition ? FOOTER_TAGS : ROOT_TAGS, roots)) return false;
  for (let i = 0; i + 1 < around.length; i += 2) {
    // Any element may stand beside them.
    if (/[+~]/.test(around[i] ?? "")) return true;
    if (!mayBe(around[i + 1] ?? "", ROOT_TAGS, roots)) return false;
  }
  return true;
}

/** Whether a part of a selector may be about one of the roots. Classes such as `:hover` and `:not()` are not read. */
function mayBe(compound: string, tags: ReadonlySet<string>, roots: readonly Root[]): boolean {
  const [, tag = "", rest = ""] = COMPOUND.exec(compound) ?? [];
  if (tag + rest !== compound) return true;
  if (!tags.has(tag)) return false;
  const pieces = rest.match(/[.#][\w-]+|\[[^\]]*\]/g) ?? [];
  return roots.some((attributes) => pieces.every((piece) => mayHave(attributes, piece)));
}

function mayHave(root: Root, piece: string): boolean {
  if (!piece.startsWith("[")) {
    return root.get(piece.startsWith("#") ? "id" : "class")?.words.includes(` ${piece.slice(1)} `) ?? false;
  }
  const [, name, operator, value = ""] = /^\[([\w-]+)(?:([~|^$*]?=)"?([\w-]*)"?)?\]$/.exec(piece) ?? [];
  if (name === undefined || CHANGED_ATTRIBUTES.includes(name)) return true;
  const actual = root.get(name);
  // Whatever the operator, the value is part of the attribute.
  return actual !== undefined && (operator === undefined || actual.value.includes(value));
}
