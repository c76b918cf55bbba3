import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import { type Access, type AccessKey, accessFor, MEMBER_FACTS, requireScope } from "./access.ts";
import { presentKeyId } from "./keys.ts";
import { defineLookup } from "./request-limit.ts";
import type { Scope } from "./scopes.ts";

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
      "key.for_list_id",
      "key.requires_approval",
      "key.for_sessions",
      "key.daily_send_cap",
      "key.lineage_id",
      "key.api_version",
      ...MEMBER_FACTS,
      // Not now(): a transaction that checks again at its end may have begun before the key expired.
      sql<boolean>`key.expires_at <= clock_timestamp()`.as("expired"),
      sql<boolean>`key.revoked_at is not null`.as("revoked"),
    ]);

type KeyRecord = Awaited<ReturnType<ReturnType<typeof keyRecords>["executeTakeFirstOrThrow"]>>;

/** The look-up of every request; it counts the request of a caller that knows the secret, not the public id alone. */
export const keyLookup = defineLookup({
  query: (em, { publicId }: { publicId: string; secretHash: string }) =>
    keyRecords(em).where("key.public_id", "=", publicId),
  callerId: () => sql`id`,
  isGood: ({ secretHash }) => sql`secret_hash = ${secretHash}`,
});

/** @throws {ApiError} `api_key_revoked`, `api_key_expired` */
export function refuseEnded({ revoked, expired }: KeyRecord): void {
  if (revoked) throw new ApiError("api_key_revoked");
  if (expired) throw new ApiError("api_key_expired");
}

export const keyOf = (found: KeyRecord): AccessKey => ({
  kind: "api_key",
  id: found.id,
  keyId: presentKeyId(found.environment, found.public_id),
  environment: found.environment,
  memberId: found.member_id,
  roleAtIssue: found.role_at_issue,
  sendDomains: found.send_domains,
  forListId: found.for_list_id,
  requiresApproval: found.requires_approval,
  isOfSessions: found.for_sessions,
  dailySendCap: found.daily_send_cap,
  lineageId: found.lineage_id,
  apiVersion: found.api_version,
});

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
  refuseEnded(found);
  const access = accessFor(keyOf(found), found, found.granted_scopes);
  requireScope(access, scope);
  return access;
}
