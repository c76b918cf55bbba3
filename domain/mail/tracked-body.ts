import { randomBytes } from "node:crypto";
import { Parser } from "htmlparser2";
import { MAX_CHARS } from "./liquid-engine.ts";
import type { PlainTemplate, SourcePart, Template } from "./template.ts";

/** A link of a body that leads to a fixed address. */
export interface BodyLink {
  /** Place of the attribute's value in the source, without quotes */
  begin: number;
  end: number;
  /** Absolute http(s) URL as browsers send it, all ASCII */
  url: string;
}

/** The URLs that take the place of a body's links. They hold the placeholder of the recipient's own part. */
export interface TrackedUrls {
  /** Stands for the part in which the mails of a send differ: no text of the body holds it */
  placeholder: string;
  /** URL of the pixel */
  openUrl: string;
  clickUrl(url: string): string;
}

/** Whether a text can be a `Location`: an absolute http(s) URL of printable ASCII characters. */
export const isRedirectable = (url: string): boolean => /^https?:\/\/[\x21-\x7e]+$/.test(url) && URL.canParse(url);

/** Elements whose `href` a reader follows. */
const LINKING_ELEMENTS = new Set(["a", "area"]);

/** Longest address of a tracked link, in characters: the URL around it must stay below 2,083, which some programs take at most. */
const MAX_URL_CHARS = 1_400;

/**
 * Finds the links of a body that may be tracked: http and https, without a merge tag or a condition in the address, and not
 * below `ownUrl`. Takes time in proportion to the body.
 * @param parts of the source, as `splitTemplate` returns them
 * @param ownUrl base of the service's own pages, to which its unsubscribe links lead
 */
export function findBodyLinks(source: string, parts: readonly SourcePart[], ownUrl: string): BodyLink[] {
  const html = withoutTags(source, parts);
  const own = new URL(ownUrl).href.replace(/\/?$/, "/");
  const links: BodyLink[] = [];
  /** Those of the element that is being read: a condition may give it several. */
  let found: BodyLink[] = [];
  const parser = new Parser({
    onopentagname() {
      found = [];
    },
    onattribute(name, value, quote) {
      const url = name === "href" ? trackableUrl(value, own) : undefined;
      if (url === undefined) return;
      const { begin, end } = placeOfValue(html, parser.startIndex, parser.endIndex, quote);
      const hasTags = source.slice(begin, end) !== html.slice(begin, end);
      if (!hasTags) found.push({ begin, end, url });
    },
    onopentag(name) {
      if (LINKING_ELEMENTS.has(name)) links.push(...found);
    },
  });
  parser.end(html);
  return links;
}

/** The source with blanks in the place of its tags. All branches of a condition stand in it, but nothing captured. */
function withoutTags(source: string, parts: readonly SourcePart[]): string {
  let captures = 0;
  const pieces = parts.map(({ begin, end, kind, name }) => {
    if (name === "capture") captures++;
    else if (name === "endcapture") captures--;
    // A filter may change captured text before it is printed.
    return kind === "text" && captures === 0 ? source.slice(begin, end) : " ".repeat(end - begin);
  });
  return pieces.join("");
}

/** @param begin of the attribute's name @param end behind its value and quote */
function placeOfValue(html: string, begin: number, end: number, quote: string | undefined | null) {
  if (quote) return { begin: html.lastIndexOf(quote, end - 2) + 1, end: end - 1 };
  const [name = ""] = /^href\s*=\s*/i.exec(html.slice(begin, end)) ?? [];
  return { begin: begin + name.length, end };
}

/**
 * The address of a link as a browser sends it; undefined when it is not to be tracked.
 * @param own address below which the service's own pages are
 */
function trackableUrl(href: string, own: string): string | undefined {
  if (!/^\s*https?:\/\//i.test(href) || !URL.canParse(href)) return undefined;
  const url = new URL(href).href;
  return url.startsWith(own) || url.length > MAX_URL_CHARS || !isRedirectable(url) ? undefined : url;
}

/** Characters by which the links of a body may grow that is longer than mail programs show as a whole. */
const MAX_GROWTH_CHARS = 200_000;

/**
 * Puts tracked URLs in the place of a body's links, and the pixel at its end. The last links of a body stay as they are
 * when it would become too long with them: its end, where the unsubscribe link may stand, must be seen.
 * @param shownBytes most bytes of a body that mail programs show as a whole
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

/** A style sheet of the body cannot enlarge or move it, so that it covers nothing. Hidden, some programs would not load it. */
const PIXEL_STYLE =
  "all:initial!important;display:block!important;position:static!important;width:1px!important;height:1px!important";

const pixelOf = (url: string): string =>
  `<img src="${inAttribute(url)}" alt="" width="1" height="1" style="${PIXEL_STYLE}">`;

const inAttribute = (url: string): string => url.replaceAll("&", "&amp;").replaceAll('"', "%22");

/** A text that no body holds. */
export const newPlaceholder = (): string => `track${randomBytes(12).toString("hex")}`;

/** A template whose placeholders are filled by `mail_token`. Neither a filter nor a condition of the author sees the value. */
export function withMailToken(template: Template, placeholder: string): Pick<Template, "plain" | "render"> {
  const { plain, render } = template;
  return {
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
