import { randomInt } from "node:crypto";
import { compile, type FormatCallback } from "html-to-text";
import { Parser } from "htmlparser2";
import { withinLimits } from "./html-limits.ts";
import { MAX_CHARS } from "./liquid-engine.ts";
import { MAX_TAGS } from "./liquid-source.ts";
import {
  compileTemplate,
  fieldTagsOf,
  fieldValuesOf,
  MERGE_TAGS,
  type MergeValues,
  type PlainTemplate,
  renderPlain,
  splitTemplate,
  type Template,
} from "./template.ts";
import { limits, TemplateError } from "./template-problem.ts";

/** The converter fails above the first. */
const MAX_ROMAN = 3_999;
const MAX_START = 1_000_000_000;

const orderedList: FormatCallback = (list, walk, builder, options) => {
  const first = Number(list.attribs.start ?? 1);
  if (!(Math.abs(first) <= MAX_START)) delete list.attribs.start;
  if (/^i$/i.test(list.attribs.type ?? "") && !(first + list.children.length <= MAX_ROMAN)) delete list.attribs.type;
  formatterOf(builder, "orderedList")(list, walk, builder, options);
};

/** Its types leave `options` out. */
const formatterOf = (builder: Parameters<FormatCallback>[2], name: "orderedList" | "anchor"): FormatCallback =>
  (builder as unknown as { options: { formatters: Record<typeof name, FormatCallback> } }).options.formatters[name];

/** Without the subject and the body that a mail program would fill in. */
const link: FormatCallback = (anchor, walk, builder, options) => {
  const { href } = anchor.attribs;
  const [, address] = /^\s*mailto:([^?]*)/i.exec(href ?? "") ?? [];
  if (address !== undefined) anchor.attribs.href = address;
  formatterOf(builder, "anchor")(anchor, walk, builder, options);
};

/** Such as the preview text at the top of a mail. */
const HIDDEN = ["[hidden]", '[style*="display:none" i]', '[style*="display: none" i]'];

const convert = compile({
  wordwrap: false, // the transfer encoding wraps lines
  formatters: { boundedList: orderedList, addressedLink: link },
  selectors: [
    {
      selector: "a",
      format: "addressedLink",
      options: { hideLinkHrefIfSameAsText: true, noAnchorUrl: true },
    },
    { selector: "img", format: "skip" },
    { selector: "ol", format: "boundedList" },
    ...["h1", "h2", "h3", "h4", "h5", "h6"].map((selector) => ({ selector, options: { uppercase: false } })),
    ...HIDDEN.map((selector) => ({ selector, format: "skip" })),
  ],
});

/** Elements whose text the converter copies once more. */
const COPYING_ELEMENTS = new Set(["ul", "ol", "blockquote", "a"]);
/** Most characters that it copies: a body of 1 MiB may stand in three of these elements as a whole. */
const MAX_COPIED_CHARS = 4_000_000;

/** @throws {TemplateError} `limits` for a document whose conversion could fill the memory */
function assertConvertible(html: string): void {
  let copied = 0;
  let depth = 0;
  const handler = withinLimits({
    onopentag(name) {
      if (COPYING_ELEMENTS.has(name)) depth++;
    },
    ontext(text) {
      copied += depth * text.length;
      if (copied > MAX_COPIED_CHARS)
        throw limits("its lists, quotations and links hold too much text inside each other");
    },
    onclosetag(name) {
      if (COPYING_ELEMENTS.has(name)) depth--;
    },
  });
  new Parser(handler).end(html);
}

/** The plain text of an HTML document. @throws {TemplateError} `limits` for a long text */
function htmlToText(html: string): string {
  assertConvertible(html);
  const text = convert(html);
  if (text.length > MAX_CHARS) throw limits(`its text has more than ${MAX_CHARS} characters`);
  return text;
}

/** Made once per send: plain data, for another thread. */
export type TextTemplate = { plain: PlainTemplate } | { source: string };

const OWN_TAGS = 2;

export function compileText(text: TextTemplate): Pick<Template, "plain" | "render"> {
  if ("plain" in text) return { plain: text.plain, render: (values) => renderPlain(text.plain, values) };
  const { render } = compileTemplate(text.source, { escape: false, ownTags: OWN_TAGS });
  const isSplit = text.source.includes(SPLIT);
  return {
    plain: undefined,
    render: (values) => (isSplit ? render(values).replaceAll(SPLIT, "") : render(values)),
  };
}

/** A placeholder is a token's number between the first two. HTML has no character reference to them. */
const [BEGIN, END, SPLIT] = ["\u0086", "\u0087", "\u0088"];

const withoutMarkers = (text: string): string => text.replace(/[\u0086-\u0088]/g, "\u0089");

const PLACEHOLDER = new RegExp(`${BEGIN}(\\d+)${END}`);

/** The conversion of the HTML must not touch it. */
interface Token {
  source: string;
  /** A condition or a definition: prints nothing itself. */
  steers: boolean;
  name: string;
}

/** Once per send. @throws {TemplateError} `limits` */
export function deriveText(source: string, html: Template): TextTemplate {
  const { marked, tokens } = markTokens(source);
  const { literals, order } = splitText(htmlToText(marked));
  // Tokens and tags are in the same order.
  const text: TextTemplate = html.plain
    ? { plain: plainText(literals, order, html.plain.tags) }
    : (steeredText(tokens, literals, order) ?? { plain: filledText(html) });
  return withLink(text, html);
}

function splitText(text: string): { literals: string[]; order: number[] } {
  const pieces = text.split(PLACEHOLDER);
  return {
    literals: pieces.filter((_, i) => i % 2 === 0),
    order: pieces.filter((_, i) => i % 2 === 1).map(Number),
  };
}

/** A token whose number is no tag's is left out. */
function plainText(literals: readonly string[], order: readonly number[], tagOf: PlainTemplate["tags"]): PlainTemplate {
  const joined = [literals[0] ?? ""];
  const tags: PlainTemplate["tags"][number][] = [];
  order.forEach((index, i) => {
    const tag = tagOf[index];
    const after = literals[i + 1] ?? "";
    if (tag === undefined) joined.push((joined.pop() ?? "") + after);
    else {
      tags.push(tag);
      joined.push(after);
    }
  });
  return { literals: joined, tags };
}

const REGIONS = new Set(["capture", "comment"]);

function markTokens(source: string): { marked: string; tokens: Token[] } {
  const tokens: Token[] = [];
  let marked = "";
  const add = (begin: number, end: number, steers: boolean, name: string) => {
    marked += `${BEGIN}${tokens.length}${END}`;
    tokens.push({ source: source.slice(begin, end), steers, name });
  };
  let region: { name: string; begin: number; depth: number } | undefined;
  for (const { begin, end, kind, name } of splitTemplate(source)) {
    if (region) {
      // The engine nests captures, and ends a comment at the first end of one.
      if (name === "capture" && region.name === name) region.depth++;
      if (name === `end${region.name}` && --region.depth === 0) {
        add(region.begin, end, true, region.name);
        region = undefined;
      }
    } else if (REGIONS.has(name)) region = { name, begin, depth: 1 };
    else if (kind === "text") marked += withoutMarkers(source.slice(begin, end));
    else add(begin, end, kind === "tag" && !PRINTING_TAGS.has(name), name);
  }
  return { marked, tokens };
}

const PRINTING_TAGS = new Set(["echo", "cycle", "increment", "decrement"]);

/**
 * Puts the tags back. Of parts that the conversion removed, such as attributes, the outputs are left out; conditions and
 * definitions go in front of the next tag.
 * @returns undefined when a condition begins in such a place and ends in another
 */
function steeredText(
  tokens: readonly Token[],
  literals: readonly string[],
  order: readonly number[],
): { source: string } | undefined {
  const kept = new Set(order);
  if (!keepsWholeConditions(tokens, kept)) return undefined;
  let source = literally(literals[0] ?? "");
  let next = 0;
  const addRemoved = (before: number) => {
    for (; next < before; next++) if (!kept.has(next) && tokens[next]?.steers) source += tokens[next]?.source;
  };
  order.forEach((index, i) => {
    addRemoved(index);
    source += (tokens[index]?.source ?? "") + literally(literals[i + 1] ?? "");
  });
  addRemoved(tokens.length);
  try {
    compileText({ source });
    return { source };
  } catch (error) {
    // A link's text and its address hold one condition each, and the conversion swaps them.
    if (error instanceof TemplateError) return undefined;
    throw error;
  }
}

/** Braces in the text were entities in the HTML: they begin no tag. */
const literally = (text: string): string => text.replace(/\{(?=[{%]|$)/g, `{${SPLIT}`);

/** All kept, or all removed. */
function keepsWholeConditions(tokens: readonly Token[], kept: ReadonlySet<number>): boolean {
  const open: boolean[] = [];
  return tokens.every(({ name }, index) => {
    const isKept = kept.has(index);
    if (["if", "unless", "case"].includes(name)) open.push(isKept);
    else if (["elsif", "else", "when"].includes(name)) return open.at(-1) === isKept;
    else if (["endif", "endunless", "endcase"].includes(name)) return open.pop() === isKept;
    return true;
  });
}

/**
 * For a body that cannot become a text template: the text that a recipient sees whose every value is known, with the values
 * as merge tags again.
 */
function filledText(html: Template): PlainTemplate {
  // Filters can print any character: a body could contain placeholders.
  const first = randomInt(2 ** 40);
  const fields = fieldTagsOf(html.variables);
  const known = [...MERGE_TAGS, ...fields];
  const placeholder = (tag: (typeof known)[number]) => `${BEGIN}${first + known.indexOf(tag)}${END}`;
  const values = Object.fromEntries(MERGE_TAGS.map((tag) => [tag, placeholder(tag)]));
  const filled = html.render({ ...values, fields: fieldValuesOf(fields, placeholder) });
  const { literals, order } = splitText(htmlToText(filled));
  const numbers = order.map((number) => number - first);
  const { literals: texts, tags } = plainText(literals, numbers, known);
  if (tags.length > MAX_TAGS) throw limits(`it prints merge tags more than ${MAX_TAGS} times`);
  return { literals: texts.map(withoutMarkers), tags };
}

const LINK = "https://link.invalid/";

/** For a text that lost it, for some recipients or for all. */
function withLink(text: TextTemplate, { variables }: Template): TextTemplate {
  const { render } = compileText(text);
  const fields = fieldValuesOf(fieldTagsOf(variables), () => "D");
  const known: MergeValues = { email: "a@b.example", first_name: "A", last_name: "B", list_name: "C", fields };
  if ([known, {}].every((values) => render({ ...values, unsubscribe_url: LINK }).includes(LINK))) return text;
  const label = "\n\nUnsubscribe: ";
  if ("source" in text) return { source: `${text.source}${label}{{ unsubscribe_url }}` };
  const { literals, tags } = text.plain;
  const last = `${literals.at(-1) ?? ""}${label}`;
  return { plain: { literals: [...literals.slice(0, -1), last, ""], tags: [...tags, "unsubscribe_url"] } };
}
