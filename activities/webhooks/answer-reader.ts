import { StringDecoder } from "node:string_decoder";
import { MAX_KEPT_BYTES } from "../../domain/webhooks/classify.ts";

/** Bytes of an answer that are read, its head included. */
const MAX_READ_BYTES = 65_536;
const LINE_FEED = 10;

const EMPTY = Buffer.alloc(0);
const append = (bytes: Buffer, more: Buffer): Buffer => (bytes.length === 0 ? more : Buffer.concat([bytes, more]));

/** A character cut in two by the limit is left out; other broken ones are shown. */
const beginningOf = (bytes: Buffer): string =>
  bytes.length > MAX_KEPT_BYTES
    ? new StringDecoder("utf8").write(bytes.subarray(0, MAX_KEPT_BYTES))
    : bytes.toString("utf8");

/** The part of an answer that comes next; a size is the line before each chunk of a body. */
type Part = "status" | "headers" | "size" | "body" | "trailers" | "nothing";

/**
 * Reads one answer of HTTP/1, and skips interim ones (1xx) before it. Receivers send bare line feeds, two lengths or a
 * body after 204: a status that can be read stands, also when the rest cannot be read.
 */
export class AnswerReader {
  bytes = 0;
  status: number | undefined;
  /** By name in lower case, the first of each name. */
  readonly headers = new Map<string, string>();
  /** The status or the length of a chunk cannot be read, or what is around the body is too long. */
  isBroken = false;
  #version = "";
  #part: Part = "status";
  /** Bytes of the body or of its chunk. */
  #left = Number.POSITIVE_INFINITY;
  #isChunked = false;
  #unread: Buffer = EMPTY;
  #body: Buffer = EMPTY;

  /** @returns whether the answer is complete, broken or too long */
  add(chunk: Buffer): boolean {
    this.bytes += chunk.length;
    let unread = append(this.#unread, chunk);
    while (this.#part !== "nothing" && unread.length > 0) {
      let end = this.#left;
      if (this.#part === "body") {
        const piece = unread.subarray(0, this.#left);
        if (this.#body.length <= MAX_KEPT_BYTES) this.#body = append(this.#body, piece);
        this.#left -= piece.length;
        if (this.#left === 0) this.#part = this.#isChunked ? "size" : "nothing";
      } else {
        end = unread.indexOf(LINE_FEED) + 1;
        if (end === 0) break;
        this.#part = this.#readLine(this.#part, unread.toString("latin1", 0, end).trimEnd());
      }
      unread = unread.subarray(end);
    }
    this.#unread = unread;
    if (this.bytes <= MAX_READ_BYTES) return this.#part === "nothing";
    this.isBroken ||= this.#body.length <= MAX_KEPT_BYTES;
    return true;
  }

  get endsWithConnection(): boolean {
    return this.#part === "body" && this.#left === Number.POSITIVE_INFINITY;
  }

  /** How long the endpoint keeps the connection; 0 when more of this answer may come on it. */
  get keepAliveMs(): number {
    const isWhole = this.#part === "nothing" && this.#left === 0 && !this.isBroken && this.#unread.length === 0;
    if (!isWhole || this.#version !== "1.1" || /close/i.test(this.headers.get("connection") ?? "")) return 0;
    const [, seconds] = /timeout=(\d+)/i.exec(this.headers.get("keep-alive") ?? "") ?? [];
    return seconds === undefined ? Number.POSITIVE_INFINITY : Number(seconds) * 1_000;
  }

  /** @returns the part of the body that is kept, valid UTF-8 without NUL, and whether more came */
  body(): { text: string; isCut: boolean } {
    const clean = beginningOf(this.#body).replaceAll("\0", "\uFFFD");
    // U+FFFD takes more bytes than the byte it stands for.
    const text = beginningOf(Buffer.from(clean));
    return { text, isCut: this.#body.length > MAX_KEPT_BYTES || text.length < clean.length };
  }

  /** @returns the part that follows the line */
  #readLine(part: Part, line: string): Part {
    if (line === "") {
      if (part === "headers") return this.status === undefined ? "status" : this.#beginBody();
      return part === "trailers" ? "nothing" : part;
    }
    if (part === "status") return this.#readStatus(line);
    if (part === "size") return this.#readSize(line);
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    if (part === "headers" && !this.headers.has(name)) this.headers.set(name, line.slice(colon + 1).trim());
    return part;
  }

  #readStatus(line: string): Part {
    const [, version, status] = /^HTTP\/(\d(?:\.\d)?) (\d{3})(?!\d)/.exec(line) ?? [];
    this.isBroken = version === undefined;
    if (version === undefined) return "nothing";
    this.#version = version;
    this.headers.clear();
    if (Number(status) >= 200) this.status = Number(status);
    return "headers";
  }

  #beginBody(): Part {
    const isEmpty = this.status === 204 || this.status === 304;
    this.#isChunked = /chunked/i.test(this.headers.get("transfer-encoding") ?? "");
    const length = Number.parseInt(this.headers.get("content-length") ?? (isEmpty ? "0" : ""), 10);
    if (!this.#isChunked && length >= 0) this.#left = length;
    if (isEmpty || this.#left === 0) return "nothing";
    return this.#isChunked ? "size" : "body";
  }

  #readSize(line: string): Part {
    this.#left = Number.parseInt(line, 16);
    this.isBroken = !(this.#left >= 0);
    if (this.isBroken) return "nothing";
    return this.#left === 0 ? "trailers" : "body";
  }
}
