import { randomBytes } from "node:crypto";
import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import { compileTemplate, type Template } from "./template.ts";
import { TemplateError } from "./template-problem.ts";
import { BODY_END } from "./tracked-body.ts";

/** Of a mail; each leads to a page of ours. */
type LinkTag = "unsubscribe_url" | "tracking_url";

/** No style sheet of the body overrules them. */
const FOOTER_STYLE = "all:initial!important;font:12px/18px sans-serif!important;color:#595959!important;";
const BLOCK_STYLE = `${FOOTER_STYLE}display:block!important;clear:both!important;padding:24px 16px!important;background-color:#ffffff!important`;
const LINK_STYLE = `${FOOTER_STYLE}text-decoration:underline!important`;

const linkTo = (tag: LinkTag, text: string) => `<a href="{{ ${tag} }}" style="${LINK_STYLE}">${text}</a>`;

const FOOTER_LINKS: Record<LinkTag, string> = {
  unsubscribe_url: `You receive this email because you are on our mailing list.<br>${linkTo("unsubscribe_url", "Unsubscribe")}`,
  tracking_url: linkTo("tracking_url", "Choose whether opens and clicks are counted"),
};
export const FOOTER_TAGS = Object.keys(FOOTER_LINKS).length;

/**
 * Adds a footer at the end of the body, unless it has the links itself.
 * @param isTracked the mail also needs a link to the page of the consent
 * @throws {TemplateError} also when the body would swallow the unsubscribe link
 */
export function withFooterLinks(source: string, isTracked: boolean): { source: string; template: Template } {
  const template = compileTemplate(source, { escape: true });
  const needed: LinkTag[] = isTracked ? ["unsubscribe_url", "tracking_url"] : ["unsubscribe_url"];
  const missing = needed.filter((tag) => !hasLink(template, tag));
  if (missing.length === 0) return { source, template };
  const end = BODY_END.exec(source)?.index ?? source.length;
  // Content that was accepted without tracking may swallow its end: the beginning of the body always shows.
  for (const place of missing.includes("unsubscribe_url") ? [end] : [end, 0]) {
    const footer = `<div style="${BLOCK_STYLE}">${missing.map((tag) => FOOTER_LINKS[tag]).join("<br>")}</div>`;
    const withFooter = source.slice(0, place) + footer + source.slice(place);
    const completed = compileTemplate(withFooter, { escape: true, ownTags: FOOTER_TAGS });
    if (missing.every((tag) => hasLink(completed, tag))) return { source: withFooter, template: completed };
  }
  const message = "its end is inside a comment or an element that shows no links, such as `style`; close that";
  throw new TemplateError({ kind: "syntax", message });
}

/**
 * Whether an `a` leads to the URL of a tag, also with a query or fragment: without the body's conditions, and with them
 * for recipients with a name and without one.
 */
function hasLink(template: Template, tag: LinkTag): boolean {
  // Random, so that no link of the author's is equal, and as long as a real one.
  const word = () => randomBytes(12).toString("hex");
  const url = `https://${word()}.invalid/u/${randomBytes(60).toString("base64url")}`;
  const unnamed = { email: `${word()}@example.com`, [tag]: url };
  const named = { ...unnamed, first_name: word(), last_name: word(), list_name: word() };
  const bodies = [template.renderFixed(named), template.render(named), template.render(unnamed)];
  return bodies.every((html) => leadsTo(html, url));
}

function leadsTo(html: string, url: string): boolean {
  let isFound = false;
  const handler = withinLimits({
    onopentag(name, { href = "" }) {
      const link = href.trim();
      isFound ||= name === "a" && link.startsWith(url) && /^(?:$|[?#])/.test(link.slice(url.length));
    },
  });
  new Parser(handler).end(html);
  return isFound;
}
