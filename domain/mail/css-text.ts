import { type CSSToken, TokenType, tokenize } from "@csstools/css-tokenizer";

/** Characters that do not separate names. */
const inName = (name: string): string => name.toLowerCase().replace(/[^\w-]/g, "_");

/** Tokens that would be read as one if nothing stood between them. */
const WORDS = new Set<string>([
  TokenType.Ident,
  TokenType.Function,
  TokenType.Hash,
  TokenType.AtKeyword,
  TokenType.Number,
  TokenType.Percentage,
  TokenType.Dimension,
]);

/**
 * Rewrites CSS, as browsers split it into tokens, so that its punctuation means what it seems to: without comments, in
 * lower case, numbers without exponents, strings and names with letters, digits, "-" and "_" only, addresses left out. A
 * backslash stands where a name is written with an escape and is none of a class or an id, and where a token is broken.
 */
export function plainCss(css: string): string {
  const pieces: string[] = [];
  let last: CSSToken | undefined;
  for (const token of tokenize({ css })) {
    // A comment ends a name.
    if (last && WORDS.has(last[0]) && WORDS.has(token[0])) pieces.push(" ");
    pieces.push(textOf(token, last?.[1] === "."));
    if (token[0] !== TokenType.Comment) last = token;
  }
  return pieces.join("");
}

function textOf(token: CSSToken, isClass: boolean): string {
  const written = token[1];
  switch (token[0]) {
    case TokenType.Ident:
      return isClass ? inName(token[4].value) : nameOf(written, token[4].value);
    case TokenType.Function:
      return `${nameOf(written, token[4].value)}(`;
    case TokenType.AtKeyword:
      return `@${nameOf(written, token[4].value)}`;
    case TokenType.Hash:
      return `#${inName(token[4].value)}`;
    case TokenType.Number:
      return String(token[4].value);
    case TokenType.Percentage:
      return `${token[4].value}%`;
    case TokenType.Dimension:
      return `${token[4].value}${nameOf(written, token[4].unit)}`;
    case TokenType.String:
      return `"${token[4].value.replace(/[^\w-]/g, "_").toLowerCase()}"`;
    case TokenType.URL:
      return "url()";
    case TokenType.BadString:
    case TokenType.BadURL:
      return "\\";
    case TokenType.Comment:
    case TokenType.EOF:
      return "";
    case TokenType.Whitespace:
    case TokenType.CDO:
    case TokenType.CDC:
      return " ";
    default:
      // Not all programs take the same characters for letters.
      return /[\u0080-\u{10ffff}]/u.test(written) ? "_" : written;
  }
}

/** Outlook and old browsers read a value with such an end, others ignore it. */
const OLD_END = /\\9$/;

function nameOf(written: string, name: string): string {
  if (!written.includes("\\")) return inName(name);
  return OLD_END.test(written) && written.indexOf("\\") === written.length - 2
    ? `${inName(name.slice(0, -1))}\\9`
    : `\\${inName(name)}`;
}
