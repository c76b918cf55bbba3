import { sql } from "kysely";
import type { Environment } from "../db/entities/shared.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../db/orm.ts";
import type { Vault } from "./crypto.ts";
import { ApiError } from "./errors.ts";

/** How long an answer is remembered, on the database's clock. */
const REMEMBERED = sql`interval '24 hours'`;
/** An attempt that has not answered after this time is taken over. */
const STALLED = sql`interval '90 seconds'`;
/** Most attempts take a moment: a client that comes back then finds the answer. */
const IN_FLIGHT_RETRY_SECONDS = 2;

/**
 * The content of a remembered payload: the payload itself (`sealed`: encrypted, because it holds a secret), the facts
 * that it is made from, or a refusal.
 */
export type AnswerKind = "payload" | "sealed" | "facts" | "refusal";

/** One attempt's claim on an Idempotency-Key. Plain data: it travels to the activity that writes the answer. */
export interface IdempotencyHandle {
  teamId: string;
  environment: Environment;
  /** HMAC of the client's key. */
  keyHash: string;
  attempt: number;
  /** The id of the request that gets the answer: every replay shows it. */
  requestId: string;
}

/** An answer to remember: the facts of it, without the envelope that the API puts around them. */
export interface WrittenAnswer {
  /** HTTP status. */
  status: number;
  kind: AnswerKind;
  /** JSON text, encrypted for `sealed`. */
  payload: string;
}

/** An answer that is remembered. */
export interface RememberedAnswer extends WrittenAnswer {
  /** The id of the request that was answered first. */
  requestId: string;
}

/** The result of claiming an Idempotency-Key for a request. */
export type Claim = { outcome: "claimed"; handle: IdempotencyHandle } | { outcome: "replay"; answer: RememberedAnswer };

/** The request an Idempotency-Key is claimed for. */
export interface KeyedRequest {
  tenant: Tenant;
  keyHash: string;
  /** HMAC over the parts of the request that identify it. */
  fingerprint: string;
  requestId: string;
}

/** The time of a lock that was released: any request may take it at once. */
const RELEASED = sql<string>`to_timestamp(0)`;

/**
 * Claims an Idempotency-Key for a request, or finds the answer it already has. Commit the claim before the work
 * begins: two requests at once then see each other.
 * @throws {ApiError} `idempotency_key_reused` for another request under the key, `request_in_flight` while the first
 * attempt is under way
 */
export async function claimKey(em: EntityManager, request: KeyedRequest): Promise<Claim> {
  const { tenant, keyHash, fingerprint, requestId } = request;
  const { rows } = await sql<{ attempt: number }>`
    insert into idempotency_records as record
      (team_id, environment, key_hash, fingerprint, attempt, locked_at, expires_at)
    values (${tenant.teamId}, ${tenant.environment}, ${keyHash}, ${fingerprint}, 1, now(), now() + ${REMEMBERED})
    on conflict (team_id, environment, key_hash) do update set
      fingerprint = excluded.fingerprint,
      -- A released lock keeps its number for the same request; any other request gets a number that fences it off.
      attempt = record.attempt + case when record.status is null and record.locked_at = ${RELEASED}
        and record.fingerprint = excluded.fingerprint then 0 else 1 end,
      locked_at = excluded.locked_at,
      status = null,
      request_id = null,
      payload = null,
      payload_kind = null,
      expires_at = excluded.expires_at
    where record.expires_at <= now()
      or (record.status is null and record.locked_at = ${RELEASED})
      or (record.status is null and record.fingerprint = excluded.fingerprint
        and record.locked_at <= now() - ${STALLED})
    returning attempt`.execute(kysely(em));
  const [claimed] = rows;
  if (claimed) return { outcome: "claimed", handle: { ...tenant, keyHash, attempt: claimed.attempt, requestId } };

  const record = await kysely(em)
    .selectFrom("idempotency_records")
    .where(ofTenant(tenant))
    .where("key_hash", "=", keyHash)
    .select(["fingerprint", "request_id", "status", "payload", "payload_kind"])
    .executeTakeFirst();
  // It expired and was deleted since the statement above.
  if (!record) return claimKey(em, request);
  if (record.fingerprint !== fingerprint) throw new ApiError("idempotency_key_reused");
  const answer = answerIn(record);
  if (!answer) throw inFlight();
  return { outcome: "replay", answer };
}

/** The columns of an answer; all of them are null until it is written. */
interface AnswerColumns {
  request_id: string | null;
  status: number | null;
  payload: string | null;
  payload_kind: AnswerKind | null;
}

function answerIn({ request_id, status, payload, payload_kind }: AnswerColumns): RememberedAnswer | undefined {
  if (request_id === null || status === null || payload === null || payload_kind === null) return undefined;
  return { requestId: request_id, status, kind: payload_kind, payload };
}

/** The refusal while another attempt holds the key, or has taken it over. */
export const inFlight = (): ApiError =>
  new ApiError("request_in_flight", undefined, { retryAfterSeconds: IN_FLIGHT_RETRY_SECONDS });

const held = (em: EntityManager, handle: IdempotencyHandle) =>
  kysely(em)
    .updateTable("idempotency_records")
    .where(ofTenant(handle))
    .where("key_hash", "=", handle.keyHash)
    .where("attempt", "=", handle.attempt)
    .where("status", "is", null);

/**
 * Writes the answer of an attempt, in the transaction of its effect.
 * @returns false when the attempt no longer holds the key: it was taken over or has its answer. Roll back then.
 */
export async function writeAnswer(
  em: EntityManager,
  handle: IdempotencyHandle,
  { status, kind, payload }: WrittenAnswer,
): Promise<boolean> {
  const { numUpdatedRows } = await held(em, handle)
    .set({ status, payload, payload_kind: kind, request_id: handle.requestId })
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** The answer that an attempt has written; undefined while it has not. */
export async function readAnswer(em: EntityManager, handle: IdempotencyHandle): Promise<RememberedAnswer | undefined> {
  const record = await kysely(em)
    .selectFrom("idempotency_records")
    .select(["request_id", "status", "payload", "payload_kind"])
    .where(ofTenant(handle))
    .where("key_hash", "=", handle.keyHash)
    .where("attempt", "=", handle.attempt)
    .executeTakeFirst();
  return record && answerIn(record);
}

/**
 * Gives the key back after an answer that is not remembered.
 * @param next `same` lets a retry of the same request be the same attempt, so that it finds what this one started;
 * `new` fences this one off
 */
export async function releaseKey(em: EntityManager, handle: IdempotencyHandle, next: "same" | "new"): Promise<void> {
  const attempt = next === "new" ? handle.attempt + 1 : handle.attempt;
  await held(em, handle).set({ locked_at: RELEASED, attempt }).execute();
}

type Place = Pick<IdempotencyHandle, "teamId" | "environment" | "keyHash">;

/** Binds a sealed payload to its record. */
export const sealContext = ({ teamId, environment, keyHash }: Place) =>
  `idempotency/${teamId}/${environment}/${keyHash}`;

/** A payload that holds a secret, as it may be stored. */
export const sealPayload = (vault: Vault, place: Place, payload: string): string =>
  vault.encrypt(payload, sealContext(place));

/** Decrypts a payload that `sealPayload` encrypted. */
export const openPayload = (vault: Vault, place: Place, sealed: string): string =>
  vault.decrypt(sealed, sealContext(place));
