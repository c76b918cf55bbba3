import { Context, Liquid, type Template as LiquidTemplate, Tag, toValueSync } from "liquidjs";

/** The merge tags an author may use. */
export const MERGE_TAGS = ["email", "first_name", "last_name", "list_name", "unsubscribe_url"] as const;
export type MergeTag = (typeof MERGE_TAGS)[number];

/** One recipient's values. They are data: a `{{` in a value is printed, not evaluated. A missing value prints nothing. */
export type MergeValues = { readonly [tag in MergeTag]?: string | null | undefined };

export type ContentField = "subject" | "html";

/** A reason why a template cannot be used, precise enough for its author to repair it. */
export type TemplateProblem =
  | { kind: "syntax"; message: string }
  | { kind: "forbidden_tag"; tag: string }
  | { kind: "limits"; message: string };

/** A problem of a draft's subject or body. An unknown tag is a problem for sending only: a draft may hold one. */
export type ContentProblem = (TemplateProblem | { kind: "unknown_tag"; tag: string }) & { field: ContentField };

/** A template that cannot be used, or whose rendering exceeded a limit. */
export class TemplateError extends Error {
  override name = "TemplateError";
  readonly problem: TemplateProblem;
  constructor(problem: TemplateProblem, options?: ErrorOptions) {
    super(problem.kind === "forbidden_tag" ? `the tag "${problem.tag}" is not allowed` : problem.message, options);
    this.problem = problem;
  }
}

export interface TemplateOptions {
  /** Values are HTML-escaped (a body) or not (a subject, plain text). */
  escape: boolean;
  /** Line breaks and control characters in the output become spaces (a subject). */
  singleLine?: boolean;
}

/** Literal text and merge tags in turns: literal, tag, literal, …, literal. */
export interface PlainTemplate {
  readonly literals: readonly string[];
  /** `tags[i]` stands between `literals[i]` and `literals[i + 1]`. */
  readonly tags: readonly MergeTag[];
}

export interface Template {
  /** Names that the template reads but does not define, with their path if there is one: "product.name". */
  readonly variables: ReadonlySet<string>;
  /** Set when the template holds only literal text and merge tags without filters. */
  readonly plain: PlainTemplate | undefined;
  /** @throws {TemplateError} `limits`, when the rendering for these values exceeds a limit */
  render(values: MergeValues): string;
}

/** Most characters of a template, and of its rendering. */
const MAX_CHARS = 2_000_000;
/** Most elements and characters that filters and ranges may create in one rendering. */
const MAX_ALLOCATIONS = 2_000_000;
/** The other limits already bound a rendering; this one covers a case that they miss. */
const MAX_RENDER_MS = 10_000;

/**
 * The first four read files. The loops are refused because no merge tag is a list, and a loop over a range, run for
 * every recipient, would delay all mail of the process.
 */
const FORBIDDEN_TAGS = ["include", "render", "layout", "block", "for", "tablerow"];

/** Prints a value unchanged, but counts it: otherwise a `capture` that doubles itself would escape the memory limit. */
function chargedText(this: { context: Context }, value: unknown): string {
  const text = value === null || value === undefined ? "" : String(value);
  this.context.memoryLimit.use(text.length);
  return text;
}

function createEngine({ escaped }: { escaped: boolean }): Liquid {
  const engine = new Liquid({
    templates: {}, // no lookup of partials, in particular none in the file system
    ownPropertyOnly: true,
    strictFilters: true,
    timezoneOffset: 0,
    parseLimit: MAX_CHARS,
    memoryLimit: MAX_ALLOCATIONS,
    outputEscape: escaped ? "escape" : chargedText,
  });
  // Output of these filters is not escaped a second time. Without the `raw` filter no value is printed unescaped.
  for (const name of ["escape", "escape_once", "xml_escape"]) {
    const filter = engine.filters[name];
    if (typeof filter === "function") engine.registerFilter(name, { raw: true, handler: filter });
  }
  engine.unregisterFilter("raw");
  for (const name of FORBIDDEN_TAGS) {
    engine.registerTag(
      name,
      class extends Tag {
        constructor(...args: ConstructorParameters<typeof Tag>) {
          super(...args);
          throw new TemplateError({ kind: "forbidden_tag", tag: name });
        }
        override render() {
          return "";
        }
      },
    );
  }
  return engine;
}

const engines = { escaped: createEngine({ escaped: true }), verbatim: createEngine({ escaped: false }) };

/**
 * Parses a template, once per send.
 * @throws {TemplateError} `syntax`, `forbidden_tag` or `limits`
 */
export function compileTemplate(source: string, options: TemplateOptions): Template {
  const engine = options.escape ? engines.escaped : engines.verbatim;
  const parsed = parse(engine, source);
  refuseRedefinedTags(engine, parsed);
  const finish = options.singleLine ? toSingleLine : (text: string) => text;
  const plain = plainParts(source);
  return {
    variables: globalVariables(engine, parsed),
    plain,
    render: plain
      ? (values) => finish(renderPlain(plain, values, options.escape ? escapeHtml : undefined))
      : (values) => finish(renderLiquid(engine, parsed, values)),
  };
}

function parse(engine: Liquid, source: string): LiquidTemplate[] {
  if (source.length > MAX_CHARS) {
    throw new TemplateError({ kind: "limits", message: `longer than ${MAX_CHARS} characters` });
  }
  try {
    return engine.parse(source);
  } catch (error) {
    throw asTemplateError(error, "syntax");
  }
}

/** A template that redefines `unsubscribe_url` would remove the link from the footer. */
function refuseRedefinedTags(engine: Liquid, parsed: LiquidTemplate[]): void {
  const { locals } = engine.analyzeSync(parsed, { partials: false });
  const redefined = Object.keys(locals).find(isMergeTag);
  if (redefined !== undefined) throw new TemplateError({ kind: "forbidden_tag", tag: `assign ${redefined}` });
}

function asTemplateError(error: unknown, kind: "syntax" | "limits"): TemplateError {
  const cause = (error as { originalError?: unknown }).originalError ?? error;
  if (cause instanceof TemplateError) return cause;
  // A stack overflow or an overlong string is caused by the template.
  if (cause instanceof RangeError) {
    return new TemplateError({ kind: "limits", message: "nested too deep or too long" }, { cause });
  }
  const message = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
  return new TemplateError({ kind, message: message.slice(0, 200) }, { cause });
}

function globalVariables(engine: Liquid, parsed: LiquidTemplate[]): Set<string> {
  const names = engine
    .globalVariableSegmentsSync(parsed, { partials: false })
    .map((segments) => segments.filter((segment) => typeof segment === "string" || typeof segment === "number"))
    .map((segments) => segments.join("."));
  return new Set(names);
}

const TAG_OUTPUT = new RegExp(`\\{\\{[ \\t\\r\\n]*(${MERGE_TAGS.join("|")})[ \\t\\r\\n]*\\}\\}`);

/** Splits a source that parses into literals and tags; undefined when it holds anything else. */
function plainParts(source: string): PlainTemplate | undefined {
  // With one capturing group, split returns text and tag names in turns.
  const pieces = source.split(TAG_OUTPUT);
  const literals = pieces.filter((_, i) => i % 2 === 0);
  const last = literals.length - 1;
  // "{{{ email }}" is left to the parser, which takes the first two braces.
  const isPlain = literals.every((text, i) => !/\{\{|\{%/.test(text) && !(i < last && text.endsWith("{")));
  return isPlain ? { literals, tags: pieces.filter((_, i) => i % 2 === 1) as MergeTag[] } : undefined;
}

const HTML_ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" };

/** Escapes a value for HTML exactly as liquidjs does. */
export function escapeHtml(value: string): string {
  return /[&<>"']/.test(value) ? value.replace(/[&<>"']/g, (char) => HTML_ESCAPES[char] ?? char) : value;
}

/** Joins literals and encoded values. */
export function renderPlain(
  { literals, tags }: PlainTemplate,
  values: MergeValues,
  encode: (value: string) => string = (value) => value,
): string {
  let text = literals[0] ?? "";
  for (let i = 0; i < tags.length; i++) {
    const tag = tags[i];
    if (tag !== undefined) text += encode(values[tag] ?? "");
    text += literals[i + 1];
  }
  return text;
}

function renderLiquid(engine: Liquid, parsed: LiquidTemplate[], values: MergeValues): string {
  let length = 0;
  const emitter = {
    buffer: "",
    write(piece: unknown) {
      const text = piece === null || piece === undefined ? "" : String(piece);
      length += text.length;
      if (length > MAX_CHARS) {
        throw new TemplateError({ kind: "limits", message: `renders to more than ${MAX_CHARS} characters` });
      }
      this.buffer += text;
    },
  };
  // A copy, because `increment` writes into it; without a prototype, because `{{ constructor }}` would read it.
  const scope = Object.assign(Object.create(null), values);
  const context = new Context(scope, engine.options, { sync: true, renderLimit: MAX_RENDER_MS }, { liquid: engine });
  try {
    return toValueSync(engine.renderer.renderTemplates(parsed, context, emitter));
  } catch (error) {
    throw asTemplateError(error, "limits");
  }
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

/** Lists every problem of a draft's subject and body; an empty list means that they can be sent. */
export function checkContent(content: Record<ContentField, string>): ContentProblem[] {
  return [
    ...checkTemplate("subject", content.subject, { escape: false, singleLine: true }),
    ...checkTemplate("html", content.html, { escape: true }),
  ];
}

function checkTemplate(field: ContentField, source: string, options: TemplateOptions): ContentProblem[] {
  try {
    const template = compileTemplate(source, options);
    // With and without values, so that both branches of an `if first_name` run.
    template.render(SAMPLE);
    template.render({});
    return [...template.variables]
      .filter((name) => !isMergeTag(name))
      .map((tag) => ({ kind: "unknown_tag", field, tag }));
  } catch (error) {
    if (error instanceof TemplateError) return [{ ...error.problem, field }];
    throw error;
  }
}

const isMergeTag = (name: string): name is MergeTag => (MERGE_TAGS as readonly string[]).includes(name);
