import { type Hmac, hmacUnder } from "../../lib/hmac.ts";

export const signerOf = (secret: string): Hmac => hmacUnder(Buffer.from(secret));

/**
 * The value of X-Service-Signature: `t=<unix seconds>,v1=<hex>`, with one `v1` per secret while a rotation overlaps.
 * Each is the HMAC-SHA256 of `<t>.<body>`, keyed with the endpoint's secret as its owner holds it, `whsec_` included, newest first.
 */
export function signatureHeader(signers: readonly Hmac[], timestamp: number, body: string | Buffer): string {
  const signatures = signers.map((sign) => `v1=${sign("hex", `${timestamp}.`, body)}`);
  return [`t=${timestamp}`, ...signatures].join(",");
}
