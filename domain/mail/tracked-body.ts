import { randomBytes } from "node:crypto";
import { Parser } from "htmlparser2";
import { MAX_CHARS } from "./liquid-engine.ts";
import type { SourcePart } from "./liquid-source.ts";
import type { PlainTemplate, Template } from "./template.ts";

export interface BodyLink {
  /** In the source, without quotes. */
  begin: number;
  end: number;
  /** As browsers send it, all ASCII. */
  url: string;
}

/** They hold the placeholder of the recipient's own part. */
export interface TrackedUrls {
  /** No text of the body holds it. */
  placeholder: string;
  openUrl: string;
  clickUrl(url: string): string;
}

/** Printable ASCII, as a `Location`. */
export const isRedirectable = (url: string): boolean => /^https?:\/\/[\x21-\x7e]+$/.test(url) && URL.canParse(url);

const LINKING_ELEMENTS = new Set(["a", "area"]);

/** The URL around it must stay below 2,083, which some programs take at most. */
const MAX_URL_CHARS = 1_400;

/**
 * Finds links to http and https without a merge tag or a condition in the address, not below `ownUrl`.
 * @param parts as `splitTemplate` returns them
 */
export function findBodyLinks(source: string, parts: readonly SourcePart[], ownUrl: string): BodyLink[] {
  const html = withoutTags(source, parts);
  const own = new URL(ownUrl).href.replace(/\/?$/, "/");
  const links: BodyLink[] = [];
  /** A condition may give an element several. */
  let found: BodyLink[] = [];
  const parser = new Parser({
    onopentagname() {
      found = [];
    },
    onattribute(name, value, quote) {
      const url = name === "href" ? trackableUrl(value, own) : undefined;
      if (url === undefined) return;
      const { begin, end } = placeOfValue(html, parser.startIndex, parser.endIndex, quote);
      // Without quotes, a condition ends the value here, and not in the mail.
      const hasTags = source.slice(begin, end) !== html.slice(begin, end) || source[end] === "{";
      if (!hasTags) found.push({ begin, end, url });
    },
    onopentag(name) {
      if (LINKING_ELEMENTS.has(name)) links.push(...found);
    },
  });
  parser.end(html);
  return links;
}

/** At the same places. All branches of a condition stand in it, but nothing captured. */
export function withoutTags(source: string, parts: readonly SourcePart[]): string {
  let captures = 0;
  const pieces = parts.map(({ begin, end, kind, name }) => {
    if (name === "capture") captures++;
    else if (name === "endcapture") captures--;
    // A filter may change captured text before it is printed.
    if (kind === "text" && captures === 0) return source.slice(begin, end);
    // A blank would end a value without quotes.
    return (kind === "output" ? "x" : " ").repeat(end - begin);
  });
  return pieces.join("");
}

export function placeOfValue(html: string, begin: number, end: number, quote: string | undefined | null) {
  if (quote) return { begin: html.lastIndexOf(quote, end - 2) + 1, end: end - 1 };
  const [name = ""] = /^[^\s=]+\s*=\s*/.exec(html.slice(begin, end)) ?? [];
  return { begin: begin + name.length, end };
}

/** As a browser sends it; undefined when it is not tracked. @param own base of the service's own pages */
function trackableUrl(href: string, own: string): string | undefined {
  if (!/^\s*https?:\/\//i.test(href) || !URL.canParse(href)) return undefined;
  const url = new URL(href).href;
  return url.startsWith(own) || url.length > MAX_URL_CHARS || !isRedirectable(url) ? undefined : url;
}

/** Of a body that is longer than mail programs show as a whole. */
const MAX_GROWTH_CHARS = 200_000;

/**
 * Puts tracked URLs in, and the pixel at the end. The last links stay as they are when the body's end, where the unsubscribe
 * link may stand, would not be seen.
 * @param shownBytes most bytes that mail programs show as a whole
 */
export function trackBody(html: string, links: readonly BodyLink[], urls: TrackedUrls, shownBytes: number): string {
  const pixel = pixelOf(urls.openUrl);
  const bytes = Buffer.byteLength(html) + pixel.length;
  let room = bytes <= shownBytes ? shownBytes - bytes : Math.min(MAX_GROWTH_CHARS, MAX_CHARS / 2 - bytes);
  let tracked = "";
  let at = 0;
  for (const { begin, end, url } of links) {
    const clickUrl = inAttribute(urls.clickUrl(url));
    room -= clickUrl.length - (end - begin);
    if (room < 0) break;
    tracked += html.slice(at, begin) + clickUrl;
    at = end;
  }
  tracked += html.slice(at);
  const bodyEnd = BODY_END.exec(tracked)?.index ?? tracked.length;
  return tracked.slice(0, bodyEnd) + pixel + tracked.slice(bodyEnd);
}

/** Only elements that show nothing follow it. */
export const BODY_END = /<\/body\s*>\s*(?:<\/html\s*>\s*)?$/i;

/** No style sheet of the body enlarges or moves it. Hidden, some programs would not load it. */
const PIXEL_STYLE =
  "all:initial!important;display:block!important;position:static!important;width:1px!important;height:1px!important";

const pixelOf = (url: string): string =>
  `<img src="${inAttribute(url)}" alt="" width="1" height="1" style="${PIXEL_STYLE}">`;

const inAttribute = (url: string): string => url.replaceAll("&", "&amp;").replaceAll('"', "%22");

export const newPlaceholder = (): string => `track${randomBytes(12).toString("hex")}`;

/** Neither a filter nor a condition of the author sees the value of `mail_token`. */
export function withMailToken(template: Template, placeholder: string): Template {
  const { plain, render } = template;
  return {
    ...template,
    plain: plain && splitAt(plain, placeholder),
    render: (values) => render(values).replaceAll(placeholder, values.mail_token ?? ""),
  };
}

function splitAt({ literals, tags }: PlainTemplate, placeholder: string): PlainTemplate {
  const split: { literals: string[]; tags: PlainTemplate["tags"][number][] } = { literals: [], tags: [] };
  literals.forEach((literal, i) => {
    const [first = "", ...others] = literal.split(placeholder);
    split.literals.push(first, ...others);
    split.tags.push(...others.map(() => "mail_token" as const));
    const tag = tags[i];
    if (tag !== undefined) split.tags.push(tag);
  });
  return split;
}
