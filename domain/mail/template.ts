import { LiquidError, type Token } from "liquidjs";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import { nearestWord } from "../../lib/nearest.ts";
import { MAX_FIELD_TEXT_LENGTH } from "../audience/rules.ts";
import { createEngine, encodeForUrl, MAX_RENDER_MS, renderLiquid } from "./liquid-engine.ts";
import { assertSize, parseSource, placeOf, type SourcePart, splitSource } from "./liquid-source.ts";
import { syntaxHint } from "./syntax-hint.ts";
import { type ContentField, type ContentProblem, limits, TemplateError } from "./template-problem.ts";

export type MergeTag = (typeof MERGE_TAGS)[number];

/** The merge tags of a mail to the subscribers of a list, or to contacts, with custom fields of contacts. */
export const mergeTags = (isToList: boolean, fields: readonly { name: string }[]): string[] => [
  ...MERGE_TAGS.filter((tag) => isToList || tag !== "list_name"),
  ...fields.map(({ name }) => `fields.${name}`),
];

export type FieldTag = `fields.${string}`;

export type FieldMergeValues = Readonly<Record<string, string | number | boolean>>;

/** No author can write it: the recipient's part of tracked URLs. */
type OwnTag = "mail_token";

/** A `{{` in a value is printed, not evaluated. A missing value prints nothing. */
export type MergeValues = { readonly [tag in MergeTag | OwnTag]?: string | null | undefined } & {
  readonly fields?: FieldMergeValues | undefined;
};

export interface TemplateOptions {
  escape: boolean;
  /** Line breaks and control characters become spaces. */
  singleLine?: boolean;
  /** Beyond the number that an author may use. */
  ownTags?: number;
}

const ENCODED = "|url_encode";
type PrintedTag = MergeTag | FieldTag | OwnTag;
type PlainTag = PrintedTag | `${PrintedTag}${typeof ENCODED}`;

/** Literals and tags in turns; a literal is first and last. */
export interface PlainTemplate {
  readonly literals: readonly string[];
  readonly tags: readonly PlainTag[];
}

export interface Template {
  /** With their path if there is one, such as "product.name"; without those that it defines. */
  readonly variables: ReadonlySet<string>;
  /** Set for a template of literals and merge tags, without filters but `url_encode`. */
  readonly plain: PlainTemplate | undefined;
  render(values: MergeValues): string;
  /** Without conditions and captures, and all that stands in them. */
  renderFixed(values: MergeValues): string;
}

const engines = { escaped: createEngine({ escaped: true }), verbatim: createEngine({ escaped: false }) };

export function compileTemplate(source: string, options: TemplateOptions): Template {
  assertSize(source, options.ownTags);
  const finish = options.singleLine ? toSingleLine : (text: string) => text;
  const plain = plainParts(source);
  if (plain) {
    const render = (values: MergeValues) => finish(renderPlain(plain, values, options.escape ? escapeHtml : undefined));
    const variables = new Set(plain.tags.map((tag) => tag.replace(ENCODED, "")));
    return { variables, plain, render, renderFixed: render };
  }
  const engine = options.escape ? engines.escaped : engines.verbatim;
  const { templates, variables, locals } = translated("syntax", () => parseSource(engine, source, MERGE_TAGS));
  // It would remove the link from the footer.
  const redefined = [...locals].find(isMergeTag);
  if (redefined !== undefined) throw new TemplateError({ kind: "forbidden_tag", tag: `assign ${redefined}` });
  const fixed = templates.filter(({ children }) => children === undefined);
  const renderAll = (those: typeof templates, values: MergeValues) =>
    finish(translated("limits", () => renderLiquid(engine, those, values)));
  return {
    variables,
    plain,
    render: (values) => renderAll(templates, values),
    renderFixed: (values) => renderAll(fixed, values),
  };
}

/** As the engine reads it. @throws {TemplateError} `syntax` */
export const splitTemplate = (source: string): SourcePart[] =>
  translated("syntax", () => splitSource(engines.escaped, source));

function translated<T>(kind: "syntax" | "limits", work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw asTemplateError(error, kind);
  }
}

function asTemplateError(error: unknown, kind: "syntax" | "limits"): TemplateError {
  const cause = (LiquidError.is(error) && error.originalError) || error;
  if (cause instanceof TemplateError) return cause;
  if (cause instanceof RangeError) {
    return new TemplateError({ kind: "limits", message: "it is nested too deep or too long" }, { cause });
  }
  const text = cause instanceof Error ? cause.message : "";
  if (/render limit/.test(text)) return tooSlow(MAX_RENDER_MS);
  const token = LiquidError.is(error) ? error.token : undefined;
  const sentence = kind === "syntax" ? syntaxHint(text, tagAt(token), MERGE_TAGS) : "this cannot be filled";
  return new TemplateError({ kind, message: token ? placeOf(token) + sentence : sentence }, { cause });
}

/** The source from the tag on that a token stands in. */
function tagAt(token: Token | undefined): string {
  if (!token) return "";
  const { input, begin } = token;
  return input.slice(Math.max(input.lastIndexOf("{{", begin), input.lastIndexOf("{%", begin), 0));
}

export const tooSlow = (limitMs: number) => limits(`one message takes more than ${limitMs} ms to compose`);

const FIELDS = "fields.";
const BLANKS = "[ \\t\\r\\n]*";
const TAG_OUTPUT = new RegExp(
  `\\{\\{${BLANKS}((?:${MERGE_TAGS.join("|")}|fields\\.[a-z][a-z0-9_]*)(?:${BLANKS}\\|${BLANKS}url_encode)?)${BLANKS}\\}\\}`,
);

/** Undefined for a source that holds anything else. */
function plainParts(source: string): PlainTemplate | undefined {
  // The capturing group returns text and tag names in turns.
  const pieces = source.split(TAG_OUTPUT);
  const literals = pieces.filter((_, i) => i % 2 === 0);
  const last = literals.length - 1;
  // "{{{ email }}" is left to the parser, which takes the first two braces.
  const isPlain = literals.every((text, i) => !/\{\{|\{%/.test(text) && !(i < last && text.endsWith("{")));
  if (!isPlain) return undefined;
  const tags = pieces.filter((_, i) => i % 2 === 1).map((tag) => tag.replace(/\s/g, ""));
  return { literals, tags: tags as PlainTag[] };
}

const HTML_ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" };

/** Exactly as LiquidJS does. */
export function escapeHtml(value: string): string {
  return /[&<>"']/.test(value) ? value.replace(/[&<>"']/g, (char) => HTML_ESCAPES[char] ?? char) : value;
}

/** Braces of a text begin no tag. */
export const literalHtml = (text: string): string => escapeHtml(text).replaceAll("{", "&#123;");

const isEncoded = (tag: PlainTag): tag is Exclude<PlainTag, PrintedTag> => tag.endsWith(ENCODED);

const isFieldTag = (tag: string): tag is FieldTag => tag.startsWith(FIELDS);

export function printed(values: MergeValues, tag: PlainTag): string {
  if (isEncoded(tag)) return encodeForUrl(printed(values, tag.slice(0, -ENCODED.length) as PrintedTag));
  if (!isFieldTag(tag)) return values[tag] ?? "";
  const { fields = {} } = values;
  const name = tag.slice(FIELDS.length);
  return Object.hasOwn(fields, name) ? String(fields[name]) : "";
}

export const fieldTagsOf = (variables: Iterable<string>): FieldTag[] => [...variables].filter(isFieldTag);

export const fieldValuesOf = <T extends string>(tags: readonly FieldTag[], make: (tag: FieldTag) => T) =>
  Object.fromEntries(tags.map((tag) => [tag.slice(FIELDS.length), make(tag)]));

/** Three octets a character, as most scripts have. */
export const longestFieldValue = (): string => "\u6f22".repeat(MAX_FIELD_TEXT_LENGTH);

export function renderPlain(
  { literals, tags }: PlainTemplate,
  values: MergeValues,
  encode: (value: string) => string = (value) => value,
): string {
  let text = literals[0] ?? "";
  for (let i = 0; i < tags.length; i++) {
    const tag = tags[i];
    if (tag !== undefined) text += encode(printed(values, tag));
    text += literals[i + 1];
  }
  return text;
}

function toSingleLine(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]+/gu, " ");
}

export const SAMPLE = {
  email: "jane.doe@example.com",
  first_name: "Jane",
  last_name: "Doe",
  list_name: "News",
  unsubscribe_url: "https://example.com/unsubscribe",
  tracking_url: "https://example.com/tracking",
  web_url: "https://example.com/mail",
  postal_address: "Example Ltd, 1 High Street, London",
} as const satisfies MergeValues;

/** Lists every problem of a draft; none means that it can be sent. @param fields custom fields of its recipients */
export function checkContent(content: Record<ContentField, string>, fields: readonly string[] = []): ContentProblem[] {
  const known = new Set<string>([...MERGE_TAGS, ...fields.map((name) => FIELDS + name)]);
  return [
    ...checkTemplate("subject", content.subject, { escape: false, singleLine: true }, known),
    ...checkTemplate("html", content.html, { escape: true }, known),
  ];
}

/** As many as an answer names: each compares many names. */
const MAX_HINTS = 20;

function checkTemplate(
  field: ContentField,
  source: string,
  options: TemplateOptions,
  known: ReadonlySet<string>,
): ContentProblem[] {
  try {
    const template = compileTemplate(source, options);
    // Both branches of an `if first_name` run.
    template.render({ ...SAMPLE, fields: fieldValuesOf(fieldTagsOf(template.variables), () => "Sample") });
    template.render({});
    return [...template.variables]
      .filter((name) => !known.has(name))
      .map((tag, i) => {
        const nearest = i < MAX_HINTS ? nearestWord(tag, [...known]) : undefined;
        return { kind: "unknown_tag", field, tag, ...(nearest !== undefined && { nearest }) };
      });
  } catch (error) {
    if (error instanceof TemplateError) return [{ ...error.problem, field }];
    throw error;
  }
}

const isMergeTag = (name: string): name is MergeTag => (MERGE_TAGS as readonly string[]).includes(name);
