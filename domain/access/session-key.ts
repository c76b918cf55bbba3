import { sql } from "kysely";
import { EmailAccount } from "../../db/entities/account.ts";
import { ApiKey } from "../../db/entities/team.ts";
import { type EntityManager, forTenant, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { addressDomain } from "../address.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { mintKey } from "./keys.ts";
import { type Scope, SEND_SCOPES } from "./scopes.ts";

/** The send tier, and drafts. */
const SCOPES: readonly Scope[] = [
  "newsletters:read",
  "newsletters:write",
  "campaigns:read",
  "campaigns:write",
  ...SEND_SCOPES,
];

/** Domains that the team's accounts send for. */
export async function domainsOfAccounts(em: EntityManager, tenant: Tenant): Promise<string[]> {
  const fields = ["email", "allowedDomains"] as const;
  const accounts = await forTenant(em, tenant).find(EmailAccount, {}, { fields });
  const domains = accounts.flatMap(({ email, allowedDomains }) => [addressDomain(email), ...allowedDomains]);
  return [...new Set(domains)].sort();
}

/**
 * The key by which a member's sessions send; it is made at the first use, and follows the domains of the team's accounts. It
 * keeps its daily cap over all sign-ins.
 * @param renews makes a new one in the place of one that was revoked, which counts for the same cap
 * @throws {ApiError} `api_key_revoked`; as `mintKey`
 */
export function keyOfSessions(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  memberId: string,
  renews = false,
): Promise<ApiKey> {
  return transaction(em, async (tx) => {
    // Two requests at once make one key.
    const lock = `session-key/${memberId}/${tenant.environment}`;
    await sql`select pg_advisory_xact_lock(hashtextextended(${lock}, 0))`.execute(kysely(tx));
    const sendDomains = await domainsOfAccounts(tx, tenant);
    const own = { ...tenant, memberId, forSessions: true };
    const key = await tx.findOne(ApiKey, own, { orderBy: { id: "desc" } });
    if (key && !key.revokedAt) {
      key.sendDomains = sendDomains;
      await tx.flush();
      return key;
    }
    if (key && !renews) {
      throw new ApiError("api_key_revoked", "The key by which you send here was revoked; renew it under Keys.");
    }
    const grant = { ...own, name: "Console", scopes: SCOPES, sendDomains };
    const { record } = await mintKey(tx, vault, grant, 0, key?.lineageId);
    return record;
  });
}
