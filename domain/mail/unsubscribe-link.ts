import { randomBytes } from "node:crypto";
import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import { compileTemplate, type Template } from "./template.ts";
import { TemplateError } from "./template-problem.ts";
import { BODY_END } from "./tracked-body.ts";

export const FOOTER_TAGS = 1;

/** No style sheet of the body overrules them. */
const FOOTER_STYLE = "all:initial!important;font:12px/18px sans-serif!important;color:#595959!important;";
const BLOCK_STYLE = `${FOOTER_STYLE}display:block!important;clear:both!important;padding:24px 16px!important;background-color:#ffffff!important`;
const LINK_STYLE = `${FOOTER_STYLE}text-decoration:underline!important`;

const FOOTER =
  `<div style="${BLOCK_STYLE}">You receive this email because you are on our mailing list.<br>` +
  `<a href="{{ unsubscribe_url }}" style="${LINK_STYLE}">Unsubscribe</a></div>`;

/**
 * Adds a footer at the end of the body, unless it has an unsubscribe link itself.
 * @throws {TemplateError} also when the body would swallow the footer
 */
export function withUnsubscribeLink(source: string): { source: string; template: Template } {
  const template = compileTemplate(source, { escape: true });
  if (hasUnsubscribeLink(template)) return { source, template };
  const place = BODY_END.exec(source)?.index ?? source.length;
  const withFooter = source.slice(0, place) + FOOTER + source.slice(place);
  const completed = compileTemplate(withFooter, { escape: true, ownTags: FOOTER_TAGS });
  if (hasUnsubscribeLink(completed)) return { source: withFooter, template: completed };
  const message = "its end is inside a comment or an element that shows no links, such as `style`; close that";
  throw new TemplateError({ kind: "syntax", message });
}

/**
 * Whether an `a` leads to the unsubscribe URL, also with a query or fragment: without the body's conditions, and with them
 * for recipients with a name and without one.
 */
function hasUnsubscribeLink(template: Template): boolean {
  // Random, so that no link of the author's is equal, and as long as a real one.
  const word = () => randomBytes(12).toString("hex");
  const url = `https://${word()}.invalid/u/${randomBytes(60).toString("base64url")}`;
  const unnamed = { email: `${word()}@example.com`, unsubscribe_url: url };
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
