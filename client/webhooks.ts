import { createHmac, timingSafeEqual } from "node:crypto";
import { MailkeelError, WebhookSignatureError } from "./errors.ts";

const TOLERANCE_SECONDS = 300;

export interface Delivery {
  /** Raw: JSON that was parsed and written again has another signature. */
  body: string | Uint8Array;
  /** The value of X-Service-Signature. */
  signature: string | null | undefined;
  /** Several while a receiver knows the old one and the new one. */
  secret: string | readonly string[];
  /** Unix seconds; now unless given. */
  now?: number;
}

/**
 * Checks the signature over the raw body, and that its time is at most 300 seconds from now. @throws {WebhookSignatureError}
 */
export function verifyWebhook({ body, signature, secret, now = Date.now() / 1_000 }: Delivery): void {
  const entries = (signature ?? "").split(",").map((entry) => entry.split("="));
  const timestamp = entries.find(([name]) => name === "t")?.[1] ?? "";
  if (!/^\d+$/.test(timestamp)) throw new WebhookSignatureError("X-Service-Signature is missing or has no time.");
  if (Math.abs(now - Number(timestamp)) > TOLERANCE_SECONDS) {
    throw new WebhookSignatureError(`The delivery was signed more than ${TOLERANCE_SECONDS} seconds from now.`);
  }
  const signatures = entries.filter(([name]) => name === "v1").map(([, value = ""]) => Buffer.from(value));
  const expected = [secret].flat().map((one) => {
    if (one === "") throw new MailkeelError("The secret of the webhook endpoint is empty.");
    return Buffer.from(createHmac("sha256", one).update(`${timestamp}.`).update(body).digest("hex"));
  });
  const isSigned = expected.some((digest) =>
    signatures.some((given) => given.length === digest.length && timingSafeEqual(given, digest)),
  );
  if (!isSigned) throw new WebhookSignatureError("No signature of the delivery is made with this secret.");
}
