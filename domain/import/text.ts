import { isUtf8 } from "node:buffer";
import { TextDecoder } from "node:util";

const MAX_LINE_BYTES = 64 * 1024;

const UTF8_MARK = Buffer.from("\u{FEFF}");
const windows1252 = new TextDecoder("windows-1252");

/**
 * Decodes UTF-16 and UTF-8, with line ends as `\n`. A line that is not UTF-8 is Windows-1252, unless the file begins with a
 * byte order mark.
 * @param onWindows1252 called with the number of such lines
 */
export async function* readText(
  input: AsyncIterable<Buffer | string>,
  onWindows1252: (lines: number) => void,
): AsyncGenerator<string> {
  let isAfterReturn = false;
  for await (const text of decode(input, onWindows1252)) {
    const further = isAfterReturn && text.startsWith("\n") ? text.slice(1) : text;
    isAfterReturn = text === "" ? isAfterReturn : text.endsWith("\r");
    yield further.replace(/\r\n?/g, "\n");
  }
}

async function* decode(
  input: AsyncIterable<Buffer | string>,
  onWindows1252: (lines: number) => void,
): AsyncGenerator<string> {
  const pieces = input[Symbol.asyncIterator]();
  let bytes = Buffer.alloc(0);
  const readMore = async () => {
    const { value, done } = await pieces.next();
    if (!done) bytes = Buffer.concat([bytes, Buffer.from(value)]);
    return !done;
  };
  while (bytes.length < UTF8_MARK.length && (await readMore()));
  const utf16 = utf16Of(bytes);
  if (utf16) {
    do {
      yield utf16.decode(bytes, { stream: true });
      bytes = Buffer.alloc(0);
    } while (await readMore());
    yield utf16.decode();
    return;
  }
  const hasMark = bytes.subarray(0, UTF8_MARK.length).equals(UTF8_MARK);
  if (hasMark) bytes = bytes.subarray(UTF8_MARK.length);
  const text = (part: Buffer) => (hasMark || isUtf8(part) ? part.toString() : textOfLines(part, onWindows1252));
  do {
    const end = Math.max(bytes.lastIndexOf("\n"), bytes.lastIndexOf("\r")) + 1;
    const length = end === 0 && bytes.length > MAX_LINE_BYTES ? bytes.length : end;
    yield text(bytes.subarray(0, length));
    bytes = bytes.subarray(length);
  } while (await readMore());
  yield text(bytes);
}

/** By the byte order mark, or by the zero byte of a first character of ASCII. */
function utf16Of([first, second]: Buffer): TextDecoder | undefined {
  if ((first === 0xff && second === 0xfe) || (first !== 0 && second === 0)) return new TextDecoder("utf-16le");
  if ((first === 0xfe && second === 0xff) || first === 0) return new TextDecoder("utf-16be");
  return undefined;
}

function textOfLines(bytes: Buffer, onWindows1252: (lines: number) => void): string {
  const lines = bytes.toString("latin1").split(/(?<=[\r\n])/);
  return lines
    .map((line) => {
      const raw = Buffer.from(line, "latin1");
      if (isUtf8(raw)) return raw.toString();
      onWindows1252(1);
      return windows1252.decode(raw);
    })
    .join("");
}
