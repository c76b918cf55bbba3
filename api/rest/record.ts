import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import { type Database, type EntityManager, kysely, ofTenant, tenantOf } from "../../db/orm.ts";
import { orNotFound } from "../../domain/errors.ts";

/**
 * A record of the tenant of `em` as its list shows it, after the changes that `em` holds.
 * @param record SQL: its JSON, from the alias of its row
 * @param value of the unique column `column`
 * @throws {ApiError} `not_found`
 */
export async function readRecord<T, Table extends keyof Database & string>(
  em: EntityManager,
  table: Table,
  record: (row: string) => RawBuilder<T>,
  value: string,
  column: keyof Database[Table] & string = "id" as keyof Database[Table] & string,
): Promise<JsonText<T>> {
  await em.flush();
  const { rows } = await sql<{ record: string }>`
    select ${record("r")} as record from ${sql.table(table)} r
    where ${sql.ref(`r.${column}`)} = ${value} and ${ofTenant(tenantOf(em), "r")}`.execute(kysely(em));
  return new JsonText(orNotFound(rows[0]).record);
}
