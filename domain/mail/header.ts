import { domainToASCII } from "node:url";

/** A value that a message cannot carry, or a template over its limits. */
export class UnsendableError extends Error {
  override name = "UnsendableError";
}

/** In base64, they fit a header line of 76 characters after "Subject: ". */
const ENCODED_WORD_BYTES = 39;
const LINE_CHARS = 76;
/** RFC 5322 allows lines of 998, which include the header's name. */
const MAX_WORD_CHARS = 900;

/** Folds the text, and encodes it in RFC 2047 words unless it is plain ASCII. */
export function encodeHeaderText(text: string, column: number): string {
  const isAscii = /^[\x20-\x7e]*$/.test(text) && !text.includes("=?");
  if (isAscii && column + text.length <= LINE_CHARS && text === text.trim()) return text;
  // Folding turns single spaces into line breaks; other spacing is preserved by encoding.
  const words = text.split(" ");
  if (isAscii && words.every((word) => word.length > 0 && word.length <= MAX_WORD_CHARS)) return fold(words, column);
  return encodedWords(text);
}

function fold(words: readonly string[], column: number): string {
  let folded = "";
  let used = column;
  for (const word of words) {
    if (folded !== "") {
      const fits = used + 1 + word.length <= LINE_CHARS;
      folded += fits ? " " : "\r\n ";
      used = fits ? used + 1 : 1;
    }
    folded += word;
    used += word.length;
  }
  return folded;
}

/** Breaks a text after each `chars` characters. */
export function foldEvery(text: string, chars: number, lineBreak: string): string {
  let folded = text.slice(0, chars);
  for (let i = chars; i < text.length; i += chars) folded += lineBreak + text.slice(i, i + chars);
  return folded;
}

function encodedWords(text: string): string {
  const bytes = Buffer.from(text, "utf8");
  const words: string[] = [];
  for (let start = 0; start < bytes.length; ) {
    let end = Math.min(start + ENCODED_WORD_BYTES, bytes.length);
    while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--; // do not split a character
    words.push(`=?UTF-8?B?${bytes.toString("base64", start, end)}?=`);
    start = end;
  }
  return words.join("\r\n ");
}

/** For From. @throws {UnsendableError} when the name holds a control character */
export function encodeMailbox(name: string | null | undefined, address: string, column: number): string {
  if (!name) return address;
  if (HAS_CONTROL.test(name)) throw new UnsendableError("control character in a display name");
  const isAscii = /^[\x20-\x7e]*$/.test(name) && !name.includes("=?");
  const phrase = isAscii && name.length <= MAX_WORD_CHARS ? `"${name.replace(/["\\]/g, "\\$&")}"` : encodedWords(name);
  const used = column + phrase.length - (phrase.lastIndexOf("\n") + 1);
  const gap = used + address.length + 3 > LINE_CHARS ? "\r\n " : " ";
  return `${phrase}${gap}<${address}>`;
}

const HAS_CONTROL = /[\p{Cc}\u2028\u2029]/u;
const LOCAL_PART = /^[\w!#$%&'*+/=?^`{|}~.\u{a0}-\u{10ffff}-]{1,64}$/u;
const ASCII_DOMAIN = /^[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?$/i;

export interface WireAddress {
  /** Its domain in ASCII. */
  address: string;
  /** The server must support SMTPUTF8 (RFC 6531). */
  smtpUtf8: boolean;
}

/** As SMTP carries an address. @throws {UnsendableError} for an invalid one, a quoted local part or an address literal */
export function toWireAddress(address: string): WireAddress {
  const at = address.lastIndexOf("@");
  const localPart = address.slice(0, at);
  let domain = address.slice(at + 1);
  if (at < 1 || !LOCAL_PART.test(localPart) || !localPart.isWellFormed()) throw new UnsendableError("invalid address");
  if (!ASCII_DOMAIN.test(domain)) {
    // The URL parser would silently change these characters.
    if (/[\s%/\\?#:@[\]<>^|]/.test(domain)) throw new UnsendableError("invalid domain");
    domain = domainToASCII(domain);
    if (!ASCII_DOMAIN.test(domain)) throw new UnsendableError("invalid domain");
  }
  return { address: `${localPart}@${domain}`, smtpUtf8: /[^\0-\x7f]/.test(localPart) };
}
