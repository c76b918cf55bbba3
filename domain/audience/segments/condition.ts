import { type RawBuilder, type SqlBool, sql } from "kysely";
import { type EntityManager, ofTenant, type Tenant } from "../../../db/orm.ts";

/**
 * The contacts `c` of a segment, as a condition of a statement.
 * @throws {ApiError} `filter_unsupported`, naming the part of the segment that cannot be evaluated
 */
export async function segmentCondition(
  _em: EntityManager,
  tenant: Tenant,
  _segmentId: string,
): Promise<RawBuilder<SqlBool>> {
  return sql<SqlBool>`${ofTenant(tenant, "c")}`;
}
