import { randomInt } from "node:crypto";
import { crc32 } from "node:zlib";
import { LockMode, raw } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { ENVIRONMENTS, type Environment } from "../../db/entities/shared.ts";
import { ApiKey, Member } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { normaliseDomain } from "../address.ts";
import { CURRENT_API_VERSION } from "../api-version.ts";
import { ApiError, notFound, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { pauseRunning } from "../sequences/state.ts";
import { holdPlace, type LimitedRecords } from "../teams/record-limit.ts";
import { isScope, refuseForbiddenPairs, roleHolds, type Scope } from "./scopes.ts";

/*
 * A key is `mk_live_<id>_<secret><checksum>`, or `mk_test_…`, all in base62. The checksum, a CRC-32 of `<id>_<secret>`, tells
 * a mistyped key without a look-up; a key with the prefix of the other environment gets an error of its own.
 */
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LENGTH = 12;
const SECRET_LENGTH = 43;
/** 62^6 exceeds 2^32: every CRC-32 fits. */
const CHECKSUM_LENGTH = 6;
const KEY = new RegExp(
  `^mk_(live|test)_([0-9A-Za-z]{${ID_LENGTH}})_([0-9A-Za-z]{${SECRET_LENGTH}})([0-9A-Za-z]{${CHECKSUM_LENGTH}})$`,
);

/** Every key begins with this, in either environment. */
export const KEY_PREFIX = "mk_";

/** Mails a key may send in a UTC day unless it was minted with another cap. */
export const DEFAULT_DAILY_SEND_CAP = 50_000;

export interface ParsedKey {
  environment: Environment;
  publicId: string;
  secret: string;
}

const random = (length: number): string =>
  Array.from({ length }, () => ALPHABET.charAt(randomInt(ALPHABET.length))).join("");

function checksum(publicId: string, secret: string): string {
  let rest = crc32(`${publicId}_${secret}`);
  let digits = "";
  for (let place = 0; place < CHECKSUM_LENGTH; place++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** The part of a key that may be shown: `mk_live_<id>`. */
export const presentKeyId = (environment: Environment, publicId: string): string =>
  `${KEY_PREFIX}${environment.toLowerCase()}_${publicId}`;

export const formatKey = ({ environment, publicId, secret }: ParsedKey): string =>
  `${presentKeyId(environment, publicId)}_${secret}${checksum(publicId, secret)}`;

export const keyState = ({ revokedAt, expiresAt }: Pick<ApiKey, "revokedAt" | "expiresAt">) => {
  if (revokedAt) return "revoked";
  return expiresAt && expiresAt <= new Date() ? "expired" : "works";
};

export const generateKey = (environment: Environment): ParsedKey => ({
  environment,
  publicId: random(ID_LENGTH),
  secret: random(SECRET_LENGTH),
});

/** The parts of a key, or null when it is not well-formed or its checksum is wrong. Needs no look-up. */
export function parseKey(text: string): ParsedKey | null {
  const [, prefix, publicId, secret, sum] = KEY.exec(text) ?? [];
  if (!prefix || !publicId || !secret || checksum(publicId, secret) !== sum) return null;
  const environment = ENVIRONMENTS.find((candidate) => candidate.toLowerCase() === prefix);
  return environment ? { environment, publicId, secret } : null;
}

/** The stored form of a secret: its HMAC-SHA256 under the database's hash key. */
export const hashSecret = (vault: Vault, secret: string): string => vault.hash("api-key", secret);

export interface KeyGrant {
  teamId: string;
  /** The member it acts for; its scopes end with that member's role. */
  memberId: string;
  environment: Environment;
  name: string;
  scopes: readonly string[];
  /** Domains it may send from; empty means it cannot send. */
  sendDomains?: readonly string[];
  /** A list of the environment that each newsletter of the key targets from the start. */
  forListId?: string | null | undefined;
  requiresApproval?: boolean;
  /** Mails per UTC day. */
  dailySendCap?: number;
  expiresAt?: Date | null;
  forSessions?: boolean;
}

/** A new key: `key` is shown this once. */
export interface MintedKey {
  key: string;
  record: ApiKey;
}

const invalid = (param: string, message: string) => new ApiError("validation_failed", message, { param });

function readScopes(given: readonly string[]): Scope[] {
  const scopes = given.map((scope, index) => {
    if (!isScope(scope)) throw invalid(`scopes[${index}]`, `There is no scope ${JSON.stringify(scope)}.`);
    return scope;
  });
  return [...new Set(scopes)];
}

function readSendDomains(given: readonly string[]): string[] {
  const domains = given.map((domain, index) => {
    const plain = normaliseDomain(domain);
    if (plain === undefined) throw invalid(`send_domains[${index}]`, "This is not a domain name.");
    return plain;
  });
  return [...new Set(domains)];
}

/** Keys that work. One that was revoked or has expired leaves its place. */
const WORKING_KEYS: LimitedRecords = {
  table: "api_keys",
  name: "API keys that work",
  condition: sql`not for_sessions and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())`,
  remedy: "revoke one first",
};

/**
 * Mints a key for a member, in the caller's transaction; it cannot be shown again.
 * @param limit keys that the team may have in the environment @param lineageId of the key that it replaces
 * @throws {ApiError} `validation_failed`, `forbidden_scope_pair`, `role_insufficient`, `not_found`, `resource_limit_reached`
 */
export async function mintKey(
  em: EntityManager,
  vault: Vault,
  grant: KeyGrant,
  limit: number,
  lineageId?: string,
): Promise<MintedKey> {
  const scopes = readScopes(grant.scopes);
  refuseForbiddenPairs(scopes);
  const dailySendCap = checkCap(grant.dailySendCap ?? DEFAULT_DAILY_SEND_CAP);
  const member = orNotFound(await em.findOne(Member, { id: grant.memberId, teamId: grant.teamId }));
  const beyond = scopes.filter((scope) => !roleHolds(member.role, scope));
  if (member.removedAt || beyond.length > 0) {
    throw new ApiError(
      "role_insufficient",
      member.removedAt
        ? "The member has left the team."
        : `The role ${member.role} does not hold ${beyond.join(", ")}.`,
    );
  }

  // The list of the key that it replaces may be deleted.
  const { forListId = null } = grant;
  if (forListId !== null && !lineageId) {
    if (!grant.scopes.includes("newsletters:write")) {
      throw new ApiError("validation_failed", "A key that is made for a list needs the scope newsletters:write.");
    }
    const list = kysely(em).selectFrom("lists").select("id").where("id", "=", forListId).where(ofTenant(grant));
    if (!(await list.executeTakeFirst())) throw notFound("for_list_id", "list");
  }

  // A key of sessions takes no place: each member has one at most.
  if (!grant.forSessions)
    await holdPlace(em, { teamId: grant.teamId, environment: grant.environment }, WORKING_KEYS, limit);
  const parts = generateKey(grant.environment);
  const id = newId("apiKey");
  const record = em.create(ApiKey, {
    id,
    teamId: grant.teamId,
    environment: grant.environment,
    publicId: parts.publicId,
    name: grant.name,
    secretHash: hashSecret(vault, parts.secret),
    memberId: member.id,
    roleAtIssue: member.role,
    grantedScopes: scopes,
    sendDomains: readSendDomains(grant.sendDomains ?? []),
    forListId,
    requiresApproval: grant.requiresApproval ?? false,
    dailySendCap,
    lineageId: lineageId ?? id,
    apiVersion: CURRENT_API_VERSION,
    expiresAt: grant.expiresAt ?? null,
    forSessions: grant.forSessions ?? false,
  });
  await em.flush();
  return { key: formatKey(parts), record };
}

/** A team's key, in one of its environments where that is given; named by its record's id or by its `mk_live_<id>`. */
export interface KeyName extends Pick<Tenant, "teamId">, Partial<Pick<Tenant, "environment">> {
  key: string;
}

/** Keeps it as it is until the transaction ends. @throws {ApiError} `not_found` */
export async function lockKey(em: EntityManager, { key, ...owner }: KeyName): Promise<ApiKey> {
  const [, environment, publicId] = /^mk_(live|test)_([0-9A-Za-z]+)$/.exec(key) ?? [];
  const name = publicId
    ? { publicId, environment: environment === "live" ? ("LIVE" as const) : ("TEST" as const) }
    : { id: key };
  const record = await em.findOne(
    ApiKey,
    { ...name, ...owner },
    { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true },
  );
  return orNotFound(record, "key");
}

/**
 * Replaces a key by a new one of the same lineage with the same grant; the daily cap counts over both.
 * @param graceHours hours for which the old key still works, and keeps its place within `limit`; 0 revokes it at once
 * @throws {ApiError} `not_found`, `resource_state_invalid` for a revoked key, and the errors of `mintKey`
 */
export function rotateKey(
  em: EntityManager,
  vault: Vault,
  name: KeyName,
  limit: number,
  graceHours = 0,
): Promise<MintedKey> {
  return transaction(em, async (em) => {
    const old = await lockKey(em, name);
    if (old.forSessions)
      throw new ApiError("resource_state_invalid", "It is the key of a member's sessions; revoke it.");
    if (old.revokedAt) throw new ApiError("resource_state_invalid", "The key is revoked; mint a new one.");
    const { teamId, memberId, environment, sendDomains, forListId, requiresApproval, dailySendCap, expiresAt } = old;
    const grant = { teamId, memberId, environment, name: old.name, scopes: old.grantedScopes, sendDomains, forListId };
    if (graceHours > 0) {
      // A key that expires sooner keeps its own end.
      const expiresAt = raw("least(expires_at, now() + make_interval(hours => ?))", [graceHours]);
      await em.nativeUpdate(ApiKey, { id: old.id, teamId, environment }, { expiresAt });
    } else await endKey(em, old);
    return mintKey(
      em,
      vault,
      { ...grant, requiresApproval, dailySendCap, expiresAt: expiresAt ?? null },
      limit,
      old.lineageId,
    );
  });
}

/** @throws {ApiError} `validation_failed` */
function checkCap(mails: number): number {
  if (!Number.isSafeInteger(mails) || mails < 0 || mails > 2_147_483_647) {
    throw invalid("daily_send_cap", "The daily send cap must be a whole number of mails.");
  }
  return mails;
}

/** Sets the most mails of a UTC day, also of the key of a member's sessions. @throws {ApiError} `not_found`, `validation_failed` */
export function changeCap(em: EntityManager, name: KeyName, mails: number): Promise<ApiKey> {
  return transaction(em, async (em) => {
    const key = await lockKey(em, name);
    key.dailySendCap = checkCap(mails);
    await em.flush();
    return key;
  });
}

/** Revokes a key for good; revoking it again changes nothing. @throws {ApiError} `not_found` */
export function revokeKey(em: EntityManager, name: KeyName): Promise<void> {
  return transaction(em, async (em) => endKey(em, await lockKey(em, name)));
}

/** The sequences that it runs are PAUSED with it. */
async function endKey(em: EntityManager, { id, teamId, environment }: ApiKey): Promise<void> {
  await em.nativeUpdate(ApiKey, { id, teamId, environment, revokedAt: null }, { revokedAt: raw("now()") });
  await pauseRunning(em, { teamId, environment }, sql`q.api_key_id = ${id}`, "api_key_revoked");
}
