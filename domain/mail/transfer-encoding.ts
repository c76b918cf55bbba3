import { foldEvery } from "./header.ts";
import { type MergeValues, type PlainTemplate, printed, renderPlain, type Template } from "./template.ts";
import { limits } from "./template-problem.ts";

/** Without a line break at the end. */
export interface EncodedPart {
  transferEncoding: "quoted-printable" | "base64";
  /** @throws {TemplateError} `limits` */
  encode(values: MergeValues): string;
}

/** One of a body of 1 MiB has up to 3 MB. Many servers take no more than 10 MB. */
const MAX_MESSAGE_BYTES = 4_000_000;

/** @throws {TemplateError} `limits` */
export function assertMessageSize(bytes: number): void {
  if (bytes > MAX_MESSAGE_BYTES) throw limits(`one message has more than ${MAX_MESSAGE_BYTES} bytes`);
}

/** RFC 2045 allows 76, and a soft line break takes one. */
const LINE_CHARS = 75;
const SOFT_BREAK = "=\r\n";
const HEX = Buffer.from("0123456789ABCDEF");
const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const DOT = 46;
const EQUALS = 61;
const DELETE = 127;

/**
 * Always encodes a dot at the start of a line, so that SMTP's dot-stuffing finds none, and a blank at the end of a line or of
 * the text, whose continuation is not known here.
 * @param lineBreaks CRLF stays a line break
 */
function quotedPrintable(text: string, lineBreaks: boolean): { encoded: string; column: number } {
  const bytes = Buffer.from(text, "utf8");
  // A byte takes at most three bytes, and a soft break three for every 73.
  const out = Buffer.allocUnsafe(Math.ceil(bytes.length * 3.2) + SOFT_BREAK.length);
  let length = 0;
  let column = 0;
  const isLineEnd = (i: number) => lineBreaks && bytes[i] === CR && bytes[i + 1] === LF;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] ?? 0;
    if (isLineEnd(i)) {
      out[length++] = CR;
      out[length++] = LF;
      column = 0;
      i++;
      continue;
    }
    let isPlain = byte > SPACE && byte < DELETE && byte !== EQUALS;
    if (byte === SPACE || byte === TAB) isPlain = i + 1 < bytes.length && !isLineEnd(i + 1);
    if (column + (isPlain ? 1 : 3) > LINE_CHARS) {
      length += out.write(SOFT_BREAK, length, "latin1");
      column = 0;
    }
    if (byte === DOT && column === 0) isPlain = false;
    if (isPlain) {
      out[length++] = byte;
      column++;
    } else {
      out[length++] = EQUALS;
      out[length++] = HEX[byte >> 4] ?? 0;
      out[length++] = HEX[byte & 15] ?? 0;
      column += 3;
    }
  }
  return { encoded: out.toString("latin1", 0, length), column };
}

/** As most values are. */
const PLAIN_VALUE = /^(?!\.)[\x20-\x3c\x3e-\x7e]{0,74}[\x21-\x3c\x3e-\x7e]$/;

/** Fits anywhere in a line with enough space. */
function encodeValue(value: string): string {
  if (value === "" || PLAIN_VALUE.test(value)) return value;
  return quotedPrintable(value, false).encoded;
}

const toCrlf = (text: string) => text.replace(/\r\n|\r|\n/g, "\r\n");

/**
 * A soft line break precedes a value that does not fit into the line, and one always follows it: so every literal begins in
 * column 0.
 */
function quotedPrintableParts({ literals, tags }: PlainTemplate) {
  const chunks = literals.map((literal, i) => {
    const text = toCrlf(literal);
    const { encoded, column } = quotedPrintable(text, true);
    const endsMessage = i === literals.length - 1 && text === "";
    return { encoded: i === 0 || endsMessage || text.startsWith("\r\n") ? encoded : SOFT_BREAK + encoded, column };
  });
  const first = chunks[0]?.encoded ?? "";
  const steps = tags.map((tag, i) => ({ tag, column: chunks[i]?.column ?? 0, after: chunks[i + 1]?.encoded ?? "" }));
  return { first, steps, used: [...new Set(tags)] };
}

/** Above this share, base64 is shorter. */
const BASE64_SHARE = 1 / 6;

const isMostlyAscii = (text: string): boolean =>
  Buffer.byteLength(text.replace(/[\0-\x7e]+/g, "")) <= Buffer.byteLength(text) * BASE64_SHARE;

const BASE64_LINE_CHARS = 76;

function base64Lines(text: string): string {
  const encoded = Buffer.from(toCrlf(text), "utf8").toString("base64");
  return foldEvery(encoded, BASE64_LINE_CHARS, "\r\n");
}

/** @param escapeValue the escaping that the template applies to its values */
export function encodePart(
  template: Pick<Template, "plain" | "render">,
  escapeValue: (value: string) => string = (value) => value,
): EncodedPart {
  const { plain } = template;
  const transferEncoding = isMostlyAscii(plain ? plain.literals.join("") : template.render({}))
    ? "quoted-printable"
    : "base64";
  const render = (values: MergeValues) => {
    const text = plain ? renderPlain(plain, values, escapeValue) : template.render(values);
    assertMessageSize(Buffer.byteLength(text));
    return text;
  };
  if (transferEncoding === "base64") {
    return { transferEncoding, encode: (values) => base64Lines(render(values)) };
  }
  if (plain === undefined) {
    return {
      transferEncoding,
      encode: (values) => quotedPrintable(toCrlf(render(values)), true).encoded,
    };
  }
  const { first, steps, used } = quotedPrintableParts(plain);
  return {
    transferEncoding,
    encode(values) {
      const encodedValues: Record<string, string> = {};
      for (const tag of used) encodedValues[tag] = encodeValue(escapeValue(printed(values, tag)));
      let encoded = first;
      for (const { tag, column, after } of steps) {
        const value = encodedValues[tag] ?? "";
        if (column > 0 && column + value.length > LINE_CHARS) encoded += SOFT_BREAK;
        encoded += value + after;
        assertMessageSize(encoded.length);
      }
      return encoded;
    },
  };
}
