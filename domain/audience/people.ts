import { UniqueConstraintViolationException } from "@mikro-orm/postgresql";
import type { EntityManager } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";

export type PersonKind = "contact" | "subscriber";

export interface PersonFields {
  /** Valid, in any spelling. */
  email: string;
  firstName: string | null;
  lastName: string | null;
}

/** @param remedy what the client can do besides changing that one */
export const alreadyExists = (kind: PersonKind, remedy = "") =>
  new ApiError("resource_already_exists", `A ${kind} with this address exists; change that one${remedy}.`, {
    param: "email",
  });

/** @throws {ApiError} `resource_already_exists` */
export async function flushUnique(em: EntityManager, kind: PersonKind): Promise<void> {
  try {
    await em.flush();
  } catch (error) {
    if (error instanceof UniqueConstraintViolationException) throw alreadyExists(kind);
    throw error;
  }
}
