import { htmlToText } from "./html-text.ts";
import {
  compileTemplate,
  fieldTagsOf,
  fieldValuesOf,
  type MergeValues,
  type PlainTemplate,
  renderPlain,
  splitTemplate,
  type Template,
} from "./template.ts";
import { FOOTER_TAGS } from "./unsubscribe-link.ts";

/** Made once per send: plain data, for another thread. */
export type TextTemplate = { plain: PlainTemplate } | { source: string };

const OWN_TAGS = FOOTER_TAGS + 1;

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

const PLACEHOLDERS = new RegExp(`${BEGIN}(\\d+)${END}`, "g");

/** A comment of nothing but tags keeps them from editors of HTML. */
const TAGS_IN_COMMENT = new RegExp(`<!--\\s*((?:${BEGIN}\\d+${END}\\s*)+)-->`, "g");

/** The conversion of the HTML must not touch it. */
interface Token {
  begin: number;
  end: number;
  /** A condition or a definition: prints nothing itself. */
  steers: boolean;
  name: string;
}

/** A body without its HTML. */
interface Words {
  source: string;
  tokens: readonly Token[];
  /** Around the tokens of `order`: one more than those. */
  literals: readonly string[];
  /** Numbers of the tokens that show. */
  order: readonly number[];
}

/** Once per send. @param unsubscribe what the link is called where the text has none of its own @throws {TemplateError} `limits` */
export function deriveText(source: string, html: Template, unsubscribe: string): TextTemplate {
  const words = readWords(source);
  // Tokens and tags are in the same order.
  return withLink(
    html.plain ? { plain: plainText(words, html.plain.tags) } : { source: steeredText(words) },
    html,
    unsubscribe,
  );
}

/**
 * A condition that does not begin, branch and end in one text or one attribute cannot stand in the text: of such a one the
 * first branch is read.
 * @param isLast conditions without such a branch had others inside
 */
function readWords(source: string, isLast = false): Words {
  const { marked, tokens } = markTokens(source);
  const places = new Map<string, number>();
  const text = htmlToText(marked, (part, place) => {
    for (const [, index = ""] of part.matchAll(PLACEHOLDERS)) places.set(index, place);
  });
  const pieces = text.split(PLACEHOLDERS);
  const literals = pieces.filter((_, i) => i % 2 === 0);
  const order = pieces.filter((_, i) => i % 2 === 1).map(Number);
  const shown = new Set(order);
  const conditions = conditionsOf(tokens);
  const torn = conditions.filter(
    (tags) => new Set(tags.map((index) => `${shown.has(index)} ${places.get(String(index))}`)).size > 1,
  );
  if (torn.length === 0) return { source, tokens, literals, order };
  return readWords(withFirstBranches(source, tokens, isLast ? conditions : torn), true);
}

/** A token whose number is no tag's is left out. */
function plainText({ literals, order }: Words, tagOf: PlainTemplate["tags"]): PlainTemplate {
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
/** What stands between them is text. */
const LITERAL_TAGS = new Set(["raw", "endraw"]);

function markTokens(source: string): { marked: string; tokens: Token[] } {
  const tokens: Token[] = [];
  let marked = "";
  const add = (begin: number, end: number, steers: boolean, name: string) => {
    marked += `${BEGIN}${tokens.length}${END}`;
    tokens.push({ begin, end, steers, name });
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
    else if (!LITERAL_TAGS.has(name)) add(begin, end, kind === "tag" && !PRINTING_TAGS.has(name), name);
  }
  return { marked: marked.replace(TAGS_IN_COMMENT, "$1"), tokens };
}

const PRINTING_TAGS = new Set(["echo", "cycle", "increment", "decrement"]);

/** The numbers of the tags of each: its begin, its other branches, its end. */
function conditionsOf(tokens: readonly Token[]): number[][] {
  const conditions: number[][] = [];
  const open: number[][] = [];
  tokens.forEach(({ name }, index) => {
    if (["if", "unless", "case"].includes(name)) {
      const condition = [index];
      conditions.push(condition);
      open.push(condition);
    } else if (["elsif", "else", "when"].includes(name)) open.at(-1)?.push(index);
    else if (["endif", "endunless", "endcase"].includes(name)) open.pop()?.push(index);
  });
  return conditions;
}

function withFirstBranches(source: string, tokens: readonly Token[], conditions: readonly number[][]): string {
  const cuts = conditions.flatMap((condition) => {
    const tags = condition.flatMap((index) => tokens[index] ?? []);
    const [first] = tags;
    // Nothing before the first `when` is printed.
    const begin = first?.name === "case" ? 1 : 0;
    return [
      [first, tags[begin]],
      [tags[begin + 1], tags.at(-1)],
    ];
  });
  let text = "";
  let at = 0;
  for (const [from, to] of cuts.toSorted(([a], [b]) => (a?.begin ?? 0) - (b?.begin ?? 0))) {
    if (!from || !to) continue;
    text += source.slice(at, Math.max(at, from.begin));
    at = Math.max(at, to.end);
  }
  return text + source.slice(at);
}

/**
 * Puts the tags back. Of parts that do not show, such as attributes, the outputs are left out; conditions and definitions go
 * in front of the next tag.
 */
function steeredText({ source, tokens, literals, order }: Words): string {
  const shown = new Set(order);
  const sourceOf = (token: Token | undefined) => (token ? source.slice(token.begin, token.end) : "");
  let text = literally(literals[0] ?? "");
  let isLineStart = text === "" || text.endsWith("\n");
  let next = 0;
  const addUnseen = (before: number) => {
    for (; next < before; next++) if (!shown.has(next) && tokens[next]?.steers) text += sourceOf(tokens[next]);
  };
  order.forEach((index, i) => {
    addUnseen(index);
    const token = tokens[index];
    const after = literals[i + 1] ?? "";
    // A condition takes the end of a line of its own along: its rows leave no empty line.
    const isAlone = token?.steers === true && isLineStart;
    const literal = isAlone ? after.replace(/^\n+/, "") : after;
    text += sourceOf(token) + literally(literal);
    isLineStart = literal === "" ? isAlone : literal.endsWith("\n");
  });
  addUnseen(tokens.length);
  return text;
}

/** Braces in the text were entities in the HTML: they begin no tag. */
const literally = (text: string): string => text.replace(/\{(?=[{%]|$)/g, `{${SPLIT}`);

const LINK = "https://link.invalid/";

/** For a text that lost it, for some recipients or for all. */
function withLink(text: TextTemplate, { variables }: Template, unsubscribe: string): TextTemplate {
  const { render } = compileText(text);
  const fields = fieldValuesOf(fieldTagsOf(variables), () => "D");
  const known: MergeValues = { email: "a@b.example", first_name: "A", last_name: "B", list_name: "C", fields };
  if ([known, {}].every((values) => render({ ...values, unsubscribe_url: LINK }).includes(LINK))) return text;
  const label = `\n\n${unsubscribe}\n`;
  if ("source" in text) return { source: `${text.source}${label}{{ unsubscribe_url }}` };
  const { literals, tags } = text.plain;
  const last = `${literals.at(-1) ?? ""}${label}`;
  return { plain: { literals: [...literals.slice(0, -1), last, ""], tags: [...tags, "unsubscribe_url"] } };
}
