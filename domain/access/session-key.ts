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
  return transaction(em.fork(), async (tx) => {
    const sendDomains = await domainsOfAccounts(tx, tenant);
    const find = () =>
      tx.findOne(ApiKey, { ...tenant, memberId, forSessions: true }, { orderBy: { id: "desc" }, refresh: true });
    let key = await find();
    if (!key || (key.revokedAt && renews)) {
      // Two requests at once make one key.
      await sql`select pg_advisory_xact_lock(hashtextextended(${`session-key/${memberId}`}, 0))`.execute(kysely(tx));
      key = await find();
    }
    if (key?.revokedAt && !renews) {
      throw new ApiError("api_key_revoked", "The key by which you send here was revoked; renew it under Keys.");
    }
    if (key && !key.revokedAt) {
      if (key.sendDomains.join() !== sendDomains.join()) {
        key.sendDomains = sendDomains;
        await tx.flush();
      }
      return key;
    }
    const grant = { ...tenant, memberId, name: "Console", scopes: SCOPES, sendDomains, forSessions: true };
    const { record } = await mintKey(tx, vault, grant, Number.MAX_SAFE_INTEGER, key?.lineageId);
    return record;
  });
}
