import { compile } from "html-to-text";
import { compileTemplate, type MergeTag, type MergeValues, renderPlain, type Template } from "./template.ts";

const convert = compile({
  wordwrap: false, // the transfer encoding keeps lines short
  selectors: [
    { selector: "a", options: { hideLinkHrefIfSameAsText: true, noAnchorUrl: true } },
    { selector: "img", format: "skip" },
    ...["h1", "h2", "h3", "h4", "h5", "h6"].map((selector) => ({ selector, options: { uppercase: false } })),
  ],
});

/** The plain text of an HTML document. */
export const htmlToText = (html: string): string => convert(html);

const LIQUID_TOKEN = /\{\{[\s\S]*?\}\}|\{%[\s\S]*?%\}/g;
/** Stands for a token while HTML becomes text; from the private use area, so that nothing takes it for markup. */
const PLACEHOLDER = /\u{e000}(\d+)\u{e001}/u;

/**
 * The text alternative of an HTML template, itself a template: the conversion is done once per send and the merge tags
 * survive it.
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

/** Undefined when the conversion took the template's tags apart, as with a loop that begins inside an attribute. */
function textTemplate(tokens: readonly string[], literals: readonly string[], order: readonly number[]) {
  const isBlockTag = (index: number) => tokens[index]?.startsWith("{%");
  const blocks = tokens.flatMap((_, index) => (isBlockTag(index) ? [index] : []));
  const kept = order.filter(isBlockTag);
  if (kept.length !== blocks.length || kept.some((index, i) => index !== blocks[i])) return undefined;
  // What reads like a token in the text was an entity in the HTML: it is printed, not run.
  const literally = (text: string) => text.replace(/\{[{%]/g, (braces) => `{{ "${braces}" }}`);
  const text = literals.map((literal, i) => literally(literal) + (tokens[order[i] ?? -1] ?? "")).join("");
  try {
    return compileTemplate(text, { escape: false });
  } catch {
    return undefined;
  }
}

const SENTINEL = "https://unsubscribe.invalid/sentinel";

/** Whether every recipient, with a name or without, sees the unsubscribe link in this body. */
export function showsUnsubscribeLink(html: Template): boolean {
  const filled: MergeValues = { email: "a@b.example", first_name: "A", last_name: "B", list_name: "C" };
  return [filled, {}].every((values) =>
    htmlToText(html.render({ ...values, unsubscribe_url: SENTINEL })).includes(SENTINEL),
  );
}
