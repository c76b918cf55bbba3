import { UniqueConstraintViolationException } from "@mikro-orm/postgresql";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

export type PersonKind = "contact" | "subscriber";

export interface PersonFields {
  /** Valid, in any spelling. */
  email: string;
  firstName: string | null;
  lastName: string | null;
}

/** @param remedy what the client can do besides changing that one @param id of the one that exists, where it is known */
export const alreadyExists = (kind: PersonKind, remedy = "", id?: string) =>
  new ApiError("resource_already_exists", `A ${kind} with this address exists; change that one${remedy}.`, {
    param: "email",
    record: id === undefined ? undefined : { id, scope: `${kind}s:read` },
  });

/** @param email as addresses are compared @throws {ApiError} `resource_already_exists` where a record of the kind has it */
export async function refuseTaken(
  em: EntityManager,
  tenant: Tenant,
  kind: PersonKind,
  email: string,
  remedy?: string,
): Promise<void> {
  const table = kysely(em).selectFrom(kind === "contact" ? "contacts" : "subscribers");
  const found = await table.select("id").where(ofTenant(tenant)).where("email", "=", email).executeTakeFirst();
  if (found) throw alreadyExists(kind, remedy, found.id);
}

/** An address may be taken since it was looked up. @throws {ApiError} `resource_already_exists` */
export async function flushUnique(em: EntityManager, kind: PersonKind): Promise<void> {
  try {
    await em.flush();
  } catch (error) {
    if (error instanceof UniqueConstraintViolationException) throw alreadyExists(kind);
    throw error;
  }
}
