import { sql } from "kysely";
import type { Environment } from "../db/entities/shared.ts";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import type { Vault } from "./crypto.ts";
import { ApiError } from "./errors.ts";

/** How long an answer is remembered, on the database's clock. */
const REMEMBERED = sql`interval '24 hours'`;
/** An attempt that has not answered by then is taken over. */
const STALLED = sql`interval '90 seconds'`;
/** Most attempts take a moment: a client that comes back then finds the answer. */
const IN_FLIGHT_RETRY_SECONDS = 2;

/** How a stored body is kept: as sent, encrypted, or as a preview whose token is recomputed when it is replayed. */
export type BodyKind = "plain" | "encrypted" | "preview";

/** One attempt's hold on an Idempotency-Key. Plain data: it travels to whoever writes the answer. */
export interface IdempotencyHandle {
  teamId: string;
  environment: Environment;
  /** HMAC of the client's key. */
  keyHash: string;
  attempt: number;
  /** The id of the request whose answer this will be: it stands in the stored body. */
  requestId: string;
}

/** An answer as it is stored: the body is JSON text. */
export interface StoredAnswer {
  status: number;
  body: string;
  bodyKind: BodyKind;
}

/** What an Idempotency-Key says about a request. */
export type Claim = { outcome: "claimed"; handle: IdempotencyHandle } | { outcome: "replay"; answer: StoredAnswer };

/** The request an Idempotency-Key is claimed for. */
export interface KeyedRequest {
  tenant: Tenant;
  keyHash: string;
  /** HMAC over what makes the request this one. */
  fingerprint: string;
  requestId: string;
}

/** Set as the time of a lock that is given up: anyone may take it at once. */
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
      -- A released lock keeps its number for the same request; whoever else comes fences off what went before.
      attempt = record.attempt + case when record.status is null and record.locked_at = ${RELEASED}
        and record.fingerprint = excluded.fingerprint then 0 else 1 end,
      locked_at = excluded.locked_at,
      status = null,
      body = null,
      body_kind = null,
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
    .where("team_id", "=", tenant.teamId)
    .where("environment", "=", tenant.environment)
    .where("key_hash", "=", keyHash)
    .select(["fingerprint", "status", "body", "body_kind"])
    .executeTakeFirst();
  // Gone since: it expired and was cleaned away.
  if (!record) return claimKey(em, request);
  if (record.fingerprint !== fingerprint) throw new ApiError("idempotency_key_reused");
  if (record.status === null || record.body === null || record.body_kind === null) throw inFlight();
  return {
    outcome: "replay",
    answer: { status: record.status, body: record.body, bodyKind: record.body_kind },
  };
}

/** The refusal while another attempt holds the key, or has taken it over. */
export const inFlight = (): ApiError =>
  new ApiError("request_in_flight", undefined, { retryAfterSeconds: IN_FLIGHT_RETRY_SECONDS });

const held = (em: EntityManager, { teamId, environment, keyHash, attempt }: IdempotencyHandle) =>
  kysely(em)
    .updateTable("idempotency_records")
    .where("team_id", "=", teamId)
    .where("environment", "=", environment)
    .where("key_hash", "=", keyHash)
    .where("attempt", "=", attempt)
    .where("status", "is", null);

/**
 * Writes the answer of an attempt, in the transaction of its effect.
 * @returns false when the attempt no longer holds the key: it was taken over or has its answer. Roll back then.
 */
export async function writeAnswer(
  em: EntityManager,
  handle: IdempotencyHandle,
  { status, body, bodyKind }: StoredAnswer,
): Promise<boolean> {
  const { numUpdatedRows } = await held(em, handle).set({ status, body, body_kind: bodyKind }).executeTakeFirst();
  return numUpdatedRows === 1n;
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

const sealContext = ({ teamId, environment, keyHash }: Place) => `idempotency/${teamId}/${environment}/${keyHash}`;

/** The body of an answer that holds a secret, as it may be stored. */
export const sealBody = (vault: Vault, place: Place, body: string): string => vault.encrypt(body, sealContext(place));

/** What `sealBody` sealed. */
export const openBody = (vault: Vault, place: Place, sealed: string): string =>
  vault.decrypt(sealed, sealContext(place));
