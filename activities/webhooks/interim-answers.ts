import type { Socket } from "node:net";

/** Bytes of an interim answer that are held at most until its end has come. */
const MAX_HELD_BYTES = 16_384;

const EMPTY = Buffer.alloc(0);
const BEFORE_STATUS = "HTTP/1.1 1";
/** The status lines of interim answers. 101 is none: it ends HTTP on the connection. */
const INTERIM = /^HTTP\/1\.1 1(?!01)\d\d/;
const HEAD_END = "\r\n\r\n";

/** Whether bytes are an interim answer, as far as they have come. */
function isInterim(bytes: Buffer): boolean {
  const text = bytes.toString("latin1", 0, BEFORE_STATUS.length + 2);
  if (text.length <= BEFORE_STATUS.length) return BEFORE_STATUS.startsWith(text);
  if (text.length < BEFORE_STATUS.length + 2) return text.startsWith(BEFORE_STATUS);
  return INTERIM.test(text);
}

/**
 * Leaves interim answers (1xx) out of the bytes that a socket reads: undici takes `100 Continue` for a broken answer
 * unless the request has asked for it, while any client has to skip it (RFC 9110, section 15.2).
 */
export class InterimAnswers {
  /** Bytes of an answer have come since the last request began. */
  hasBegun = false;
  #isPassing = true;
  #held: Buffer = EMPTY;

  /** @param socket whose `read` is replaced: undici reads its sockets through that alone */
  constructor(socket: Socket) {
    const read = socket.read.bind(socket);
    socket.read = (size?: number): Buffer | null => {
      for (;;) {
        const chunk: Buffer | null = read(size);
        if (chunk === null) return null;
        this.hasBegun = true;
        const passed = this.#isPassing ? chunk : this.#skipIn(chunk);
        if (passed) return passed;
      }
    };
  }

  /** To be called as a request begins: interim answers come before the answer, and nowhere else. */
  expectAnswer(): void {
    this.hasBegun = false;
    this.#isPassing = false;
  }

  /** @returns the bytes from the answer on, once its first ones have come */
  #skipIn(chunk: Buffer): Buffer | undefined {
    let bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = EMPTY;
    while (isInterim(bytes)) {
      const end = bytes.indexOf(HEAD_END);
      if (end < 0 && bytes.length <= MAX_HELD_BYTES) {
        this.#held = bytes;
        return undefined;
      }
      if (end < 0) break;
      bytes = bytes.subarray(end + HEAD_END.length);
      if (bytes.length === 0) return undefined;
    }
    this.#isPassing = true;
    return bytes;
  }
}
