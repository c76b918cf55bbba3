/** The values of each property that leave the footer in sight and in its place. Any other property is uncertain. */
export type HarmlessStyle = readonly (readonly [RegExp, RegExp])[];

const ANY = /^/;
const whole = (pattern: string) => new RegExp(`^(?:${pattern})$`);
/** Html and body have a margin, a padding and a border each: together they leave the footer on the screen of a phone. */
const OFFSET =
  "(?:0|auto|inherit|initial|(?:[1-4]?\\d|50)(?:\\.\\d{1,4})?(?:px|pt)?|[01]?(?:\\.\\d{1,4})?r?em|[0-5](?:\\.\\d{1,4})?%)";
/**
 * Wide enough for the footer's link: with its overflow a narrower element may cut it off. Not a multiple of the size of
 * letters, which may be zero.
 */
const WIDTH =
  "auto|none|inherit|initial|fit-content|(?:[5-9]\\d|100)(?:\\.\\d+)?(?:%|vw)|[2-9]\\d{2}(?:\\.\\d+)?(?:px|pt)?";
const LINE = "[a-z-]+|0|(?:[1-3]?\\d)(?:\\.\\d{1,4})?(?:px|pt)|#[0-9a-f]{3,8}|rgba?\\([\\d\\s.,%/]*\\)";
const LINES = whole(`(?:${LINE})(?:\\s+(?:${LINE})){0,5}`);
/** Lengths may be multiples of it. */
const FONT_SIZE =
  "[a-z-]+|0|(?:[12]?\\d)(?:\\.\\d{1,4})?(?:px|pt)|(?:1(?:\\.[0-4]\\d{0,3})?|0?\\.\\d{1,4})r?em|(?:\\d{1,2}|1[0-4]\\d)(?:\\.\\d{1,4})?%";

/** Of an html or body element. The footer sets all that is inherited itself, so that those are harmless here. */
export const HARMLESS_ROOT: HarmlessStyle = [
  [/^(?:color|color-scheme|supported-color-schemes|direction|visibility|cursor|hyphens|quotes|tab-size)$/, ANY],
  [/^(?:font-(?!size$)|letter-|word-|text-|list-style|caption-|background)[a-z-]*$/, ANY],
  [/^font-size$/, whole(FONT_SIZE)],
  [/^font$/, whole(`(?:[a-z-]+ |[1-9]00 )*(?:${FONT_SIZE})(?: ?/ ?[\\w.%]+)?(?:[ ,]+[\\w"-]+)*`)],
  [/^(?:line-height|vertical-align|table-layout|white-space|overflow-wrap|empty-cells|clear|orphans|widows)$/, ANY],
  [/^(?:(?:-webkit-|-moz-)?box-(?:sizing|shadow)|scroll-behavior)$/, ANY],
  [/^-(?:webkit|moz|moz-osx|ms|o)-(?:text|font|hyphens|tap|interpolation)(?:-[a-z]+)*$/, ANY],
  // A value on the way between two harmless ones is harmless; timing functions with parentheses go beyond them.
  [/^(?:-webkit-|-moz-)?transition(?:-[a-z]+)*$/, /^[^()]*$/],
  // Read by programs that prepare a mail, never by those that show it.
  [/^(?:--|-premailer-)/, ANY],
  [/^mso-(?!hide|element|special)/, ANY],
  [/^(?:margin|padding)(?:-(?:top|right|bottom|left))?$/, whole(`${OFFSET}(?: ${OFFSET}){0,3}`)],
  [/^(?:border(?:-[a-z]+)*|outline(?:-[a-z]+)?)$/, LINES],
  [/^width$/, whole(WIDTH)],
  [/^max-width$/, whole(`${WIDTH}|[1-9]\\d{3}px`)],
  [/^min-(?:width|height)$/, whole(`${WIDTH}|0|\\d{1,2}(?:px|pt|%|vh)|100vh`)],
  [/^(?:max-)?height$/, whole("auto|none|inherit|initial|100%|100vh")],
  // With "hidden", content to the right of a phone's screen could not be reached.
  [/^overflow(?:-[xy])?$/, whole("visible|auto|scroll")],
  // Others are as wide as what they hold, which may move the footer aside.
  [/^display$/, whole("block")],
  [/^position$/, whole("static|relative")],
  [/^opacity$/, whole("1|100%")],
  [/^zoom$/, whole("1|100%|normal")],
  [/^(?:-webkit-|-ms-)?(?:transform|filter|float|clip|clip-path)$/, whole("none|auto")],
  [/^content$/, whole('none|normal|""')],
];

/** Of what a style sheet puts before or after the content of the footer, or of an element around it: it takes no room. */
export const HARMLESS_ADDITION: HarmlessStyle = [
  [/^content$/, whole('none|normal|""')],
  [/^(?:(?:-webkit-|-moz-)?box-sizing|clear|visibility|cursor|color|font-(?:family|style|weight))$/, ANY],
  [/^text-(?:decoration|align|transform)(?:-[a-z]+)*$/, ANY],
  [/^display$/, whole("none|block|inline|inline-block|table")],
  [/^(?:height|width|line-height|font-size|margin|padding|border)$/, whole("0|none")],
];

/** Longest declaration that is read, in characters: a longer one is uncertain. */
const MAX_DECLARATION_CHARS = 500;

/**
 * The first property whose value is not known to be harmless.
 * @param declaration as `plainCss` writes it
 */
export function uncertainProperty(declaration: string, harmless: HarmlessStyle): string | undefined {
  if (declaration.trim() === "") return undefined;
  const colon = declaration.indexOf(":");
  const name = declaration
    .slice(0, Math.max(colon, 0))
    .trim()
    // An old Internet Explorer reads them, others do not.
    .replace(/^[*_]/, "");
  const value = (declaration.length > MAX_DECLARATION_CHARS ? "\\" : declaration.slice(colon + 1))
    .trim()
    .replace(/\s+/g, " ")
    .replace(/ ?! ?(?:important|ie)$/, "")
    .replace(/ ?\\9$/, "");
  if (harmless.some(([names, values]) => names.test(name) && values.test(value))) return undefined;
  return /^[\w-]{1,40}$/.test(name) ? name : "a declaration without a name";
}
