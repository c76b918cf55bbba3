import { type Hmac, hmacUnder } from "../hmac.ts";

/** What signs with a secret; made once and used for many signatures. */
export const signingKey = (secret: string): Hmac => hmacUnder(Buffer.from(secret));

/**
 * The value of X-Service-Signature: `t=<unix seconds>,v1=<hex>`, with one `v1` per secret while a rotation overlaps.
 * Each is the HMAC-SHA256 of `<t>.<body>`, keyed with the endpoint's secret as its owner holds it, `whsec_` included.
 * @param secrets newest first; texts or the keys that `signingKey` made of them
 * @param timestamp unix seconds
 * @param body the raw bytes that are sent
 */
export function signatureHeader(secrets: readonly (string | Hmac)[], timestamp: number, body: string | Buffer): string {
  const signatures = secrets.map((secret) => {
    const sign = typeof secret === "string" ? signingKey(secret) : secret;
    return `v1=${sign("hex", `${timestamp}.`, body)}`;
  });
  return [`t=${timestamp}`, ...signatures].join(",");
}
