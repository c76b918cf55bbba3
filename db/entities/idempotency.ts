import { defineEntity, p } from "@mikro-orm/postgresql";
import { type Environment, instant } from "./shared.ts";

/** The answer to a request under an Idempotency-Key. */
const IdempotencyRecordSchema = defineEntity({
  name: "IdempotencyRecord",
  tableName: "idempotency_records",
  indexes: [{ properties: ["expiresAt"] }],
  properties: {
    teamId: p.text().primary(),
    environment: p.text().$type<Environment>().primary(),
    /** HMAC of the client's key: a key may hold anything, an address included. */
    keyHash: p.text().primary(),
    /** HMAC over method, path, parameters and body. */
    fingerprint: p.text(),
    /** Rises when a stalled attempt is taken over; only the latest may write the answer. */
    attempt: p.integer(),
    lockedAt: instant(),
    /** Null while the first attempt is under way. */
    status: p.integer().nullable(),
    /** The JSON body of the answer; encrypted when it holds a secret, without the token of a preview. */
    body: p.text().nullable(),
    /** How `body` is kept: plain, encrypted, or a preview whose token is recomputed. */
    bodyKind: p.text().$type<"plain" | "encrypted" | "preview">().nullable(),
    expiresAt: instant(),
  },
});
export class IdempotencyRecord extends IdempotencyRecordSchema.class {}
IdempotencyRecordSchema.setClass(IdempotencyRecord);

export const idempotencyEntities = [IdempotencyRecordSchema] as const;
