import {
  Context,
  defaultOperators,
  type Emitter,
  type FilterImplOptions,
  filters,
  Liquid,
  type Template as LiquidTemplate,
  type Operators,
  Tag,
} from "liquidjs";
import { DATE_FILTERS } from "./liquid-date.ts";
import type { RenderBudget } from "./render-budget.ts";
import { limits, TemplateError } from "./template-problem.ts";

/** Most characters of a template, and of its rendering. */
export const MAX_CHARS = 2_000_000;
/** Most elements and characters that filters and ranges may create in one rendering. */
const MAX_ALLOCATIONS = 2_000_000;
/**
 * Most characters of a text or a list that a filter takes or returns. A filter runs as one step, and several search one
 * text for another: at this length that takes a few milliseconds at most.
 */
const MAX_FILTERED_CHARS = 5_000;

/**
 * The first four read files. The loops are refused because no merge tag is a list, and a loop over a range, run for
 * every recipient, would delay all mail of the process. Without a loop, `break` and `continue` end the whole template,
 * and with it the footer that holds the unsubscribe link.
 */
const FORBIDDEN_TAGS = ["include", "render", "layout", "block", "for", "tablerow", "break", "continue"];

/**
 * Filters of text, numbers, dates and lists of text. Not among them: `raw`, which prints a value unescaped; filters that
 * evaluate an expression for each element; filters of lists of objects, which no merge tag is.
 */
const ALLOWED_FILTERS = `
  escape escape_once xml_escape newline_to_br strip_html append prepend lstrip rstrip strip downcase upcase capitalize
  remove remove_first remove_last replace replace_first replace_last split strip_newlines squish normalize_whitespace
  truncate truncatewords number_of_words slice url_encode url_decode cgi_escape uri_escape slugify default
  base64_encode base64_decode sha256 hmac_sha256 json jsonify inspect to_integer
  abs at_least at_most ceil divided_by floor minus plus modulo times round
  date date_to_xmlschema date_to_rfc822 date_to_string date_to_long_string
  join first last size reverse sort sort_natural sum uniq compact concat push pop shift unshift sample
  array_to_sentence_string`
  .trim()
  .split(/\s+/);

/** Their output is not escaped a second time. Without the `raw` filter no value is printed unescaped. */
const ESCAPING_FILTERS = ["escape", "escape_once", "xml_escape"];

type Step = Generator<unknown, unknown, unknown>;
type FilterScope = { context: Context };
type Filter = (this: FilterScope, ...args: unknown[]) => unknown;

/** @param chars of a rendering @throws {TemplateError} `limits` */
export function assertLength(chars: number): void {
  if (chars > MAX_CHARS) throw limits(`it renders to more than ${MAX_CHARS} characters`);
}

/** @throws {TemplateError} `limits` for a long text, a long list and a list of lists, which doubles when it is printed */
function assertShort(value: unknown): void {
  let chars = 0;
  if (typeof value === "string") chars = value.length;
  else if (Array.isArray(value)) {
    chars = value.length;
    for (const element of value) {
      if (Array.isArray(element)) throw limits("a list holds another list");
      if (typeof element === "string") chars += element.length;
    }
  }
  if (chars > MAX_FILTERED_CHARS) throw limits(`a filter takes and makes at most ${MAX_FILTERED_CHARS} characters`);
}

/** A context that knows how long its rendering may take. */
class BudgetedContext extends Context {
  readonly budget: RenderBudget;
  constructor(engine: Liquid, values: object, budget: RenderBudget) {
    // A copy, because `increment` writes into it; without a prototype, because `{{ constructor }}` would read it.
    super(Object.assign(Object.create(null), values), engine.options, { sync: true }, { liquid: engine });
    this.budget = budget;
  }
}

/** The long steps of a rendering: the time is checked after each of them. */
function* runLong(context: Context, work: () => unknown): Step {
  const result: unknown = yield work();
  if (context instanceof BudgetedContext) context.budget.check();
  return result;
}

function shortOnly(filter: Filter) {
  return function* (this: FilterScope, ...args: unknown[]): Step {
    args.forEach(assertShort);
    const result = yield* runLong(this.context, () => filter.apply(this, args));
    assertShort(result);
    return result;
  };
}

const handlerOf = (filter: FilterImplOptions | undefined) =>
  (typeof filter === "function" ? filter : filter?.handler) as Filter | undefined;

/** Prints a value unchanged, but counts it: otherwise a `capture` that doubles itself would escape the memory limit. */
function printText(this: FilterScope, value: unknown): string {
  if (Array.isArray(value)) assertShort(value);
  const text = value === null || value === undefined ? "" : String(value);
  this.context.memoryLimit.use(text.length);
  return text;
}

function printEscaped(this: FilterScope, value: unknown): string {
  if (Array.isArray(value)) assertShort(value);
  return String(handlerOf(filters["escape"])?.call(this, value));
}

const containsOf = defaultOperators["contains"] as (left: unknown, right: unknown, context: Context) => unknown;

/** It searches one text for another, in one step. */
function* contains(left: unknown, right: unknown, context: Context): Generator<unknown, boolean, unknown> {
  assertShort(left);
  assertShort(right);
  return (yield* runLong(context, () => containsOf(left, right, context))) === true;
}

const operators: Operators = { ...defaultOperators, contains };

/** An engine whose templates cost a bounded amount of work per step, see `renderLiquid`. */
export function createEngine({ escaped }: { escaped: boolean }): Liquid {
  const engine = new Liquid({
    templates: {}, // no lookup of partials, in particular none in the file system
    ownPropertyOnly: true,
    strictFilters: true,
    timezoneOffset: 0,
    memoryLimit: MAX_ALLOCATIONS,
    operators,
    outputEscape: escaped ? printEscaped : printText,
  });
  for (const name of Object.keys(engine.filters)) engine.unregisterFilter(name);
  for (const name of ALLOWED_FILTERS) {
    const filter = DATE_FILTERS[name] ?? handlerOf(filters[name]);
    if (filter) engine.registerFilter(name, { raw: ESCAPING_FILTERS.includes(name), handler: shortOnly(filter) });
  }
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

const isGenerator = (value: unknown): value is Step =>
  typeof value === "object" && value !== null && "next" in value && "throw" in value && "return" in value;

/**
 * Runs LiquidJS's nested generators to their end, as its own `toValueSync` does, and counts each of their steps. The
 * library itself looks at the clock only between tags, and one tag may hold thousands of steps.
 */
export function runSteps(generator: Step, step: () => void): unknown {
  const stack = [generator];
  let input: unknown;
  let failure: { error: unknown } | undefined;
  for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
    step();
    try {
      const state = failure ? top.throw(failure.error) : top.next(input);
      failure = undefined;
      input = undefined;
      if (state.done) stack.pop();
      if (isGenerator(state.value)) stack.push(state.value);
      else input = state.value;
    } catch (error) {
      failure = { error };
      stack.pop();
    }
  }
  if (failure) throw failure.error;
  return input;
}

/** @throws {Error} of LiquidJS, or `TemplateError` when a limit is exceeded */
export function renderLiquid(
  engine: Liquid,
  templates: LiquidTemplate[],
  values: object,
  budget: RenderBudget,
): string {
  let length = 0;
  const emitter: Emitter & { buffer: string } = {
    buffer: "",
    write(piece: unknown) {
      const text = piece === null || piece === undefined ? "" : String(piece);
      length += text.length;
      assertLength(length);
      this.buffer += text;
    },
  };
  const context = new BudgetedContext(engine, values, budget);
  runSteps(engine.renderer.renderTemplates(templates, context, emitter) as Step, () => budget.step());
  return emitter.buffer;
}
