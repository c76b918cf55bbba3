import { randomBytes } from "node:crypto";
import { Parser } from "htmlparser2";
import type { MailFooter } from "../../db/entities/team.ts";
import { wordsOf } from "../languages/words.ts";
import { besideCard } from "./blocks/compile.ts";
import { UNREAD, withinLimits } from "./html-limits.ts";
import { compileTemplate, literalHtml, type Template } from "./template.ts";
import { TemplateError } from "./template-problem.ts";
import { BODY_END } from "./tracked-body.ts";

/** Of a mail; each leads to a page of ours. */
const LINK_TAGS = ["unsubscribe_url", "web_url", "tracking_url"] as const;
type LinkTag = (typeof LINK_TAGS)[number];
/** The links, and the name of the list. */
export const FOOTER_TAGS = LINK_TAGS.length + 1;

/** In their order. */
const PARTS = ["mailFooter", "postalAddress", ...LINK_TAGS] as const;
type Part = (typeof PARTS)[number];

/** No style sheet of the body overrules it. */
const LINK_STYLE =
  "all:initial!important;font:inherit!important;color:inherit!important;cursor:pointer!important;text-decoration:underline!important";

const linkTo = (tag: LinkTag, text: string) => `<a href="{{ ${tag} }}" style="${LINK_STYLE}">${text}</a>`;
const linesHtml = (text = "") => literalHtml(text).replace(/\r?\n/g, "<br>");

const isLinkTag = (part: Part): part is LinkTag => LINK_TAGS.some((tag) => tag === part);

/** The texts apart from each other, and the links in one line below the reason. */
function footerHtml(parts: readonly Part[], footer: MailFooter): string {
  const words = wordsOf(footer.language).footer;
  const names = { unsubscribe_url: words.unsubscribe, web_url: words.web, tracking_url: words.tracking };
  const tags = parts.filter(isLinkTag);
  const links = tags.map((tag) => linkTo(tag, names[tag])).join(" &middot; ");
  const reason = footer.isToList ? words.reasonOfList("{{ list_name }}") : words.reason;
  const last = tags.includes("unsubscribe_url") ? `${reason}<br>${links}` : links;
  const texts = parts.map((part) => (isLinkTag(part) ? "" : linesHtml(footer[part] ?? undefined)));
  return [...texts, last].filter(Boolean).join("<br><br>");
}

const NO_FOOTER: MailFooter = { language: "en", mailFooter: null, postalAddress: null };

/** A postal address as its merge tag prints it. */
export const addressLine = (footer = NO_FOOTER): string | undefined =>
  footer.postalAddress?.trim().replace(/[\s,]*\n\s*/g, ", ");

/**
 * Adds a footer at the end of the body with what it lacks: the team's text and postal address, the link to unsubscribe, that
 * to the page of a mail that will be on the web, and where opens and clicks are counted the one to the page of the consent.
 * @throws {TemplateError} also when the body would swallow the unsubscribe link
 */
export function withFooter(
  source: string,
  {
    footer = NO_FOOTER,
    tracking,
    isPublic,
  }: { footer?: MailFooter | undefined; tracking?: object | undefined; isPublic?: boolean },
): { source: string; template: Template } {
  const template = compileTemplate(source, { escape: true });
  const isNeeded = (part: Part) => {
    if (part === "web_url") return footer.isOnWeb && !isPublic;
    return part === "tracking_url" ? tracking : part === "unsubscribe_url" ? !isPublic : footer[part];
  };
  const has = shownParts(template, footer);
  const missing = PARTS.filter((part) => isNeeded(part) && (isAlwaysAdded(part, footer) || !has(part)));
  if (missing.length === 0) return { source, template };
  const end = BODY_END.exec(source)?.index ?? source.length;
  // Content that was accepted without these parts may swallow its end: the beginning of the body always shows.
  for (const place of missing.includes("unsubscribe_url") ? [end] : [end, 0]) {
    const html = besideCard(source, footerHtml(missing, footer));
    const completed = source.slice(0, place) + html + source.slice(place);
    const compiled = compileTemplate(completed, { escape: true, ownTags: FOOTER_TAGS });
    if (missing.every(shownParts(compiled, footer))) return { source: completed, template: compiled };
  }
  const message = "its end is inside a comment or an element that shows no links, such as `style`; close that";
  throw new TemplateError({ kind: "syntax", message });
}

/**
 * Which parts a body has: without its conditions, and with them for recipients with a name and without one. A link is an `a` to
 * the URL of its tag, also with a query or fragment; a text is there in any layout.
 */
function shownParts(template: Template, footer: MailFooter): (part: Part) => boolean {
  // Random, so that no link of the author's is equal, and as long as a real one.
  const word = () => randomBytes(12).toString("hex");
  const url = () => `https://${word()}.invalid/u/${randomBytes(60).toString("base64url")}`;
  const urls = { unsubscribe_url: url(), web_url: url(), tracking_url: url() };
  const unnamed = { email: `${word()}@example.com`, ...urls, postal_address: addressLine(footer) };
  const named = { ...unnamed, first_name: word(), last_name: word(), list_name: word() };
  const hasText = footer.mailFooter !== null || footer.postalAddress !== null;
  const bodies = [template.renderFixed(named), template.render(named), template.render(unnamed)].map((html) => {
    const { hrefs, text } = readBody(html);
    return { hrefs, letters: hasText ? lettersOf(text) : "" };
  });
  const isLink = (href: string, to: string) => href.startsWith(to) && /^(?:$|[?#])/.test(href.slice(to.length));
  return (part) => {
    if (isLinkTag(part)) {
      return bodies.every(({ hrefs }) => hrefs.some((href) => isLink(href, urls[part])));
    }
    const own = lettersOf(footer[part] ?? "");
    return bodies.every(({ letters }) => letters.includes(own));
  };
}

/** A body that names a company or a town by chance would hide a short text. */
const isAlwaysAdded = (part: Part, { postalAddress }: MailFooter): boolean =>
  part === "mailFooter" || (part === "postalAddress" && lettersOf(postalAddress ?? "").length < SHORTEST_FOUND);

/** Letters and digits of an address that may stand in a body. */
const SHORTEST_FOUND = 12;

const lettersOf = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");

function readBody(html: string): { hrefs: string[]; text: string } {
  const hrefs: string[] = [];
  let text = "";
  let isRead = true;
  const handler = withinLimits({
    onopentag(name, { href = "" }) {
      isRead = !UNREAD.has(name);
      if (name === "a") hrefs.push(href.trim());
    },
    onclosetag: () => {
      isRead = true;
    },
    ontext(part) {
      if (isRead) text += part;
    },
  });
  new Parser(handler).end(html);
  return { hrefs, text };
}
