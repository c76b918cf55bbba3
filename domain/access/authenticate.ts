import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import type { Plan, Role } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { executePrepared } from "../../db/prepared.ts";
import type { Vault } from "../crypto.ts";
import { ApiError } from "../errors.ts";
import { KEY_PREFIX, parseKey, presentKeyId } from "./keys.ts";
import { isScope, refuseForbiddenPairs, roleHolds, type Scope } from "./scopes.ts";

/** The key of a request, as its record is now. */
export interface AccessKey {
  id: string;
  /** The part of the key that may be shown: `mk_live_<id>`. */
  keyId: string;
  environment: Environment;
  memberId: string;
  roleAtIssue: Role;
  sendDomains: string[];
  requiresApproval: boolean;
  dailySendCap: number;
  lineageId: string;
  apiVersion: string;
}

/** The caller of a request: its key, its team, and the scopes it has now. */
export interface Access {
  key: AccessKey;
  team: { id: string; name: string; timeZone: string };
  tenant: Tenant;
  /** The role of the key's creator now. */
  role: Role;
  /** Those of `grantedScopes` that the role still holds. */
  scopes: Scope[];
  /** As minted. */
  grantedScopes: Scope[];
}

/** Every value of every header, as `IncomingMessage.headersDistinct` gives them, so that a second value is noticed. */
export type HeaderValues = NodeJS.Dict<string[]>;

/** Turns an OAuth token into access. @throws {ApiError} `invalid_token` */
export type TokenVerifier = (token: string) => Promise<Access>;

const noTokens: TokenVerifier = async () => {
  throw new ApiError("invalid_token");
};

const BEARER = /^bearer(?: +(.*))?$/i;

function credentialsIn(headers: HeaderValues): { token: string; bearer: boolean }[] {
  const keys = (headers["x-api-key"] ?? []).map((token) => ({ token: token.trim(), bearer: false }));
  const bearers = (headers["authorization"] ?? []).flatMap((value) => {
    const match = BEARER.exec(value.trim());
    return match ? [{ token: (match[1] ?? "").trim(), bearer: true }] : [];
  });
  return [...bearers, ...keys].filter(({ token }) => token !== "");
}

/** A text with two dots that is no API key can only be meant as an OAuth token. */
const looksLikeToken = (text: string): boolean => !text.startsWith(KEY_PREFIX) && text.split(".").length === 3;

/** Compared with when no key matches, so that an unknown id takes as long as a known one. */
const NO_HASH = "-".repeat(43);

/** Keys with the team and the member that decide on their rights. */
const keyRecords = (em: EntityManager) =>
  kysely(em)
    .selectFrom("api_keys as key")
    .innerJoin("teams as team", "team.id", "key.team_id")
    .innerJoin("members as member", "member.id", "key.member_id")
    .select([
      "key.id",
      "key.public_id",
      "key.environment",
      "key.secret_hash",
      "key.member_id",
      "key.role_at_issue",
      "key.granted_scopes",
      "key.send_domains",
      "key.requires_approval",
      "key.daily_send_cap",
      "key.lineage_id",
      "key.api_version",
      "team.id as team_id",
      "team.name as team_name",
      "team.plan",
      "team.time_zone",
      "member.role",
      // Not now(): a transaction that checks again at its end may have begun before the key expired.
      sql<boolean>`key.expires_at <= clock_timestamp()`.as("expired"),
      sql<boolean>`key.revoked_at is not null`.as("revoked"),
      sql<boolean>`member.removed_at is not null`.as("member_left"),
    ]);

type KeyRecord = Awaited<ReturnType<ReturnType<typeof keyRecords>["executeTakeFirstOrThrow"]>>;

async function findKey(em: EntityManager, publicId: string): Promise<KeyRecord | undefined> {
  const statement = keyRecords(em).where("key.public_id", "=", publicId);
  // Every request runs it, and planning its joins takes longer than executing them.
  const { rows } = await executePrepared(em, "find_key", statement);
  return rows[0];
}

const API_PLAN: Plan = "BUSINESS";

/**
 * The access that a key gives at this moment. Refusals come in this order: revoked, expired, the plan, a creator who
 * left, a forbidden pair of scopes.
 * @throws {ApiError} with the code of the first of these that applies
 */
function accessOf(found: KeyRecord): Access {
  if (found.revoked) throw new ApiError("api_key_revoked");
  if (found.expired) throw new ApiError("api_key_expired");
  if (found.plan !== API_PLAN) throw new ApiError("plan_upgrade_required");
  if (found.member_left) {
    throw new ApiError("role_insufficient", "The member who created this key has left the team.");
  }

  // A scope that was withdrawn from the list since the key was minted grants nothing.
  const grantedScopes = found.granted_scopes.filter(isScope);
  const scopes = grantedScopes.filter((scope) => roleHolds(found.role, scope));
  refuseForbiddenPairs(scopes);
  return {
    key: {
      id: found.id,
      keyId: presentKeyId(found.environment, found.public_id),
      environment: found.environment,
      memberId: found.member_id,
      roleAtIssue: found.role_at_issue,
      sendDomains: found.send_domains,
      requiresApproval: found.requires_approval,
      dailySendCap: found.daily_send_cap,
      lineageId: found.lineage_id,
      apiVersion: found.api_version,
    },
    team: { id: found.team_id, name: found.team_name, timeZone: found.time_zone },
    tenant: { teamId: found.team_id, environment: found.environment },
    role: found.role,
    scopes,
    grantedScopes,
  };
}

/**
 * The place of the limit on failed authentications per address of a client: it runs before any look-up, so that an
 * address over the limit costs no query, and it sees each failure. No limit is built yet.
 * @throws {ApiError} `rate_limit_exceeded`, and the refusals of `identify`
 */
export type AttemptLimit = (identify: () => Promise<Access>) => Promise<Access>;

const unlimited: AttemptLimit = (identify) => identify();

/**
 * Identifies the caller of a request, with one query. Refusals come in this order: no credential, two that differ, a bad
 * OAuth token, a malformed key, an unknown id or wrong secret, the other environment's prefix, then those of `accessOf`.
 * @throws {ApiError} with the code of the first of these that applies
 */
export function authenticate(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  { verifyToken = noTokens, limit = unlimited }: { verifyToken?: TokenVerifier; limit?: AttemptLimit } = {},
): Promise<Access> {
  return limit(() => identify(em, vault, headers, verifyToken));
}

async function identify(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  verifyToken: TokenVerifier,
): Promise<Access> {
  const [credential, ...others] = credentialsIn(headers);
  if (!credential) throw new ApiError("api_key_missing");
  const { token, bearer } = credential;
  if (others.some((other) => other.token !== token)) {
    throw new ApiError("api_key_invalid", "The request carries two different credentials; send one.");
  }
  if (bearer && looksLikeToken(token)) return verifyToken(token);

  const parsed = parseKey(token);
  if (!parsed) throw new ApiError("api_key_malformed");
  const found = await findKey(em, parsed.publicId);
  const matches = vault.verifyHash(found?.secret_hash ?? NO_HASH, "api-key", parsed.secret);
  if (!found || !matches) throw new ApiError("api_key_invalid", "No API key matches.");
  if (found.environment !== parsed.environment) throw new ApiError("api_key_environment_mismatch");
  return accessOf(found);
}

/**
 * The access that the key of an earlier request gives now, for work that runs after the request was authenticated: the
 * checks of `authenticate` on a key that is known, then its scope.
 * @param lock keeps key, member and team as they are until the transaction ends. Where one of them has changed since a
 *   REPEATABLE READ transaction began, Postgres reports a conflict, and `transaction` repeats it.
 * @throws {ApiError} `api_key_invalid` when the tenant has no such key; as `authenticate` and `requireScope`
 */
export async function readAccess(
  em: EntityManager,
  tenant: Tenant,
  apiKeyId: string,
  scope: Scope,
  { lock = false }: { lock?: boolean } = {},
): Promise<Access> {
  const found = await keyRecords(em)
    .where("key.id", "=", apiKeyId)
    .where(ofTenant(tenant, "key"))
    .$if(lock, (query) => query.forShare())
    .executeTakeFirst();
  if (!found) throw new ApiError("api_key_invalid", "No API key has this id.", { param: "apiKeyId" });
  const access = accessOf(found);
  requireScope(access, scope);
  return access;
}

/**
 * Lets a request pass that needs the scope, or any one of several.
 * @throws {ApiError} `insufficient_scope` when the key was granted none of them, `role_insufficient` when it was, but
 * the creator's role no longer holds it
 */
export function requireScope({ scopes, grantedScopes, role }: Access, ...anyOf: [Scope, ...Scope[]]): void {
  if (anyOf.some((scope) => scopes.includes(scope))) return;
  const named = anyOf.join(" or ");
  throw anyOf.some((scope) => grantedScopes.includes(scope))
    ? new ApiError("role_insufficient", `The key's creator is ${role} now, which does not hold ${named}.`)
    : new ApiError("insufficient_scope", `This needs the scope ${named}, which the key was not granted.`);
}
