import { createHash } from "node:crypto";
import type { Words } from "../../domain/languages/en.ts";
import { escapeHtml } from "../../domain/mail/template.ts";
import type { Look } from "../../domain/teams/brand.ts";
import { contrast, DARK, FONT_FAMILIES, groundOf, MUTED, TEXT, textOn } from "../../lib/mail-style.ts";

/** The page's background, and an edge that is seen on it and in the dark, and on black and on white. */
const [BACKGROUND, EDGE] = ["#ffffff", "#767676"];

const HEX = /^#[\da-f]{6}$/i;

/** Of pages whose link names no team. */
const PLAIN: Pick<Look, "accentColor" | "backgroundColor" | "font"> = {
  ...{ accentColor: "#0b57d0", backgroundColor: BACKGROUND },
  font: "sans",
};

const styleOf = (accent: string, font: Look["font"], ground: string, isList: boolean): string => `
  :root { color-scheme: light dark; }
  body { margin: 0; font: 1rem/1.5 ${FONT_FAMILIES[font]}; color: ${TEXT}; background: ${ground}; }
  header, main { max-width: ${isList ? 41 : 28}rem; margin: 0 auto; padding: 2rem; overflow-wrap: anywhere; }
  header { margin-top: 10vh; padding-bottom: 1rem; font-weight: 600; color: ${textOn(ground)}; }
  header:empty { padding: 0; }
  header img { display: block; max-width: 100%; max-height: 4rem; }
  main { margin-bottom: 2rem; background: ${BACKGROUND}; border-radius: .5rem; }
  a { color: inherit; }
  ul { padding: 0; list-style: none; }
  li { margin: 2rem 0; }
  li a { font-size: 1.25rem; font-weight: 600; text-decoration: none; }
  li a:hover, li a:focus-visible { text-decoration: underline; }
  li p { margin: .25rem 0 0; }
  small { color: ${MUTED}; }
  h1 { margin-top: 0; font-size: ${isList ? 1.75 : 1.3}rem; }
  form { display: flex; flex-direction: column; align-items: flex-start; gap: .75rem; }
  footer { margin-top: 2rem; }
  button { font: inherit; padding: .6rem 1.2rem; border: 1px solid ${EDGE}; border-radius: .3rem; color: inherit;
    background: none; max-width: 100%; overflow-wrap: anywhere; text-align: start; cursor: pointer; }
  form p { margin: 0; width: 100%; }
  input:not([type=checkbox]) { font: inherit; padding: .5rem; border: 1px solid ${EDGE}; border-radius: .3rem; color: inherit;
    background: none; width: 100%; box-sizing: border-box; }
  .main { font-weight: 600; color: ${textOn(accent)}; background: ${accent}; border-color: ${edgeOn(BACKGROUND, accent)}; }
  button:disabled { opacity: .6; cursor: progress; }
  a.main { display: inline-block; padding: .6rem 1.2rem; border-radius: .3rem; text-decoration: none; }
  button:focus-visible { outline: 3px solid currentColor; outline-offset: 2px; }
  .main:focus-visible { outline-color: ${EDGE}; }
  @media (max-width: ${isList ? 800 : 600}px) {
    header { margin-top: 2rem; padding-top: 0; }
    main { margin: 0 1rem 2rem; padding: 1rem; }
  }
  @media (prefers-color-scheme: dark) {
    body { color: ${DARK.text}; background: ${DARK.page}; }
    header { color: ${DARK.text}; }
    header img { padding: .25rem; border-radius: .25rem; background: ${BACKGROUND}; }
    main { background: ${DARK.card}; }
    small { color: ${DARK.muted}; }
    .main { border-color: ${edgeOn(DARK.card, accent)}; }
  }
`;

const edgeOn = (background: string, accent: string): string => (contrast(accent, background) >= 3 ? accent : EDGE);

/**
 * The origin of a logo, as a policy may name it; undefined for a URL that it may not load. An image of the service's own
 * store has the origin of the page, which on a private network may be one of `http:`.
 */
function originOf(logoUrl: string | null): string | undefined {
  const { origin, protocol, pathname } = URL.parse(logoUrl ?? "") ?? {};
  if (protocol === "http:" && pathname?.startsWith("/i/")) return "'self'";
  return origin && /^https:\/\/[a-z\d.-]+(?::\d+)?$/.test(origin) ? origin : undefined;
}

export interface Page {
  title: string;
  /** Plain text, one paragraph each. */
  paragraphs: string[];
  buttons?: Button[];
  /** A sign-up form as HTML of `api/public/forms.ts`, and the URL to which it may lead. */
  form?: { html: string; thankYouUrl: string | null };
  /** In the look of the main button. */
  mainLink?: Link | undefined;
  /** Below each other on a wide page; a note is a paragraph of its own. */
  links?: (Link & { note: string; date: string })[];
  /** Of Atom: at the end, and for programs. */
  feed?: Link;
}

interface Link {
  url: string;
  text: string;
}

/** The service's mark in a colour, as a document within the page: no request asks for it. */
export function iconOf(look?: Pick<Look, "accentColor">): string {
  const [ground, line] = [colorOf(look), textOn(colorOf(look))].map((color) => color.replace("#", "%23"));
  const svg = `%3Csvg xmlns='http:%2F%2Fwww.w3.org%2F2000%2Fsvg' viewBox='0 0 24 24' fill='none' stroke='${line}' stroke-width='1.75'%3E%3Crect width='24' height='24' rx='5' fill='${ground}' stroke='none'%2F%3E%3Cpath d='M5 7h14v10H5zm0 0 7 6 7-6'%2F%3E%3C%2Fsvg%3E`;
  return `<link rel="icon" href="data:image/svg+xml,${svg}">\n`;
}

export const colorOf = ({ accentColor }: Pick<Look, "accentColor"> = PLAIN): string =>
  HEX.test(accentColor) ? accentColor : PLAIN.accentColor;

export interface Button {
  label: string;
  /** Posted as `scope` where the page has several buttons. */
  scope?: string;
  /** In the team's colour: one button of a page at most. */
  isMain?: boolean;
}

/** A page that says why there is nothing to do. */
export const noticePage = ({ title, reason }: Words["broken"]): Page => ({ title, paragraphs: [reason] });

/**
 * Renders a page for recipients, in the look and language of a team. All values are text: markup in them is shown, never
 * interpreted. It may apply its one style, show the logo and post its form back, and a sign-up form may run its script;
 * nothing else. It is not stored or indexed, and sends no referrer.
 */
export function renderPage(
  { title, paragraphs, buttons = [], form: signUp, mainLink, links, feed }: Page,
  look?: Look,
): { html: string; headers: Record<string, string> } {
  const { font, backgroundColor: color } = look ?? PLAIN;
  const style = styleOf(colorOf(look), font, groundOf(HEX.test(color) ? color : BACKGROUND), links !== undefined);
  const logoOrigin = originOf(look?.logoUrl ?? null);
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'`,
    `img-src ${["data:", logoOrigin].filter(Boolean).join(" ")}`,
    ...(signUp ? ["script-src 'self'", "connect-src 'self'"] : []),
    // A browser checks where the answer to a form leads, too.
    `form-action ${["'self'", URL.parse(signUp?.thankYouUrl ?? "")?.origin].filter(Boolean).join(" ")}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ];
  const headers = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": policy.join("; "),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
  };
  const name = escapeHtml(look?.teamName ?? "");
  const brand = logoOrigin ? `<img src="${escapeHtml(look?.logoUrl ?? "")}" alt="${name}">` : name;
  const text = paragraphs.map((paragraph) => `<p>${escapeHtml(paragraph)}</p>`).join("\n");
  const shown = buttons.map(({ label, scope, isMain }) => {
    const value = scope === undefined ? "" : ` name="scope" value="${scope}"`;
    return `<button${value}${isMain ? ' class="main"' : ""}>${escapeHtml(label)}</button>`;
  });
  const form = shown.length === 0 ? "" : `<form method="post">${shown.join("\n")}</form>`;
  const own = signUp?.html.replace("<button>", '<button class="main">');
  const script = own ? `${own}\n<script src="/f/form.js"></script>` : "";
  const linkTo = ({ url, text }: Link, name = "") => `<a${name} href="${escapeHtml(url)}">${escapeHtml(text)}</a>`;
  const main = mainLink ? `<p>${linkTo(mainLink, ' class="main"')}</p>\n` : "";
  const items = links?.map(
    ({ note, date, ...link }) =>
      `<li><small>${escapeHtml(date)}</small><br>${linkTo(link)}${note && `<p>${escapeHtml(note)}</p>`}`,
  );
  const listed = items?.length ? `<ul>${items.join("\n")}</ul>\n` : "";
  const rel = feed ? `<link rel="alternate" type="application/atom+xml" href="${escapeHtml(feed.url)}">\n` : "";
  const foot = feed ? `<footer><small>${linkTo(feed)}</small></footer>\n` : "";
  const html = `<!doctype html>
<html lang="${look?.language ?? "en"}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
${iconOf(look)}${rel}<style>${style}</style>
<header>${brand}</header>
<main>
<h1>${escapeHtml(title)}</h1>
${text}
${main}${listed}${form}${script}
${foot}</main>
`;
  return { html, headers };
}
