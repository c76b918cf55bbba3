import { createHmac, createSecretKey, type KeyObject } from "node:crypto";

const HASH = "sha256";

/** A key object, made once and used for many signatures: an HMAC keyed with text imports it anew each time. */
export const signingKey = (secret: string): KeyObject => createSecretKey(Buffer.from(secret));

/**
 * The value of X-Service-Signature: `t=<unix seconds>,v1=<hex>`, with one `v1` per secret while a rotation overlaps.
 * Each is the HMAC-SHA256 of `<t>.<body>`, keyed with the endpoint's secret as its owner holds it, `whsec_` included.
 * @param secrets newest first; texts or the keys that `signingKey` made of them
 * @param timestamp unix seconds
 * @param body the raw bytes that are sent
 */
export function signatureHeader(
  secrets: readonly (string | KeyObject)[],
  timestamp: number,
  body: string | Buffer,
): string {
  const signatures = secrets.map((secret) => {
    const key = typeof secret === "string" ? signingKey(secret) : secret;
    return `v1=${createHmac(HASH, key).update(`${timestamp}.`).update(body).digest("hex")}`;
  });
  return [`t=${timestamp}`, ...signatures].join(",");
}
