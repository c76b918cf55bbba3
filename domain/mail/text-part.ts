import { compile } from "html-to-text";
import { compileTemplate, type MergeTag, type MergeValues, renderPlain, type Template } from "./template.ts";

const convert = compile({
  wordwrap: false, // the transfer encoding wraps lines
  selectors: [
    { selector: "a", options: { hideLinkHrefIfSameAsText: true, noAnchorUrl: true } },
    { selector: "img", format: "skip" },
    ...["h1", "h2", "h3", "h4", "h5", "h6"].map((selector) => ({ selector, options: { uppercase: false } })),
  ],
});

/** The plain text of an HTML document. */
export const htmlToText = (html: string): string => convert(html);

const LIQUID_TOKEN = /\{\{[\s\S]*?\}\}|\{%[\s\S]*?%\}/g;
/** Replaces a token while HTML is converted; private use characters, which no converter reads as markup. */
const PLACEHOLDER = /\u{e000}(\d+)\u{e001}/u;

/**
 * Converts an HTML template to a text template. The conversion runs once per send and keeps the merge tags.
 */
export function deriveText(source: string, html: Template): Pick<Template, "plain" | "render"> {
  const tokens: string[] = [];
  const marked = source.replace(/[\u{e000}\u{e001}]/gu, "").replace(LIQUID_TOKEN, (token) => {
    tokens.push(token);
    return `\u{e000}${tokens.length - 1}\u{e001}`;
  });
  const pieces = htmlToText(marked).split(PLACEHOLDER);
  const literals = pieces.filter((_, i) => i % 2 === 0);
  const order = pieces.filter((_, i) => i % 2 === 1).map(Number);

  if (html.plain) {
    const tagAt = html.plain.tags; // a plain template's tokens are its tags, in the same order
    const tags = order.map((index) => tagAt[index]).filter((tag): tag is MergeTag => tag !== undefined);
    const plain = { literals, tags };
    return { plain, render: (values) => renderPlain(plain, values) };
  }
  return (
    textTemplate(tokens, literals, order) ?? { plain: undefined, render: (values) => htmlToText(html.render(values)) }
  );
}

/** Undefined when the conversion removed or reordered tags, for example a condition that begins inside an attribute. */
function textTemplate(tokens: readonly string[], literals: readonly string[], order: readonly number[]) {
  const isBlockTag = (index: number) => tokens[index]?.startsWith("{%");
  const blocks = tokens.flatMap((_, index) => (isBlockTag(index) ? [index] : []));
  const kept = order.filter(isBlockTag);
  if (kept.length !== blocks.length || kept.some((index, i) => index !== blocks[i])) return undefined;
  // Braces in the text were entities in the HTML: they are printed, not evaluated.
  const literally = (text: string) => text.replace(/\{[{%]/g, (braces) => `{{ "${braces}" }}`);
  const text = literals.map((literal, i) => literally(literal) + (tokens[order[i] ?? -1] ?? "")).join("");
  try {
    return compileTemplate(text, { escape: false });
  } catch {
    return undefined;
  }
}

const SENTINEL = "https://unsubscribe.invalid/sentinel";

/** Whether this body shows the unsubscribe link to every recipient, with a name or without. */
export function showsUnsubscribeLink(html: Template): boolean {
  const filled: MergeValues = { email: "a@b.example", first_name: "A", last_name: "B", list_name: "C" };
  return [filled, {}].every((values) =>
    htmlToText(html.render({ ...values, unsubscribe_url: SENTINEL })).includes(SENTINEL),
  );
}
