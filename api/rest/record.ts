import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely";
import { z } from "zod";
import { instants, type JsonColumns, JsonText, jsonRecord, plain } from "../../db/json.ts";
import { type Database, type EntityManager, kysely, ofTenant, tenantOf } from "../../db/orm.ts";
import { notFound } from "../../domain/errors.ts";

type RecordShape = z.ZodRawShape & { object: z.ZodLiteral<string> };

const isInstant = (field: unknown): boolean =>
  (field instanceof z.ZodNullable ? field.unwrap() : field) instanceof z.ZodISODateTime;

/**
 * SQL: a record of a schema, from the alias of its row: each field is the column of its name.
 * @param own the SQL of other fields
 */
export function recordOf<Shape extends RecordShape>(
  schema: z.ZodObject<Shape>,
  own: (row: string) => Partial<JsonColumns<Exclude<keyof Shape, "object">>> = () => ({}),
): (row: string) => RawBuilder<z.input<z.ZodObject<Shape>>> {
  const { object, ...fields } = schema.shape;
  return (row) => {
    const given: Partial<JsonColumns<string>> = own(row);
    const columns = Object.entries(fields).map(([name, field]) => {
      const sqlOf = given[name];
      if (sqlOf) return { [name]: sqlOf };
      return isInstant(field) ? instants(row, name) : plain(row, name);
    });
    return jsonRecord(String(object.value), Object.assign({}, ...columns));
  };
}

/**
 * The record of the one row of a statement, after the changes that `em` holds.
 * @throws {ApiError} `not_found` without a row
 */
export async function readRowRecord<From extends keyof Database, Row, T>(
  em: EntityManager,
  rows: SelectQueryBuilder<Database, From, Row>,
  record: (row: string) => RawBuilder<T>,
): Promise<JsonText<T>> {
  await em.flush();
  const { shown } = await kysely(em)
    .selectFrom(rows.as("r"))
    .select(record("r").$castTo<string>().as("shown"))
    .executeTakeFirstOrThrow(() => notFound());
  return new JsonText(shown);
}

/** The same of a row of a table of the tenant of `em`, by the value of a unique column. */
export const readRecord = <T, Table extends keyof Database & string>(
  em: EntityManager,
  table: Table,
  record: (row: string) => RawBuilder<T>,
  value: string,
  column: keyof Database[Table] & string = "id" as keyof Database[Table] & string,
): Promise<JsonText<T>> =>
  readRowRecord(
    em,
    kysely(em)
      .selectFrom(table as "lists")
      .selectAll()
      .where(sql<boolean>`${sql.ref(`${table}.${column}`)} = ${value}`)
      .where(ofTenant(tenantOf(em), table)),
    record,
  );
