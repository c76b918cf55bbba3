import { type Hmac, hmacUnder } from "../../lib/hmac.ts";
import type { ApiVersion } from "../api-version.ts";
import type { CustomHeaders } from "./headers.ts";

export interface EventFacts {
  eventId: string;
  type: string;
  /** ISO 8601. */
  eventCreatedAt: string;
  /** JSON of the record the event is about. */
  object: string;
}

type Renderer = (facts: EventFacts) => string;

/** By the dated version that an endpoint is pinned to. */
const OF_VERSIONS: Record<ApiVersion, Renderer> = {
  "2026-08-15": ({ eventId, type, eventCreatedAt, object }) =>
    `{"id":"${eventId}","object":"event","type":"${type}","api_version":"2026-08-15","created_at":"${eventCreatedAt}","data":{"object":${object}}}`,
};
const RENDERERS: Readonly<Record<string, Renderer>> = OF_VERSIONS;

/** The body of a delivery, JSON, always the same bytes for the same event. @throws {Error} for a version there never was */
export function renderEvent(apiVersion: string, facts: EventFacts): string {
  const render = RENDERERS[apiVersion];
  if (!render) throw new Error(`no payload of version ${apiVersion}`);
  return render(facts);
}

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

export const signerOf = (secret: string): Hmac => hmacUnder(Buffer.from(secret));

/**
 * The value of X-Service-Signature: `t=<unix seconds>,v1=<hex>`, with one `v1` per secret while a rotation overlaps.
 * Each is the HMAC-SHA256 of `<t>.<body>`, keyed with the endpoint's secret as its owner holds it, `whsec_` included, newest first.
 */
export function signatureHeader(signers: readonly Hmac[], timestamp: number, body: string | Buffer): string {
  const signatures = signers.map((sign) => `v1=${sign("hex", `${timestamp}.`, body)}`);
  return [`t=${timestamp}`, ...signatures].join(",");
}
