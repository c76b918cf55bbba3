import { URL_TAG, urlParts } from "../../../lib/mail-link.ts";
import {
  CONTENT_WIDTH,
  DARK,
  FONT_FAMILIES,
  isPale,
  LOGO_WIDTH,
  MUTED,
  NETWORKS,
  readableOn,
  textOn,
} from "../../../lib/mail-style.ts";
import type { Brand } from "../../teams/brand.ts";
import { compileTemplate, literalHtml, splitTemplate } from "../template.ts";
import type { Block, BlockDocument, Inline } from "./schema.ts";

/*
 * Layout by tables, with widths for Outlook in comments that it alone reads. Each text states its colour and each area its
 * background, so that a program which inverts colours inverts both; the style sheet is for those that let a mail do it.
 */

const PADDING = 24;
/** Each column has it on both sides. */
const GUTTER = 12;
const WIDTH = CONTENT_WIDTH + 2 * PADDING;

const CARD = "#ffffff";
const DARK_AREA = "#32363e";
const RULE = "#d0d7de";
const SIZES = { 1: "28px/36px", 2: "22px/30px", 3: "18px/26px" } as const;

/** A brand in the styles of elements. */
interface Look {
  family: string;
  text: string;
  link: string;
  accent: string;
  /** Of an area whose colours are its own, also in the dark. */
  isFixed: boolean;
  /** Of the first block, whose small image is a logo. */
  isTop?: boolean;
}

function lookOf({ family, accent }: Pick<Look, "family" | "accent">, background?: string | null): Look {
  const ground = background ?? CARD;
  const text = `font:16px/24px ${family};color:${textOn(ground)}`;
  return { family, accent, text, link: readableOn(ground, accent), isFixed: Boolean(background) && !isPale(ground) };
}

/** @param name of the colours that the style sheet gives in the dark */
const inDark = ({ isFixed }: Look, name: string) => (isFixed ? "" : ` class="${name}"`);

/**
 * A page in the colour of its card has that in the dark, too: the footer below the card stands on the page. On another one the card is
 * apart from the window, where that is wider. An image keeps its white: one of dark letters is made for it. A logo, which may fill it to its
 * edge, has some around it.
 */
function stylesOf({ accentColor, backgroundColor }: MailBrand): string {
  const isOfCard = backgroundColor.toLowerCase() === CARD;
  const apart = `\n@media (min-width:${WIDTH + PADDING}px){.card{margin-top:${PADDING}px!important;border-radius:8px;overflow:hidden}}`;
  return `<style>:root{color-scheme:light dark;supported-color-schemes:light dark}
@media (max-width:${WIDTH - 1}px){.column,.wide{max-width:100%!important}}${isOfCard ? "" : apart}</style>
<style>@media (prefers-color-scheme:dark){.page{background-color:${isOfCard ? DARK.card : DARK.page}!important}.card{background-color:${DARK.card}!important}.area{background-color:${DARK_AREA}!important}
.text{color:${DARK.text}!important}.footer{color:${DARK.muted}!important}.link{color:${readableOn(DARK_AREA, accentColor)}!important;border-color:${readableOn(DARK_AREA, accentColor)}!important}.rule{border-color:#4b5059!important}.image{background-color:${CARD}!important}.logo{padding:4px!important;border-radius:4px!important}}</style>`;
}

const TABLE = `<table role="presentation" cellpadding="0" cellspacing="0" border="0"`;
const forOutlook = (html: string) => `<!--[if mso]>${html}<![endif]-->`;

/** Nothing in it can end the text of the tag, or the tag. */
const inTag = (text: string): string =>
  text.replace(/["'\\{}%<>&\p{Cc}]/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

const urlOf = (href: string): string =>
  URL_TAG.test(href)
    ? href
    : urlParts(href)
        .map((part, i) => (i % 2 ? `{{ ${part} | url_encode }}` : literalHtml(part)))
        .join("");

const link = (href: string, html: string, style: string, name = "") =>
  `<a href="${urlOf(href)}"${name} style="${style}">${html}</a>`;
const textLink = (look: Look, href: string, html: string) =>
  link(href, html, `color:${look.link};text-decoration:underline`, inDark(look, "link"));

const ELEMENTS = { bold: "strong", italic: "em", underline: "u", strike: "s", code: "code" } as const;

function inlineHtml(node: Inline): string {
  let html = "<br>";
  if (node.type === "text") html = literalHtml(node.text);
  if (node.type === "mergeTag") {
    const { name, fallback } = node.attrs;
    html = fallback ? `{{ ${name} | default: "${inTag(fallback)}" }}` : `{{ ${name} }}`;
  }
  for (const { type } of node.marks ?? []) if (type !== "link") html = `<${ELEMENTS[type]}>${html}</${ELEMENTS[type]}>`;
  return html;
}

const hrefOf = ({ marks = [] }: Inline) => marks.flatMap((mark) => (mark.type === "link" ? mark.attrs.href : []))[0];

/** Neighbours with the same address are one link. An empty text keeps its line. */
function wordsHtml(look: Look, words: readonly Inline[]): string {
  const runs: { href: string | undefined; html: string }[] = [];
  for (const node of words) {
    const [href, last] = [hrefOf(node), runs.at(-1)];
    if (last && last.href === href) last.html += inlineHtml(node);
    else runs.push({ href, html: inlineHtml(node) });
  }
  return runs.map(({ href, html }) => (href === undefined ? html : textLink(look, href, html))).join("") || "&nbsp;";
}

type Of<Type extends Block["type"]> = Extract<Block, { type: Type }>;
type TextBlock = Of<"blockquote">["content"][number];

function textHtml(look: Look, block: TextBlock, isLast = true): string {
  const margin = isLast ? "0" : "0 0 12px";
  if (block.type === "paragraph") {
    const { textAlign } = block.attrs ?? {};
    return `<p style="margin:${margin}${textAlign ? `;text-align:${textAlign}` : ""}">${wordsHtml(look, block.content)}</p>`;
  }
  const name = block.type === "bulletList" ? "ul" : "ol";
  const items = block.content.map((item) => `<li style="margin:0 0 4px">${textsHtml(look, item.content)}</li>`);
  return `<${name} style="margin:${margin};padding:0 0 0 24px">${items.join("")}</${name}>`;
}

const textsHtml = (look: Look, blocks: readonly TextBlock[]): string =>
  blocks.map((block, i) => textHtml(look, block, i === blocks.length - 1)).join("");

/** @param room the width of the text around it, in pixels */
function imageHtml(look: Look, { src, alt, width, href, shape }: Of<"image">["attrs"], room: number): string {
  if (src === "") return "";
  const shown = Math.round(Math.min(width ?? room, room));
  const style = `display:inline-block;vertical-align:bottom;width:100%;max-width:${shown}px;height:auto;border:0${shape ? ";border-radius:50%" : ""}`;
  const ofDark = look.isFixed ? [] : ["image", ...(look.isTop && shown <= LOGO_WIDTH && !shape ? ["logo"] : [])];
  const names = [...(shown === Math.round(room) ? ["wide"] : []), ...ofDark].join(" ");
  const name = names && ` class="${names}"`;
  const image = `<img${name} src="${literalHtml(src)}" alt="${literalHtml(alt ?? "")}" width="${shown}" style="${style}">`;
  return href ? link(href, image, "text-decoration:none") : image;
}

function buttonHtml(look: Look, { label, href, align, look: kind }: Of<"button">["attrs"]): string {
  const isFull = align === "full";
  const isOutline = kind === "outline";
  const color = isOutline ? look.link : textOn(look.accent);
  const name = isOutline ? inDark(look, "link") : "";
  const style = `display:${isFull ? "block" : "inline-block"};padding:12px 24px;font:bold 16px/24px ${look.family};color:${color};text-decoration:none`;
  // One without an address is a link, too: the check before a send counts those that lead nowhere.
  const shown = link(href, literalHtml(label), style, name);
  const area = isOutline
    ? `${name} style="border:2px solid ${look.link}`
    : ` bgcolor="${look.accent}" style="background-color:${look.accent}`;
  const cell = `${area};border-radius:6px;mso-padding-alt:12px 24px"`;
  return `${TABLE} ${isFull ? `width="100%"` : `align="${align ?? "center"}"`}><tr><td align="center"${cell}>${shown}</td></tr></table>`;
}

const space = (height: number): string =>
  `<tr><td height="${height}" style="height:${height}px;font-size:0;line-height:${height}px;mso-line-height-rule:exactly">&nbsp;</td></tr>`;

const isArea = (block: Block | undefined) => block?.type === "columns" && Boolean(block.attrs?.background);

/** A row of a table. @param side padding at both sides @param room the width between them, in pixels @param gap below an area */
function rowHtml(look: Look, block: Block, side: number, room: number, gap = ""): string {
  const row = (html: string, align = "left", style = look.text, name = inDark(look, "text")) =>
    `<tr><td${name} align="${align}" style="padding:0 ${side}px 16px;${style}">${html}</td></tr>\n`;
  switch (block.type) {
    case "heading": {
      const { level, textAlign } = block.attrs;
      const style = `margin:0;font:bold ${SIZES[level]} ${look.family}${textAlign ? `;text-align:${textAlign}` : ""}`;
      return row(`<h${level} style="${style}">${wordsHtml(look, block.content)}</h${level}>`);
    }
    case "blockquote": {
      const quote = `<blockquote style="margin:0">${textsHtml(look, block.content)}</blockquote>`;
      const style = `padding:0 0 0 16px;border-left:4px solid ${RULE};${look.text}`;
      return row(
        `${TABLE} width="100%"><tr><td${inDark(look, "text rule")} style="${style}">${quote}</td></tr></table>`,
      );
    }
    case "image":
      return row(imageHtml(look, block.attrs, room), block.attrs.align ?? "center");
    case "button": {
      const { align } = block.attrs;
      return row(buttonHtml(look, block.attrs), align === "full" ? "center" : (align ?? "center"));
    }
    case "divider": {
      const line = `${TABLE} width="100%"><tr><td${inDark(look, "rule")} style="border-top:1px solid ${RULE};font-size:0;line-height:1px">&nbsp;</td></tr></table>`;
      return row(line, "left", "padding-top:8px");
    }
    case "spacer":
      return space(block.attrs.height);
    case "socialLinks": {
      const links = block.attrs.links.flatMap(({ network, href }) =>
        href ? textLink(look, href, NETWORKS[network]) : [],
      );
      return row(links.join(" &middot; "), block.attrs.align ?? "center");
    }
    // Its colours are its own: they are made for white.
    case "html":
      return row(block.attrs.html, "left", `background-color:${CARD};${lookOf(look).text}`, "");
    case "columns":
      return columnsHtml(look, block, gap);
    default:
      return row(textHtml(look, block));
  }
}

/** The editor keeps an empty line below a last block that is no text. */
const withoutEnd = <One extends Block>(blocks: readonly One[]): One[] =>
  blocks.slice(0, blocks.findLastIndex((block) => block.type !== "paragraph" || block.content.length > 0) + 1);

/** Beside each other where there is room; in Outlook always. One alone is an area. */
function columnsHtml(around: Look, { content, attrs }: Of<"columns">, gap: string): string {
  const { background, widths } = attrs ?? {};
  const look = background ? lookOf(around, background) : around;
  const all = WIDTH - 2 * GUTTER;
  const parts = content.length === 2 && widths ? widths.split(":").map(Number) : content.map(() => 1);
  const unit = all / parts.reduce((sum, part) => sum + part, 0);
  const cell = (width: number) => `<td width="${width}" valign="top">`;
  const columns = content.map((column, i) => {
    const width = (parts[i] ?? 1) * unit;
    const style = `display:inline-block;width:100%;max-width:${width}px;padding:0 0 8px;vertical-align:top`;
    const filled = withoutEnd(column.content);
    // One that is empty keeps its line: Outlook shows no table without a row.
    const blocks = filled.length > 0 ? filled : column.content;
    const rows = blocks.map((block) => rowHtml(look, block, GUTTER, width - 2 * GUTTER)).join("");
    const next = i === 0 ? "" : forOutlook(`</td>${cell(width)}`);
    return `${next}<div class="column" style="${style}">${TABLE} width="100%">${rows}</table></div>`;
  });
  const begin = forOutlook(`${TABLE} width="${all}"><tr>${cell((parts[0] ?? 1) * unit)}`);
  const [area, top, below] = background
    ? [
        `${inDark(look, "area")} bgcolor="${background}"`,
        `${PADDING}px ${GUTTER}px 0;background-color:${background}`,
        gap,
      ]
    : ["", `0 ${GUTTER}px`, ""];
  return `<tr><td${area} style="padding:${top};font-size:0">${begin}${columns.join("")}${forOutlook("</td></tr></table>")}</td></tr>${below}\n`;
}

/** It shows in the list of mails only. What follows it there is blank, so that the text does not. */
function preheaderHtml(preheader: string): string {
  if (preheader === "") return "";
  // An error is placed in it, and not in the HTML.
  compileTemplate(preheader, { escape: true });
  const text = splitTemplate(preheader).map(({ begin, end, kind }) => {
    const part = preheader.slice(begin, end);
    return kind === "text" ? literalHtml(part) : part;
  });
  const style = "display:none;max-height:0;overflow:hidden;opacity:0;font-size:1px;line-height:1px;mso-hide:all";
  return `<div style="${style}">${text.join("")}${"&zwnj;&nbsp;".repeat(80)}</div>\n`;
}

export interface BlockSource {
  blocks: BlockDocument;
  /** A template, as the subject is one. */
  preheader: string | null;
  brand: MailBrand;
}

export type MailBrand = Pick<Brand, "language" | "accentColor" | "backgroundColor" | "font">;

/** By which HTML tells the brand that it was compiled with: it goes where the HTML goes, into versions and copies too. */
const markOf = ({ language, accentColor, backgroundColor, font }: MailBrand) =>
  `<meta name="brand" content="${language} ${accentColor} ${backgroundColor} ${font}">`;

/** Whether compiling its blocks again would leave the brand of a mail as it is. */
export const isOfBrand = (html: string, brand: MailBrand): boolean => html.includes(markOf(brand));

/** Nothing that hides a text; its colours are left to `stylesOf`, for the dark. */
const SHOWN =
  "display:block!important;clear:both!important;position:static!important;margin:0!important;opacity:1!important;overflow:visible!important;transform:none!important;filter:none!important;clip-path:none!important";

/** The style of what stands beside a mail that was not compiled; the mail's style sheet cannot overrule it. */
const PLAIN = `all:initial!important;font:12px/18px sans-serif!important;color:${MUTED}!important;display:block!important;clear:both!important;padding:24px 16px!important;background-color:${CARD}!important`;

/** A footer below the card, or a bar above it: in its column and in the brand of the mail, where that was compiled. */
export function besideCard(mail: string, html: string): string {
  const [, page = "", font] = /<meta name="brand" content="\w+ \S+ (#[\da-f]{6}) (\w+)">/.exec(mail) ?? [];
  const family = Object.entries(FONT_FAMILIES).find(([name]) => name === font)?.[1];
  if (!family) return `<div style="${PLAIN}">${html}</div>`;
  const style = `background-color:${page};color:${readableOn(page, MUTED)};font:12px/18px ${family}`;
  const inner = `all:initial!important;font:inherit!important;color:inherit!important;display:block!important;max-width:${CONTENT_WIDTH}px!important;margin:0 auto!important;padding:${PADDING}px!important`;
  const [begin, end] = [
    `${TABLE} width="${CONTENT_WIDTH}" align="center"><tr><td style="${style}">`,
    "</td></tr></table>",
  ];
  return `<div class="page footer" style="${style}!important;${SHOWN}">${forOutlook(begin)}<div style="${inner}">${html}</div>${forOutlook(end)}</div>`;
}

/** The HTML of a mail, a template. @throws {TemplateError} `syntax` for the preheader */
export function compileBlocks({ blocks, preheader, brand }: BlockSource): string {
  const lang = ` lang="${brand.language}"`;
  const page = brand.backgroundColor;
  const look = lookOf({ family: FONT_FAMILIES[brand.font], accent: brand.accentColor });
  const content = withoutEnd(blocks.content);
  /** Nothing white stands between two areas, and none between an area and the end of the card. */
  const gapBefore = (next: number, height: number) =>
    isArea(content[next - 1] ?? content[next]) && isArea(content[next] ?? content[next - 1]) ? "" : space(height);
  // The console's preview scrolls to a block by its id.
  const row = (block: Block, i: number) =>
    rowHtml({ ...look, isTop: i === 0 }, block, PADDING, CONTENT_WIDTH, gapBefore(i + 1, 16));
  const rows = content.map((block, i) => row(block, i).replace("<tr>", `<tr id="b${i}">`)).join("");
  const card = `<div class="card" style="max-width:${WIDTH}px;margin:0 auto;background-color:#ffffff">${TABLE} width="100%">`;
  return `<!doctype html>
<html${lang}><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
${markOf(brand)}<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark">
${forOutlook("<xml><o:OfficeDocumentSettings><o:PixelsPerInch>96</o:PixelsPerInch></o:OfficeDocumentSettings></xml>")}
${stylesOf(brand)}</head>
<body class="page" style="margin:0;padding:0;background-color:${page}">
${preheaderHtml(preheader ?? "")}<div role="article"${lang}>${TABLE} class="page" width="100%" bgcolor="${page}" style="background-color:${page}"><tr><td align="center">
${forOutlook(`${TABLE} width="${WIDTH}" bgcolor="#ffffff"><tr><td>`)}${card}
${gapBefore(0, PADDING)}
${rows}${isArea(content.at(-1)) ? "" : space(8)}</table></div>${forOutlook("</td></tr></table>")}
</td></tr></table></div></body></html>
`;
}
