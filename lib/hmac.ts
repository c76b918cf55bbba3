import { createHmac } from "node:crypto";

export type Hmac = (encoding: "base64url" | "hex", ...parts: readonly (string | Buffer)[]) => string;

/** HMAC-SHA256 (RFC 2104) under one key. */
export const hmacUnder =
  (key: Uint8Array): Hmac =>
  (encoding, ...parts) => {
    const hmac = createHmac("sha256", key);
    for (const part of parts) hmac.update(part);
    return hmac.digest(encoding);
  };
