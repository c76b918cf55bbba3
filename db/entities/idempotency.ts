import { defineEntity, p } from "@mikro-orm/postgresql";
import { type Environment, instant } from "./shared.ts";

/** The answer that is remembered under an Idempotency-Key. */
const IdempotencyRecordSchema = defineEntity({
  name: "IdempotencyRecord",
  tableName: "idempotency_records",
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    teamId: p.text().primary(),
    environment: p.text().$type<Environment>().primary(),
    /** HMAC of the client's key: a key may hold anything, an address included. */
    keyHash: p.text().primary(),
    /** HMAC over method, path, parameters and body. Null once the key is free for any request. */
    fingerprint: p.text().nullable(),
    /** Rises when a stalled attempt is taken over; only the latest may write the answer. */
    attempt: p.integer(),
    lockedAt: instant(),
    /** The request that holds the key, or was answered. */
    requestId: p.text().nullable(),
    /** Null until there is an answer, like the two below. */
    status: p.integer().nullable(),
    /** JSON text, as `payloadKind` says; tokens are left out. */
    payload: p.text().nullable(),
    payloadKind: p.text().$type<"payload" | "sealed" | "facts" | "refusal">().nullable(),
    expiresAt: instant(),
  },
});
export class IdempotencyRecord extends IdempotencyRecordSchema.class {}
IdempotencyRecordSchema.setClass(IdempotencyRecord);

export const idempotencyEntities = [IdempotencyRecordSchema] as const;
