import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import { hidesAll, isInvisible, isTiny, parseStyle } from "./inline-style.ts";
import { type HidingRules, hasName, hidingRules } from "./style-sheet.ts";
import { limits, TemplateError } from "./template-problem.ts";

/** Most characters of all style sheets together. Mail programs ignore sheets that are much shorter. */
const MAX_SHEET_CHARS = 200_000;

/** Elements that a mail program does not show as part of the text, even when they stand in the body. */
const HIDING_ELEMENTS = new Set(
  `head title style script template noscript textarea select option datalist iframe noframes noembed xmp plaintext object
  audio video canvas svg math dialog`.split(/\s+/),
);

/** How one element and those around it show their text. */
interface Shown {
  /** Nothing inside it can be seen, in any style. */
  hidden: boolean;
  /** Inherited: an element inside can be visible again, or have a font size again. */
  invisible: boolean;
  tiny: boolean;
  /** A style sheet may hide it, on some screens at least. */
  doubtful: boolean;
  /** A style sheet may make it tiny. Inherited like `tiny`. */
  doubtfulSize: boolean;
  /** It is the link, or inside it. */
  link: boolean;
}

/**
 * Whether a link can be seen: `hidden` when it exists, and its own style, or that of an element around it, hides it. One
 * that a style sheet may hide counts as absent: the sheet may hide it on small screens only, where another is shown.
 */
export type LinkState = "shown" | "hidden" | "absent";

/**
 * Looks for a link in an HTML document, in time proportional to its length.
 * @param url of the link; it counts as shown where a visible `a` leads to it, or where visible text holds it
 * @throws {TemplateError} `limits` for too many or too deeply nested elements, before anything is built of them
 */
export function findLink(html: string, url: string): LinkState {
  const { state, sheets } = readDocument(html, url, NO_RULES);
  if (sheets.length > MAX_SHEET_CHARS) throw limits(`its style sheets have more than ${MAX_SHEET_CHARS} characters`);
  const rules = hidingRules(sheets);
  return rules.all.size + rules.tiny.size === 0 ? state : readDocument(html, url, rules).state;
}

/** Reads a document once. @returns the link's state by the rules given, and the text of all style sheets */
function readDocument(html: string, url: string, rules: HidingRules): { state: LinkState; sheets: string } {
  let state: LinkState = "absent";
  let sheets = "";
  let isSheet = false;
  const open: Shown[] = [];
  let current = EVERYTHING;
  const found = (isShown: boolean, isDoubtful: boolean) => {
    if (isShown && !isDoubtful) state = "shown";
    else if (!isShown && state === "absent") state = "hidden";
  };
  const handler = withinLimits({
    onopentag(name, attributes) {
      if (name === "base") throw new TemplateError({ kind: "hidden_link", message: BASE_REFUSED });
      open.push(current);
      current = showInside(current, name, attributes, rules);
      isSheet = name === "style";
      current.link ||= name === "a" && (attributes["href"] ?? "").includes(url);
      const isHidden = current.hidden || current.invisible;
      if (current.link && (isHidden || isVisibleImage(name, attributes))) found(!isHidden, current.doubtful);
    },
    ontext(text) {
      if (isSheet) sheets += text;
      if (!VISIBLE_TEXT.test(text) || !(current.link || text.includes(url))) return;
      const isHidden = current.hidden || current.invisible || current.tiny;
      found(!isHidden, current.doubtful || current.doubtfulSize);
    },
    onclosetag() {
      isSheet = false;
      current = open.pop() ?? current;
    },
  });
  new Parser(handler).end(html);
  return { state, sheets };
}

const BASE_REFUSED = "the element base may divert the unsubscribe link; remove it and write addresses in full";

const NO_RULES: HidingRules = { all: new Set(), tiny: new Set() };

/** Around the document: nothing is hidden. */
const EVERYTHING: Shown = {
  hidden: false,
  invisible: false,
  tiny: false,
  doubtful: false,
  doubtfulSize: false,
  link: false,
};

/** More than blanks and characters without width. */
const VISIBLE_TEXT = /[^\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]/u;

type Attributes = Record<string, string>;

/** An image of more than one pixel, or with a text instead of it. */
const isVisibleImage = (name: string, { src, width, height }: Attributes): boolean =>
  name === "img" && Boolean(src) && ![width, height].some((size) => size !== undefined && Number.parseFloat(size) <= 1);

function showInside(around: Shown, name: string, attributes: Attributes, rules: HidingRules): Shown {
  const style = parseStyle(attributes["style"] ?? "");
  const inside = { ...around };
  inside.hidden ||= HIDING_ELEMENTS.has(name) || "hidden" in attributes || hidesAll(style);
  inside.invisible = isInvisible(style) ?? around.invisible;
  const tiny = isTiny(style, around.tiny);
  inside.tiny = tiny ?? around.tiny;
  // No style sheet overrules an inline declaration with `!important`.
  const isKept = ["display", "visibility", "opacity"].every((property) => style.get(property)?.important);
  inside.doubtful ||= !isKept && hasName(rules.all, name, attributes);
  if (tiny !== undefined) inside.doubtfulSize = false;
  inside.doubtfulSize ||= !style.get("font-size")?.important && hasName(rules.tiny, name, attributes);
  return inside;
}
