import PostalMime, { type Email } from "postal-mime";

/** A report stands before the mail that it returns: the rest may be cut off. */
export const MAX_READ_BYTES = 256 * 1024;
/** The parser takes a few microseconds for each, also for an empty one. */
const MAX_LINES = 10_000;
const MAX_TEXT_CHARS = 64 * 1024;
const MAX_LINE_CHARS = 2_000;

const LINE_FEED = 0x0a;

const LIMITS = {
  maxNestingDepth: 16,
  maxHeadersSize: 128 * 1024,
  // The returned mail is evidence, and no part of the report.
  forceRfc822Attachments: true,
} as const;

const RETURNED_TYPES = new Set(["message/rfc822", "message/global", "text/rfc822-headers", "message/rfc822-headers"]);

/** Reduced to what distinguishes a report from other mail. Every text is bounded. */
export interface IncomingMail {
  /** Unfolded; empty where there is none. */
  header(name: string): string;
  /** All values, separated by commas. */
  headerList(name: string): string;
  /** With the name, in lower case. */
  from: string;
  subject: string;
  /** Without the returned mail. */
  text: string;
  /** With the returned mail and with uncut lines. */
  wholeText: string;
  /** Or its headers; empty where there is none. */
  returned: string;
  /** The attached mail, or the text from a line of a header on; empty where there is none. */
  within: Uint8Array;
  /** In lower case; undefined where there is none. */
  part(mimeType: string): string | undefined;
}

/** From before RFC 3834. */
const ANSWER_HEADERS =
  "x-autoreply x-autorespond x-autoresponder x-autorespond-for x-auto-reply-from x-mail-autoreply x-vacation".split(
    " ",
  );

export const saysAutomatic = (mail: IncomingMail): boolean =>
  /^auto-replied/i.test(mail.header("auto-submitted")) ||
  /^auto_?reply/i.test(mail.header("precedence")) ||
  ANSWER_HEADERS.some((name) => mail.header(name) !== "");

/** The bounds keep every rule linear. */
export function bounded(text: string): string {
  const lines = text.slice(0, MAX_TEXT_CHARS).split(/\r\n|\r|\n/);
  return lines.map((line) => line.slice(0, MAX_LINE_CHARS)).join("\n");
}

const SWAPPED_BYTE_ORDER_MARK = "\ufffe";

/** RFC 2781, 4.3: "UTF-16" begins with its byte order; the parser reads all as little-endian. */
const inByteOrder = (text: string): string =>
  text.startsWith(SWAPPED_BYTE_ORDER_MARK) ? Buffer.from(text.slice(1), "utf16le").swap16().toString("utf16le") : text;

const ENTITIES = { nbsp: " ", quot: '"', lt: "<", gt: ">", amp: "&" } as const;

const withoutTags = (html: string): string =>
  html
    .slice(0, MAX_TEXT_CHARS)
    .replace(/<(?:br|p|div|tr|li)\b[^<>]*>/gi, "\n")
    .replace(/<[^<>]*>/g, " ")
    .replace(/&#(\d{1,6});/g, (_, code: string) => String.fromCodePoint(Number(code)))
    .replace(/&(nbsp|quot|lt|gt|amp);/g, (_, name: keyof typeof ENTITIES) => ENTITIES[name]);

/** MTAs before MIME put the returned mail into the text of their report. */
const RETURNED_HEADER = /^(?:received|return-path|dkim-signature|domainkey-signature|x-[a-z0-9-]+|mime-version):/i;
const RETURNED_FOLLOWS =
  /^[-= ]*(?:below this line is a copy|(?:the )?(?:original|unsent|returned|rejected) (?:message|mail)(?: headers?)?(?: follows| attached)?:?[-= .]*$|message headers? follows?|this is a copy of|(?:included|enclosed|attachment) is a copy|the header of the original|start of returned)/i;

function splitReturned(text: string): { own: string; returned: string; mail: string } {
  const lines = text.split("\n");
  const header = lines.findIndex((line) => RETURNED_HEADER.test(line));
  const start = lines.findIndex((line, i) => i === header || RETURNED_FOLLOWS.test(line));
  const from = (line: number) => (line < 0 ? "" : lines.slice(line).join("\n"));
  if (start <= 0) return { own: text, returned: "", mail: from(header) };
  return { own: lines.slice(0, start).join("\n"), returned: from(start), mail: from(header) };
}

const bytesOf = (content: ArrayBuffer | Uint8Array | string): Buffer =>
  typeof content === "string" ? Buffer.from(content) : Buffer.from(new Uint8Array(content));

const contentOf = (content: ArrayBuffer | Uint8Array | string): string =>
  bounded(bytesOf(content).toString("utf8", 0, MAX_TEXT_CHARS));

function startOf(raw: Uint8Array): Uint8Array {
  let end = 0;
  for (let lines = 0; lines < MAX_LINES; lines++) {
    end = raw.indexOf(LINE_FEED, end) + 1;
    if (end === 0 || end >= MAX_READ_BYTES) return raw.subarray(0, MAX_READ_BYTES);
  }
  return raw.subarray(0, end);
}

/** For a multipart mail whose boundary is missing. */
function bareBody(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, Math.min(raw.length, MAX_READ_BYTES)).toString("utf8");
  const end = /\r?\n\r?\n/.exec(text);
  return end === null ? "" : text.slice(end.index + end[0].length);
}

function presentMail({ headers, subject = "", text, html, attachments }: Email, raw: Uint8Array): IncomingMail {
  const parts = attachments.map(({ mimeType, content }) => ({ mimeType, content }));
  const part = (mimeType: string) => {
    const found = parts.filter((candidate) => candidate.mimeType === mimeType);
    return found.length > 0 ? bounded(found.map(({ content }) => contentOf(content)).join("\n\n")) : undefined;
  };
  const isEmpty = text === undefined && html === undefined && attachments.length === 0;
  const wholeText = (
    isEmpty ? bareBody(raw) : text?.trim() ? inByteOrder(text) : withoutTags(inByteOrder(html ?? ""))
  ).slice(0, MAX_TEXT_CHARS);
  const { own, returned, mail } = splitReturned(bounded(wholeText));
  const attached = parts.find(({ mimeType }) => RETURNED_TYPES.has(mimeType));
  const header = (name: string) => headers.find(({ key }) => key === name)?.value.slice(0, MAX_LINE_CHARS) ?? "";
  const headerList = (name: string) => {
    const values = headers.filter(({ key }) => key === name).map(({ value }) => value);
    return values.join(", ").slice(0, MAX_TEXT_CHARS);
  };
  return {
    header,
    headerList,
    from: header("from").toLowerCase(),
    subject: subject.slice(0, MAX_LINE_CHARS),
    text: own,
    wholeText,
    returned: attached === undefined ? returned : contentOf(attached.content),
    within: bytesOf(attached?.content ?? mail),
    part,
  };
}

/** In bounded time and memory. @returns undefined beyond the bounds: nested too deep, or too many headers */
export async function parseIncomingMail(raw: Uint8Array): Promise<IncomingMail | undefined> {
  try {
    // Some gateways put an empty line before the header.
    const start = raw.subarray(0, MAX_LINE_CHARS).findIndex((byte) => byte > 0x20);
    const read = startOf(raw.subarray(Math.max(start, 0)));
    return presentMail(await PostalMime.parse(read, LIMITS), read);
  } catch {
    return undefined;
  }
}
