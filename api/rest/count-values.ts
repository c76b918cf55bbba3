const QUOTE = '"'.charCodeAt(0);
const BACKSLASH = "\\".charCodeAt(0);
const COMMA = ",".charCodeAt(0);
const COLON = ":".charCodeAt(0);
const SPACE = " ".charCodeAt(0);
const [OPEN_ARRAY, OPEN_OBJECT] = ["[".charCodeAt(0), "{".charCodeAt(0)];
const [CLOSE_ARRAY, CLOSE_OBJECT] = ["]".charCodeAt(0), "}".charCodeAt(0)];

/** Fewest characters per value: a digit and a comma. */
const LEAST_PER_VALUE = 2;

/**
 * Whether a JSON text holds more than `limit` values: objects, arrays, strings, numbers and literals, on every level.
 * The text is scanned once and nothing is made from it. Of a text that is not JSON it may say either.
 */
export function hasMoreValues(json: string, limit: number): boolean {
  if (json.length <= LEAST_PER_VALUE * limit) return false;
  // A value per comma, and the first one of each array and object that is not empty, besides the outermost value.
  let values = 1;
  let last = COLON;
  for (let at = 0; at < json.length; at++) {
    const code = json.charCodeAt(at);
    if (code <= SPACE) continue;
    if (code === QUOTE) at = endOfString(json, at);
    else if (code === COMMA || code === OPEN_ARRAY || code === OPEN_OBJECT) values++;
    else if ((code === CLOSE_ARRAY && last === OPEN_ARRAY) || (code === CLOSE_OBJECT && last === OPEN_OBJECT)) values--;
    last = code;
  }
  return values > limit;
}

/** The place of the quote that ends the string; the end of the text if there is none. */
function endOfString(json: string, start: number): number {
  for (let end = json.indexOf('"', start + 1); end >= 0; end = json.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (json.charCodeAt(end - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return end;
  }
  return json.length;
}
