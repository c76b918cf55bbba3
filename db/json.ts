import { type RawBuilder, sql } from "kysely";
import { isoInstant } from "./sql.ts";

/** JSON of a `T` as Postgres made it, which goes into an answer as it is: to parse it would cost more than all else. */
export class JsonText<T> {
  declare readonly of: T;
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** For an answer that is made of it in another way, such as tRPC's. */
  toJSON(): T {
    return JSON.parse(this.text);
  }
}

export const jsonTextOf = (value: unknown): string => (value instanceof JsonText ? value.text : JSON.stringify(value));

export type JsonColumns<Name extends PropertyKey> = { [Column in Name]: RawBuilder<unknown> };

/** Fields come in the order given. `row_to_json` would look up each column's type for each row. */
export function jsonRecord<T, Name extends PropertyKey = Exclude<keyof T, "object">>(
  object: string,
  fields: JsonColumns<Name>,
): RawBuilder<T> {
  const columns = Object.entries<RawBuilder<unknown>>(fields).map(
    // A lone value in `coalesce` gets a type, also if it is a literal.
    ([name, value]) =>
      sql`${sql.lit(`,${JSON.stringify(name)}:`)} || coalesce(to_json(coalesce(${value}))::text, 'null')`,
  );
  const parts = [sql.lit(`{"object":${JSON.stringify(object)}`), ...columns, sql.lit("}")];
  return sql`(${sql.join(parts, sql` || `)})`;
}

const columnsOf = <Name extends string>(names: readonly Name[], columnOf: (name: Name) => RawBuilder<unknown>) =>
  Object.fromEntries(names.map((name) => [name, columnOf(name)])) as JsonColumns<Name>;

export const plain = <Name extends string>(row: string, ...names: Name[]): JsonColumns<Name> =>
  columnsOf(names, (name) => sql.ref(`${row}.${name}`));

export const instants = <Name extends string>(row: string, ...names: Name[]): JsonColumns<Name> =>
  columnsOf(names, (name) => isoInstant(sql.ref(`${row}.${name}`)));
