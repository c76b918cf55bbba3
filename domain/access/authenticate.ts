import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import type { Plan, Role } from "../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { equalConstantTime, type Vault } from "../crypto.ts";
import { ApiError } from "../errors.ts";
import { hashSecret, KEY_PREFIX, type ParsedKey, parseKey, presentKeyId } from "./keys.ts";
import type { Allowance, Lookup, RequestLimits, WindowCount } from "./request-limit.ts";
import { isScope, refuseForbiddenPairs, roleHolds, type Scope, SEND_SCOPES } from "./scopes.ts";

/** The facts that every kind of caller has. */
interface CallerFacts {
  /** Requests are counted and take turns by it: the id of a key's record, `<team id>/oauth_<client_id>` for a token. */
  id: string;
  /** The part of the credential that may be shown: `mk_live_<id>`, or `oauth_<client_id>`. */
  keyId: string;
  environment: Environment;
  /** The member who minted the key, or whom the token acts for. */
  memberId: string;
  /** Within the team, remembered answers that hold a secret belong to it: a key's lineage, or an OAuth client. */
  lineageId: string;
  /** The version for requests that name none. */
  apiVersion: string;
}

/** The API key of a request, as its record is now. */
export interface AccessKey extends CallerFacts {
  kind: "api_key";
  roleAtIssue: Role;
  sendDomains: string[];
  requiresApproval: boolean;
  dailySendCap: number;
}

/** The OAuth token of a request, as its claims are. */
export interface AccessToken extends CallerFacts {
  kind: "oauth_token";
  /** The `jti` claim, by which it can be revoked. */
  tokenId: string;
}

/** The key or the token that a request came with. */
export type AccessCaller = AccessKey | AccessToken;

/** A request's caller, its team, and the scopes it has now. */
export interface Access<C extends AccessCaller = AccessCaller> {
  caller: C;
  team: { id: string; name: string; timeZone: string };
  tenant: Tenant;
  /** The role of the caller's member now. */
  role: Role;
  /** Those of `grantedScopes` that the role still holds. */
  scopes: Scope[];
  /** As minted, or as in the token, without those that a token cannot hold. */
  grantedScopes: Scope[];
}

/** The access of a request, and what the limit on requests leaves its caller. */
export interface Admitted<C extends AccessCaller = AccessCaller> extends Access<C> {
  allowance: Allowance;
}

/** Every value of every header, as `IncomingMessage.headersDistinct` gives them, so that a second value is noticed. */
export type HeaderValues = NodeJS.Dict<string[]>;

/** An OAuth token that is good, and the member whom it acts for. */
export interface VerifiedToken {
  caller: AccessToken;
  holder: Holder;
  /** As the token claims them. */
  granted: readonly string[];
  /** The client's requests in the team, with this one. */
  window: WindowCount;
}

/**
 * Verifies an OAuth token and counts the request of its client, with one query.
 * @throws {ApiError} `invalid_token`; `service_unavailable` when the issuer's keys cannot be read; as `RequestLimits.find`
 */
export type TokenVerifier = (
  em: EntityManager,
  token: string,
  sender: Pick<Sender, "limits" | "client">,
) => Promise<VerifiedToken>;

/** The verifier of a service without an issuer. */
export const noTokens: TokenVerifier = async () => {
  throw new ApiError("invalid_token", "This service takes no OAuth tokens; send an API key.");
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
      "team.requests_per_minute",
      "member.role",
      // Not now(): a transaction that checks again at its end may have begun before the key expired.
      sql<boolean>`key.expires_at <= clock_timestamp()`.as("expired"),
      sql<boolean>`key.revoked_at is not null`.as("revoked"),
      sql<boolean>`member.removed_at is not null`.as("member_left"),
    ]);

type KeyRecord = Awaited<ReturnType<ReturnType<typeof keyRecords>["executeTakeFirstOrThrow"]>>;

/** The look-up of every request; it counts the request of a client that knows the secret, not the public id alone. */
const keyLookup = (em: EntityManager, publicId: string, secretHash: string): Lookup<KeyRecord> => ({
  name: "find_key",
  query: () => keyRecords(em).where("key.public_id", "=", publicId),
  callerId: "id",
  isGood: "secret_hash = $2",
  values: [publicId, secretHash],
});

const API_PLAN: Plan = "BUSINESS";

/** @throws {ApiError} `api_key_revoked`, `api_key_expired` */
function refuseEnded({ revoked, expired }: KeyRecord): void {
  if (revoked) throw new ApiError("api_key_revoked");
  if (expired) throw new ApiError("api_key_expired");
}

/** A caller's member, as messages name it. */
const MEMBER: Record<AccessCaller["kind"], string> = {
  api_key: "The member who created this key",
  oauth_token: "The member whom this token acts for",
};

/** The facts on a caller's member and team that decide on its rights. */
export type Holder = Pick<
  KeyRecord,
  "team_id" | "team_name" | "plan" | "time_zone" | "requests_per_minute" | "role" | "member_left"
>;

/**
 * The access of a caller whose credential is good. Refusals come in this order: the plan, a member who left, a forbidden
 * pair of scopes.
 * @param granted scopes as minted, or as the token claims them
 * @throws {ApiError} with the code of the first of these that applies
 */
export function accessFor<C extends AccessCaller>(caller: C, holder: Holder, granted: readonly string[]): Access<C> {
  if (holder.plan !== API_PLAN) throw new ApiError("plan_upgrade_required");
  if (holder.member_left) throw new ApiError("role_insufficient", `${MEMBER[caller.kind]} has left the team.`);

  // A scope that was withdrawn from the list since the key was minted grants nothing.
  const known = granted.filter(isScope);
  const isHeld = (scope: Scope) => roleHolds(holder.role, scope);
  refuseForbiddenPairs(known.filter(isHeld));
  const grantedScopes = known.filter((scope) => caller.kind === "api_key" || !SEND_SCOPES.includes(scope));
  return {
    caller,
    team: { id: holder.team_id, name: holder.team_name, timeZone: holder.time_zone },
    tenant: { teamId: holder.team_id, environment: caller.environment },
    role: holder.role,
    scopes: grantedScopes.filter(isHeld),
    grantedScopes,
  };
}

/**
 * The access that a key gives at this moment. Refusals come in this order: revoked, expired, then those of `accessFor`.
 * @throws {ApiError} with the code of the first of these that applies
 */
function accessOf(found: KeyRecord): Access<AccessKey> {
  refuseEnded(found);
  return accessFor(keyOf(found), found, found.granted_scopes);
}

const keyOf = (found: KeyRecord): AccessKey => ({
  kind: "api_key",
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
});

/** What every answer to a caller shows, also when the request is refused. */
export interface Identified {
  allowance: Allowance;
  /** The version for requests that name none. */
  apiVersion: string;
}

/** The sender of a request, and the limits on it. */
export interface Sender {
  limits: RequestLimits;
  /** The address or network whose failed authentications are counted; null where it is not known. */
  client: string | null;
  /** Is called once the credential has proved to be genuine, before the request may be refused for anything else. */
  onIdentified: (identified: Identified) => void;
}

/**
 * Identifies the caller of a request, with one query. Refusals come in this order: an address with too many failures, no
 * credential, two that differ, a bad OAuth token, a malformed key, an unknown id or wrong secret, the other environment's
 * prefix, a key that was revoked or has expired, too many requests, then those of `accessFor`.
 * @throws {ApiError} with the code of the first of these that applies
 */
export function authenticate(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  sender: Sender,
  verifyToken: TokenVerifier = noTokens,
): Promise<Admitted> {
  return sender.limits.attempt(em, sender.client, () => identify(em, vault, headers, sender, verifyToken));
}

/**
 * Admits a caller whose credential is good, with one request counted.
 * @throws {ApiError} `rate_limit_exceeded`, then those of `accessFor`
 */
function admit<C extends AccessCaller>(
  { limits, onIdentified }: Sender,
  caller: C,
  { holder, granted, window }: { holder: Holder; granted: readonly string[]; window: WindowCount },
): Admitted<C> {
  const limit = limits.limitFor(holder.requests_per_minute);
  const { allowance, refused } = limits.allowanceAfter(window, limit);
  onIdentified({ allowance, apiVersion: caller.apiVersion });
  if (refused) throw refused;
  return { ...accessFor(caller, holder, granted), allowance };
}

async function identify(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  sender: Sender,
  verifyToken: TokenVerifier,
): Promise<Admitted> {
  const [credential, ...others] = credentialsIn(headers);
  if (!credential) throw new ApiError("api_key_missing");
  const { token, bearer } = credential;
  if (others.some((other) => other.token !== token)) {
    throw new ApiError("api_key_invalid", "The request carries two different credentials; send one.");
  }
  if (bearer && looksLikeToken(token)) {
    const { caller, ...verified } = await verifyToken(em, token, sender);
    return admit(sender, caller, verified);
  }

  const parsed = parseKey(token);
  if (!parsed) throw new ApiError("api_key_malformed");
  return identifyByKey(em, vault, parsed, sender);
}

async function identifyByKey(em: EntityManager, vault: Vault, key: ParsedKey, sender: Sender): Promise<Admitted> {
  // A process that started without Postgres gets the key of its hashes with its first connection.
  if (!vault.canHash()) await em.fork().execute("select 1");
  const secretHash = hashSecret(vault, key.secret);
  const found = await sender.limits.find(em, sender.client, keyLookup(em, key.publicId, secretHash));
  const matches = equalConstantTime(found?.row.secret_hash ?? NO_HASH, secretHash);
  if (!found || !matches) throw new ApiError("api_key_invalid", "No API key matches.");
  const { row, window } = found;
  if (row.environment !== key.environment) throw new ApiError("api_key_environment_mismatch");
  refuseEnded(row);
  return admit(sender, keyOf(row), { holder: row, granted: row.granted_scopes, window: window(row.id) });
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
): Promise<Access<AccessKey>> {
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
 * @throws {ApiError} `insufficient_scope` when the caller was granted none of them, `role_insufficient` when it was, but
 * the role of its member no longer holds it
 */
export function requireScope({ caller, scopes, grantedScopes, role }: Access, ...anyOf: [Scope, ...Scope[]]): void {
  if (anyOf.some((scope) => scopes.includes(scope))) return;
  if (!anyOf.some((scope) => grantedScopes.includes(scope))) throw insufficientScope(caller, anyOf);
  const named = anyOf.join(" or ");
  throw new ApiError("role_insufficient", `${MEMBER[caller.kind]} is ${role} now, which does not hold ${named}.`);
}

function insufficientScope({ kind }: AccessCaller, anyOf: readonly [Scope, ...Scope[]]): ApiError {
  const named = `This needs the scope ${anyOf.join(" or ")}`;
  if (kind === "api_key") return new ApiError("insufficient_scope", `${named}, which the key was not granted.`);
  return anyOf.every((scope) => SEND_SCOPES.includes(scope))
    ? new ApiError("insufficient_scope", `${named}, which no OAuth client can hold; use an API key.`)
    : new ApiError("insufficient_scope", `${named}, which the token does not hold.`);
}

/**
 * The API key of a request that none but a key can make: each send tells apart the keys that preview and confirm it.
 * @param scope the scope that the request needs
 * @throws {ApiError} `insufficient_scope` for an OAuth client
 */
export function requireKey({ caller }: Access, scope: Scope): AccessKey {
  if (caller.kind === "api_key") return caller;
  throw insufficientScope(caller, [scope]);
}
