import { createPrivateKey, generateKeyPair, randomInt } from "node:crypto";
import { domainToASCII } from "node:url";
import { promisify } from "node:util";
import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { addressDomain } from "../address.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { DkimAlgorithm, DkimKey } from "../mail/dkim.ts";
import { sealContext, type Vault } from "../secrets/crypto.ts";

export interface SendingKey {
  id: string;
  domain: string;
  selector: string;
  algorithm: DkimAlgorithm;
  /** As its record in DNS has it, base64. */
  publicKey: string;
  /** Null while its record is not known to be in DNS. */
  activeSince: Date | null;
  /** `replaced` by a newer key of its algorithm, while mails that it signed may still be under way. */
  use: "waiting" | "signing" | "replaced";
  replacedAt: Date | null;
}

export type SealedKey = Pick<SendingKey, "id" | "domain" | "selector" | "algorithm"> & { encryptedPrivateKey: string };

export const domainOf = (address: string): string => domainToASCII(addressDomain(address));

/** RFC 8301 requires 1,024 bits and recommends 2,048; some servers do not verify longer keys. */
const RSA_BITS = 2_048;
/** Ed25519's public key is the end of its SPKI, and the record holds it alone (RFC 8463, section 4). */
const ED25519_BYTES = 32;
const SELECTOR_LETTERS = 6;

const makeKeyPair = promisify(generateKeyPair);

/** Has random letters, because teams may share a domain and its DNS. */
function newSelector(): string {
  const day = new Date().toISOString().slice(0, 10).replaceAll("-", "");
  const letters = Array.from({ length: SELECTOR_LETTERS }, () => randomInt(36).toString(36)).join("");
  return `mk${day}-${letters}`;
}

/**
 * Makes a key of a domain, which does not sign until it is activated. Outside a transaction: an RSA key takes a while
 * to make.
 * @throws {ApiError} `resource_already_exists` when `isFirst` and there is a key, `not_found` when not `isFirst` and
 * there is none
 */
export async function addKey(
  em: EntityManager,
  tenant: Tenant,
  vault: Vault,
  { domain, algorithm, isFirst }: Pick<SendingKey, "domain" | "algorithm"> & { isFirst: boolean },
): Promise<SendingKey> {
  const hasOne = (await listKeys(em, tenant, domain)).some((key) => key.algorithm === algorithm);
  if (hasOne && isFirst) {
    const remedy = "rotate it (domain:rotate) to make the next one";
    throw new ApiError("resource_already_exists", `${domain} has a key of ${algorithm}; ${remedy}.`, {
      param: "domain",
    });
  }
  if (!hasOne && !isFirst) {
    throw new ApiError("not_found", `${domain} has no key of ${algorithm}; domain:add makes one.`);
  }
  const { privateKey, publicKey } =
    algorithm === "rsa" ? await makeKeyPair("rsa", { modulusLength: RSA_BITS }) : await makeKeyPair("ed25519");
  const spki = publicKey.export({ format: "der", type: "spki" });
  const id = newId("dkimKey");
  const key = {
    id,
    domain,
    selector: newSelector(),
    algorithm,
    publicKey: (algorithm === "rsa" ? spki : spki.subarray(-ED25519_BYTES)).toString("base64"),
  };
  const sealed = privateKey.export({ format: "der", type: "pkcs8" }).toString("base64");
  await kysely(em)
    .insertInto("dkim_keys")
    .values({
      id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      domain,
      selector: key.selector,
      algorithm,
      encrypted_private_key: vault.encrypt(sealed, sealContext("dkim_keys", "encrypted_private_key", id)),
      public_key: key.publicKey,
    })
    .execute();
  return { ...key, activeSince: null, use: "waiting", replacedAt: null };
}

export async function listKeys(em: EntityManager, tenant: Tenant, domain?: string): Promise<SendingKey[]> {
  const rows = await kysely(em)
    .selectFrom("dkim_keys")
    .select(["id", "domain", "selector", "algorithm", "public_key as publicKey", "active_since"])
    .select(
      sql<string | null>`lag(active_since) over (partition by domain, algorithm
        order by active_since desc nulls last, id desc)`.as("next_since"),
    )
    .where(ofTenant(tenant))
    .$if(domain !== undefined, (query) => query.where("domain", "=", domain ?? ""))
    .orderBy("domain")
    .orderBy("id", "desc")
    .execute();
  return rows.map(({ active_since, next_since, ...key }) => {
    const activeSince = active_since === null ? null : new Date(active_since);
    const replacedAt = activeSince === null || next_since === null ? null : new Date(next_since);
    const use = activeSince === null ? "waiting" : replacedAt === null ? "signing" : "replaced";
    return { ...key, activeSince, use, replacedAt };
  });
}

export const readKey = async (em: EntityManager, tenant: Tenant, id: string): Promise<SendingKey> =>
  orNotFound((await listKeys(em, tenant)).find((each) => each.id === id));

/** Signs in place of the present key of its algorithm, from a send's next slice on. @throws {ApiError} `not_found` */
export async function activateKey(em: EntityManager, tenant: Tenant, id: string): Promise<SendingKey> {
  const key = await readKey(em, tenant, id);
  if (key.use === "signing") return key;
  await kysely(em)
    .updateTable("dkim_keys")
    .set({ active_since: sql<string>`clock_timestamp()` })
    .where("id", "=", id)
    .where(ofTenant(tenant))
    .execute();
  return readKey(em, tenant, id);
}

/** How long a signed mail may be under way: servers try for four to five days (RFC 5321, section 4.5.4.1). */
const UNDER_WAY_DAYS = 7;
const DAY_MS = 86_400_000;

/** Until when mails that a key signed may still be under way; null for one that never signed. */
export function keptUntil({ activeSince, replacedAt }: SendingKey): string | null {
  if (activeSince === null) return null;
  return new Date((replacedAt?.getTime() ?? Date.now()) + UNDER_WAY_DAYS * DAY_MS).toISOString();
}

/** @throws {ApiError} `not_found`; `resource_state_invalid` for a key that signs, unless it is forced */
export async function removeKey(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  { force }: { force: boolean },
): Promise<SendingKey> {
  const key = await readKey(em, tenant, id);
  if (key.use === "signing" && !force) {
    const remedy = "Rotate and activate another key first, or remove it anyway (--force) and leave emails unsigned";
    throw new ApiError("resource_state_invalid", `The key signs emails from ${key.domain}. ${remedy}.`);
  }
  await kysely(em).deleteFrom("dkim_keys").where("id", "=", id).where(ofTenant(tenant)).execute();
  return key;
}

/** The key of each algorithm that was activated last. Keys of another team with the same domain are not among them. */
export const signingKeys = (em: EntityManager, tenant: Tenant, domain: string): Promise<SealedKey[]> =>
  kysely(em)
    .selectFrom("dkim_keys")
    .distinctOn("algorithm")
    .select(["id", "domain", "selector", "algorithm", "encrypted_private_key as encryptedPrivateKey"])
    .where(ofTenant(tenant))
    .where("domain", "=", domain)
    .where("active_since", "is not", null)
    .orderBy("algorithm", "desc")
    .orderBy("active_since", "desc")
    .orderBy("id", "desc")
    .execute();

/** @throws {Error} when no key opens it, so that no mail leaves without its signature */
export function openKey(vault: Vault, { id, encryptedPrivateKey, ...key }: SealedKey): DkimKey {
  const der = Buffer.from(
    vault.decrypt(encryptedPrivateKey, sealContext("dkim_keys", "encrypted_private_key", id)),
    "base64",
  );
  return { ...key, privateKey: createPrivateKey({ key: der, format: "der", type: "pkcs8" }) };
}
