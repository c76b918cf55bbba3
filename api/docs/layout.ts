import { escapeHtml } from "../../domain/mail/template.ts";
import { ASSETS } from "./assets.ts";

export interface PageEntry {
  path: string;
  title: string;
}

/** A heading that the list "On this page" names. */
export interface Section {
  id: string;
  /** HTML. */
  title: string;
}

interface Layout {
  pages: readonly PageEntry[];
  current: PageEntry;
  /** HTML of the page's content, with its `h1`. */
  content: string;
  sections?: readonly Section[];
  /** HTML that joins the head: style sheets and scripts of this page alone. */
  head?: string;
}

/** From this number of sections on a page begins with a list of them. */
const MIN_LISTED_SECTIONS = 3;

const link = ({ path, title }: PageEntry, current: PageEntry): string =>
  `<li><a href="${path}"${path === current.path ? ' aria-current="page"' : ""}>${escapeHtml(title)}</a></li>`;

function contentsOf(sections: readonly Section[]): string {
  if (sections.length < MIN_LISTED_SECTIONS) return "";
  const items = sections.map(({ id, title }) => `<li><a href="#${id}">${title}</a></li>`);
  return `<nav class="sections" aria-label="On this page"><ul>${items.join("")}</ul></nav>`;
}

export function renderLayout({ pages, current, content, sections = [], head = "" }: Layout): string {
  const [heading = "", ...rest] = content.split(/(?<=<\/h1>)/);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(current.title)} · Mailkeel API</title>
<link rel="icon" href="${ASSETS["icon.svg"].path}">
<link rel="stylesheet" href="${ASSETS["site.css"].path}">
${head}</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><a class="brand" href="/docs"><img src="${ASSETS["icon.svg"].path}" alt="" width="24" height="24">Mailkeel API</a></header>
<div class="frame">
<nav class="pages" aria-label="Documentation"><ul>
${pages.map((page) => link(page, current)).join("\n")}
</ul></nav>
<main id="content" tabindex="-1">
${heading}${contentsOf(sections)}${rest.join("")}
</main>
</div>
</body>
</html>
`;
}
