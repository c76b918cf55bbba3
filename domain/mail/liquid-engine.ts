import {
  type Context,
  defaultOperators,
  type FilterImplOptions,
  filters,
  Liquid,
  type Template as LiquidTemplate,
  type Operators,
  Tag,
  toValueSync,
} from "liquidjs";
import { DATE_FILTERS } from "./liquid-date.ts";
import { limits, TemplateError } from "./template-problem.ts";

export const MAX_CHARS = 2_000_000;
/** Time that one rendering may take, in milliseconds. Real newsletters take less than 1 ms. */
export const MAX_RENDER_MS = 1_000;
/** That filters and ranges may create in one rendering. */
const MAX_ALLOCATIONS = 2_000_000;
/** To search one text for another of this length takes milliseconds. */
const MAX_FILTERED_CHARS = 5_000;

/**
 * The first four read files. No merge tag is a list, and a loop over a range would delay all mail of the process. Outside of
 * a loop, `break` and `continue` end the template before the footer.
 */
const FORBIDDEN_TAGS = ["include", "render", "layout", "block", "for", "tablerow", "break", "continue"];

/** Not `raw`, which prints a value unescaped; nor filters that evaluate an expression for each element, or take objects. */
export const ALLOWED_FILTERS: readonly string[] = `
  escape escape_once xml_escape newline_to_br strip_html append prepend lstrip rstrip strip downcase upcase capitalize
  remove remove_first remove_last replace replace_first replace_last split strip_newlines squish normalize_whitespace
  truncate truncatewords number_of_words slice url_encode url_decode cgi_escape uri_escape slugify default
  base64_encode base64_decode sha256 hmac_sha256 json jsonify inspect to_integer
  abs at_least at_most ceil divided_by floor minus plus modulo times round
  date date_to_string date_to_long_string
  join first last size reverse sort sort_natural sum uniq compact concat push pop shift unshift sample
  array_to_sentence_string`
  .trim()
  .split(/\s+/);

/** A blank becomes `%20` and not `+`, which `mailto:` and paths would show. */
export const encodeForUrl = (value: unknown): string =>
  encodeURIComponent((Array.isArray(value) ? value.join("") : String(value ?? "")).toWellFormed());

const OWN_FILTERS: typeof DATE_FILTERS = { ...DATE_FILTERS, url_encode: encodeForUrl };

const ESCAPING_FILTERS = ["escape", "escape_once", "xml_escape"];

type FilterScope = { context: Context };
type Filter = (this: FilterScope, ...args: unknown[]) => unknown;

/** A list of lists doubles when it is printed. @throws {TemplateError} `limits` */
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

/** LiquidJS checks the time between tags; one tag may hold thousands of filters. Some of its functions are generators. */
function runShort(context: Context, work: () => unknown): unknown {
  const result: unknown = toValueSync(work() as Parameters<typeof toValueSync>[0]);
  context.renderLimit.check(performance.now());
  return result;
}

function shortOnly(filter: Filter): Filter {
  return function (...args) {
    args.forEach(assertShort);
    const result = runShort(this.context, () => filter.apply(this, args));
    assertShort(result);
    return result;
  };
}

const handlerOf = (filter: FilterImplOptions | undefined) =>
  (typeof filter === "function" ? filter : filter?.handler) as Filter | undefined;

/** Counts the value: otherwise a `capture` that doubles itself would escape the memory limit. */
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

function contains(left: unknown, right: unknown, context: Context): boolean {
  assertShort(left);
  assertShort(right);
  return runShort(context, () => containsOf(left, right, context)) === true;
}

const operators: Operators = { ...defaultOperators, contains };

export function createEngine({ escaped }: { escaped: boolean }): Liquid {
  const engine = new Liquid({
    templates: {}, // no lookup of partials, in particular none in the file system
    ownPropertyOnly: true,
    strictFilters: true,
    timezoneOffset: 0,
    memoryLimit: MAX_ALLOCATIONS,
    renderLimit: MAX_RENDER_MS,
    operators,
    outputEscape: escaped ? printEscaped : printText,
  });
  for (const name of Object.keys(engine.filters)) engine.unregisterFilter(name);
  for (const name of ALLOWED_FILTERS) {
    const filter = OWN_FILTERS[name] ?? handlerOf(filters[name]);
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

/** @throws {Error} of LiquidJS, or `TemplateError` when a limit is exceeded */
export function renderLiquid(engine: Liquid, templates: LiquidTemplate[], values: object): string {
  // A copy, because `increment` writes into it; without a prototype, because `{{ constructor }}` would read it.
  return String(engine.renderSync(templates, Object.assign(Object.create(null), values)));
}
