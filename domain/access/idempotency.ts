import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { defineStatement } from "../../db/statements.ts";
import { ApiError } from "../errors.ts";

export const REMEMBERED_HOURS = 24;
/** When a claim of now is forgotten with its answer, on the database's clock. */
const IN_A_DAY = sql<string>`now() + ${sql.lit(`${REMEMBERED_HOURS} hours`)}::interval`;
/** An attempt without an answer is presumed dead after this time, and taken over. Every request is answered before. */
export const STALLED_SECONDS = 90;
/** Most attempts take a moment: a client that comes back then finds the answer. */
const IN_FLIGHT_RETRY_SECONDS = 2;
/** The time of a claim that was released. */
const RELEASED = sql<string>`to_timestamp(0)`;

/** A request under an Idempotency-Key. */
export type KeyedRequest = Pick<Tenant, keyof Tenant> & {
  /** HMAC of the client's key. */
  keyHash: string;
  /** HMAC over the parts of the request that identify it. */
  fingerprint: string;
  requestId: string;
};

/** One attempt's claim on an Idempotency-Key. Plain data: it travels to the activity that writes the answer. */
export type IdempotencyHandle = KeyedRequest & { attempt: number };

/** An answer to remember, without the envelope that the API puts around it. */
export interface WrittenAnswer {
  status: number;
  /** What `payload` holds: the payload itself, encrypted where it holds a secret, the facts that it is made from, or a refusal. */
  kind: "payload" | "sealed" | "facts" | "refusal";
  /** JSON text, encrypted for `sealed`. */
  payload: string;
}

export interface RememberedAnswer extends WrittenAnswer {
  /** The id of the request that was answered first: every replay shows it. */
  requestId: string;
}

export type Claim = { handle: IdempotencyHandle; answer?: never } | { answer: RememberedAnswer };

const insertClaim = defineStatement((em, { keyHash, fingerprint, requestId, teamId, environment }: KeyedRequest) =>
  kysely(em)
    .insertInto("idempotency_records")
    .values({
      team_id: teamId,
      environment,
      key_hash: keyHash,
      fingerprint,
      attempt: 1,
      locked_at: sql`now()`,
      expires_at: IN_A_DAY,
      request_id: requestId,
    })
    .onConflict((conflict) => conflict.doNothing())
    .returning("attempt"),
);

/**
 * Claims an Idempotency-Key for a request, or finds the answer it already has. Call it outside of a transaction, so that two
 * requests at once see each other.
 * @throws {ApiError} `idempotency_key_reused` for another request, `request_in_flight` while the first attempt is under way
 */
export async function claimKey(em: EntityManager, request: KeyedRequest): Promise<Claim> {
  const { fingerprint, requestId } = request;
  const inserted = await insertClaim(em, request);
  if (inserted.rows.length > 0) return { handle: { ...request, attempt: 1 } };

  // It expired, it was released for any request, or its attempt was released or is presumed dead.
  const free = sql<boolean>`(expires_at <= now() or (status is null and (fingerprint is null
    or (fingerprint = ${fingerprint} and locked_at <= now() - ${sql.lit(`${STALLED_SECONDS} seconds`)}::interval))))`;
  const record = await recordOf(em, request)
    .select(["fingerprint", free.as("free"), ...ANSWER])
    .executeTakeFirst();
  // It expired and was deleted since the statement above.
  if (!record) throw inFlight();
  if (!record.free) {
    if (record.fingerprint !== fingerprint) throw new ApiError("idempotency_key_reused");
    const answer = answerIn(record);
    if (!answer) throw inFlight();
    return { answer };
  }

  const { rows } = await sql<{ attempt: number }>`
    update idempotency_records set
      -- After a release for the same request it is the same attempt. Any other fences the one before off.
      attempt = attempt + case when status is null and locked_at = ${RELEASED} and fingerprint = ${fingerprint}
        then 0 else 1 end,
      fingerprint = ${fingerprint},
      locked_at = now(),
      status = null,
      request_id = ${requestId},
      payload = null,
      payload_kind = null,
      expires_at = ${IN_A_DAY}
    where ${ofTenant(request)} and key_hash = (${recordOf(em, request).select("key_hash").where(free).forUpdate().skipLocked()})
    returning attempt`.execute(kysely(em));
  const [taken] = rows;
  // Another request has taken it since the statement above.
  if (!taken) throw inFlight();
  return { handle: { ...request, attempt: taken.attempt } };
}

const recordOf = (em: EntityManager, request: KeyedRequest) =>
  kysely(em).selectFrom("idempotency_records").where(ofTenant(request)).where("key_hash", "=", request.keyHash);

const ANSWER = ["request_id as requestId", "status", "payload_kind as kind", "payload"] as const;

/** All columns of an answer but `requestId` are null until it is written. */
const answerIn = (record?: { [Name in keyof RememberedAnswer]: RememberedAnswer[Name] | null }) =>
  record && record.status !== null ? (record as RememberedAnswer) : undefined;

/** The refusal while another attempt holds the key, or has taken it over. */
export const inFlight = (): ApiError =>
  new ApiError("request_in_flight", undefined, { retryAfterSeconds: IN_FLIGHT_RETRY_SECONDS });

/**
 * Locks the claim of an attempt until the transaction ends: no other request takes the key over, and no release conflicts with
 * the answer that a REPEATABLE READ transaction writes at its end. Call it first there.
 * @returns the answer that the attempt has already
 * @throws {ApiError} `request_in_flight` when another attempt has taken the key over
 */
export async function lockClaim(em: EntityManager, handle: IdempotencyHandle): Promise<RememberedAnswer | undefined> {
  const record = await recordOf(em, handle)
    .select(["attempt", ...ANSWER])
    .forUpdate()
    .executeTakeFirst();
  if (record?.attempt !== handle.attempt) throw inFlight();
  return answerIn(record);
}

/** The answer that any attempt of a request has written; undefined while there is none. */
export const readAnswer = async (em: EntityManager, request: KeyedRequest): Promise<RememberedAnswer | undefined> =>
  answerIn(
    await recordOf(em, request).select(ANSWER).where("fingerprint", "=", request.fingerprint).executeTakeFirst(),
  );

type HeldAnswer = IdempotencyHandle & Pick<WrittenAnswer, keyof WrittenAnswer>;

const updateAnswer = defineStatement((em, { status, kind, payload, ...handle }: HeldAnswer) =>
  kysely(em)
    .updateTable("idempotency_records")
    .set({ status, payload, payload_kind: kind, request_id: handle.requestId })
    .where(ofTenant(handle))
    .where("key_hash", "=", handle.keyHash)
    .where("attempt", "=", handle.attempt)
    .where("status", "is", null),
);

/**
 * Writes the answer of an attempt, in the transaction of its effect.
 * @returns false when the attempt no longer holds the key: it was taken over or has its answer. Roll back then.
 */
export async function writeAnswer(
  em: EntityManager,
  handle: IdempotencyHandle,
  { status, kind, payload }: WrittenAnswer,
): Promise<boolean> {
  const { numAffectedRows } = await updateAnswer(em, { ...handle, status, kind, payload });
  return numAffectedRows === 1n;
}

/**
 * A query for `key_hash` and `attempt` of claims that have no answer. It locks them until the transaction ends.
 * @param keyHashes an array, which may hold nulls
 */
export const lockedClaims = (tenant: Tenant, keyHashes: RawBuilder<unknown>) => sql`
  select key_hash, attempt from idempotency_records
  where ${ofTenant(tenant)} and key_hash = any(${keyHashes}::text[]) and status is null for update`;

const CREATED_STATUS = 201;

/**
 * An update that writes the answers to creates under claims of `lockedClaims`.
 * @param records a query for `keyHash`, which may be null, and the record's JSON as `object`
 */
export const rememberingRecords = (tenant: Tenant, keyHashes: RawBuilder<unknown>, records: RawBuilder<unknown>) => sql`
  update idempotency_records i set status = ${sql.lit(CREATED_STATUS)}, payload = r.object::text, payload_kind = 'facts'
  from (${records}) r
  -- The array makes Postgres look each key up in the index; by the join alone it reads all keys of the tenant.
  where ${ofTenant(tenant, "i")} and i.key_hash = any(${keyHashes}::text[]) and i.key_hash = r."keyHash"`;

/** The stored form of a refusal. */
export type RefusalFacts = Pick<ApiError, "code" | "message" | "param" | "record">;

export const refusalAnswer = ({ status, code, message, param, record }: ApiError): WrittenAnswer => ({
  status,
  kind: "refusal",
  payload: JSON.stringify({ code, message, param, record } satisfies RefusalFacts),
});

/** Replaces remembered answers by a refusal. @returns how many of them still existed */
export async function replaceAnswers(
  em: EntityManager,
  tenant: Tenant,
  keyHashes: readonly string[],
  refusal: ApiError,
): Promise<number> {
  const { status, kind, payload } = refusalAnswer(refusal);
  const { numUpdatedRows } = await kysely(em)
    .updateTable("idempotency_records")
    .set({ status, payload, payload_kind: kind })
    .where(ofTenant(tenant))
    .where("key_hash", "in", keyHashes)
    .where("payload", "is not", null)
    .executeTakeFirstOrThrow();
  return Number(numUpdatedRows);
}

/**
 * Gives the key back after an answer that is not remembered. It may be repeated.
 * @param to `same`: only the same request may follow. It is the same attempt, so that it finds the workflow that this one started
 * @returns false when the request does not hold the key, or its work is under way in a transaction that has locked the claim
 */
export async function releaseKey(em: EntityManager, request: KeyedRequest, to: "same" | "any"): Promise<boolean> {
  const { numUpdatedRows } = await kysely(em)
    .updateTable("idempotency_records")
    .set({ locked_at: RELEASED, ...(to === "any" && { fingerprint: null }) })
    .where(ofTenant(request))
    .where("key_hash", "=", recordOf(em, request).select("key_hash").forUpdate().skipLocked())
    .where("request_id", "=", request.requestId)
    .where("status", "is", null)
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}
