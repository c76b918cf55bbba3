import { MailkeelError, WebhookSignatureError } from "./errors.ts";

const TOLERANCE_SECONDS = 300;
/** A delivery has one for each secret of its endpoint, the old and the new one: each more is work for a header that was made up. */
const MOST_SIGNATURES = 8;
const HMAC = { name: "HMAC", hash: "SHA-256" };

export interface Delivery {
  /** Raw: JSON that was parsed and written again has another signature. */
  body: string | Uint8Array;
  /** The value of X-Service-Signature, as the server gives it; an array is refused: the service sends one. */
  signature: string | readonly string[] | null | undefined;
  /** Several while a receiver knows the old one and the new one. */
  secret: string | readonly string[];
  /** Unix seconds; now unless given. */
  now?: number | undefined;
}

const bytesOf = (hex: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));

/**
 * Checks the signature over the raw body, and that its time is at most 300 seconds from now. @throws {WebhookSignatureError}
 * for a delivery to refuse @throws {MailkeelError} for an empty secret
 */
export async function verifyWebhook({ body, signature, secret, now = Date.now() / 1_000 }: Delivery): Promise<void> {
  const secrets = [secret].flat();
  if (!secrets.every(Boolean)) throw new MailkeelError("The secret of the webhook endpoint is empty.");
  const header = typeof signature === "string" ? signature : "";
  const entries = header.split(",").map((entry) => entry.split("="));
  const timestamp = entries.find(([name]) => name === "t")?.[1] ?? "";
  if (!/^\d+$/.test(timestamp)) throw new WebhookSignatureError("X-Service-Signature is missing or has no time.");
  if (Math.abs(now - Number(timestamp)) > TOLERANCE_SECONDS) {
    throw new WebhookSignatureError(`The delivery was signed more than ${TOLERANCE_SECONDS} seconds from now.`);
  }
  const signatures = entries.flatMap(([name, value = ""]) =>
    name === "v1" && /^[0-9a-f]{64}$/.test(value) ? [bytesOf(value)] : [],
  );
  if (signatures.length > MOST_SIGNATURES)
    throw new WebhookSignatureError("X-Service-Signature has too many signatures.");
  const signed = await new Blob([`${timestamp}.`, body]).arrayBuffer();
  for (const one of secrets) {
    const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(one), HMAC, false, ["verify"]);
    // In constant time.
    for (const given of signatures) if (await crypto.subtle.verify("HMAC", key, given, signed)) return;
  }
  throw new WebhookSignatureError("No signature of the delivery is made with this secret.");
}
