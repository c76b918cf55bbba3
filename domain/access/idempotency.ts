import { type RawBuilder, sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { defineStatement } from "../../db/statements.ts";
import { ApiError, type ErrorCode } from "../errors.ts";
import { sealContext, type Vault } from "../secrets/crypto.ts";

export const REMEMBERED_HOURS = 24;
/** When a claim of now is forgotten with its answer, on the database's clock. */
const IN_A_DAY = sql<string>`now() + ${sql.lit(`${REMEMBERED_HOURS} hours`)}::interval`;
/** An attempt that has neither answered nor renewed its claim for this time is presumed dead, and taken over. */
export const STALLED_SECONDS = 90;
const STALLED = sql`${sql.lit(`${STALLED_SECONDS} seconds`)}::interval`;
/** A living attempt renews its claim this often: two renewals may fail before it is presumed dead. */
const RENEW_EVERY_MS = 30_000;
/** Most attempts take a moment: a client that comes back then finds the answer. */
const IN_FLIGHT_RETRY_SECONDS = 2;

/** The payload itself, encrypted where it holds a secret (`sealed`), the facts that it is made from, or a refusal. */
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
  status: number;
  kind: AnswerKind;
  /** JSON text, encrypted for `sealed`. */
  payload: string;
}

export interface RememberedAnswer extends WrittenAnswer {
  /** The id of the request that was answered first. */
  requestId: string;
}

export type Claim = { outcome: "claimed"; handle: IdempotencyHandle } | { outcome: "replay"; answer: RememberedAnswer };

export interface KeyedRequest {
  tenant: Tenant;
  keyHash: string;
  /** HMAC over the parts of the request that identify it. */
  fingerprint: string;
  requestId: string;
}

/** The time of a claim that was released: it counts as stalled at once. */
const RELEASED = sql<string>`to_timestamp(0)`;

type ClaimedKey = Pick<Tenant, keyof Tenant> & Pick<KeyedRequest, "keyHash" | "fingerprint" | "requestId">;

const insertClaim = defineStatement((em, { keyHash, fingerprint, requestId, teamId, environment }: ClaimedKey) =>
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
  const { tenant, keyHash, fingerprint, requestId } = request;
  const claimed = (attempt: number): Claim => ({
    outcome: "claimed",
    handle: { ...tenant, keyHash, attempt, requestId },
  });
  const inserted = await insertClaim(em, { ...tenant, keyHash, fingerprint, requestId });
  if (inserted.rows.length > 0) return claimed(1);

  const free = isFreeFor(fingerprint);
  const record = await recordOf(em, request)
    .select(["fingerprint", "request_id", "status", "payload", "payload_kind", free.as("free")])
    .executeTakeFirst();
  // It expired and was deleted since the statement above.
  if (!record) throw inFlight();
  if (!record.free) {
    if (record.fingerprint !== fingerprint) throw new ApiError("idempotency_key_reused");
    const answer = answerIn(record);
    if (!answer) throw inFlight();
    return { outcome: "replay", answer };
  }

  const { rows } = await sql<{ attempt: number }>`
    update idempotency_records set
      -- The release of a claim has given it its number; any other attempt gets a number that fences the one before off.
      attempt = attempt + case when status is null and locked_at = ${RELEASED}
        and coalesce(fingerprint, ${fingerprint}) = ${fingerprint} then 0 else 1 end,
      fingerprint = ${fingerprint},
      locked_at = now(),
      status = null,
      request_id = ${requestId},
      payload = null,
      payload_kind = null,
      expires_at = ${IN_A_DAY}
    where ${ofTenant(tenant)} and key_hash = (${recordOf(em, request).select("key_hash").where(free).forUpdate().skipLocked()})
    returning attempt`.execute(kysely(em));
  const [taken] = rows;
  // Another request has taken it since the statement above.
  if (!taken) throw inFlight();
  return claimed(taken.attempt);
}

const recordOf = (em: EntityManager, { tenant, keyHash }: Pick<KeyedRequest, "tenant" | "keyHash">) =>
  kysely(em).selectFrom("idempotency_records").where(ofTenant(tenant)).where("key_hash", "=", keyHash);

/** Whether a request may take a record: it expired, it was released for any request, or its attempt is presumed dead. */
const isFreeFor = (fingerprint: string): RawBuilder<boolean> => sql<boolean>`(expires_at <= now()
  or (status is null and fingerprint is null)
  or (status is null and fingerprint = ${fingerprint} and locked_at <= now() - ${STALLED}))`;

/** The columns of an answer; all of them but `request_id` are null until it is written. */
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

/** The claim of a request. Its attempt is not known where the answer to the claim was lost. */
export type RequestClaim = Omit<IdempotencyHandle, "attempt"> & { attempt?: number };

const held = (em: EntityManager, { attempt, ...claim }: RequestClaim) =>
  kysely(em)
    .updateTable("idempotency_records")
    .where(ofTenant(claim))
    .where("key_hash", "=", claim.keyHash)
    .where("status", "is", null)
    .where((eb) => (attempt === undefined ? eb.lit(true) : eb("attempt", "=", attempt)));

/** The claim of an attempt, unless a transaction has locked it: see `lockClaim`. Waits for none. */
const heldUnlocked = (em: EntityManager, claim: RequestClaim) =>
  held(em, claim).where("key_hash", "=", recordOfHandle(em, claim).select("key_hash").forUpdate().skipLocked());

const recordOfHandle = (em: EntityManager, { keyHash, ...tenant }: RequestClaim) => recordOf(em, { tenant, keyHash });

/**
 * Locks the claim of an attempt until the transaction ends: no other request takes the key over, and no renewal conflicts with
 * the answer that a REPEATABLE READ transaction writes at its end. Call it first there.
 * @returns the answer that the attempt has already
 * @throws {ApiError} `request_in_flight` when another attempt has taken the key over
 */
export async function lockClaim(em: EntityManager, handle: IdempotencyHandle): Promise<RememberedAnswer | undefined> {
  const record = await recordOfHandle(em, handle)
    .select(["attempt", "request_id", "status", "payload", "payload_kind"])
    .forUpdate()
    .executeTakeFirst();
  if (record?.attempt !== handle.attempt) throw inFlight();
  return answerIn(record);
}

type HeldAnswer = Pick<IdempotencyHandle, keyof IdempotencyHandle> & Pick<WrittenAnswer, keyof WrittenAnswer>;

const updateAnswer = defineStatement((em, { status, kind, payload, ...handle }: HeldAnswer) =>
  held(em, handle).set({ status, payload, payload_kind: kind, request_id: handle.requestId }),
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
export interface RefusalFacts {
  code: ErrorCode;
  message: string;
  param?: string | undefined;
}

export const refusalAnswer = ({ status, code, message, param }: ApiError): WrittenAnswer => ({
  status,
  kind: "refusal",
  payload: JSON.stringify({ code, message, param } satisfies RefusalFacts),
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

/** The answer that an attempt has written; undefined while it has not. */
export async function readAnswer(em: EntityManager, handle: IdempotencyHandle): Promise<RememberedAnswer | undefined> {
  const record = await recordOfHandle(em, handle)
    .select(["request_id", "status", "payload", "payload_kind"])
    .where("attempt", "=", handle.attempt)
    .executeTakeFirst();
  return record && answerIn(record);
}

/** The answer that any attempt of a request has written; undefined while there is none. */
export async function findAnswer(em: EntityManager, request: KeyedRequest): Promise<RememberedAnswer | undefined> {
  const record = await recordOf(em, request)
    .select(["request_id", "status", "payload", "payload_kind"])
    .where("fingerprint", "=", request.fingerprint)
    .executeTakeFirst();
  return record && answerIn(record);
}

/** How a key is given back after an answer that is not remembered. */
export interface Release {
  /** `any` request for one that never began; `same` for one that began: only the same request may follow it. */
  to: "any" | "same";
  /** `same` lets the request that follows be the same attempt, so that it finds the workflow that this one started; `new` fences this one off. */
  attempt: "same" | "new";
}

/**
 * Gives the key back after an answer that is not remembered. It may be repeated.
 * @returns false when the request does not hold the key, or its work is under way in a transaction that has locked the claim
 */
export async function releaseKey(em: EntityManager, claim: RequestClaim, { to, attempt }: Release): Promise<boolean> {
  const { numUpdatedRows } = await heldUnlocked(em, claim)
    .where("request_id", "=", claim.requestId)
    .set(({ eb }) => ({
      locked_at: RELEASED,
      ...(attempt === "new" ? { attempt: eb("attempt", "+", 1) } : {}),
      ...(to === "any" ? { fingerprint: null } : {}),
    }))
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/**
 * Renews a claim until it is stopped, so that a request that takes long is not presumed dead.
 * @param onFailure is given the error of a renewal that failed; the next one may succeed
 * @returns stops it
 */
export function keepClaim(
  em: EntityManager,
  handle: IdempotencyHandle,
  onFailure: (error: unknown) => void,
): () => void {
  const renew = () =>
    heldUnlocked(em, handle).set({ locked_at: sql`now()` }).where("locked_at", ">", RELEASED).execute();
  const timer = setInterval(() => void renew().catch(onFailure), RENEW_EVERY_MS).unref();
  return () => clearInterval(timer);
}

type Place = Pick<IdempotencyHandle, "teamId" | "environment" | "keyHash">;

/** Binds a sealed payload to its record. */
const contextOf = ({ teamId, environment, keyHash }: Place) =>
  sealContext("idempotency_records", "payload", teamId, environment, keyHash);

/** A payload that holds a secret, as it may be stored. */
export const sealPayload = (vault: Vault, place: Place, payload: string): string =>
  vault.encrypt(payload, contextOf(place));

export const openPayload = (vault: Vault, place: Place, sealed: string): string =>
  vault.decrypt(sealed, contextOf(place));
