import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, expiring, instant, sealed, tenantKey, text } from "./shared.ts";

export const IdempotencyRecordSchema = defineEntity({
  name: "idempotency_records",
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    ...tenantKey,
    /** HMAC of the client's key: a key may hold anything, an address included. */
    keyHash: code().primary(),
    /** Null once the key is free for any request. */
    fingerprint: code().nullable(),
    /** Rises when a stalled attempt is taken over; only the latest may write the answer. */
    attempt: p.integer(),
    lockedAt: instant(),
    requestId: code().nullable(),
    status: p.integer().nullable(),
    /** JSON text, as `payloadKind` says; tokens are left out. */
    payload: sealed("payload_kind = 'sealed'", text("searched")).nullable(),
    payloadKind: code().$type<"payload" | "sealed" | "facts" | "refusal">().nullable(),
    expiresAt: expiring("0 s", instant()),
  },
});
