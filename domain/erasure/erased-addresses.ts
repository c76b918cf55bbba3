import { randomBytes } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { lookupAddress } from "../address.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";

/** No mail server has this domain (RFC 2606). */
const ERASED_DOMAIN = "erased.invalid";

const PLACEHOLDER = new RegExp(`^erased-[0-9a-f]{20}@${ERASED_DOMAIN.replace(".", "\\.")}$`);

export const makePlaceholder = (): string => `erased-${randomBytes(10).toString("hex")}@${ERASED_DOMAIN}`;

export const isPlaceholder = (email: string): boolean => PLACEHOLDER.test(email);

/** SQL: the same of a column. */
export const holdsPlaceholder = (email: string): RawBuilder<boolean> =>
  sql<boolean>`${sql.ref(email)} like ${sql.lit(`erased-%@${ERASED_DOMAIN}`)}`;

/** The HMAC of an address, in the spelling that addresses are compared by. It differs between tenants. */
export const hashAddress = (vault: Vault, { teamId, environment }: Tenant, email: string): string =>
  vault.hash("erased-address", teamId, environment, email);

/** For the statement that writes the address. */
export const isErased = (tenant: Tenant, hash: RawBuilder<unknown>): RawBuilder<boolean> =>
  // Not `exists`: for that the planner may read all erased addresses of the tenant.
  sql<boolean>`coalesce((
    select true from erased_addresses erased where ${ofTenant(tenant, "erased")} and erased.address_hash = ${hash}), false)`;

export const personErased = (param?: string): ApiError =>
  new ApiError(
    "person_erased",
    "The person with this address asked for their data to be erased. Leave the address out, or ask the operator of the service to readmit it.",
    { param },
  );

/** @throws {ApiError} `person_erased` for an address that was erased, in any spelling */
export async function refuseErased(em: EntityManager, vault: Vault, tenant: Tenant, email: string): Promise<void> {
  const hash = hashAddress(vault, tenant, lookupAddress(email));
  const { erased } = await kysely(em)
    .selectNoFrom(isErased(tenant, sql`${hash}`).as("erased"))
    .executeTakeFirstOrThrow();
  if (erased) throw personErased("email");
}

export interface ErasedAddress {
  isNew: boolean;
  isResumed: boolean;
  /** Stands for the person in rows that stay; the same when an erasure is resumed. */
  placeholder: string;
}

/** The placeholder is random, so that it reveals nothing about the address, and kept until `completeErased`. */
export async function recordErased(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
): Promise<ErasedAddress> {
  const made = makePlaceholder();
  const { rows } = await sql<Pick<ErasedAddress, "placeholder" | "isNew">>`
    insert into erased_addresses as e (team_id, environment, address_hash, placeholder)
    values (${tenant.teamId}, ${tenant.environment}, ${hashAddress(vault, tenant, email)}, ${made})
    on conflict (team_id, environment, address_hash) do update set placeholder = coalesce(e.placeholder, excluded.placeholder)
    returning placeholder, xmax = 0 as "isNew"`.execute(kysely(em));
  const [{ placeholder, isNew } = { placeholder: made, isNew: true }] = rows;
  return { isNew, isResumed: placeholder !== made, placeholder };
}

export async function completeErased(em: EntityManager, vault: Vault, tenant: Tenant, email: string): Promise<void> {
  await kysely(em)
    .updateTable("erased_addresses")
    .set({ placeholder: null })
    .where(ofTenant(tenant))
    .where("address_hash", "=", hashAddress(vault, tenant, email))
    .execute();
}

/** The erased data stays erased. @returns false when the address was not erased */
export async function readmitAddress(em: EntityManager, vault: Vault, tenant: Tenant, email: string): Promise<boolean> {
  const { numDeletedRows } = await kysely(em)
    .deleteFrom("erased_addresses")
    .where(ofTenant(tenant))
    .where("address_hash", "=", hashAddress(vault, tenant, email))
    .executeTakeFirstOrThrow();
  return numDeletedRows > 0n;
}
