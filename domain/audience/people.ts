import { UniqueConstraintViolationException } from "@mikro-orm/postgresql";
import type { EntityManager } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

/** A record of a person with an address that is unique among its kind. */
export type PersonKind = "contact" | "subscriber";

export interface PersonFields {
  /** Valid, in any spelling. */
  email: string;
  firstName: string | null;
  lastName: string | null;
}

/** The refusal of an address that another record of the kind has. @param remedy what the client can do besides a PATCH */
export const alreadyExists = (kind: PersonKind, remedy = "") =>
  new ApiError("resource_already_exists", `A ${kind} with this address exists; PATCH that one${remedy}.`, {
    param: "email",
  });

/** Writes a changed person. @throws {ApiError} `resource_already_exists` when another record of the kind has the address */
export async function flushUnique(em: EntityManager, kind: PersonKind): Promise<void> {
  try {
    await em.flush();
  } catch (error) {
    if (error instanceof UniqueConstraintViolationException) throw alreadyExists(kind);
    throw error;
  }
}
