import { MERGE_TAGS } from "./merge-tags.ts";

/* Where the links of mails of blocks may lead, for the service and for the console, in which they are written. */

const FIELD = String.raw`fields\.[a-z][a-z0-9_]{0,99}`;
/** A whole URL. */
export const URL_TAG = new RegExp(String.raw`^\{\{\s*(unsubscribe_url|tracking_url|web_url|${FIELD})\s*\}\}$`);

const valueTag = [...MERGE_TAGS.filter((one) => !one.endsWith("_url")), FIELD].join("|");
const TAG = new RegExp(String.raw`\{\{\s*(${valueTag})\s*\}\}`);
/** Texts of a URL and names of its merge tags, in turns. One before the path would choose the server: it stays a text. */
export function urlParts(href: string): string[] {
  const [server = ""] = /^https?:\/\/[^/?#{}]+[/?#]/i.exec(href) ?? [];
  if (server === "") return [href];
  const [first = "", ...rest] = href.slice(server.length).split(TAG);
  return [server + first, ...rest];
}
const withoutTags = (href: string) =>
  urlParts(href)
    .map((part, i) => (i % 2 ? "x" : part))
    .join("");

/** The URL parser would take a control character out of a scheme, or white space. */
const isUrl = (text: string, scheme: RegExp) => scheme.test(text) && URL.canParse(text) && !/[\s\p{Cc}\\]/u.test(text);

export const isWebUrl = (text: string): boolean => isUrl(text, /^https?:\/\//i);

/** What `isLink` asks for. */
export const LINK_RULE = "must begin with http:, https:, mailto: or tel:, or be one merge tag";
export const isLink = (text: string): boolean =>
  URL_TAG.test(text) || isUrl(withoutTags(text), /^(?:https?:\/\/|mailto:|tel:)/i);
