import { LiquidError } from "liquidjs";
import { MAX_FIELD_TEXT_LENGTH } from "../audience/rules.ts";
import { createEngine, MAX_RENDER_MS, renderLiquid } from "./liquid-engine.ts";
import { assertSize, parseSource, type SourcePart, splitSource } from "./liquid-source.ts";
import { type ContentField, type ContentProblem, limits, TemplateError } from "./template-problem.ts";

export type { SourcePart } from "./liquid-source.ts";
export type { ContentField, ContentProblem } from "./template-problem.ts";
export { TemplateError } from "./template-problem.ts";

/** The merge tags an author may use. */
export const MERGE_TAGS = ["email", "first_name", "last_name", "list_name", "unsubscribe_url"] as const;
export type MergeTag = (typeof MERGE_TAGS)[number];

/** A custom field of contacts, such as `fields.city`. */
export type FieldTag = `fields.${string}`;

/** Values of custom fields by name. */
export type FieldMergeValues = Readonly<Record<string, string | number | boolean>>;

/** A tag that no author can write: the recipient's part of tracked URLs. */
type OwnTag = "mail_token";

/** One recipient's values. They are data: a `{{` in a value is printed, not evaluated. A missing value prints nothing. */
export type MergeValues = { readonly [tag in MergeTag | OwnTag]?: string | null | undefined } & {
  readonly fields?: FieldMergeValues | undefined;
};

export interface TemplateOptions {
  /** Values are HTML-escaped (a body) or not (a subject, plain text). */
  escape: boolean;
  /** Line breaks and control characters in the output become spaces (a subject). */
  singleLine?: boolean;
  /** Tags that were added to an author's template, beyond the number that an author may use. */
  ownTags?: number;
}

/** Literal text and merge tags in turns: literal, tag, literal, …, literal. */
export interface PlainTemplate {
  readonly literals: readonly string[];
  /** `tags[i]` stands between `literals[i]` and `literals[i + 1]`. */
  readonly tags: readonly (MergeTag | FieldTag | OwnTag)[];
}

export interface Template {
  /** Names that the template reads but does not define, with their path if there is one: "product.name". */
  readonly variables: ReadonlySet<string>;
  /** Set when the template holds only literal text and merge tags without filters. */
  readonly plain: PlainTemplate | undefined;
  /** @throws {TemplateError} `limits`, when the rendering for these values exceeds a limit */
  render(values: MergeValues): string;
  /** As `render`, without conditions and captures, and all that stands in them. */
  renderFixed(values: MergeValues): string;
}

const engines = { escaped: createEngine({ escaped: true }), verbatim: createEngine({ escaped: false }) };

/** Parses a template, once per send. @throws {TemplateError} `syntax`, `forbidden_tag` or `limits` */
export function compileTemplate(source: string, options: TemplateOptions): Template {
  assertSize(source, options.ownTags);
  const finish = options.singleLine ? toSingleLine : (text: string) => text;
  const plain = plainParts(source);
  if (plain) {
    const render = (values: MergeValues) => finish(renderPlain(plain, values, options.escape ? escapeHtml : undefined));
    return { variables: new Set(plain.tags), plain, render, renderFixed: render };
  }
  const engine = options.escape ? engines.escaped : engines.verbatim;
  const { templates, variables, locals } = translated("syntax", () => parseSource(engine, source));
  // A template that redefines `unsubscribe_url` would remove the link from the footer.
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

/** Splits a template into text and tags, as the engine reads it. @throws {TemplateError} `syntax` */
export const splitTemplate = (source: string): SourcePart[] =>
  translated("syntax", () => splitSource(engines.escaped, source));

/** Runs `work`. @throws {TemplateError} for an error of LiquidJS */
function translated<T>(kind: "syntax" | "limits", work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw asTemplateError(error, kind);
  }
}

/** LiquidJS quotes the template in its messages, so authors get sentences of ours instead. */
const SYNTAX_ERRORS: readonly (readonly [RegExp, string])[] = [
  [/not closed/, "this tag is not closed"],
  [/^tag .* not found/, "there is no such tag, or not at this place"],
  [/^undefined filter/, "there is no such filter"],
];

function asTemplateError(error: unknown, kind: "syntax" | "limits"): TemplateError {
  const cause = (LiquidError.is(error) && error.originalError) || error;
  if (cause instanceof TemplateError) return cause;
  // A stack overflow or an overlong string is caused by the template.
  if (cause instanceof RangeError) {
    return new TemplateError({ kind: "limits", message: "it is nested too deep or too long" }, { cause });
  }
  const text = cause instanceof Error ? cause.message : "";
  if (/render limit/.test(text)) return tooSlow(MAX_RENDER_MS);
  const known = SYNTAX_ERRORS.find(([pattern]) => pattern.test(text))?.[1];
  const sentence = kind === "syntax" ? (known ?? "this cannot be read") : "this cannot be filled";
  const [line, column] = LiquidError.is(error) ? error.token.getPosition() : [];
  const place = line === undefined ? "" : `line ${line}, column ${column}: `;
  return new TemplateError({ kind, message: place + sentence }, { cause });
}

export const tooSlow = (limitMs: number) => limits(`one message takes more than ${limitMs} ms to compose`);

const FIELDS = "fields.";
const TAG_OUTPUT = new RegExp(
  `\\{\\{[ \\t\\r\\n]*(${MERGE_TAGS.join("|")}|fields\\.[a-z][a-z0-9_]*)[ \\t\\r\\n]*\\}\\}`,
);

/** Splits a source that parses into literals and tags; undefined when it holds anything else. */
function plainParts(source: string): PlainTemplate | undefined {
  // With one capturing group, split returns text and tag names in turns.
  const pieces = source.split(TAG_OUTPUT);
  const literals = pieces.filter((_, i) => i % 2 === 0);
  const last = literals.length - 1;
  // "{{{ email }}" is left to the parser, which takes the first two braces.
  const isPlain = literals.every((text, i) => !/\{\{|\{%/.test(text) && !(i < last && text.endsWith("{")));
  return isPlain ? { literals, tags: pieces.filter((_, i) => i % 2 === 1) as PlainTemplate["tags"] } : undefined;
}

const HTML_ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" };

/** Escapes a value for HTML exactly as liquidjs does. */
export function escapeHtml(value: string): string {
  return /[&<>"']/.test(value) ? value.replace(/[&<>"']/g, (char) => HTML_ESCAPES[char] ?? char) : value;
}

const isFieldTag = (tag: string): tag is FieldTag => tag.startsWith(FIELDS);

/** A value as a tag without filters prints it. */
export function printed(values: MergeValues, tag: MergeTag | FieldTag | OwnTag): string {
  if (!isFieldTag(tag)) return values[tag] ?? "";
  const { fields = {} } = values;
  const name = tag.slice(FIELDS.length);
  return Object.hasOwn(fields, name) ? String(fields[name]) : "";
}

/** The custom fields that a template reads, of its `variables`. */
export const fieldTagsOf = (variables: Iterable<string>): FieldTag[] => [...variables].filter(isFieldTag);

/** Values of custom fields, each made by `make`. */
export const fieldValuesOf = <T extends string>(tags: readonly FieldTag[], make: (tag: FieldTag) => T) =>
  Object.fromEntries(tags.map((tag) => [tag.slice(FIELDS.length), make(tag)]));

/** A value as long as that of a custom field can be: three octets a character, as most scripts have. */
export const longestFieldValue = (): string => "\u6f22".repeat(MAX_FIELD_TEXT_LENGTH);

/** Joins literals and encoded values. */
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

const SAMPLE: MergeValues = {
  email: "jane.doe@example.com",
  first_name: "Jane",
  last_name: "Doe",
  list_name: "News",
  unsubscribe_url: "https://example.com/unsubscribe",
};

/**
 * Lists every problem of a draft's subject and body; an empty list means that they can be sent.
 * @param fields names of the custom fields that its recipients may have
 */
export function checkContent(content: Record<ContentField, string>, fields: readonly string[] = []): ContentProblem[] {
  const known = new Set<string>([...MERGE_TAGS, ...fields.map((name) => FIELDS + name)]);
  return [
    ...checkTemplate("subject", content.subject, { escape: false, singleLine: true }, known),
    ...checkTemplate("html", content.html, { escape: true }, known),
  ];
}

function checkTemplate(
  field: ContentField,
  source: string,
  options: TemplateOptions,
  known: ReadonlySet<string>,
): ContentProblem[] {
  try {
    const template = compileTemplate(source, options);
    // With and without values, so that both branches of an `if first_name` run.
    template.render({ ...SAMPLE, fields: fieldValuesOf(fieldTagsOf(template.variables), () => "Sample") });
    template.render({});
    return [...template.variables]
      .filter((name) => !known.has(name))
      .map((tag) => ({ kind: "unknown_tag", field, tag }));
  } catch (error) {
    if (error instanceof TemplateError) return [{ ...error.problem, field }];
    throw error;
  }
}

const isMergeTag = (name: string): name is MergeTag => (MERGE_TAGS as readonly string[]).includes(name);
