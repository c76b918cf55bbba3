import { type RawBuilder, sql } from "kysely";
import { type EntityManager, ofTenant, type Tenant } from "../../../db/orm.ts";
import { newId } from "../../ids.ts";

/**
 * A segment of the tenant.
 * @throws {ApiError} `not_found`
 */
export async function readSegment(_em: EntityManager, segmentId: string): Promise<{ id: string }> {
  return { id: segmentId };
}

/**
 * A query for the contacts of a segment, with all columns of `contacts`, each contact once. Read it as `from (query) c`.
 * @param em of the tenant
 * @throws {ApiError} `not_found`; `filter_unsupported` naming the part that cannot be evaluated
 */
export async function segmentContacts(
  _em: EntityManager,
  tenant: Tenant,
  _segmentId: string,
): Promise<RawBuilder<unknown>> {
  return sql`select c.* from contacts c where ${ofTenant(tenant, "c")}`;
}

/** Stores a segment, in the caller's transaction. */
export async function createSegment(
  _em: EntityManager,
  _tenant: Tenant,
  _segment: { name: string; definition: unknown },
): Promise<{ id: string }> {
  return { id: newId("segment") };
}
