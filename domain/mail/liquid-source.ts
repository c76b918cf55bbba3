import {
  type Liquid,
  type Template as LiquidTemplate,
  Parser,
  type Token,
  Tokenizer,
  TypeGuards,
  toValueSync,
  Value,
} from "liquidjs";
import { nearestWord } from "../../lib/nearest.ts";
import { assertFormat } from "./liquid-date.ts";
import { MAX_CHARS } from "./liquid-engine.ts";
import { limits, TemplateError } from "./template-problem.ts";

/** Real newsletters have fewer than a hundred. */
export const MAX_TAGS = 2_000;
/** Of a template together. */
const MAX_TAG_CHARS = 100_000;
/** Of conditions, and of names inside a name. */
const MAX_NESTING = 50;
/** No loop reads a range: it serves comparisons only. */
const MAX_RANGE = 1_000;

/** Before anything parses it. @param ownTags tags that are not the author's @throws {TemplateError} `limits` */
export function assertSize(source: string, ownTags = 0): void {
  if (source.length > MAX_CHARS) throw limits(`it is longer than ${MAX_CHARS} characters`);
  let tags = -ownTags;
  for (const _ of source.matchAll(/\{[{%]/g)) if (++tags > MAX_TAGS) throw limits(`it has more than ${MAX_TAGS} tags`);
}

export interface SourcePart {
  begin: number;
  end: number;
  /** `{{ … }}` prints, `{% … %}` steers. */
  kind: "text" | "output" | "tag";
  /** A tag's first word; else empty. */
  name: string;
}

const tokenize = (engine: Liquid, source: string) =>
  new Tokenizer(source, engine.options.operators).readTopLevelTokens(engine.options);
type LiquidToken = ReturnType<typeof tokenize>[number];

/** As the engine does. @throws {Error} of LiquidJS */
export function splitSource(engine: Liquid, source: string): SourcePart[] {
  return tokenize(engine, source).map((token) => {
    const { begin, end } = token;
    if (TypeGuards.isTagToken(token)) return { begin, end, kind: "tag", name: token.name };
    return { begin, end, kind: TypeGuards.isOutputToken(token) ? "output" : "text", name: "" };
  });
}

/** @returns such as "line 1, column 4: " */
export function placeOf(token: Token): string {
  const [line, column] = token.getPosition();
  return `line ${line}, column ${column}: `;
}

export interface ParsedSource {
  templates: LiquidTemplate[];
  /** With their path if there is one, such as "product.name"; without `locals`. */
  variables: Set<string>;
  locals: Set<string>;
}

/**
 * Parses a template and lists its names. LiquidJS's own analysis searches the source for the line of each name, which is
 * quadratic. @param mergeTags that an error may name @throws {Error} of LiquidJS, or `TemplateError` `limits` or `syntax`
 */
export function parseSource(engine: Liquid, source: string, mergeTags: readonly string[]): ParsedSource {
  const tokens = tokenize(engine, source);
  assertTagSize(source, tokens);
  const parsed: ParsedSource = {
    templates: new Parser(engine).parseTokens(tokens),
    variables: new Set(),
    locals: new Set(),
  };
  const names = { ...parsed, mergeTags };
  for (const template of parsed.templates) visitTemplate(template, names, 0);
  return parsed;
}

function assertTagSize(source: string, tokens: readonly LiquidToken[]): void {
  let chars = 0;
  let lines = 0;
  for (const token of tokens) {
    if (TypeGuards.isHTMLToken(token)) continue;
    chars += token.end - token.begin;
    // Each line of a `liquid` tag is a tag.
    if (TypeGuards.isTagToken(token) && token.name === "liquid") {
      lines += source.slice(token.begin, token.end).split("\n").length;
    }
  }
  if (lines > MAX_TAGS) throw limits(`it has more than ${MAX_TAGS} tags`);
  if (chars > MAX_TAG_CHARS) throw limits(`its tags have more than ${MAX_TAG_CHARS} characters together`);
}

type Names = Pick<ParsedSource, "variables" | "locals"> & { mergeTags: readonly string[] };

function visitTemplate(template: LiquidTemplate, names: Names, depth: number): void {
  if (depth > MAX_NESTING) throw limits(`its tags are nested more than ${MAX_NESTING} deep`);
  for (const argument of template.arguments?.() ?? []) visitValue(argument, names, depth);
  for (const { content } of template.localScope?.() ?? []) names.locals.add(content);
  if (!template.children) return;
  const children = toValueSync(template.children(false, true)) as LiquidTemplate[];
  for (const child of children) visitTemplate(child, names, depth + 1);
}

function visitValue(value: unknown, names: Names, depth: number): void {
  if (depth > MAX_NESTING) throw limits(`its names are nested more than ${MAX_NESTING} deep`);
  const visitAll = (values: Iterable<unknown>) => {
    for (const each of values) visitValue(each, names, depth + 1);
  };
  if (value instanceof Value || TypeGuards.isFilteredValueToken(value)) {
    assertOneValue(value.initial.postfix, names.mergeTags);
    visitAll(value.initial.postfix);
    // A named argument is a pair of a name and a value.
    for (const { name, args } of value.filters) {
      visitAll(args.map((arg) => (Array.isArray(arg) ? arg[1] : arg)));
      if (name === "date" && TypeGuards.isQuotedToken(args[0])) assertFormat(args[0].content);
    }
  } else if (TypeGuards.isRangeToken(value)) {
    assertRange(value.lhs, value.rhs);
  } else if (TypeGuards.isPropertyAccessToken(value)) {
    visitAll([value.variable, ...value.props]);
    const path = pathOf(value.props);
    const [root] = path;
    if (value.variable === undefined && root !== undefined && !names.locals.has(root)) {
      names.variables.add(path.join("."));
    }
  }
}

/** LiquidJS leaves out all but one of several that no operator connects. */
function assertOneValue(postfix: readonly Token[], mergeTags: readonly string[]): void {
  const operators = postfix.filter(TypeGuards.isOperatorToken);
  const connected = operators.filter(({ operator }) => operator !== "not").length;
  const values = postfix.filter((token) => !TypeGuards.isOperatorToken(token));
  const [first] = values;
  if (first === undefined || values.length - connected <= 1) return;
  const words = values.flatMap((token) => (TypeGuards.isPropertyAccessToken(token) ? pathOf(token.props) : []));
  const right = nearestWord(words.join("_"), mergeTags) ?? "first_name";
  const message = `${placeOf(first)}a name has no blanks: write {{ ${right} }}`;
  throw new TemplateError({ kind: "syntax", message });
}

const contentOf = (token: unknown): string | undefined =>
  TypeGuards.isQuotedToken(token) || TypeGuards.isNumberToken(token) || TypeGuards.isWordToken(token)
    ? String(token.content)
    : undefined;

/** A computed name is left out. */
function pathOf(props: readonly unknown[]): string[] {
  const [first, ...rest] = props;
  // `[a.b].c` reads the name that `a.b` holds; LiquidJS lists it as the path a.b.c.
  const root = TypeGuards.isPropertyAccessToken(first) ? pathOf(first.props) : [contentOf(first)];
  return [...root, ...rest.map(contentOf)].filter((name) => name !== undefined);
}

function assertRange(from: unknown, to: unknown): void {
  const [low, high] = [from, to].map((bound) => (TypeGuards.isNumberToken(bound) ? bound.content : Number.NaN));
  if (low === undefined || high === undefined || !(high - low < MAX_RANGE)) {
    throw limits(`a range is written with two numbers less than ${MAX_RANGE} apart`);
  }
}
