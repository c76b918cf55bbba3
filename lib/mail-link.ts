import { TAG_NAME } from "./merge-tags.ts";

/* Where the links of mails of blocks may lead, for the service and for the console, in which they are written. */

export const MAX_LINK_CHARS = 2_000;

const FIELD = String.raw`fields\.[a-z][a-z0-9_]{0,99}`;
/** A whole URL. */
export const URL_TAG = new RegExp(String.raw`^\{\{\s*(unsubscribe_url|tracking_url|web_url|${FIELD})\s*\}\}$`);

const TAG = new RegExp(String.raw`\{\{\s*(${TAG_NAME})\s*\}\}`);
/** Texts of a URL and names of its merge tags, in turns. One before the path would choose the server: it stays a text. */
export function urlParts(href: string): string[] {
  const [server = ""] = /^https?:\/\/[^/?#{}]+[/?#]/i.exec(href) ?? [];
  if (server === "") return [href];
  const [first = "", ...rest] = href.slice(server.length).split(TAG);
  return [server + first, ...rest];
}

const SCHEME = /^(?:https?:\/\/|mailto:|tel:)/i;

/** The URL parser would take a control character out of a scheme, or white space. */
const isUrl = (text: string) => SCHEME.test(text) && URL.canParse(text) && !/[\s\p{Cc}\\]/u.test(text);

export const isWebUrl = (text: string): boolean =>
  text.length <= MAX_LINK_CHARS && /^https?:/i.test(text) && isUrl(text);

/** Why a mail cannot have a link; undefined for one that it can have. */
export function linkProblem(href: string): string | undefined {
  if (href.length > MAX_LINK_CHARS) return `may have ${MAX_LINK_CHARS.toLocaleString("en")} characters at most`;
  const withoutTags = urlParts(href).map((part, i) => (i % 2 ? "x" : part));
  if (SCHEME.test(href) && withoutTags.some((part) => part.includes("{{")))
    return "has a merge tag that is not read: write it as {{ name }}, behind the name of the server";
  if (URL_TAG.test(href) || isUrl(withoutTags.join(""))) return undefined;
  return "must begin with http:, https:, mailto: or tel:, or be one merge tag";
}
