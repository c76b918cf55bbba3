import { hash } from "node:crypto";

export type Hmac = (encoding: "base64url" | "hex", ...parts: readonly (string | Buffer)[]) => string;

const SHA256 = "sha256";
const BLOCK_BYTES = 64;

/** HMAC-SHA256 (RFC 2104) under one key, by two plain hashes: `createHmac` takes a tenth of the API's time for its objects. */
export function hmacUnder(key: Uint8Array): Hmac {
  const block = key.length > BLOCK_BYTES ? hash(SHA256, key, "buffer") : key;
  const padded = (pad: number) => Buffer.from(Array.from({ length: BLOCK_BYTES }, (_, i) => pad ^ (block[i] ?? 0)));
  const inner = padded(0x36);
  const outer = padded(0x5c);
  return (encoding, ...parts) => {
    const message = Buffer.concat([
      inner,
      ...parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)),
    ]);
    return hash(SHA256, Buffer.concat([outer, hash(SHA256, message, "buffer")]), encoding);
  };
}
