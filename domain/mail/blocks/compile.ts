import { escapeHtml, splitTemplate } from "../template.ts";
import { type Block, type BlockDocument, CONTENT_WIDTH, type Inline, NETWORKS, URL_TAG } from "./schema.ts";

/*
 * Layout by tables, with widths for Outlook in comments that it alone reads. Each text states its colour and each area its
 * background, so that a program which inverts colours inverts both; the style sheet is for those that let a mail do it.
 */

const PADDING = 24;
/** Each column has it on both sides. */
const GUTTER = 12;
const WIDTH = CONTENT_WIDTH + 2 * PADDING;

const FAMILY = "Helvetica,Arial,sans-serif";
const TEXT = "#1f2328";
const LINK = "#0b57d0";
const RULE = "#d0d7de";
const SIZES = { 1: "28px/36px", 2: "22px/30px", 3: "18px/26px" } as const;
const TEXT_STYLE = `font:16px/24px ${FAMILY};color:${TEXT}`;

const STYLES = `<style>:root{color-scheme:light dark;supported-color-schemes:light dark}
@media (max-width:${WIDTH - 1}px){.column,.wide{max-width:100%!important}}</style>
<style>@media (prefers-color-scheme:dark){.page{background-color:#16181d!important}.card{background-color:#22252b!important}
.text{color:#e8eaed!important}.link{color:#8ab4f8!important}.rule{border-color:#4b5059!important}}</style>`;

const TABLE = `<table role="presentation" cellpadding="0" cellspacing="0" border="0"`;
const forOutlook = (html: string) => `<!--[if mso]>${html}<![endif]-->`;

/** Braces of a writer's text begin no tag. */
const literal = (text: string): string => escapeHtml(text).replaceAll("{", "&#123;");

/** Nothing in it can end the text of the tag, or the tag. */
const inTag = (text: string): string =>
  text.replace(/["'\\{}%<>&\p{Cc}]/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

const urlOf = (href: string): string => (URL_TAG.test(href) ? href : literal(href));

const link = (href: string, html: string, style = `color:${LINK};text-decoration:underline`, name = ` class="link"`) =>
  `<a href="${urlOf(href)}"${name} style="${style}">${html}</a>`;

const ELEMENTS = { bold: "strong", italic: "em", underline: "u", strike: "s", code: "code" } as const;

function inlineHtml(node: Inline): string {
  let html = "<br>";
  if (node.type === "text") html = literal(node.text);
  if (node.type === "mergeTag") {
    const { name, fallback } = node.attrs;
    html = fallback ? `{{ ${name} | default: "${inTag(fallback)}" }}` : `{{ ${name} }}`;
  }
  for (const { type } of node.marks ?? []) if (type !== "link") html = `<${ELEMENTS[type]}>${html}</${ELEMENTS[type]}>`;
  return html;
}

const hrefOf = ({ marks = [] }: Inline) => marks.flatMap((mark) => (mark.type === "link" ? mark.attrs.href : []))[0];

/** Neighbours with the same address are one link. An empty text keeps its line. */
function wordsHtml(words: readonly Inline[]): string {
  const runs: { href: string | undefined; html: string }[] = [];
  for (const node of words) {
    const [href, last] = [hrefOf(node), runs.at(-1)];
    if (last && last.href === href) last.html += inlineHtml(node);
    else runs.push({ href, html: inlineHtml(node) });
  }
  return runs.map(({ href, html }) => (href === undefined ? html : link(href, html))).join("") || "&nbsp;";
}

type Of<Type extends Block["type"]> = Extract<Block, { type: Type }>;
type TextBlock = Of<"blockquote">["content"][number];

function textHtml(block: TextBlock, isLast = true): string {
  const margin = isLast ? "0" : "0 0 12px";
  if (block.type === "paragraph") {
    const { textAlign } = block.attrs ?? {};
    return `<p style="margin:${margin}${textAlign ? `;text-align:${textAlign}` : ""}">${wordsHtml(block.content)}</p>`;
  }
  const name = block.type === "bulletList" ? "ul" : "ol";
  const items = block.content.map((item) => `<li style="margin:0 0 4px">${textsHtml(item.content)}</li>`);
  return `<${name} style="margin:${margin};padding:0 0 0 24px">${items.join("")}</${name}>`;
}

const textsHtml = (blocks: readonly TextBlock[]): string =>
  blocks.map((block, i) => textHtml(block, i === blocks.length - 1)).join("");

/** @param room the width of the text around it, in pixels */
function imageHtml({ src, alt, width, href }: Of<"image">["attrs"], room: number): string {
  if (src === "") return "";
  const shown = Math.round(Math.min(width ?? room, room));
  const style = `display:inline-block;width:100%;max-width:${shown}px;height:auto;border:0`;
  const name = shown === Math.round(room) ? ` class="wide"` : "";
  const image = `<img${name} src="${literal(src)}" alt="${literal(alt ?? "")}" width="${shown}" style="${style}">`;
  return href ? link(href, image, "text-decoration:none", "") : image;
}

function buttonHtml({ label, href, align }: Of<"button">["attrs"]): string {
  const style = `display:inline-block;padding:12px 24px;font:bold 16px/24px ${FAMILY};color:#ffffff;text-decoration:none`;
  // One without an address is a link, too: the check before a send counts those that lead nowhere.
  const shown = link(href, literal(label), style, "");
  const cell = `bgcolor="${LINK}" style="background-color:${LINK};border-radius:6px;mso-padding-alt:12px 24px"`;
  return `${TABLE} align="${align ?? "center"}"><tr><td ${cell}>${shown}</td></tr></table>`;
}

const space = (height: number): string =>
  `<tr><td height="${height}" style="height:${height}px;font-size:0;line-height:${height}px;mso-line-height-rule:exactly">&nbsp;</td></tr>`;

/** A row of a table. @param side padding at both sides @param room the width between them, in pixels */
function rowHtml(block: Block, side: number, room: number): string {
  const row = (html: string, align = "left", style = TEXT_STYLE, name = ` class="text"`) =>
    `<tr><td${name} align="${align}" style="padding:0 ${side}px 16px;${style}">${html}</td></tr>\n`;
  switch (block.type) {
    case "heading": {
      const { level, textAlign } = block.attrs;
      const style = `margin:0;font:bold ${SIZES[level]} ${FAMILY}${textAlign ? `;text-align:${textAlign}` : ""}`;
      return row(`<h${level} style="${style}">${wordsHtml(block.content)}</h${level}>`);
    }
    case "blockquote": {
      const quote = `<blockquote style="margin:0">${textsHtml(block.content)}</blockquote>`;
      const style = `padding:0 0 0 16px;border-left:4px solid ${RULE};${TEXT_STYLE}`;
      return row(`${TABLE} width="100%"><tr><td class="text rule" style="${style}">${quote}</td></tr></table>`);
    }
    case "image":
      return row(imageHtml(block.attrs, room), block.attrs.align ?? "center");
    case "button":
      return row(buttonHtml(block.attrs), block.attrs.align ?? "center");
    case "divider": {
      const line = `${TABLE} width="100%"><tr><td class="rule" style="border-top:1px solid ${RULE};font-size:0;line-height:1px">&nbsp;</td></tr></table>`;
      return row(line, "left", "padding-top:8px");
    }
    case "spacer":
      return space(block.attrs.height);
    case "socialLinks": {
      const links = block.attrs.links.flatMap(({ network, href }) => (href ? link(href, NETWORKS[network]) : []));
      return row(links.join(" &middot; "), block.attrs.align ?? "center");
    }
    // Its colours are its own: they are made for white.
    case "html":
      return row(block.attrs.html, "left", `background-color:#ffffff;${TEXT_STYLE}`, "");
    case "columns":
      return columnsHtml(block);
    default:
      return row(textHtml(block));
  }
}

/** Beside each other where there is room; in Outlook always. */
function columnsHtml({ content }: Of<"columns">): string {
  const all = WIDTH - 2 * GUTTER;
  const width = all / content.length;
  const style = `display:inline-block;width:100%;max-width:${width}px;vertical-align:top`;
  const cell = `<td width="${width}" valign="top">`;
  const columns = content.map((column) => {
    const rows = column.content.map((block) => rowHtml(block, GUTTER, width - 2 * GUTTER)).join("");
    return `<div class="column" style="${style}">${TABLE} width="100%">${rows}</table></div>`;
  });
  const shown = columns.join(forOutlook(`</td>${cell}`));
  const begin = forOutlook(`${TABLE} width="${all}"><tr>${cell}`);
  return `<tr><td style="padding:0 ${GUTTER}px;font-size:0">${begin}${shown}${forOutlook("</td></tr></table>")}</td></tr>\n`;
}

/** It shows in the list of mails only. What follows it there is blank, so that the text does not. */
function preheaderHtml(preheader: string): string {
  if (preheader === "") return "";
  const text = splitTemplate(preheader).map(({ begin, end, kind }) => {
    const part = preheader.slice(begin, end);
    return kind === "text" ? literal(part) : part;
  });
  const style = "display:none;max-height:0;overflow:hidden;opacity:0;font-size:1px;line-height:1px;mso-hide:all";
  return `<div style="${style}">${text.join("")}${"&zwnj;&nbsp;".repeat(80)}</div>\n`;
}

export interface BlockSource {
  blocks: BlockDocument;
  /** A template, as the subject is one. */
  preheader: string | null;
  /** BCP 47. */
  language?: string | undefined;
}

/** The HTML of a mail, a template. @throws {TemplateError} `syntax` for the preheader */
export function compileBlocks({ blocks, preheader, language }: BlockSource): string {
  const lang = language === undefined ? "" : ` lang="${literal(language)}"`;
  const rows = blocks.content.map((block) => rowHtml(block, PADDING, CONTENT_WIDTH)).join("");
  const card = `<div class="card" style="max-width:${WIDTH}px;margin:0 auto;background-color:#ffffff">${TABLE} width="100%">`;
  return `<!doctype html>
<html${lang}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">
${forOutlook("<xml><o:OfficeDocumentSettings><o:PixelsPerInch>96</o:PixelsPerInch></o:OfficeDocumentSettings></xml>")}
${STYLES}</head>
<body class="page" style="margin:0;padding:0;background-color:#f4f5f7">
${preheaderHtml(preheader ?? "")}<div role="article"${lang}>${TABLE} class="page" width="100%" bgcolor="#f4f5f7" style="background-color:#f4f5f7"><tr><td align="center">
${forOutlook(`${TABLE} width="${WIDTH}" bgcolor="#ffffff"><tr><td>`)}${card}
${space(PADDING)}
${rows}${space(8)}</table></div>${forOutlook("</td></tr></table>")}
</td></tr></table></div></body></html>
`;
}
