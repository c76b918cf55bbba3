import type { Hmac } from "../../lib/hmac.ts";
import type { CustomHeaders } from "./headers.ts";
import { signatureHeader } from "./signature.ts";

export interface HeaderFacts {
  deliveryId: string;
  webhookId: string;
  eventId: string;
  type: string;
  /** Dated version that shapes the payload. */
  apiVersion: string;
  isReplay: boolean;
  isTest: boolean;
}

/** All but those of the connection. @param signers newest first @param body raw; it is signed with the time of the call */
export function deliveryHeaders(
  { deliveryId, webhookId, eventId, type, apiVersion, isReplay, isTest }: HeaderFacts,
  signers: readonly Hmac[],
  body: string | Buffer,
  custom: CustomHeaders = {},
): Record<string, string> {
  const timestamp = Math.floor(Date.now() / 1000);
  return {
    ...custom,
    "Content-Type": "application/json",
    "X-Service-Signature": signatureHeader(signers, timestamp, body),
    "X-Service-Timestamp": String(timestamp),
    "X-Service-Event": type,
    "X-Service-Event-Id": eventId,
    "X-Service-Delivery-Id": deliveryId,
    "X-Service-Webhook-Id": webhookId,
    "X-Service-Api-Version": apiVersion,
    ...(isReplay ? { "X-Service-Replay": "true" } : {}),
    ...(isTest ? { "X-Service-Test": "true" } : {}),
  };
}
