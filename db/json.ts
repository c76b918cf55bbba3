import { type RawBuilder, sql } from "kysely";
import { isoInstant } from "./sql.ts";

/**
 * JSON of a `T` as text, as Postgres made it: it goes into an answer as it is. To read its values, and to write them
 * again, would cost more than all else that an answer takes.
 */
export class JsonText<T> {
  /** Only for the type: there is no such property. */
  declare readonly of: T;
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The JSON of a value, which may be there already. */
export const jsonTextOf = (value: unknown): string => (value instanceof JsonText ? value.text : JSON.stringify(value));

/** The columns of a JSON record: SQL of each value. */
export type JsonColumns<Name extends PropertyKey> = { [Column in Name]: RawBuilder<unknown> };

/** SQL: the JSON of a record, whose fields come in the order given. @param object its kind, the first field */
export function jsonRecord<T, Name extends PropertyKey = Exclude<keyof T, "object">>(
  object: string,
  fields: JsonColumns<Name>,
): RawBuilder<T> {
  const columns = Object.entries<RawBuilder<unknown>>(fields).map(([name, value]) => sql`${value} as ${sql.id(name)}`);
  return sql`(select row_to_json(r) from (select ${sql.lit(object)} as object, ${sql.join(columns)}) r)`;
}

const columnsOf = <Name extends string>(
  names: readonly Name[],
  columnOf: (name: Name) => RawBuilder<unknown>,
): JsonColumns<Name> => Object.fromEntries(names.map((name) => [name, columnOf(name)])) as JsonColumns<Name>;

/** The named columns of a row, as they are. */
export const plain = <Name extends string>(row: string, ...names: Name[]): JsonColumns<Name> =>
  columnsOf(names, (name) => sql.ref(`${row}.${name}`));

/** The named points in time of a row: ISO 8601, UTC, milliseconds. */
export const instants = <Name extends string>(row: string, ...names: Name[]): JsonColumns<Name> =>
  columnsOf(names, (name) => isoInstant(sql.ref(`${row}.${name}`)));
