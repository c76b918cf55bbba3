import { Marked, type Tokens } from "marked";
import { escapeHtml } from "../../domain/mail/template.ts";

/** A heading that the list "On this page" names. */
interface Section {
  id: string;
  /** HTML. */
  title: string;
}

/** A rendered text: its HTML, and its headings of the second level. */
interface Rendered {
  html: string;
  sections: Section[];
}

/** `## A new secret` gets `a-new-secret`, and a heading that is an error code the code itself. */
const anchorOf = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^\w\s-]/g, "")
    .trim()
    .replaceAll(/\s+/g, "-");

/**
 * Renders a guide. Tables and code scroll in a region of their own that the keyboard reaches, so that no page is wider than
 * its screen.
 */
export function renderMarkdown(markdown: string): Rendered {
  const sections: Section[] = [];
  const regions: Record<"Code" | "Table", number> = { Code: 0, Table: 0 };
  const scrolling = (kind: keyof typeof regions, html: string): string => {
    regions[kind] += 1;
    return `<div class="scroll" role="region" aria-label="${kind} ${regions[kind]}" tabindex="0">${html}</div>\n`;
  };
  const marked = new Marked();
  marked.use({
    renderer: {
      heading({ tokens, depth, text }: Tokens.Heading) {
        const title = this.parser.parseInline(tokens);
        if (depth === 1) return `<h1>${title}</h1>\n`;
        const id = anchorOf(text);
        if (depth === 2) sections.push({ id, title });
        return `<h${depth} id="${id}">${title}<a class="anchor" href="#${id}" aria-label="Link to this section">#</a></h${depth}>\n`;
      },
      code({ text, lang = "" }: Tokens.Code) {
        return scrolling(
          "Code",
          `<pre><code${lang ? ` class="language-${lang}"` : ""}>${escapeHtml(text)}</code></pre>`,
        );
      },
    },
  });
  // The renderer of tables asks for its cells itself: wrapping its result keeps it whole.
  const html = marked
    .parse(markdown, { async: false })
    .replaceAll(/<table>.*?<\/table>/gs, (table) => scrolling("Table", table));
  return { html, sections };
}
