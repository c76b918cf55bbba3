import { hash as digestOf } from "node:crypto";

const HASH = "sha256";
/** Bytes that SHA-256 takes at a time, and those of its result. */
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;
/** Bytes of a message that is copied behind the key, where most messages find room, and most bytes of a character. */
const ROOM_BYTES = 2_048;
const CHARACTER_BYTES = 3;

/** Signs the parts of a message, one after the other. */
export type Hmac = (encoding: "base64url" | "hex", ...parts: readonly (string | Buffer)[]) => string;

const mostBytes = (parts: readonly (string | Buffer)[]): number => {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === "string" ? part.length * CHARACTER_BYTES : part.length;
  return bytes;
};

/**
 * HMAC-SHA256 (RFC 2104) under one key. `createHmac` makes an object outside the heap for each signature, which the next
 * collection of garbage frees while requests wait; two plain hashes make none, and take less time.
 */
export function hmacUnder(key: Uint8Array): Hmac {
  const block = key.length > BLOCK_BYTES ? digestOf(HASH, key, "buffer") : key;
  // Memory of their own, because Node's pool is shared with all kinds of texts.
  const padded = (pad: number, room: number): Buffer => {
    const bytes = Buffer.alloc(BLOCK_BYTES + room);
    for (let i = 0; i < BLOCK_BYTES; i++) bytes[i] = pad ^ (block[i] ?? 0);
    return bytes;
  };
  const inner = padded(0x36, ROOM_BYTES);
  const outer = padded(0x5c, DIGEST_BYTES);
  const keyed = (parts: readonly (string | Buffer)[]): Buffer => {
    if (mostBytes(parts) > ROOM_BYTES)
      return Buffer.concat([
        inner.subarray(0, BLOCK_BYTES),
        ...parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)),
      ]);
    let end = BLOCK_BYTES;
    for (const part of parts) end += typeof part === "string" ? inner.write(part, end) : part.copy(inner, end);
    return inner.subarray(0, end);
  };
  return (encoding, ...parts) => {
    outer.write(digestOf(HASH, keyed(parts), "binary"), BLOCK_BYTES, "binary");
    return digestOf(HASH, outer, encoding);
  };
}
