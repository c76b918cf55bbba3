import { linkProblem } from "../../../../lib/mail-link.ts";

/** Elements that Word and its like add to a copied text, its comments and what was deleted; no mail should have them. */
const RUBBISH =
  "style, script, meta, link, title, xml, [data-style*='mso-element:comment' i], [class^=MsoComment], .msocomanchor, .msocomtxt, del[cite], del[datetime], .msoDel, .MsoDel";
/** Styles that a mail keeps, and their elements. */
const ELEMENTS: readonly (readonly [style: RegExp, element: string, notIn?: string])[] = [
  [/(^|[;\s])font-weight:\s*(bold|[6-9]00)/i, "strong", "h1, h2, h3, h4, h5, h6, th"],
  [/(^|[;\s])font-style:\s*italic/i, "em"],
  // A link is underlined by itself.
  [/(^|[;\s])text-decoration(-line)?:[^;]*underline/i, "u", "a"],
  [/(^|[;\s])text-decoration(-line)?:[^;]*line-through/i, "s"],
];
/** A larger layout or sheet takes seconds, and is no mail. */
const MOST_ELEMENTS = 10_000;
const MARKER = "[data-style*='mso-list:Ignore' i]";
const LIST = "[data-word]";
const BLOCKS = "p, div, h1, h2, h3, h4, h5, h6, ul, ol, blockquote, hr, img";
/** Characters of a cell that stands in one line with its neighbours. */
const MOST_IN_CELL = 60;
const BETWEEN_CELLS = " – ";
/** It keeps the cells behind it below their headings. */
const EMPTY_CELL = "-";

/** The HTML of a clipboard, as the schema can read it: lists of Word as lists, and no rubbish of Word and Google Docs. */
export function cleanPaste(html: string): string {
  // The policy of the page forbids styles also where they are only read; a title is a text, too. Word shows the markers of
  // its lists to programs that do not know `<![if`, and hides other markup in comments.
  const read = html
    .replace(/<!\[(?:if[^\]<]*|endif)\]>/gi, "")
    .replace(/(<[a-z][^<>]*?\s)style(?=\s*=)/gi, "$1data-style")
    .replace(/<(\/?)style(?=[\s/>])/gi, "<$1title");
  const { body } = new DOMParser().parseFromString(read, "text/html");
  for (const element of body.querySelectorAll(RUBBISH)) element.remove();
  if (body.getElementsByTagName("*").length > MOST_ELEMENTS) return linesOf(body);
  for (const item of body.querySelectorAll("p[data-style*='mso-list:' i]")) nest(item);
  for (const element of body.querySelectorAll<HTMLElement>("[data-style]")) applyStyle(element);
  for (const element of body.querySelectorAll("*")) {
    // `<o:p>` and its like.
    if (element.localName.includes(":")) element.replaceWith(...element.childNodes);
  }
  for (const link of body.querySelectorAll("a[href]")) {
    const href = targetOf(link.getAttribute("href") ?? "");
    if (linkProblem(href)) link.replaceWith(...link.childNodes);
    else link.setAttribute("href", href);
  }
  for (const underline of body.querySelectorAll("a u")) underline.replaceWith(...underline.childNodes);
  for (const element of body.querySelectorAll("p, h1, h2, h3, tr")) {
    if (isEmpty(element)) element.remove();
  }
  // Inner ones first.
  for (const table of [...body.querySelectorAll("table")].reverse()) {
    table.replaceWith(...(table.caption ? [blockOf(table.caption)] : []), ...[...table.rows].flatMap(blocksOfRow));
  }
  // Google Docs has empty lines between its blocks. A break between two texts is theirs.
  for (const line of body.querySelectorAll("body > br")) {
    if (!isText(line, "previousSibling") || !isText(line, "nextSibling")) line.remove();
  }
  return body.innerHTML;
}

/** The link that is meant by a copied one. Google Docs leads its links over a page of Google, and browsers follow one with blanks. */
function targetOf(copied: string): string {
  const href = copied.trim();
  const query = /^https:\/\/www\.google\.com\/url\?/.test(href) ? new URL(href).searchParams : undefined;
  const target = query?.get("q") || query?.get("url") || href;
  // It would also encode the braces of a merge tag.
  const isWritten = !linkProblem(target) || target.includes("{{") || !URL.canParse(target);
  return isWritten ? target : new URL(target).href;
}

/** The text of a body, with a paragraph for each of its lines. */
function linesOf(body: HTMLElement): string {
  // No line break: the HTML has some within its lines.
  const end = "\u2029";
  for (const element of body.querySelectorAll(`${BLOCKS}, tr, li, br`)) {
    element.before(end);
    element.after(end);
  }
  for (const cell of body.querySelectorAll("td, th")) cell.after(" ");
  const lines = (body.textContent ?? "").split(end).filter((line) => line.trim() !== "");
  const paragraph = body.ownerDocument.createElement("p");
  return lines
    .map((line) => {
      paragraph.textContent = line;
      return paragraph.outerHTML;
    })
    .join("");
}

/** Whether a text or a part of one is beside a node, behind blanks and comments. */
function isText(node: Node, side: "previousSibling" | "nextSibling"): boolean {
  const next = node[side];
  if (!next) return false;
  if (next instanceof Element) return !next.matches(BLOCKS) && !next.querySelector(BLOCKS);
  return (next instanceof Text && next.data.trim() !== "") || isText(next, side);
}

const isEmpty = (element: Element) => element.textContent?.trim() === "" && !element.querySelector("img, [data-block]");

/** One line of the texts of a row where all of them are short, else the blocks of each of its cells. */
function blocksOfRow(row: HTMLTableRowElement): HTMLElement[] {
  const cells = [...row.cells];
  const filled = cells.filter((cell) => !isEmpty(cell));
  const isShort = (text: Element) => (text.textContent?.length ?? 0) <= MOST_IN_CELL && !text.querySelector(BLOCKS);
  if (filled.length < 2 || !filled.map(contentOf).every(isShort)) return filled.map(blockOf);
  const parts = cells
    .slice(0, cells.findLastIndex((cell) => !isEmpty(cell)) + 1)
    .flatMap((cell) => [BETWEEN_CELLS, ...(isEmpty(cell) ? [EMPTY_CELL] : contentOf(cell).childNodes)]);
  row.replaceChildren(...parts.slice(1));
  return [blockOf(row)];
}

/** A block of its own for the content of an element. */
function blockOf({ ownerDocument, childNodes }: Element): HTMLElement {
  const block = ownerDocument.createElement("div");
  block.append(...childNodes);
  return block;
}

/** A cell, or the only block that it holds. */
function contentOf(cell: Element): Element {
  const [only, ...others] = cell.children;
  if (!only?.matches("p, div") || others.length > 0) return cell;
  return only.textContent?.trim() === cell.textContent?.trim() ? contentOf(only) : cell;
}

/** Turns the styles of an element into elements and attributes that the schema reads. */
function applyStyle(element: HTMLElement): void {
  const style = element.dataset["style"] ?? "";
  const [, , align] = /(^|[;\s])text-align:\s*(center|right)/i.exec(style) ?? [];
  if (align) element.setAttribute("align", align.toLowerCase());
  for (const [is, name, notIn = "none"] of ELEMENTS) {
    if (!is.test(style) || element.closest(notIn)) continue;
    const inner = element.ownerDocument.createElement(name);
    inner.append(...element.childNodes);
    element.append(inner);
  }
  // Google Docs puts all into one.
  if (element.localName === "b" && /(^|[;\s])font-weight:\s*(normal|400)/i.test(style)) {
    element.replaceWith(...element.childNodes);
  }
}

/** Puts a paragraph that Word shows as an item into the list before it, as deep as Word says, or into a new one. */
function nest(item: Element): void {
  const { ownerDocument } = item;
  const marker = item.querySelector(MARKER);
  const kind = /^\s*[\da-z]{1,4}[.)]/i.test(marker?.textContent ?? "") ? "ol" : "ul";
  const depth = Number(/level(\d)/.exec(item.getAttribute("data-style") ?? "")?.[1] ?? 1);
  marker?.remove();
  const makeList = () => {
    const list = ownerDocument.createElement(kind);
    list.dataset["word"] = "";
    return list;
  };
  let list = item.previousElementSibling;
  if (!list?.matches(LIST) || (depth === 1 && list.localName !== kind)) {
    list = makeList();
    item.before(list);
  }
  for (let at = 1; at < depth; at++) {
    const parent: Element = list.lastElementChild ?? list.appendChild(ownerDocument.createElement("li"));
    const last: Element | null = parent.lastElementChild;
    list = last?.matches(LIST) ? last : parent.appendChild(makeList());
  }
  list.appendChild(ownerDocument.createElement("li")).append(item);
}
